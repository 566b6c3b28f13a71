"""Names of columns in files of other writers, found by their Parquet field ids (Protocol: Column Mapping, id mode).

Delta's own writers name columns in files as the schema does, so there names find what ids would. Files of a table that
was converted from another format keep the names that their columns had then.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from deltamerge.log.actions import AddFile
from deltamerge.log.features.column_mapping import COLUMN_ID, ID, PHYSICAL_NAME, has_generated_name
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.column_mapping import physical_field
from deltamerge.scan.column_presence import check_columns, check_names, expected_columns, footers
from deltamerge.spark.field_metadata import MetadataOf, no_metadata
from deltamerge.spark.nested_types import all_types
from deltamerge.spark.table import Table
from deltamerge.workers.table_columns import FIELD_ID, is_array


def fields_of_files(
    table: Table, snapshot: Snapshot, schema: StructType, files: Sequence[AddFile], metadata: MetadataOf = no_metadata
) -> list[tuple[tuple[StructField, ...], list[AddFile]]]:
    """Return the data columns as files have them, with the files that have them so; nearly always one entry.

    Footers are read only under id mapping, and only where a column has a physical name that no Delta writer generated.

    Args:
        metadata: With what metadata columns are read where they have their usual names.
    """
    mode = snapshot.mapping_mode
    fields = [f for f in schema.fields if f.name not in snapshot.metadata.partition_columns]
    expected = tuple(physical_field(field, mode, metadata) for field in fields)
    names = expected_columns(schema, snapshot.metadata, mode)
    if mode != ID or not any(may_be_foreign(field) for field in fields):
        check_columns(table, names, files)
        return [(expected, list(files))]
    groups: dict[str, tuple[tuple[StructField, ...], list[AddFile]]] = {}
    for file, found in zip(files, footers(table, files), strict=True):
        if any(_id(stored) is not None for stored in found):
            columns = tuple(_in_file(field, list(found)) for field in fields)
        else:
            check_names(table, names, file, found.names)
            columns = expected
        groups.setdefault(StructType(list(columns)).json(), (columns, []))[1].append(file)
    return list(groups.values())


def may_be_foreign(field: StructField) -> bool:
    """Return whether a file may have a column, or one of its fields, under another name than the physical one."""
    metadata = field.metadata
    named = COLUMN_ID not in metadata or has_generated_name(metadata.get(PHYSICAL_NAME, field.name))
    structs = (inner for inner in all_types(field.dataType) if isinstance(inner, StructType))
    return not named or any(may_be_foreign(inner) for struct in structs for inner in struct.fields)


def _id(field: pa.Field) -> int | None:
    stored = (field.metadata or {}).get(FIELD_ID)
    return None if stored is None else int(stored)


def _in_file(field: StructField, found: Sequence[pa.Field]) -> StructField:
    """Return a column as a file has it, one without an id by its name; a missing one gets an unused name."""
    wanted = field.metadata.get(COLUMN_ID)
    if wanted is None:
        return physical_field(field, ID)
    same = next((one for one in found if _id(one) == wanted), None)
    if same is not None:
        return StructField(same.name, _type_in_file(field.dataType, same.type), True)
    absent = physical_field(field, ID)
    names = {one.name.lower() for one in found}
    name = absent.name
    while name.lower() in names:
        name += "_"
    return StructField(name, absent.dataType, True)


def _type_in_file(data_type: DataType, found: pa.DataType) -> DataType:
    if isinstance(data_type, StructType) and pa.types.is_struct(found):
        return StructType([_in_file(field, list(found)) for field in data_type.fields])
    if isinstance(data_type, ArrayType) and is_array(found):
        return ArrayType(_type_in_file(data_type.elementType, found.value_type), True)
    if isinstance(data_type, MapType) and pa.types.is_map(found):
        return MapType(
            _type_in_file(data_type.keyType, found.key_type),
            _type_in_file(data_type.valueType, found.item_type),
            True,
        )
    return data_type
