"""ALTER TABLE: columns and fields added, dropped, renamed, changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql.types import DataType, StructField, StructType

from deltamerge.commands.alter_properties import EVERYTHING_READ, count_where
from deltamerge.commands.committing import NOTHING_READ, commit_command
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.actions import Action, Metadata, compact_json
from deltamerge.log.features.column_mapping import NONE, check_names, with_column_ids
from deltamerge.log.features.type_widening import ALWAYS, PREVIEW, can_widen, widening_mode, with_type_changes
from deltamerge.log.protocol import writer_features
from deltamerge.log.schema import DataType as LogType
from deltamerge.log.schema import (
    Fields,
    JsonValue,
    PrimitiveType,
    column_not_found,
    find_field,
    find_parent,
    lower_case,
    parse_schema,
    parts,
    placed,
    schema_to_json,
    simple_string,
    with_fields,
    with_parts,
)
from deltamerge.log.schema import StructField as LogField
from deltamerge.log.schema import StructType as LogStruct
from deltamerge.log.snapshot import Snapshot
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.skipping.indexed import STATS_COLUMNS, split_columns
from deltamerge.spark import columns as F
from deltamerge.spark.length_limits import gathered_limits, spread_limits
from deltamerge.spark.table import Table, spark_schema
from deltamerge.sql.names import quote, quote_name, shown_name
from deltamerge.sql.statements.ast import ChangeColumn, ColumnDefinition, Position
from deltamerge.write.char_varchar import as_strings, may_become
from deltamerge.write.constraints import CHECK_PREFIX
from deltamerge.write.defaults import CURRENT_DEFAULT, check_defaults
from deltamerge.write.definition import check_nested_not_null, definition_field
from deltamerge.write.dependents import check_dependents, dependents_on
from deltamerge.write.identity_columns import IDENTITY, identity_change
from deltamerge.write.table_features import check_evolution, evolved_protocol

_COMMENT = "comment"


def add_columns(table: Table, columns: Sequence[ColumnDefinition]) -> None:
    """Add columns, NULL in the rows that are there. Delta: AlterTableAddColumnsDeltaCommand."""
    snapshot = table.snapshot_to_write()
    schema, fields = _spread_schema(snapshot), [definition_field(column) for column in columns]
    logged = []
    for column, given in zip(columns, fields, strict=True):
        field = _to_log(given)
        _check_new(field, column.name[:-1])
        parent = find_parent(schema, column.name[:-1]) if column.name[:-1] else ()
        _check_absent(schema, (*parent, field.name))
        schema = with_fields(schema, parent, partial(_placed, field=field, position=column.position))
        logged.append({"column": described_column(parent, _as_given(field)), **_described_place(column.position)})
    check_names(schema, snapshot.metadata.configuration)
    check_evolution(snapshot, StructType(fields))
    check_nested_not_null(StructType(fields))
    parameters = {"columns": compact_json(logged)}
    actions: list[Action] = [_with_schema(snapshot, schema)]
    protocol = evolved_protocol(snapshot, StructType(fields))
    if protocol != snapshot.protocol:
        actions.insert(0, protocol)
    commit_command(table, snapshot, "ADD COLUMNS", parameters, actions)


def _placed(fields: Fields, field: LogField, position: Position) -> Fields:
    """Return fields with one more, or with another one of its name, at a place; by default at the end, or its own."""
    if position is None and any(other.name == field.name for other in fields):
        return tuple(field if other.name == field.name else other for other in fields)
    others = tuple(other for other in fields if other.name != field.name)
    after = position[-1] if isinstance(position, tuple) else None
    return placed(others, field, after, first=position == "FIRST")


def _described_place(position: Position) -> dict[str, str]:
    if position is None:
        return {}
    return {"position": "FIRST" if position == "FIRST" else f"AFTER {position[-1]}"}


def _check_new(field: LogField, parent: tuple[str, ...]) -> None:
    if not field.nullable:
        raise _not_allowed("NOT NULL in ALTER TABLE ADD COLUMNS", "Rows that are there have NULL in a new column.")
    if CURRENT_DEFAULT in field.metadata:
        raise DeltaAnalysisException(
            "WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED",
            "Failed to execute the command because DEFAULT values are not supported when adding new columns to "
            f"previously existing Delta tables; please add the column {'.'.join((*parent, field.name))} without a "
            "default value first, then run ALTER TABLE ALTER COLUMN SET DEFAULT for future inserted rows.",
        )


def _check_absent(schema: LogStruct, path: tuple[str, ...]) -> None:
    if _is_in(schema, path):
        raise DeltaAnalysisException(
            "DELTA_DUPLICATE_COLUMNS_FOUND",
            f"Found duplicate column(s): {'.'.join(path)}. The table has it already.",
            parameters={"duplicateCols": ".".join(path)},
        )


def drop_columns(table: Table, paths: Sequence[Sequence[str]], *, if_exists: bool) -> None:
    """Drop columns of a table that maps them; its files stay. Delta: AlterTableDropColumnsDeltaCommand."""
    snapshot = table.snapshot_to_write()
    if snapshot.mapping_mode == NONE:
        raise _needs_mapping("DELTA_UNSUPPORTED_DROP_COLUMN", "DROP COLUMN")
    schema = _spread_schema(snapshot)
    found = []
    for path in paths:
        if if_exists and not _is_in(schema, path):
            continue
        spelled, _ = find_field(schema, path)
        _check_droppable(snapshot, spelled)
        schema = with_fields(schema, spelled[:-1], partial(_without, name=spelled[-1]))
        found.append(spelled)
    if not found:
        return
    metadata = _with_schema(snapshot, schema)
    metadata = replace(metadata, configuration=_stats_columns(metadata.configuration, found, None))
    commit_command(table, snapshot, "DROP COLUMNS", {"columns": compact_json(list(map(_name, found)))}, [metadata])


def _without(fields: Fields, name: str) -> Fields:
    kept = tuple(field for field in fields if field.name != name)
    if not kept:
        raise DeltaAnalysisException(
            "DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA",
            f"Cannot drop column from a schema with a single column, {name}.",
        )
    return kept


def _check_droppable(snapshot: Snapshot, path: tuple[str, ...]) -> None:
    used = (
        ("PARTITION", "partition", [(name,) for name in snapshot.metadata.partition_columns]),
        ("CLUSTERING", "clustering", snapshot.clustered_by),
    )
    for kind, word, columns in used:
        if any(column[: len(path)] == path for column in columns):
            raise DeltaAnalysisException(
                f"DELTA_UNSUPPORTED_DROP_{kind}_COLUMN",
                f"Dropping {word} columns ({'.'.join(path)}) is not allowed.",
                parameters={"columnList": ".".join(path)},
            )
    _check_unused(snapshot, path)


def _check_unused(snapshot: Snapshot, path: tuple[str, ...]) -> None:
    """Refuse to drop or rename what a constraint or a generated column names."""
    for kind, using in dependents_on(path, spark_schema(snapshot), snapshot.metadata.configuration):
        subject = "CONSTRAINT" if kind == "check constraint" else "GENERATED_COLUMNS"
        listed = "\n".join(f"{name.removeprefix(CHECK_PREFIX)} -> {sql}" for name, sql in using.items())
        raise DeltaAnalysisException(
            f"DELTA_{subject}_DEPENDENT_COLUMN_CHANGE",
            f"Cannot alter column {'.'.join(path)} because this column is referenced by the following {kind}(s):"
            f"\n{listed}\nDrop what refers to it first.",
            parameters={"columnName": ".".join(path)},
        )


def rename_column(table: Table, path: Sequence[str], to: str) -> None:
    """Rename a column of a table that maps them; its files stay. Delta: AlterTableChangeColumnDeltaCommand."""
    snapshot = table.snapshot_to_write()
    if snapshot.mapping_mode == NONE:
        raise _needs_mapping("DELTA_UNSUPPORTED_RENAME_COLUMN", "Column rename")
    spelled, _ = find_field(snapshot.schema, path)
    _check_unused(snapshot, spelled)
    new = (*spelled[:-1], to)
    if to.lower() != spelled[-1].lower():
        _check_absent(snapshot.schema, new)

    def renamed(fields: Fields) -> Fields:
        return tuple(replace(field, name=to) if field.name == spelled[-1] else field for field in fields)

    metadata = _with_schema(snapshot, with_fields(_spread_schema(snapshot), spelled[:-1], renamed))
    partitioned = tuple(to if (name,) == spelled else name for name in metadata.partition_columns)
    configuration = _stats_columns(metadata.configuration, [spelled], new)
    metadata = replace(metadata, partition_columns=partitioned, configuration=configuration)
    parameters = {"oldColumnPath": _name(spelled), "newColumnPath": _name(new)}
    commit_command(table, snapshot, "RENAME COLUMN", parameters, [metadata])


def change_columns(table: Table, changes: Sequence[ChangeColumn]) -> None:
    """Change columns' types, comments, defaults, places, or whether they may be NULL, in one commit.

    Delta: AlterTableChangeColumnDeltaCommand, which never makes a column NOT NULL; here one becomes it where no row has
    NULL.
    """
    snapshot = table.snapshot_to_write()
    schema, described, becomes_not_null = _spread_schema(snapshot), list[dict[str, object]](), list[tuple[str, ...]]()
    found = [_field_and_part(schema, change) for change in changes]
    paths = [path for path, _ in found]
    _check_changed_once([(*path, *part) for path, part in found])
    for (path, part), change in zip(found, changes, strict=True):
        _, before = find_field(schema, path)
        after = _changed(snapshot, path, part, before, change)
        schema = with_fields(schema, path[:-1], partial(_placed, field=after, position=change.position))
        if before.nullable and not after.nullable:
            becomes_not_null.append(path)
        described.append({**described_column(path[:-1], after), **_described_place(change.position)})
    old, new = spark_schema(snapshot), StructType.fromJson(json.loads(schema_to_json(schema)))
    given = {path[0] for path, change in zip(paths, changes, strict=True) if change.default}
    if given:
        check_defaults(table.spark, StructType([field for field in new.fields if field.name in given]))
    if any(change.data_type is not None for change in changes):
        check_evolution(snapshot, new)
        check_dependents(old, new, snapshot.metadata.configuration)
        version = snapshot.version + 1 if PREVIEW in writer_features(snapshot.protocol) else None
        schema = with_type_changes(_spread_schema(snapshot), schema, version)
    for path in becomes_not_null:
        _check_no_null(table, snapshot, path)
    operation, parameters = _described_changes(described)
    read = EVERYTHING_READ if becomes_not_null else NOTHING_READ
    commit_command(table, snapshot, operation, parameters, [_with_schema(snapshot, schema)], read=read)


def _field_and_part(schema: LogStruct, change: ChangeColumn) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the path of a field, and of the part of its arrays and maps whose type changes: ``("element",)``."""
    if change.data_type is None or _is_in(schema, change.column):
        return find_field(schema, change.column)[0], ()
    spelled = find_parent(schema, change.column)
    depth = max(len(path) for path, _ in schema.walk() if path == spelled[: len(path)])
    return spelled[:depth], spelled[depth:]


