"""Definitions of new tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import types as T
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.features.clustering import MOST_COLUMNS
from deltamerge.log.features.column_mapping import check_names
from deltamerge.log.schema import lower_case, parse_schema
from deltamerge.skipping.indexed import IndexedColumns, leaves_of
from deltamerge.spark.nested_types import all_types, inner_types
from deltamerge.sql.names import shown_name
from deltamerge.sql.statements.ast import ColumnDefinition
from deltamerge.write.defaults import CURRENT_DEFAULT
from deltamerge.write.generated_columns import GENERATION_EXPRESSION
from deltamerge.write.identity_columns import identity_metadata

# Types whose bounds let files be skipped. Delta: SkippingEligibleDataType.
_ORDERED = (NumericType, StringType, DateType, TimestampType, TimestampNTZType)


_NEVER_PARTITIONS = (T.NullType, ArrayType, MapType, StructType, T.VariantType, T.UserDefinedType)
_TYPE_CHECK = "spark.databricks.delta.schema.typeCheck.enabled"
_SUPPORTED = (
    T.NullType,
    T.BooleanType,
    T.NumericType,
    T.CharType,
    T.VarcharType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.VariantType,
)


@dataclass(frozen=True)
class TableDefinition:
    """What a table is to be; `description` is its comment, `name` its name in the log."""

    schema: StructType
    partition_columns: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    clustered_by: tuple[tuple[str, ...], ...] = ()
    name: str | None = None


def as_spelled(definition: TableDefinition) -> TableDefinition:
    """Return a definition with partition and clustering columns as the schema spells them."""
    columns = {lower_case(path): path for path, _ in parse_schema(definition.schema.json()).walk()}
    return replace(
        definition,
        partition_columns=tuple(columns.get((name.lower(),), (name,))[0] for name in definition.partition_columns),
        clustered_by=tuple(columns.get(lower_case(path), path) for path in definition.clustered_by),
    )


def check_partition_columns(given: tuple[str, ...] | None, columns: tuple[str, ...], table: str) -> None:
    """Refuse other partition columns than a table has; None for what it has."""
    if given is not None and [name.lower() for name in given] != [name.lower() for name in columns]:
        raise DeltaAnalysisException(
            "DELTA_METADATA_MISMATCH",
            f"Partition columns do not match the partition columns of the table {table}: given {list(given)}, the "
            f"table has {list(columns)}. To replace them: .mode('overwrite').option('overwriteSchema', 'true'), or "
            "write_delta with mode='overwrite', overwrite_schema=True.",
        )


def _check_partitions_once(names: tuple[str, ...]) -> None:
    """Refuse a partition column that is named twice, perhaps by its name in another case."""
    repeated = ", ".join(f"`{name}`" for name, count in Counter(map(str.lower, names)).items() if count > 1)
    if repeated:
        raise DeltaAnalysisException(
            "DELTA_DUPLICATE_COLUMNS_FOUND.PARTITION_COLUMNS",
            f"Found duplicate column(s): {repeated}. The duplicate was found in the partition columns. Name each once. "
            "Nothing was written.",
            parameters={"duplicateCols": repeated},
        )


def check_definition(definition: TableDefinition) -> None:
    check_types(definition.schema)
    check_names(parse_schema(json.dumps(definition.schema.jsonValue())), definition.properties)
    check_duplicates(definition.schema)
    _check_partitions_once(definition.partition_columns)
    for name in definition.partition_columns:
        if name not in definition.schema.names:
            raise DeltaAnalysisException(
                "DELTA_PARTITION_COLUMN_NOT_FOUND",
                f"Partition column `{name}` is not among the table's columns: {', '.join(definition.schema.names)}.",
            )
        kind = definition.schema[name].dataType
        if isinstance(kind, _NEVER_PARTITIONS):
            raise DeltaAnalysisException(
                "DELTA_INVALID_PARTITION_COLUMN_TYPE",
                f"Using column {name} of type {kind.simpleString().upper()} as a partition column is not supported. "
                "Partition by a column whose values can be strings. Nothing was written.",
                parameters={"name": name, "dataType": kind.simpleString().upper()},
            )
    check_clustering(definition)
    if definition.schema.fields and len(definition.partition_columns) == len(definition.schema.fields):
        raise DeltaAnalysisException(
            "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION",
            "Cannot use all columns for partition columns: data files would have no column left.",
        )


def check_duplicates(schema: StructType) -> None:
    """Refuse columns, or fields of one struct, whose names differ by case alone, as a session may allow."""
    for struct in all_types(schema):
        counts = Counter(name.lower() for name in struct.names) if isinstance(struct, StructType) else Counter[str]()
        repeated = ", ".join(name for name, count in counts.items() if count > 1)
        if repeated:
            raise DeltaAnalysisException(
                "DELTA_DUPLICATE_COLUMNS_FOUND",
                f"Found duplicate column(s): {repeated}. Names must differ by more than case: rename one. Nothing was "
                "written.",
                parameters={"duplicateCols": repeated},
            )


def check_nested_not_null(schema: StructType) -> None:
    """Refuse NOT NULL inside of arrays and maps, which nothing enforces.

    Delta: SchemaUtils.removeUnenforceableNotNullConstraints.
    """
    for column in schema.fields:
        for path, kind in _repeated((column.name,), column.dataType):
            for name, inner in inner_types(kind):
                structs = (each for each in all_types(inner) if isinstance(each, StructType))
                if not all(field.nullable for each in structs for field in each.fields):
                    raise DeltaAnalysisException(
                        "DELTA_NESTED_NOT_NULL_CONSTRAINT",
                        f"The {name} type of the field {shown_name(path)} contains a NOT NULL constraint, which Delta "
                        "does not support within arrays or maps. Leave it out.",
                        parameters={"nestType": name, "parent": shown_name(path)},
                    )


def _repeated(path: tuple[str, ...], kind: DataType) -> Iterator[tuple[tuple[str, ...], DataType]]:
    """Yield the arrays and maps in a column that are in no other, with their paths."""
    if isinstance(kind, (ArrayType, MapType)):
        yield path, kind
    elif isinstance(kind, StructType):
        for each in kind.fields:
            yield from _repeated((*path, each.name), each.dataType)


def check_clustering(definition: TableDefinition) -> None:
    if definition.clustered_by and definition.partition_columns:
        raise DeltaAnalysisException(
            "DELTA_CLUSTER_BY_WITH_PARTITIONED_BY",
            "Clustering and partitioning cannot both be specified. Leave out partitionedBy or clusterBy.",
        )
    if len(definition.clustered_by) > MOST_COLUMNS:
        raise DeltaAnalysisException(
            "DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS",
            f"CLUSTER BY supports up to {MOST_COLUMNS} clustering columns, but the table has "
            f"{len(definition.clustered_by)}. Please remove the extra clustering columns.",
        )
    _check_clustering_columns(definition)
    log_schema = parse_schema(definition.schema.json())
    indexed = IndexedColumns.of(log_schema, definition.partition_columns, definition.properties)
    physical = physical_paths(definition.schema)
    missing = [shown_name(path) for path in definition.clustered_by if physical[path] not in indexed.paths]
    if missing:
        raise DeltaAnalysisException(
            "DELTA_CLUSTERING_COLUMN_MISSING_STATS",
            f"Clustering requires clustering columns to have stats. Couldn't find clustering column(s) "
            f"'{', '.join(missing)}' among the columns with statistics.",
        )


def _check_clustering_columns(definition: TableDefinition) -> None:
    paths = definition.clustered_by
    twice = sorted({shown_name(path) for path in paths if paths.count(path) > 1})
    if twice:
        raise DeltaAnalysisException(
            "DELTA_DUPLICATE_COLUMNS_FOUND.CLUSTER_BY",
            f"Found duplicate column(s) in CLUSTER BY: {', '.join(twice)}.",
            parameters={"duplicateCols": ", ".join(twice)},
        )
    types = {path: _type_at(definition.schema, path) for path in paths}
    unordered = [
        f"{shown_name(path)}:{kind.simpleString()}" for path, kind in types.items() if not isinstance(kind, _ORDERED)
    ]
    if unordered:
        raise DeltaAnalysisException(
            "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED",
            f"CLUSTER BY is not supported because the following column(s): {', '.join(unordered)} don't support data "
            "skipping.",
            parameters={"columnsWithDataTypes": ", ".join(unordered)},
        )


def _type_at(schema: StructType, path: tuple[str, ...]) -> DataType:
    found: DataType = schema
    for part in path:
        field = next((f for f in found.fields if f.name == part), None) if isinstance(found, StructType) else None
        if field is None:
            names = ", ".join(schema.names)
            raise DeltaAnalysisException(
                "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
                f"Unable to find the column '{shown_name(path)}' given [{names}].",
                parameters={"columnName": shown_name(path), "tableColumns": names},
            )
        found = field.dataType
    return found


def physical_paths(schema: StructType) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return the paths of columns and struct fields in files by their paths in the table."""
    return {leaf.names: leaf.path for leaf in leaves_of(parse_schema(schema.json()))}


