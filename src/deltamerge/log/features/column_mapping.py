"""Column mapping: the names and ids by which data files, statistics and partition values know a column.

Source: Delta protocol, "Column Mapping".
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltamerge.exceptions import DeltaAnalysisException, DeltaLogCorruptException, DeltaUnsupportedFeatureException
from deltamerge.log.actions import Metadata
from deltamerge.log.file_table import FileTable
from deltamerge.log.paths import decode_path
from deltamerge.log.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    lower_case,
    parse_schema,
    schema_to_json,
    with_each_field,
)
from deltamerge.storage.store import Store

MODE = "delta.columnMapping.mode"
MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
COLUMN_ID = "delta.columnMapping.id"
PHYSICAL_NAME = "delta.columnMapping.physicalName"

NONE, NAME, ID = "none", "name", "id"

_GENERATED = re.compile(r"col-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def mapping_mode(configuration: Mapping[str, str]) -> str:
    """Return a table's column mapping mode: ``none``, ``name`` or ``id``."""
    mode = configuration.get(MODE, NONE).lower()
    if mode in (NONE, NAME, ID):
        return mode
    raise DeltaAnalysisException(
        "DELTAMERGE_UNKNOWN_COLUMN_MAPPING_MODE",
        f"The table property {MODE} is '{mode}'. Known are none, name and id.",
        parameters={"mode": mode},
    )


def physical_name(field: StructField) -> str:
    """Return the name that files, statistics and partition values use for a column of a mapped table."""
    name = field.metadata.get(PHYSICAL_NAME)
    return name if isinstance(name, str) else field.name


def has_generated_name(physical: str) -> bool:
    """Return whether a column came to its table when this mapped columns, by a Delta writer."""
    return _GENERATED.fullmatch(physical) is not None


def may_have_lost_oldest(schema: StructType, metadata: Metadata) -> bool:
    """Return whether a column may have been dropped that was there before all data columns that are left.

    Ids are given out by age, but to the columns that a table has when it begins to map columns by their places.
    """
    last = max(_number(metadata.configuration.get(MAX_COLUMN_ID)), _max_id(schema))
    data = [field for field in schema.fields if field.name not in metadata.partition_columns]
    by_age = [_number(field.metadata.get(COLUMN_ID)) for field in data if has_generated_name(physical_name(field))]
    present = {_number(field.metadata.get(COLUMN_ID)) for _, field in schema.walk()}
    return bool(data) and not present.issuperset(range(1, min(by_age, default=last + 1)))


def physical_schema(schema: StructType, mode: str) -> StructType:
    """Return a schema whose physical names count: without mapping no field has one of its own."""
    return without_mapping(schema) if mode == NONE else schema


def without_mapping(schema: StructType) -> StructType:
    def unmapped(_: tuple[str, ...], field: StructField) -> StructField:
        others = {k: value for k, value in field.metadata.items() if k not in (COLUMN_ID, PHYSICAL_NAME)}
        return replace(field, metadata=others)

    return with_each_field(schema, unmapped)


def is_stored_alike(one: StructType, other: StructType) -> bool:
    """Return whether what two versions of a schema both name is the same in files: not dropped and added anew."""
    names = {lower_case(path): physical_name(field) for path, field in other.walk()}
    return all(names.get(lower_case(path), physical_name(field)) == physical_name(field) for path, field in one.walk())


def with_own_names(schema: StructType) -> StructType:
    """Return a schema whose fields have their names as physical names, as files of a table without mapping have."""
    return with_each_field(
        schema, lambda _, field: replace(field, metadata={PHYSICAL_NAME: field.name, **field.metadata})
    )


def with_column_ids(metadata: Metadata, before: StructType | None = None) -> Metadata:
    """Add the ids and physical names that fields lack, and the highest id, where the table maps columns.

    Delta: DeltaColumnMapping.assignColumnIdAndPhysicalName. A column that is the same in `before`, the schema that
    is overwritten, keeps its id and name.
    """
    if mapping_mode(metadata.configuration) == NONE:
        return metadata
    schema = parse_schema(metadata.schema_string)
    last = max(_number(metadata.configuration.get(MAX_COLUMN_ID)), _max_id(schema), _max_id(before))
    old = {lower_case(path): field for path, field in before.walk()} if before is not None else {}

    def mapped(path: tuple[str, ...], field: StructField) -> StructField:
        nonlocal last
        same = old.get(lower_case(path))
        if same is not None and _kind(same.data_type) == _kind(field.data_type):
            kept = {key: value for key, value in same.metadata.items() if key in (COLUMN_ID, PHYSICAL_NAME)}
            field = replace(field, metadata={**kept, **field.metadata})
        added: dict[str, int | str] = {}
        if COLUMN_ID not in field.metadata:
            last += 1
            added[COLUMN_ID] = last
        if PHYSICAL_NAME not in field.metadata:
            added[PHYSICAL_NAME] = f"col-{uuid.uuid4()}"
        return replace(field, metadata={**field.metadata, **added})

    return replace(
        metadata,
        schema_string=schema_to_json(with_each_field(schema, mapped)),
        configuration={**metadata.configuration, MAX_COLUMN_ID: str(last)},
    )