def _check_changed_once(paths: Sequence[tuple[str, ...]]) -> None:
    for place, path in enumerate(paths):
        if any(path[: len(other)] == other[: len(path)] for other in paths[:place]):
            raise DeltaAnalysisException(
                "NOT_SUPPORTED_CHANGE_SAME_COLUMN",
                f"ALTER TABLE ALTER/CHANGE COLUMN is not supported for changing column {_name(path)} including its "
                "nested fields multiple times in the same command. Use several statements.",
                parameters={"fieldName": _name(path)},
            )


def _described_changes(described: Sequence[dict[str, object]]) -> tuple[str, dict[str, object]]:
    if len(described) > 1:
        return "CHANGE COLUMNS", {"columns": compact_json(described)}
    (one,) = described
    place = {key: value for key, value in one.items() if key == "position"}
    return "CHANGE COLUMN", {"column": compact_json({k: v for k, v in one.items() if k not in place}), **place}


def _changed(
    snapshot: Snapshot, path: tuple[str, ...], part: tuple[str, ...], before: LogField, change: ChangeColumn
) -> LogField:
    if any(key.startswith(IDENTITY) for key in before.metadata):
        _check_identity_stays(before, change)
    metadata = dict(before.metadata)
    if change.comment is not None:
        metadata[_COMMENT] = change.comment
    if change.default == "":
        metadata.pop(CURRENT_DEFAULT, None)
    elif change.default is not None:
        if "allowColumnDefaults" not in writer_features(snapshot.protocol):
            raise DeltaAnalysisException(
                "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED",
                "Failed to execute ALTER TABLE command because it assigned a column DEFAULT value, but the "
                "corresponding table feature was not enabled. Please retry the command again after executing ALTER "
                "TABLE tableName SET TBLPROPERTIES('delta.feature.allowColumnDefaults' = 'supported').",
            )
        metadata[CURRENT_DEFAULT] = change.default
    nullable = before.nullable if change.nullable is None else change.nullable
    after = replace(before, nullable=nullable, metadata=metadata)
    if change.data_type is None:
        return after
    if not part:
        before, after = (_converted(field, gathered_limits) for field in (before, after))
    wanted_field = _to_log(StructField(before.name, DataType.fromDDL(change.data_type)))
    if part:
        _check_only_type(part, before, wanted_field, change)
    wanted = _with_part(before.data_type, part, wanted_field.data_type, (*path, *part))
    mode = widening_mode(snapshot.metadata.configuration, writer_features(snapshot.protocol), ALWAYS)
    if not _may_become(before.data_type, wanted, mode):
        raise DeltaAnalysisException(
            "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP",
            f"ALTER TABLE CHANGE COLUMN is not supported for changing column {'.'.join(path)} from "
            f"{simple_string(before.data_type).upper()} to {simple_string(wanted).upper()}. Types only become wider, "
            "in a table with delta.enableTypeWidening = true.",
            parameters={"fieldPath": ".".join(path)},
        )
    if part:
        return replace(after, data_type=wanted)
    limited = replace(after, data_type=wanted, metadata=_with_limit(path, after, wanted_field))
    return _converted(limited, spread_limits)


