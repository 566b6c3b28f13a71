"""The names and types that a change log has for the columns of its target, which may have changed since."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType, StructField, StructType

from deltamerge.api.delta_table import DeltaTable
from deltamerge.commands.alter_properties import set_properties
from deltamerge.exceptions import DeltaAnalysisException, DeltaRuntimeException
from deltamerge.log.actions import compact_json
from deltamerge.log.features.column_mapping import NONE, physical_name
from deltamerge.log.features.type_widening import ALWAYS
from deltamerge.log.features.type_widening import ENABLED as WIDENS
from deltamerge.log.properties import is_enabled
from deltamerge.log.schema import parse_schema
from deltamerge.log.snapshot import Snapshot
from deltamerge.recipes.changes import DELETED, ROW, SEQUENCE, FoldRules, in_type
from deltamerge.recipes.sequences import check_log
from deltamerge.recipes.values import keeps_values, widened
from deltamerge.spark import columns as F
from deltamerge.spark.nested_types import matching_inner_types
from deltamerge.spark.session import merge_conf
from deltamerge.spark.table import spark_schema
from deltamerge.sql.names import quote, quote_name
from deltamerge.write.align import find_field
from deltamerge.write.schema_evolution import evolved_schema

# The SQLSTATEs of values that a table refuses.
_OF_VALUES = ("22", "23")


@dataclass(frozen=True)
class LoggedNames:
    """What a change log calls the columns of a target.

    Args:
        of: By the target's names.
        others: Columns of the target, of which the log has values, that are not among those.
    """

    of: Mapping[str, str]
    others: tuple[str, ...] = ()

    def check_gives_all(self) -> None:
        """Refuse events without a column that earlier ones gave: their rows would have another meaning without it."""
        if self.others:
            names = ", ".join(map(quote, self.others))
            raise DeltaAnalysisException(
                "DELTA_MERGE_UNRESOLVED_EXPRESSION",
                f"The changes lack {names} of the target, which earlier changes gave. Each change has all columns of "
                "its row: add what is missing, as NULL where it is not known. Nothing was written.",
                parameters={"sqlExpr": self.others[0], "clause": "a change feed", "cols": ", ".join(self.of)},
            )

    def events(self, events: DataFrame, keys: Sequence[str]) -> DataFrame:
        """Return events under the log's names."""
        row = events.schema[ROW].dataType
        assert isinstance(row, StructType)
        fields = (F.col(ROW).getField(name).alias(self.of[name]) for name in row.names)
        named = (F.col(quote(key)).alias(self.of[key]) for key in keys)
        return events.select(*named, SEQUENCE, DELETED, F.struct(*fields).alias(ROW))

    def keys(self, keys: DataFrame) -> DataFrame:
        return keys.toDF(*(self.of[name] for name in keys.columns))

    def logged(self, log: DataFrame, rules: FoldRules) -> DataFrame:
        """Return a log's events under the target's names and in its types, NULL where the log has no column yet."""
        row = log.schema[ROW].dataType
        assert isinstance(row, StructType)
        known, conf = {field.name: field.dataType for field in row.fields}, merge_conf(log.sparkSession)

        def value(field: StructField) -> Column:
            name = self.of[field.name]
            if name not in known:
                return F.lit(None).cast(field.dataType)
            return in_type(F.col(ROW).getField(name), known[name], field, conf)

        values = (value(field).alias(field.name) for field in rules.columns)
        types = {field.name: field.dataType for field in rules.columns}
        keys = (F.col(quote(self.of[key])).cast(types[key]).alias(key) for key in rules.keys)
        return log.select(*keys, SEQUENCE, DELETED, F.struct(*values).alias(ROW))


