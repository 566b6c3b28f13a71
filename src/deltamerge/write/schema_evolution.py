"""Schema evolution: a table's schema with columns and fields of the rows that it gets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import types as T

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.actions import Metadata
from deltamerge.log.features.column_mapping import check_names, with_column_ids
from deltamerge.log.features.type_widening import (
    NEVER,
    PREVIEW,
    SMALL_INTEGERS,
    STABLE,
    can_widen,
    widening_mode,
    with_type_changes,
)
from deltamerge.log.protocol import features, writer_features
from deltamerge.log.schema import parse_schema, schema_to_json
from deltamerge.log.snapshot import Snapshot
from deltamerge.spark.config import MergeConf
from deltamerge.spark.field_metadata import frame_metadata
from deltamerge.spark.nested_types import as_nullable, inner_types, matching_inner_types, nullable_field, with_inner
from deltamerge.write.align import find_field, same_name, unknown_fields
from deltamerge.write.char_varchar import as_strings
from deltamerge.write.definition import TableDefinition, check_definition
from deltamerge.write.dependents import check_dependents
from deltamerge.write.stored_schema import schema_to_write
from deltamerge.write.table_features import check_evolution

_TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)


def evolved_definition(
    snapshot: Snapshot, definition: TableDefinition, given: T.StructType, conf: MergeConf, *, converts: bool
) -> TableDefinition:
    """Add to a table's definition the columns and fields of a frame that is written to it, and its wider types.

    Args:
        converts: Whether values are converted to the types that the table's columns have; else wider INTs make a
            SMALLINT or TINYINT column wider, as in delta-spark.
    """
    present = features(snapshot.protocol)
    widening = widening_mode(definition.properties, present, conf.allow_automatic_widening)
    if widening == NEVER and not converts:
        widening = SMALL_INTEGERS
    used = ((name,) for name in given.names)
    schema = evolved_schema(definition.schema, given, used, case_sensitive=False, widening=widening)
    if schema == definition.schema:
        return definition
    # Files leave columns without a type out, but not parts of columns.
    refuse_void(path for path in new_void(definition.schema, schema) if len(path) > 1)
    check_definition(replace(definition, schema=schema))
    metadata = evolved_metadata(snapshot, schema, definition.properties)
    schema = T.StructType.fromJson(json.loads(metadata.schema_string or ""))
    return replace(definition, schema=schema, properties=metadata.configuration)


def automatic_widening(snapshot: Snapshot, conf: MergeConf) -> str:
    """Return how far a merge may widen a table's types."""
    return widening_mode(snapshot.metadata.configuration, features(snapshot.protocol), conf.allow_automatic_widening)


def evolved_metadata(snapshot: Snapshot, schema: T.StructType, configuration: Mapping[str, str]) -> Metadata:
    """Return a table's metadata with an evolved schema.

    New fields have the ids and physical names that files will know them by, wider ones their type changes.
    """
    check_evolution(snapshot, schema)
    check_dependents(schema_to_write(snapshot), schema, configuration)
    evolved = parse_schema(json.dumps(schema.jsonValue()))
    check_names(evolved, configuration)
    listed = writer_features(snapshot.protocol)
    if STABLE in listed or PREVIEW in listed:
        evolved = with_type_changes(snapshot.schema, evolved, snapshot.version + 1 if PREVIEW in listed else None)
    metadata = replace(snapshot.metadata, schema_string=schema_to_json(evolved), configuration=dict(configuration))
    return with_column_ids(metadata)


def evolved_schema(
    target: T.StructType,
    source: T.StructType,
    used: Iterable[tuple[str, ...]],
    case_sensitive: bool,
    widening: str = NEVER,
) -> T.StructType:
    """Add to a table's schema the source's columns and fields that a merge uses.

    New columns come last, in the source's order. Delta: SchemaMergingUtils.mergeSchemas.

    Args:
        used: Paths of the columns and fields that assignments name; one of a single part takes the whole column.
        widening: How far types may be widened, such as ``never``; see `can_widen`.
    """
    return _Merging(widening).struct(target, _filtered(source, tuple(used), case_sensitive), ())


def _filtered(source: T.StructType, used: tuple[tuple[str, ...], ...], case_sensitive: bool) -> T.StructType:
    kept = []
    for field in source.fields:
        below = [path[1:] for path in used if same_name(path[0], field.name, case_sensitive)]
        if () in below:
            kept.append(field)
        elif below and isinstance(field.dataType, T.StructType):
            inner = _filtered(field.dataType, tuple(path for path in below if path), case_sensitive)
            kept.append(T.StructField(field.name, inner, field.nullable, field.metadata))
    return T.StructType(kept)


def check_known(given: T.StructType, table: T.StructType, name: str) -> None:
    """Refuse rows with columns or fields that a table lacks."""
    unknown = unknown_fields(given, table, case_sensitive=False)
    if unknown:
        raise _mismatch(
            f"the frame has columns that table {name} lacks: {', '.join(unknown)}. Leave them out, or add them"
        )


def _mismatch(problem: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTA_METADATA_MISMATCH",
        f"A schema mismatch detected when writing to the Delta table: {problem}: .option('mergeSchema', 'true'), or "
        "spark.databricks.delta.schema.autoMerge.enabled for the session. To replace the table's schema: "
        ".mode('overwrite').option('overwriteSchema', 'true'), or write_delta with mode='overwrite', "
        "overwrite_schema=True.",
    )


def check_mergeable(given: T.StructType, table: T.StructType, name: str) -> None:
    """Refuse columns and fields whose type is neither the table's nor one whose every value the table's type has.

    Delta: SchemaMergingUtils.mergeSchemas, which refuses wider types, too.

    Args:
        given: Rows that are written by `save`; names that only they have are not looked at.
        name: The table's.
    """
    _check_mergeable(as_strings(given), table, (), name)