def _check_identity_stays(before: LogField, change: ChangeColumn) -> None:
    wanted = None if change.data_type is None else _to_log(StructField("k", DataType.fromDDL(change.data_type)))
    is_other_type = wanted is not None and wanted.data_type != before.data_type
    if is_other_type or change.nullable not in (None, before.nullable) or change.default is not None:
        raise identity_change(before.name)


def _converted(field: LogField, convert: Callable[[StructType], StructType]) -> LogField:
    schema = StructType.fromJson(json.loads(schema_to_json(LogStruct((field,)))))
    return parse_schema(convert(schema).json()).fields[0]


def _check_only_type(part: tuple[str, ...], before: LogField, wanted: LogField, change: ChangeColumn) -> None:
    """Refuse what an array's element, or a map's key or value, has not: a comment, a place, and a length's limit."""
    has_limit = CHAR_VARCHAR_TYPE in before.metadata or CHAR_VARCHAR_TYPE in wanted.metadata
    if has_limit or change != ChangeColumn(change.column, change.data_type):
        raise _not_allowed(
            f"ALTER TABLE CHANGE COLUMN {'.'.join(change.column)}",
            f"Of {'.'.join(part)} only the type can change, and no limit of a length.",
        )


def _with_part(data_type: LogType, part: Sequence[str], wanted: LogType, whole: tuple[str, ...]) -> LogType:
    """Return a type in which an array's element, or a map's key or value, has another."""
    if not part:
        return wanted
    if part[0] not in dict(parts(data_type)):
        raise column_not_found(whole, data_type)
    return with_parts(
        data_type, lambda name, inner: _with_part(inner, part[1:], wanted, whole) if name == part[0] else inner
    )


