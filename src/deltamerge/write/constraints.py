"""NOT NULL, CHECK and generated columns: what must hold for rows to be written.

A check is an expression that raises inside Spark, so that a violation ends the write before any commit.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType, MapType, NullType, StructField, StructType

from deltamerge.exceptions import DeltaParseException, InvariantViolationException, ReplaceWhereMismatchException
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.spark import columns as F
from deltamerge.spark.nested_types import contains, exact_json
from deltamerge.spark.row_errors import row_error, row_error_in
from deltamerge.sql.names import quote_name, shown_name
from deltamerge.sql.operands import opaque_of
from deltamerge.sql.stored_expressions import check_stored
from deltamerge.sql.tokens import tokenize
from deltamerge.write.data_files import stored_column
from deltamerge.write.generated_columns import generated_value, generation_expression

_VIOLATED = "constraint"
CHECK_PREFIX = "delta.constraints."
GENERATED_COLUMN = "Generated Column"
REPLACE_WHERE = "REPLACE WHERE"
"""The name of the check of rows that take the place of others."""
_ASIDE = " To merge the other rows and write such ones to a table of their own, use `upsert` with `quarantine`."


@dataclass(frozen=True)
class NotNull:
    """A column or nested field, by its path, that is not NULL, and neither are the structs around it."""

    path: tuple[str, ...]


@dataclass(frozen=True)
class Check:
    """A CHECK constraint over the table's columns.

    Args:
        expression: Its SQL.
        generated: The column, where it is a generated column's.
        column: The constraint itself, where it is a Column that `expression` only describes.
    """

    name: str
    expression: str
    generated: StructField | None = None
    column: Column | None = None


def constraints_of(schema: StructType, configuration: Mapping[str, str]) -> tuple[Check | NotNull, ...]:
    """Return what must hold for each row, in the order in which a row is checked.

    Protocol: Column Invariants, CHECK Constraints, Generated Columns; the order: Delta's Constraints.getAll and
    TransactionalWrite.
    """
    checks = [
        Check(key[len(CHECK_PREFIX) :], sql)
        for key, sql in configuration.items()
        if key.lower().startswith(CHECK_PREFIX)
    ]
    fields = list(_fields_of_structs(schema, ()))
    for path, field in fields:
        invariant = field.metadata.get("delta.invariants")
        if invariant:
            checks.append(Check(f"EXPRESSION({'.'.join(path)})", json.loads(invariant)["expression"]["expression"]))
    generated = [
        Check(GENERATED_COLUMN, f"{shown_name((f.name,))} <=> ({sql})", f)
        for f in schema.fields
        if (sql := generation_expression(f)) is not None
    ]
    return (*checks, *(NotNull(path) for path, field in fields if not field.nullable), *generated)


def _fields_of_structs(data_type: DataType, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], StructField]]:
    """Yield columns and fields, by their paths, but for those within arrays and maps."""
    if isinstance(data_type, StructType):
        for field in data_type.fields:
            path = (*above, field.name)
            yield path, field
            yield from _fields_of_structs(field.dataType, path)


def checked(
    frame: DataFrame,
    schema: StructType,
    configuration: Mapping[str, str],
    partition_columns: Collection[str],
    is_table_row: Column | None = None,
    further: Sequence[Check] = (),
    key: Sequence[str] = (),
) -> DataFrame:
    """Make a frame raise where one of its rows violates a constraint.

    Delta: CheckDeltaInvariant; a CHECK that is NULL counts as violated.

    Args:
        is_table_row: TRUE for the rows that are to be checked, where not all are.
        key: Columns that name a row for the user.
    """
    frame = _as_stored(frame, schema, partition_columns)
    constraints = (*further, *constraints_of(schema, configuration))
    if not constraints:
        return frame
    # A column of type VOID is not written, so that nothing would compute what stands in its place.
    first = next(field for field in schema.fields if not isinstance(field.dataType, NullType))
    guarded = _path((first.name,))
    shown_key = _as_json([_path((name,)).alias(name) for name in key])
    # The violation that is tried last is the innermost.
    for constraint in reversed(constraints):
        violation, error = (
            _of_check(constraint, schema, partition_columns, shown_key)
            if isinstance(constraint, Check)
            else _of_null(constraint, shown_key)
        )
        applies = violation if is_table_row is None else is_table_row & violation
        guarded = F.when(applies, error.cast(first.dataType)).otherwise(guarded)
    return frame.select(*(guarded.alias(name) if name == first.name else _path((name,)) for name in frame.columns))


def _as_stored(frame: DataFrame, schema: StructType, partition_columns: Collection[str]) -> DataFrame:
    fields = {f.name: f for f in schema.fields if f.name in partition_columns or CHAR_VARCHAR_TYPE in f.metadata}
    if not fields:
        return frame
    stored = {n: stored_column(_path((n,)), f, partition_columns) for n, f in fields.items()}
    return frame.select(*(stored.get(n, _path((n,))) for n in frame.columns))


def holds(checks: Sequence[Check], partition_columns: Collection[str]) -> Column:
    """Return whether constraints hold for a row; one that is NULL counts as violated."""
    return reduce(and_, (_holds(check, partition_columns) for check in checks))


def _holds(check: Check, partition_columns: Collection[str]) -> Column:
    generated = check.generated
    if generated is not None:
        found = _generated_holds(generated, partition_columns)
    elif check.column is not None:
        found = check.column
    else:
        found = F.expr(check_stored(check.expression, f"the CHECK constraint {check.name}"))
    return F.coalesce(found, F.lit(False))


def _generated_holds(field: StructField, partition_columns: Collection[str]) -> Column:
    given, computed = _path((field.name,)), stored_column(generated_value(field), field, partition_columns)
    if contains(field.dataType, MapType):
        # Maps cannot be compared.
        given, computed = exact_json(given, field.dataType), exact_json(computed, field.dataType)
    return given.eqNullSafe(computed)


def _of_check(
    check: Check, schema: StructType, partition_columns: Collection[str], key: Column
) -> tuple[Column, Column]:
    columns = [_path(path).alias(shown) for shown, path in sorted(columns_in(check.expression, schema).items())]
    known = {"name": check.name, "expression": check.expression}
    return ~_holds(check, partition_columns), row_error(_VIOLATED, known, {"values": _as_json(columns), "key": key})


def _as_json(columns: Sequence[Column]) -> Column:
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}) if columns else F.lit("{}")


def columns_in(expression: str, schema: StructType) -> dict[str, tuple[str, ...]]:
    """Return the paths of columns and fields in an SQL expression, by their spelling in it.

    Below arrays and maps a path ends at the array or map.
    """
    try:
        tokens = tokenize(expression)
    except DeltaParseException:
        return {}
    found = opaque_of(expression, tokens)
    written = [name.parts for name in found.names] + [w.parts for w in found.words if len(w.parts) == 1]
    columns = {}
    for parts in written:
        path = _existing(parts, schema)
        if path:
            columns[shown_name(parts[: len(path)])] = path
    return columns


def _existing(parts: tuple[str, ...], data_type: DataType) -> tuple[str, ...]:
    if not parts or not isinstance(data_type, StructType):
        return ()
    same = [f for f in data_type.fields if f.name.lower() == parts[0].lower()]
    field = next((f for f in same if f.name == parts[0]), same[0] if same else None)
    return () if field is None else (field.name, *_existing(parts[1:], field.dataType))


def _of_null(constraint: NotNull, key: Column) -> tuple[Column, Column]:
    # A field of a struct that is NULL is NULL, too.
    known = {"not_null": ".".join(constraint.path)}
    return _path(constraint.path).isNull(), row_error(_VIOLATED, known, {"key": key})


def _path(parts: tuple[str, ...]) -> Column:
    return F.col(quote_name(parts))


def violation_in(message: str, table: str) -> InvariantViolationException | None:
    """Return the user's error for a violated constraint, from a failed Spark job's message; None for other failures."""
    found = row_error_in(message, _VIOLATED)
    if found is None:
        return None
    key = "" if found["key"] == "{}" else found["key"]
    aside = _ASIDE if key else ""
    if "not_null" in found:
        name = found["not_null"]
        row = f"The row with the key {key} for table {table}" if key else f"A row for table {table}"
        return InvariantViolationException(
            "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
            f"NOT NULL constraint violated for column: {name}. {row} has NULL there; nothing was written. Give the "
            f"column a value, or drop its NOT NULL.{aside}",
            parameters={"columnName": name},
        )
    name, expression, values = found["name"], found["expression"], found["values"]
    if name == REPLACE_WHERE:
        return ReplaceWhereMismatchException(
            "DELTA_REPLACE_WHERE_MISMATCH",
            f"Written data does not conform to partial table overwrite condition or constraint '{expression}'. "
            f"Row: {values}. Leave out the rows for which it is not TRUE. Nothing was written to table {table}.",
            parameters={"replaceWhere": expression},
        )
    shown = "\n".join(f" - {column} : {json.dumps(value)}" for column, value in json.loads(values).items())
    whose = f"The key of the row is {key}. " if key else ""
    return InvariantViolationException(
        "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
        f"CHECK constraint {name} ({expression}) violated by row with values:\n{shown}\n"
        f"{whose}Nothing was written to table {table}.{aside}",
        parameters={"constraintName": name, "expression": expression, "values": values},
    )