def logged_names(target: Snapshot, log: DeltaTable, rules: FoldRules, sequence: DataType) -> LoggedNames:
    """Return what a log calls its target's columns.

    A column keeps its physical name when it is renamed, and one that is dropped and added again gets another; the log
    has on record which it has the values of. In a log without it, a column has its physical name or its own: that of a
    table whose columns were not mapped at first is the name that they had then.

    Raises:
        DeltaAnalysisException: A column may be one that was renamed, of which the log cannot know, or the log has
            other keys, or the columns of its sequence in another order.
    """
    schema = spark_schema(log.table.snapshot())
    row = schema[ROW].dataType
    assert isinstance(row, StructType)
    is_mapped = target.mapping_mode != NONE
    physical, known = _physical_names(target), _names_on_record(log, target)
    stored = {field.name: physical[field.name,] for field in target.schema.fields}
    recorded = {known[quote(name)]: name for name in row.names if quote(name) in known}
    others = StructType([field for field in row.fields if quote(field.name) not in known])
    claimed = {name: recorded.get(of) or _found(others, of) for name, of in stored.items()}
    taken = {found for found in claimed.values() if found is not None}
    for name in stored:
        found = _found(others, name)
        if claimed[name] is None and found is not None and found not in taken:
            claimed[name] = found
            taken.add(found)
    of = {}
    for field in rules.columns:
        found = claimed[field.name]
        if found is None and is_mapped and stored[field.name] != field.name:
            _refuse_unknown(log, (), field.name, [name for name in others.names if name not in taken])
        if found is not None:
            _check_fields(log, row[found].dataType, field.dataType, (found,))
            _check_type(log, row[found].dataType, field)
        of[field.name] = found or (field.name if _found(row, field.name) is None else stored[field.name])
    _check_other_fields(log, row, known, _record(physical, of))
    _check_keys(log, [n for n in schema.names if n not in (SEQUENCE, DELETED, ROW)], [of[key] for key in rules.keys])
    check_log(sequence, schema[SEQUENCE].dataType, log.table.name)
    given = {field.name for field in rules.columns}
    return LoggedNames(of, tuple(name for name in stored if stored[name] in recorded and name not in given))


_NAMES = "deltamerge.changeLogNames"
"""The property of a log that has, with a target's id after it, the physical names of its row's fields, as JSON."""


def record_names(log: DeltaTable, target: Snapshot, names: LoggedNames) -> None:
    """Put on record which of the target's columns a log has the values of."""
    known, given = _names_on_record(log, target), _record(_physical_names(target), names.of)
    if given.items() - known.items():
        set_properties(log.table, {_key(target): compact_json({**known, **given})})


def names_of_new_log(target: Snapshot, columns: Sequence[str]) -> dict[str, str]:
    """Return the property of a new log for `record_names`."""
    return {_key(target): compact_json(_record(_physical_names(target), {name: name for name in columns}))}


def _key(target: Snapshot) -> str:
    return f"{_NAMES}.{target.metadata.id}"


def _names_on_record(log: DeltaTable, target: Snapshot) -> dict[str, str]:
    found: dict[str, str] = json.loads(log.table.snapshot().metadata.configuration.get(_key(target), "{}"))
    return found


def _physical_names(target: Snapshot) -> dict[tuple[str, ...], str]:
    """Return the names in files of a table's columns and their fields, by their paths."""
    is_mapped = target.mapping_mode != NONE
    return {path: physical_name(field) if is_mapped else field.name for path, field in target.schema.walk()}


def _record(physical: Mapping[tuple[str, ...], str], of: Mapping[str, str]) -> dict[str, str]:
    """Return physical names by what a log calls the columns and their fields."""
    return {quote_name((of[path[0]], *path[1:])): name for path, name in physical.items() if path[0] in of}


