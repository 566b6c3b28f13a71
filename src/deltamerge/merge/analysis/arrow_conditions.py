"""Which conditions Arrow evaluates exactly as Spark does, whatever the session's settings.

They compare columns, numbers without a floating point, strings, dates and booleans with others of their kind, and
timestamps with timestamps of other columns; nothing in them is cast, overflows or divides by zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
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
# A number with a point may be a decimal or, in a Column, a floating-point number, which print alike.
_PYTHON: dict[type, Kind] = {int: "whole", str: "string", date: "day", bool: "boolean"}
_ORDERED = frozenset({"whole", "decimal", "string", "day", "instant", "local"})
_NUMBERS = frozenset({"whole", "decimal"})
# Spark compares decimals, and whole numbers of up to 20 digits with them, without a loss up to 38 digits.
_MOST_BEFORE_POINT, _MOST_AFTER_POINT = 20, 18


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
    if isinstance(field.dataType, DecimalType):
        before_point = field.dataType.precision - field.dataType.scale
        is_short = before_point <= _MOST_BEFORE_POINT and field.dataType.scale <= _MOST_AFTER_POINT
        return "decimal" if is_short else "other"
    return "other" if is_padded else _KINDS.get(field.dataType, "other")


def _is_exact(operation: Operation) -> bool:
    op, operands = operation.op, operation.operands
    if op in ("isnull", "isnotnull"):
        return True
    kinds = {operand.kind for operand in operands}
    if kinds == _NUMBERS and op != "%":
        kinds = {"decimal"}
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
