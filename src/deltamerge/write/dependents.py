"""Constraints and generated columns that refer to a column, and so forbid its wider type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql.types import DataType, StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.spark.nested_types import matching_inner_types
from deltamerge.write.constraints import CHECK_PREFIX, columns_in
from deltamerge.write.generated_columns import generation_expression


def check_dependents(before: StructType, after: StructType, configuration: Mapping[str, str]) -> None:
    """Refuse another type for a column that a CHECK constraint or a generated column refers to.

    Raises:
        DeltaAnalysisException: A constraint or an expression might mean something else for the wider type.
            Delta: OptimisticTransaction.checkDependentExpressions.
    """
    for path, narrow, wide in _changes(before, after, ()):
        for kind, using in dependents_on(path, before, configuration):
            raise _mismatch(kind, ".".join(path), narrow, wide, using)


def dependents_on(
    path: tuple[str, ...], schema: StructType, configuration: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the kinds of expressions that name a field, or what contains it, or what it contains; each with its SQL.

    Kinds are ``check constraint`` and ``generated column``; the expressions are by the property and by the column.
    """
    constraints = {k: v for k, v in configuration.items() if k.lower().startswith(CHECK_PREFIX)}
    generated = {f.name: sql for f in schema.fields if (sql := generation_expression(f)) is not None}
    for kind, expressions in (("check constraint", constraints), ("generated column", generated)):
        using = {
            name: sql
            for name, sql in expressions.items()
            if any(one[: len(path)] == path[: len(one)] for one in columns_in(sql, schema).values())
        }
        if using:
            yield kind, using


def _changes(
    before: DataType, after: DataType, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], DataType, DataType]]:
    if isinstance(before, StructType) and isinstance(after, StructType):
        new = {field.name: field for field in after.fields}
        for field in before.fields:
            yield from _changes(field.dataType, new[field.name].dataType, (*path, field.name))
    elif inner := matching_inner_types(before, after):
        for name, narrow, wide in inner:
            yield from _changes(narrow, wide, (*path, name))
    elif before != after:
        yield path, before, after


def _mismatch(
    kind: str, column: str, narrow: DataType, wide: DataType, using: Mapping[str, str]
) -> DeltaAnalysisException:
    listed = "\n".join(f"{name} -> {sql}" for name, sql in using.items())
    subject = "CONSTRAINT" if kind == "check constraint" else "GENERATED_COLUMNS"
    return DeltaAnalysisException(
        f"DELTA_{subject}_DATA_TYPE_MISMATCH",
        f"Column {column} has data type {narrow.simpleString().upper()} and cannot be altered to data type "
        f"{wide.simpleString().upper()} because this column is referenced by the following {kind}(s):\n{listed}\n"
        "Cast the source's value to the column's type, or drop what refers to it.",
        parameters={
            "columnName": column,
            "columnType": narrow.simpleString().upper(),
            "dataType": wide.simpleString().upper(),
        },
    )