def definition_field(column: ColumnDefinition) -> StructField:
    """Return a column of CREATE or ALTER TABLE, or a field under its last name, as a field of Spark's."""
    metadata: dict[str, Any] = {}
    if column.comment is not None:
        metadata["comment"] = column.comment
    if column.default is not None:
        metadata[CURRENT_DEFAULT] = column.default
    if column.generated is not None:
        metadata[GENERATION_EXPRESSION] = column.generated
    if column.identity is not None:
        start, step, by_default = column.identity
        metadata |= identity_metadata(start, step, allow_explicit_insert=by_default)
    return StructField(column.name[-1], DataType.fromDDL(column.data_type), column.nullable, metadata)


def check_types(schema: T.StructType) -> None:
    """Refuse a schema with columns or fields of types that Delta lacks."""
    found = [f"{path}: {data_type.simpleString().upper()}" for path, data_type in _unsupported(schema, "")]
    if found:
        listed = f"[{', '.join(found)}]"
        raise DeltaAnalysisException(
            "DELTA_UNSUPPORTED_DATA_TYPES",
            f"Found columns using unsupported data types: {listed}. Cast them to types that Delta has: intervals and "
            "times to BIGINT or STRING, strings with a collation to STRING COLLATE UTF8_BINARY.",
            parameters={"dataTypeList": listed, "config": _TYPE_CHECK},
        )


def _unsupported(data_type: T.DataType, path: str) -> Iterator[tuple[str, T.DataType]]:
    """Delta: SchemaUtils.findUnsupportedDataTypes."""
    if isinstance(data_type, T.StructType):
        for field in data_type.fields:
            yield from _unsupported(field.dataType, f"{path}.{field.name}" if path else field.name)
    elif isinstance(data_type, T.ArrayType):
        yield from _unsupported(data_type.elementType, f"{path}[]")
    elif isinstance(data_type, T.MapType):
        yield from _unsupported(data_type.keyType, f"{path}[key]")
        yield from _unsupported(data_type.valueType, f"{path}[value]")
    elif isinstance(data_type, T.UserDefinedType):
        yield from _unsupported(data_type.sqlType(), path)
    elif not (data_type == T.StringType() or isinstance(data_type, _SUPPORTED)):
        yield path, data_type
