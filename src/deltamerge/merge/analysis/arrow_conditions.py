"""Which conditions Arrow evaluates exactly as Spark does, whatever the session's settings.

They compare columns of one kind, and columns with literals that Spark casts to the column's type without a loss;
nothing else in them is cast, overflows or divides by zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

from pyspark.sql import types as T

from deltamerge.scan.file_types import is_exact
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE, ColumnType
from deltamerge.skipping.literals import span_function
from deltamerge.skipping.timestamps import EPOCH_DATE, parse_date
from deltamerge.sql.expression import Literal, Name, Node
from deltamerge.sql.expression import Operation as ParsedOperation
from deltamerge.workers.conditions import DATE_PARTS, Column, Condition, Constant, Kind, Operation

_KINDS: dict[T.DataType, Kind] = {
    T.ByteType(): "whole",
    T.ShortType(): "whole",
    T.IntegerType(): "whole",
    T.LongType(): "whole",
    T.StringType(): "string",
    T.DateType(): "day",
    T.TimestampType(): "instant",
    T.TimestampNTZType(): "local",
    T.BooleanType(): "boolean",
    T.DoubleType(): "double",
}
_PYTHON: dict[type, Kind] = {int: "whole", str: "string", date: "day", bool: "boolean"}
_ORDERED = frozenset({"whole", "decimal", "string", "day", "instant", "local"})
_COMPARISONS = frozenset({"=", "<>", "<=>", "<", "<=", ">", ">=", "in", "between"})
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
# Of doubles only a column on the left is compared, and only with literals: no literal is NaN.
_OF_DOUBLES = frozenset({"=", "<>", "<", "<=", ">", ">=", "in", "between"})
_DOUBLE_WHOLE = 1 << 53
_DATES = frozenset({"day", "local"})
# Elsewhere the parts of an instant depend on the rules of a time zone, of which Arrow and Java may know others.
_UTC = frozenset({"UTC", "Etc/UTC", "GMT", "Z"})
_NUMBERS = frozenset({"whole", "decimal"})
# Spark compares decimals, and whole numbers of up to 20 digits with them, without a loss up to 38 digits.
_MOST_BEFORE_POINT, _MOST_AFTER_POINT = 20, 18


@dataclass(frozen=True)
class Columns:
    """The columns that an expression is evaluated over.

    Args:
        place: Returns the position of a name's column; None where the name is not certainly one column.
        zone: The session's time zone; None leaves timestamps that depend on it to Spark.
    """

    place: Callable[[Name], int | None]
    fields: Sequence[T.StructField]
    zone: str | None = None


def arrow_condition(node: Node, columns: Columns) -> Condition | None:
    """Return a condition as Arrow evaluates it; None where something in it is left to Spark."""
    found = condition_value(node, columns)
    return found if found is not None and found.kind == "boolean" else None


def condition_value(node: Node, columns: Columns) -> Condition | None:
    """Return what conditions are made of; else as `arrow_condition`."""
    if isinstance(node, Name):
        index = columns.place(node)
        # Of a type that Arrow does not have even NULL is not looked for: nothing reads its columns.
        is_read = index is not None and is_exact(columns.fields[index].dataType)
        return Column(index, _kind_of(columns.fields[index])) if index is not None and is_read else None
    if isinstance(node, Literal):
        kind = _PYTHON.get(type(node.value))
        return None if kind is None else Constant(node.value, kind)
    if not isinstance(node, ParsedOperation):
        return None
    operands = _operands(node, columns)
    if operands is None:
        return None
    op, turns = node.op, isinstance(operands[0], Constant) and operands[-1].kind == "double" and len(operands) == 2
    operation = Operation(_TURNED.get(op, op), tuple(operands[::-1])) if turns else Operation(op, tuple(operands))
    return operation if _is_exact(operation, columns.zone) else None


def _operands(node: ParsedOperation, columns: Columns) -> list[Condition] | None:
    """Return the operands of an operation, literals as Spark casts them to be compared with the others."""
    found = [None if isinstance(each, Literal) else condition_value(each, columns) for each in node.operands]
    others = [value for value, operand in zip(found, node.operands, strict=True) if not isinstance(operand, Literal)]
    if None in others:
        return None
    beside = others[0].kind if others and others[0] is not None and node.op in _COMPARISONS else None
    if node.op == "in" and beside in ("instant", "local") and any(map(_is_string, node.operands)):
        # Without ANSI Spark compares all as strings, of which several are one time.
        return None
    for place, operand in enumerate(node.operands):
        if isinstance(operand, Literal):
            found[place] = _cast(operand, beside, columns.zone) if beside else condition_value(operand, columns)
    operands = [value for value in found if value is not None]
    return operands if len(operands) == len(found) else None


def _cast(literal: Literal, kind: Kind, zone: str | None) -> Constant | None:
    """Return a literal as Spark casts it to be compared with a column; None where that is not known, or has a loss."""
    value = literal.value
    own = _PYTHON.get(type(value))
    # A number with a point may be a decimal or, in a Column, a floating-point number, which print alike.
    is_certain = literal.span is not None
    if kind in _NUMBERS and isinstance(value, Decimal):
        return Constant(value, "decimal") if is_certain and _is_short(value) else None
    if kind == "double":
        if isinstance(value, (float, Decimal)):
            return Constant(float(value), "double") if is_certain else None
        if isinstance(value, int) and own == "whole" and abs(value) <= _DOUBLE_WHOLE:
            return Constant(float(value), "double")
        return None
    if kind == "day" and isinstance(value, str):
        days = parse_date(value)
        return None if days is None else Constant(EPOCH_DATE + timedelta(days), "day")
    if kind in ("instant", "local"):
        point = timestamp_point(literal, kind, zone)
        return None if point is None else Constant(point, kind)
    return None if own is None else Constant(value, own)


def timestamp_point(literal: Literal, kind: Kind, zone: str | None) -> object | None:
    """Return the microseconds of a literal as ``instant`` or ``local`` time; None where they are not certain."""
    if literal.span is None:
        return None
    value = literal.value
    column = ColumnType("timestamp" if kind == "instant" else "timestamp_ntz")
    # Without an offset a timestamp is local time, also where it is none by spark.sql.timestampType.
    is_local = kind == "instant" and isinstance(value, datetime) and value.tzinfo is None
    span_of = span_function(column, "timestamp_ntz" if is_local else literal.type_name, zone or "")
    span = None if span_of is None else span_of(value)
    return span.low if span is not None and span.exact and span.low == span.high else None


def _is_short(value: Decimal) -> bool:
    exponent = value.as_tuple().exponent
    is_exact = isinstance(exponent, int) and -exponent <= _MOST_AFTER_POINT
    return is_exact and abs(value) < Decimal(10) ** _MOST_BEFORE_POINT


def _is_string(node: Node) -> bool:
    return isinstance(node, Literal) and isinstance(node.value, str)


def _is_plain(pattern: Condition, op: str) -> bool:
    """Return whether a pattern has no sign that escapes, and one of LIKE none that stands for a character within."""
    if not (isinstance(pattern, Constant) and isinstance(pattern.value, str)) or "\\" in pattern.value:
        return False
    return op != "like" or not {"_", "%"}.intersection(pattern.value.strip("%"))


def _kind_of(field: T.StructField) -> Kind:
    # A CHAR column is compared with blanks at its end.
    is_padded = CHAR_VARCHAR_TYPE in (field.metadata or {})
    if isinstance(field.dataType, T.DecimalType):
        before_point = field.dataType.precision - field.dataType.scale
        is_short = before_point <= _MOST_BEFORE_POINT and field.dataType.scale <= _MOST_AFTER_POINT
        return "decimal" if is_short else "other"
    return "other" if is_padded else _KINDS.get(field.dataType, "other")


def _is_exact(operation: Operation, zone: str | None) -> bool:
    op, operands = operation.op, operation.operands
    if op in ("isnull", "isnotnull"):
        return True
    if op == "date" or op in DATE_PARTS:
        (value,) = operands
        return isinstance(value, Column) and (value.kind in _DATES or (value.kind == "instant" and zone in _UTC))
    if op in ("like", "startswith"):
        value, pattern = operands
        return isinstance(value, Column) and value.kind == "string" and _is_plain(pattern, op)
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
    if kind == "double":
        return (
            op in _OF_DOUBLES
            and isinstance(operands[0], Column)
            and all(isinstance(operand, Constant) for operand in operands[1:])
        )
    if op in ("=", "<>", "<=>", "in"):
        return kind != "other"
    return op in ("<", "<=", ">", ">=", "between") and kind in _ORDERED