def _check_mergeable(given: T.DataType, wanted: T.DataType, path: tuple[str, ...], table: str) -> None:
    if isinstance(given, T.StructType) and isinstance(wanted, T.StructType):
        for field in given.fields:
            index = find_field(wanted, field.name, case_sensitive=False)
            if index is not None:
                _check_mergeable(field.dataType, wanted.fields[index].dataType, (*path, field.name), table)
        return
    inner = matching_inner_types(given, wanted)
    for part, one, other in inner:
        _check_mergeable(one, other, (*path, part), table)
    before, after, shown = given.simpleString(), wanted.simpleString(), ".".join(path)
    if inner or isinstance(given, T.NullType) or before == after:
        return
    if isinstance(wanted, T.NullType):
        raise _mismatch(f"column {shown} of table {table} has no type yet. Give it that of the frame's, {before}")
    if can_widen(_log_name(wanted), _log_name(given), SMALL_INTEGERS):
        raise _mismatch(f"column {shown} is {before} in the frame and {after} in table {table}. Cast it, or widen it")
    is_plain = isinstance(given, T.AtomicType) and isinstance(wanted, T.AtomicType)
    if not (is_plain and can_widen(str(given.jsonValue()), str(wanted.jsonValue()))):
        raise DeltaAnalysisException(
            "DELTA_FAILED_TO_MERGE_FIELDS",
            f"Failed to merge fields '{shown}' and '{shown}': column {shown} is {before} in the frame and {after} in "
            f"table {table}. Cast it: df.withColumn('{path[0]}', …). To convert values as an INSERT does, write with "
            "saveAsTable, insertInto or deltamerge.write_delta.",
            parameters={"currentField": shown, "updateField": shown},
        )


@dataclass(frozen=True)
class _Merging:
    """Names are compared without case, also where the session distinguishes it: no table has both `a` and `A`."""

    widening: str

    def struct(self, target: T.StructType, source: T.StructType, above: tuple[str, ...]) -> T.StructType:
        fields = []
        for field in target.fields:
            index = find_field(source, field.name, case_sensitive=False)
            merged = field.dataType
            if index is not None:
                merged = self.type(field.dataType, source.fields[index].dataType, (*above, field.name))
            fields.append(T.StructField(field.name, merged, field.nullable, field.metadata))
        added = (field for field in source.fields if find_field(target, field.name, case_sensitive=False) is None)
        # Nothing of the table that they are of.
        return T.StructType([*fields, *(nullable_field(field, frame_metadata) for field in added)])

    def type(self, target: T.DataType, source: T.DataType, above: tuple[str, ...]) -> T.DataType:
        if isinstance(target, T.StructType) and isinstance(source, T.StructType):
            return self.struct(target, source, above)
        inner = with_inner(target, source, lambda one, other, name: self.type(one, other, (*above, name)))
        if inner is not None:
            return inner
        if isinstance(target, T.NullType):
            return as_nullable(source, frame_metadata)
        nested = (T.StructType, T.ArrayType, T.MapType)
        if isinstance(target, nested) != isinstance(source, nested) and not isinstance(source, T.NullType):
            raise _incompatible(target, source, above)
        if isinstance(target, nested):
            if not isinstance(source, (type(target), T.NullType)):
                raise _incompatible(target, source, above)
            return target
        if can_widen(_log_name(target), _log_name(source), self.widening):
            return source
        if not _is_convertible(source, target):
            raise _incompatible(target, source, above)
        return target


def _log_name(data_type: T.DataType) -> str:
    return str(data_type.jsonValue())


def _is_convertible(source: T.DataType, target: T.DataType) -> bool:
    """Return whether schemas with these types of a column can be merged: as Spark casts by itself outside ANSI mode.

    Delta: SchemaMergingUtils.mergeSchemas with allowImplicitConversions.
    """
    if isinstance(source, T.NullType) or type(source) is type(target) or isinstance(target, T.StringType):
        return True
    if isinstance(target, T.NumericType):
        return isinstance(source, (T.NumericType, T.StringType))
    if isinstance(target, _TIMES):
        return isinstance(source, (*_TIMES, T.StringType))
    return isinstance(target, T.BinaryType) and isinstance(source, T.StringType)


def _incompatible(target: T.DataType, source: T.DataType, path: tuple[str, ...]) -> DeltaAnalysisException:
    # Of a field, too, the error is that of its column. Delta: SchemaMergingUtils.mergeDataTypes.
    column = path[0]
    return DeltaAnalysisException(
        "DELTA_FAILED_TO_MERGE_FIELDS",
        f"Failed to merge fields '{column}' and '{column}': {'.'.join(path)} is {target.simpleString()} in the table "
        f"and {source.simpleString()} in the source. Give the source's column the target's type.",
        parameters={"currentField": column, "updateField": column},
    )


def new_void(before: T.DataType | None, after: T.DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of columns and fields of type VOID, elements, keys and values, that a schema has more."""
    if isinstance(after, T.NullType) and not isinstance(before, T.NullType):
        yield path
    known = {} if before is None or type(before) is not type(after) else dict(inner_types(before))
    for name, inner in inner_types(after):
        yield from new_void(known.get(name), inner, (*path, name))


def refuse_void(paths: Iterable[tuple[str, ...]]) -> None:
    for path in paths:
        name = ".".join(path)
        raise DeltaAnalysisException(
            "DELTA_MERGE_ADD_VOID_COLUMN",
            f"Cannot add column `{name}` with type VOID. Please explicitly specify a non-void type, as in "
            f"CAST(NULL AS STRING) AS {name}.",
            parameters={"newColumn": name},
        )
