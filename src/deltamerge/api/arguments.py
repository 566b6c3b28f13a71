"""Arguments of the API: conditions and values as SQL or Columns, checked in delta-spark's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from pyspark.sql import Column

from deltamerge.sql.merge_ast import Assignment, Default, Expression
from deltamerge.sql.names import parse_name

Condition: TypeAlias = "str | Column | None"
Values: TypeAlias = "Mapping[str, str | Column]"


def condition_of(condition: object, name: str = "'condition'") -> Expression | None:
    if condition is None:
        return None
    found = _expression(condition)
    if found is None:
        raise TypeError(
            f"{name} must be a Spark SQL Column or a string (expression in SQL syntax), found to be of type "
            f"{type(condition)}"
        )
    return found


def assignments_of(values: object, name: str) -> tuple[Assignment, ...]:
    """Return values by column name as assignments; the string ``DEFAULT`` is SQL's keyword.

    Args:
        name: Its name, in quotes and perhaps with its method.
    """
    if values is None:
        raise ValueError(f"{name} cannot be None")
    if not isinstance(values, dict):
        raise TypeError(f"{name} must be a dict, found to be {type(values)}")
    assignments = []
    for column, value in values.items():
        if not isinstance(column, str):
            raise TypeError(
                f"Keys of dict in {name} must contain only strings with column names, found '{column}' of type "
                f"'{type(column)}"
            )
        found = _expression(value)
        if found is None:
            raise TypeError(
                f"Values of dict in {name} must contain only Spark SQL Columns or strings (expressions in SQL syntax) "
                f"as values, found '{value}' of type '{type(value)}'"
            )
        is_default = isinstance(value, str) and value.strip().upper() == "DEFAULT"
        assignments.append(Assignment(parse_name(column), Default() if is_default else found))
    return tuple(assignments)


def _expression(value: object) -> Expression | None:
    if isinstance(value, str):
        return Expression(value)
    if not isinstance(value, Column):
        return None
    return Expression(str(value).removeprefix("Column<'").removesuffix("'>"), value)


def column_name(column: object) -> str:
    """Return the name that a string or a Column is; of another expression its SQL, which is no column's name."""
    if isinstance(column, str):
        return column
    found = _expression(column)
    return str(column) if found is None else found.text.removeprefix("`").removesuffix("`")


def names_in(argument: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """Return an argument that is a column's name or several."""
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"`{argument}` must hold names of columns, got {type(name).__name__}")
    return names


def names_of(names: Sequence[object], what: str) -> tuple[str, ...]:
    """Return columns' names that are given one by one or in one list.

    Args:
        what: The message that begins the error, such as ``Clustering column must be str.``.
    """
    if len(names) == 1 and isinstance(names[0], (list, tuple)):
        names = names[0]
    for name in names:
        check(isinstance(name, str), what, name)
    return tuple(str(name) for name in names)


def check(is_right: bool, message: str, *found: object) -> None:
    if not is_right:
        raise TypeError(message + "".join(f" Found {value} with type {type(value)}" for value in found))


def check_value(is_right: bool, name: str, kind: str, found: object) -> None:
    if not is_right:
        raise ValueError(f"{name} needs to be {kind} but got '{type(found)}'.")


def asked_options(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, str]:
    """Return what a call of ``option`` or ``options`` sets, as strings; None sets nothing."""
    given = dict(kwargs)
    if name == "option":
        named = {**dict(zip(("key", "value"), args, strict=False)), **kwargs}
        given = {str(named["key"]): named["value"]}
    found = {key: value for key, value in given.items() if value is not None}
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in found.items()}