def invalid_names(schema: StructType) -> list[str]:
    """Return the paths of the fields whose names need column mapping, such as those with spaces."""
    return [".".join(path) for path, field in schema.walk() if any(c in " ,;{}()\n\t=" for c in field.name)]


def check_names(schema: StructType, configuration: Mapping[str, str]) -> None:
    """Refuse names that need column mapping in a table without it."""
    wrong = invalid_names(schema)
    if wrong and mapping_mode(configuration) == NONE:
        raise DeltaAnalysisException(
            "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES",
            "Found invalid character(s) among ' ,;{}()\\n\\t=' in the column names of your schema. Invalid column "
            f"names: {', '.join(wrong)}. Use other characters, or map columns: {MODE} = name.",
            parameters={"invalidColumnNames": ", ".join(wrong)},
        )


def _kind(data_type: DataType) -> object:
    """Return what must stay of a type for its column to stay the same: all of a primitive one."""
    nested = (StructType, ArrayType, MapType)
    return type(data_type) if isinstance(data_type, nested) else data_type


def _max_id(schema: StructType | None) -> int:
    if schema is None:
        return 0
    return max((_number(field.metadata.get(COLUMN_ID)) for _, field in schema.walk()), default=0)


def _number(value: object) -> int:
    return int(value) if isinstance(value, (int, str)) and str(value).isdecimal() else 0


def are_mapped(store: Store, schema: StructType, partition_columns: Sequence[str], files: FileTable) -> bool:
    """Return whether files know columns by their physical names, from the first and the last of them."""
    # Columns that were there before the table was mapped have one name for both.
    names = {f.name: physical_name(f) for f in schema.fields if f.name != physical_name(f)}
    if files.num_files == 0 or not names:
        return False
    found = set(partition_keys(files.arrow)) if partition_columns else set()
    for file in files.take(sorted({0, files.num_files - 1})).add_files():
        with store.open_input(decode_path(file.path)) as source:
            found |= set(pq.ParquetFile(source).schema_arrow.names)
    logical, physical = not found.isdisjoint(names), not found.isdisjoint(names.values())
    if logical != physical:
        return physical
    kinds = "of both kinds" if logical else "of neither kind"
    raise DeltaUnsupportedFeatureException(
        "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH",
        f"Unable to operate on table {store.root}: its property {MODE} asks for column mapping, its protocol does not "
        f"list it, and its data files have names {kinds}, so that columns would be read as NULL. Nothing was read or "
        "written; add the feature columnMapping to the table with the engine that wrote it, or copy the table.",
        parameters={"features": "columnMapping"},
    )


def check_partition_keys(files: pa.Table, expected: Iterable[str], root: str) -> None:
    """Refuse files whose partition values are those of other columns: the table's would be NULL."""
    expected = frozenset(expected)
    unknown = [key for key in partition_keys(files) if key not in expected]
    if not unknown:
        return
    # Arrow keeps the keys of rows that a slice leaves out.
    for path, values in zip(files["path"].to_pylist(), files["partition_values"].to_pylist(), strict=True):
        wrong = sorted(key for key, _ in values or () if key not in expected)
        if wrong:
            raise DeltaLogCorruptException(
                "DELTAMERGE_UNKNOWN_PARTITION_COLUMN",
                f"The log of table {root} has partition values of {', '.join(wrong)} for the file {path}, but the "
                f"table's partition columns are {', '.join(sorted(expected))} there: their values would be read as "
                "NULL. Nothing was read; write the file again with the engine that wrote it.",
                parameters={"path": path, "columns": ", ".join(wrong)},
            )


def partition_keys(files: pa.Table) -> list[str]:
    keys = [chunk.keys for chunk in files["partition_values"].chunks]
    found: list[str] = pc.unique(pa.chunked_array(keys, pa.string())).to_pylist()
    return found
