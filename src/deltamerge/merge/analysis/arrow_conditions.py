"""Which conditions Arrow evaluates exactly as Spark does, whatever the session's settings.

They compare columns, whole numbers, strings, dates and booleans with others of their kind, and timestamps with
timestamps of other columns; nothing in them is cast, overflows or divides by zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    TimestampNTZType,
    TimestampType,
)

from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.sql.expression import Literal, Name, Node
from deltamerge.sql.expression import Operation as ParsedOperation
from deltamerge.workers.conditions import Column, Condition, Constant, Kind, Operation

_KINDS: dict[DataType, Kind] = {
    ByteType(): "whole",
    ShortType(): "whole",
    IntegerType(): "whole",
    LongType(): "whole",
    StringType(): "string",
    DateType(): "day",
    TimestampType(): "instant",
    TimestampNTZType(): "local",
    BooleanType(): "boolean",
}
_PYTHON: dict[type, Kind] = {int: "whole", str: "string", date: "day", bool: "boolean"}
_ORDERED = frozenset({"whole", "string", "day", "instant", "local"})


def arrow_condition(
    node: Node, column: Callable[[Name], int | None], fields: Sequence[StructField]
) -> Condition | None:
    """Return a condition as Arrow evaluates it; None where something in it is left to Spark.

    Args:
        column: Returns the position of a name's column; None where the name is not certainly one column.
    """
    found = _value(node, column, fields)
    return found if found is not None and found.kind == "boolean" else None


def _value(node: Node, column: Callable[[Name], int | None], fields: Sequence[StructField]) -> Condition | None:
    if isinstance(node, Name):
        index = column(node)
        return None if index is None else Column(index, _kind_of(fields[index]))
    if isinstance(node, Literal):
        kind = _PYTHON.get(type(node.value))
        return None if kind is None else Constant(node.value, kind)
    if not isinstance(node, ParsedOperation):
        return None
    operands = []
    for operand in node.operands:
        found = _value(operand, column, fields)
        if found is None:
            return None
        operands.append(found)
    operation = Operation(node.op, tuple(operands))
    return operation if _is_exact(operation) else None


def _kind_of(field: StructField) -> Kind:
    # A CHAR column is compared with blanks at its end.
    is_padded = CHAR_VARCHAR_TYPE in (field.metadata or {})
    return "other" if is_padded else _KINDS.get(field.dataType, "other")


def _is_exact(operation: Operation) -> bool:
    op, operands = operation.op, operation.operands
    if op in ("isnull", "isnotnull"):
        return True
    kinds = {operand.kind for operand in operands}
    if len(kinds) > 1:
        return False
    (kind,) = kinds
    if op in ("and", "or", "not"):
        return kind == "boolean"
    if op == "%":
        divisor = operands[1]
        is_positive = isinstance(divisor, Constant) and isinstance(divisor.value, int) and divisor.value > 0
        return kind == "whole" and is_positive
    if op in ("=", "<>", "<=>", "in"):
        return kind != "other"
    return op in ("<", "<=", ">", ">=", "between") and kind in _ORDERED