def _with_limit(path: tuple[str, ...], before: LogField, wanted: LogField) -> dict[str, JsonValue]:
    """Return the metadata of a column with the length limit that another type has."""
    metadata = dict(before.metadata)
    types = [str(f.metadata.get(CHAR_VARCHAR_TYPE) or simple_string(f.data_type)) for f in (before, wanted)]
    if types[0] == types[1] or before.data_type != wanted.data_type:
        return metadata
    if not may_become(types[0], types[1]):
        name = ".".join(path)
        raise DeltaAnalysisException(
            "NOT_SUPPORTED_CHANGE_COLUMN",
            f"ALTER TABLE ALTER/CHANGE COLUMN is not supported for changing {name} with type {types[0].upper()} to "
            f"{name} with type {types[1].upper()}. A limit of a length only becomes wider, or STRING.",
            parameters={"originName": name, "originType": types[0], "newName": name, "newType": types[1]},
        )
    metadata.pop(CHAR_VARCHAR_TYPE, None)
    if CHAR_VARCHAR_TYPE in wanted.metadata:
        metadata[CHAR_VARCHAR_TYPE] = wanted.metadata[CHAR_VARCHAR_TYPE]
    return metadata


def _may_become(before: LogType, wanted: LogType, mode: str) -> bool:
    """Return whether a type is, or within a mode may become, another one, also inside arrays and maps."""
    if isinstance(before, PrimitiveType) and isinstance(wanted, PrimitiveType):
        return before == wanted or can_widen(before.name, wanted.name, mode)
    if type(before) is not type(wanted) or not parts(before):
        return before == wanted
    return all(_may_become(a, b, mode) for (_, a), (_, b) in zip(parts(before), parts(wanted), strict=True))


