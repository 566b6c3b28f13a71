"""The filters that Spark pushes down, as predicates that skip files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deltamerge.log.schema import DataType, PrimitiveType, StructType, simple_string
from deltamerge.skipping import predicates

_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}


def predicate_of(filters: Sequence[Any], schema: StructType) -> predicates.Predicate:
    return predicates.And(tuple(_predicate(each, schema) for each in filters))


def _predicate(given: Any, schema: StructType) -> predicates.Predicate:  # noqa: ANN401
    name = type(given).__name__
    if name == "Not":
        return predicates.Not(_predicate(given.child, schema))
    kind = _type_of(given.attribute, schema)
    if kind is None:
        return predicates.Unknown()
    column = predicates.ColumnRef(tuple(given.attribute))
    if name in _COMPARISONS:
        return predicates.Comparison(_COMPARISONS[name], column, given.value, simple_string(kind))
    if name == "In":
        return predicates.In(column, tuple(given.value), simple_string(kind))
    if name == "StringStartsWith":
        return predicates.StartsWith(column, given.value)
    if name == "IsNull":
        return predicates.IsNull(column)
    return predicates.IsNotNull(column) if name == "IsNotNull" else predicates.Unknown()


def _type_of(path: Sequence[str], schema: StructType) -> DataType | None:
    """Return the primitive type of a column or field; None where there is no such one."""
    parent: DataType = schema
    for name in path:
        fields = parent.fields if isinstance(parent, StructType) else ()
        found = next((field for field in fields if field.name == name), None)
        if found is None:
            return None
        parent = found.data_type
    return parent if isinstance(parent, PrimitiveType) else None