def _check_other_fields(log: DeltaTable, row: StructType, known: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Refuse a struct of whose fields a log has another under the name."""
    for path, _ in parse_schema(row.json()).walk():
        name = quote_name(path)
        if len(path) > 1 and name in known and given.get(name, known[name]) != known[name]:
            table = log.table.name
            raise DeltaAnalysisException(
                "DELTA_ILLEGAL_USAGE",
                f"The change log {table} has under the name {name} the values of another field, which was renamed or "
                f"dropped in the target since. Drop it in the log, too: ALTER TABLE delta.`{table}` DROP COLUMN "
                f"{quote(ROW)}.{name}; that needs 'delta.columnMapping.mode' = 'name' of the log. Nothing was written.",
            )


OF_TABLE = "deltamerge.changeLogOf"
"""The property of a log in its target's folder that has the target's id."""


def check_log_of(log: DeltaTable, table_id: str) -> None:
    """Refuse the log of a table that was replaced: its events are of other rows."""
    found = log.table.snapshot().metadata.configuration.get(OF_TABLE)
    if found is None:
        set_properties(log.table, {OF_TABLE: table_id})
    elif found != table_id:
        name = log.table.name
        raise DeltaAnalysisException(
            "DELTA_ILLEGAL_USAGE",
            f"The change log {name} has the events of a table that was here before and has been replaced since (its id "
            f"was {found}, now it is {table_id}). To begin anew, delete this folder; to go on with these events, ALTER "
            f"TABLE delta.`{name}` SET TBLPROPERTIES ('{OF_TABLE}' = '{table_id}'). Nothing was written.",
        )


def _check_keys(log: DeltaTable, logged: Sequence[str], keys: Sequence[str]) -> None:
    if sorted(logged) != sorted(keys):
        raise DeltaAnalysisException(
            "DELTA_ILLEGAL_USAGE",
            f"The change log {log.table.name} has events by the keys {', '.join(logged)}, not by {', '.join(keys)}. "
            "Give the same keys, or another change_log. Nothing was written.",
        )


def _check_type(log: DeltaTable, logged: DataType, field: StructField) -> None:
    """Refuse a column whose values the log would cut, since it keeps the type that the column had before."""
    if keeps_values(field.dataType, widened(logged, field.dataType)):
        return
    raise DeltaAnalysisException(
        "DELTA_ILLEGAL_USAGE",
        f"The change log {log.table.name} has the column {quote(field.name)} as {logged.simpleString().upper()}, which "
        f"would change values of {field.dataType.simpleString().upper()}, the type that the target's column has now. "
        "Give another change_log, or rewrite the log with the new type (overwriteSchema). Nothing was written.",
    )


def _found(row: StructType, name: str) -> str | None:
    # No Delta table has names that differ by nothing but case.
    place = find_field(row, name, case_sensitive=False)
    return None if place is None else row.names[place]


def _check_fields(log: DeltaTable, logged: DataType, target: DataType, path: tuple[str, ...]) -> None:
    """Refuse structs some of whose fields may have been renamed."""
    for part, one, other in matching_inner_types(logged, target):
        _check_fields(log, one, other, (*path, part))
    if not (isinstance(logged, StructType) and isinstance(target, StructType)):
        return
    others = [name for name in logged.names if find_field(target, name, case_sensitive=False) is None]
    for field in target.fields:
        place = find_field(logged, field.name, case_sensitive=False)
        if place is None:
            _refuse_unknown(log, path, field.name, others)
        else:
            _check_fields(log, logged.fields[place].dataType, field.dataType, (*path, field.name))


def _refuse_unknown(log: DeltaTable, path: tuple[str, ...], column: str, others: Sequence[str]) -> None:
    if not others:
        return
    name, shown = log.table.name, ".".join(map(quote, (*path, column)))
    given = ".".join(map(quote, (ROW, *path, others[0])))
    raise DeltaAnalysisException(
        "DELTA_ILLEGAL_USAGE",
        f"The change log {name} has no column for {shown} of the target, but it has some that the target "
        f"lacks: {', '.join(map(quote, others))}. If one of them was renamed to it, rename it in the log, too: ALTER "
        f"TABLE delta.`{name}` RENAME COLUMN {given} TO {quote(column)}. Those that were dropped from the target, "
        f"drop: ALTER TABLE delta.`{name}` DROP COLUMN {given}. Both need 'delta.columnMapping.mode' = 'name' of the "
        "log. Nothing was written.",
    )


def widen_log(log: DeltaTable, events: StructType) -> None:
    """Let a log's columns become as wide as those of events, where these are wider.

    Only then, since fewer readers read tables whose types may be widened.
    """
    snapshot = log.table.snapshot()
    schema, names = spark_schema(snapshot), [(name,) for name in events.names]
    plain, wider = (
        evolved_schema(schema, events, names, case_sensitive=False, **how) for how in ({}, {"widening": ALWAYS})
    )
    if plain != wider and not is_enabled(snapshot.metadata.configuration, WIDENS):
        set_properties(log.table, {WIDENS: "true"})


@contextmanager
def naming_log(log: DeltaTable) -> Iterator[None]:
    """Say what is to be done about a change that the target refuses when the log has it."""
    try:
        yield
    except DeltaRuntimeException as error:
        if not error.sqlstate.startswith(_OF_VALUES):
            raise
        name, message = log.table.name, error.message
        message = (
            f"{message} The change log {name} has this call's changes already, and a corrected one with the same key "
            f"and sequence would count as a repetition: take the refused change out of the log first, with DELETE FROM "
            f"delta.`{name}` WHERE its key and {SEQUENCE} are those of the change."
        )
        kind, cause = type(error), error.__cause__
        raise kind(error.error_class, message, sqlstate=error.sqlstate, parameters=error.parameters) from cause