def _check_no_null(table: Table, snapshot: Snapshot, path: tuple[str, ...]) -> None:
    violating = count_where(table, snapshot, F.col(quote_name(path)).isNull())
    if violating:
        raise DeltaAnalysisException(
            "DELTA_NEW_NOT_NULL_VIOLATION",
            f"{violating} rows in {table.name} violate the new NOT NULL constraint on {'.'.join(path)}. Correct them "
            "first.",
            parameters={"numRows": str(violating), "tableName": table.name, "colName": ".".join(path)},
        )


def _to_log(field: StructField) -> LogField:
    return parse_schema(json.dumps(as_strings(StructType([field])).jsonValue())).fields[0]


def _is_in(schema: LogStruct, path: Sequence[str]) -> bool:
    return any(lower_case(spelled) == lower_case(path) for spelled, _ in schema.walk())


def _spread_schema(snapshot: Snapshot) -> LogStruct:
    """Return the table's schema with length limits beside the fields that have them."""
    return parse_schema(spread_limits(spark_schema(snapshot)).json())


def _with_schema(snapshot: Snapshot, schema: LogStruct) -> Metadata:
    gathered = gathered_limits(StructType.fromJson(json.loads(schema_to_json(schema))))
    metadata = replace(snapshot.metadata, schema_string=schema_to_json(parse_schema(gathered.json())))
    return with_column_ids(metadata)


def _stats_columns(
    configuration: Mapping[str, str], paths: Sequence[tuple[str, ...]], to: tuple[str, ...] | None
) -> dict[str, str]:
    """Return properties in which the columns with statistics no longer name a column, or by its new name."""
    listed = configuration.get(STATS_COLUMNS)
    if listed is None:
        return dict(configuration)
    kept = []
    for column in split_columns(listed):
        changed = next((path for path in paths if column[: len(path)] == path), None)
        if changed is None:
            kept.append(shown_name(column))
        elif to is not None:
            kept.append(shown_name((*to, *column[len(changed) :])))
    return {**configuration, STATS_COLUMNS: ",".join(kept)}


def _as_given(field: LogField) -> LogField:
    """Return a CHAR or VARCHAR column with that type."""
    metadata = dict(field.metadata)
    limited = metadata.pop(CHAR_VARCHAR_TYPE, None)
    if limited is None or not isinstance(field.data_type, PrimitiveType):
        return field
    return replace(field, data_type=PrimitiveType(limited), metadata=metadata)


def described_column(parent: Sequence[str], field: LogField) -> dict[str, object]:
    data_type = json.loads(schema_to_json(LogStruct((field,))))["fields"][0]["type"]
    name = data_type if isinstance(data_type, str) else data_type["type"]
    return {
        "name": _name((*parent, field.name)),
        "type": name,
        "nullable": field.nullable,
        "metadata": dict(field.metadata),
    }


def _name(path: Sequence[str]) -> str:
    return ".".join(quote(part) if "." in part or "`" in part else part for part in path)


def _needs_mapping(error_class: str, what: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        error_class,
        f"{what} is not supported for your Delta table. Map its columns first: ALTER TABLE … SET TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name').",
    )


def _not_allowed(operation: str, why: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTA_OPERATION_NOT_ALLOWED",
        f"Operation not allowed: `{operation}` is not supported for Delta tables. {why}",
        parameters={"operation": operation},
    )
