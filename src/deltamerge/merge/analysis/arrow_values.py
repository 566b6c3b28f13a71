"""Which values Arrow computes exactly as Spark does, whatever the session's settings.

Each has the type that Spark gives it. Where a result may leave its type, Arrow says so instead of another value.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
from pyspark.sql.types import StructField

from deltamerge.merge.analysis.arrow_conditions import Columns, arrow_condition, condition_value, timestamp_point
from deltamerge.scan.file_types import arrow_of_plain
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.sql.expression import Literal as ParsedLiteral
from deltamerge.sql.expression import Name, Node
from deltamerge.sql.expression import Operation as ParsedOperation
from deltamerge.workers.conditions import DATE_PARTS
from deltamerge.workers.row_values import Calculation, ColumnValue, ConditionValue, Literal, Value

_MOST_DIGITS = 38
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
# How many digits the values of these have at most, as Spark counts them.
_DIGITS = dict(zip(_INTEGERS, (3, 5, 10, 20), strict=True))
_ARITHMETIC = frozenset({"+", "-", "*"})
_DATE_TYPES = {"date": pa.date32(), **dict.fromkeys(DATE_PARTS, pa.int32())}
_BOOLEAN = frozenset(
    {"and", "or", "not", "=", "<>", "<=>", "<", "<=", ">", ">=", "in", "between", "isnull", "isnotnull", "like"}
    | {"startswith"}
)


def arrow_value(node: Node, columns: Columns) -> Value | None:
    """Return a value as Arrow computes it; None where something in it is left to Spark."""
    if isinstance(node, Name):
        index = columns.place(node)
        kind = None if index is None else plain_type(columns.fields[index])
        return None if index is None or kind is None else ColumnValue(index, kind)
    if isinstance(node, ParsedLiteral):
        return _literal(node, columns)
    if not isinstance(node, ParsedOperation):
        return None
    if node.op in _BOOLEAN:
        condition = arrow_condition(node, columns)
        return None if condition is None else ConditionValue(condition, pa.bool_())
    if node.op in _DATE_TYPES:
        found = condition_value(node, columns)
        return None if found is None else ConditionValue(found, _DATE_TYPES[node.op])
    return _case(node, columns) if node.op == "case" else _calculation(node, columns)


def assigned_value(value: Value, field: StructField) -> Value | None:
    """Return a value as that of a column to which it is assigned; None where the cast is left to Spark."""
    wanted = plain_type(field)
    if wanted is None:
        return None
    if value.type == wanted:
        return value
    if pa.types.is_null(value.type):
        return Literal(None, wanted)
    if pa.types.is_decimal(value.type) and pa.types.is_decimal(wanted):
        return Calculation("round" if value.type.scale > wanted.scale else "cast", (value,), wanted)
    return Calculation("cast", (value,), wanted) if _is_cast(value.type, wanted) else None


def plain_type(field: StructField) -> pa.DataType | None:
    return None if CHAR_VARCHAR_TYPE in (field.metadata or {}) else arrow_of_plain(field.dataType)


def _is_cast(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a value is the same in another type, or Arrow refuses to cast it."""
    if given in _DIGITS and wanted in _DIGITS:
        return True
    if given in _DIGITS and pa.types.is_decimal(wanted):
        return bool(wanted.precision - wanted.scale >= _DIGITS[given])
    if given in _DIGITS:
        return bool(wanted == pa.float64() and given != pa.int64())
    return bool(given == pa.float32() and wanted == pa.float64())


def _literal(node: ParsedLiteral, columns: Columns) -> Value | None:
    value = node.value
    if value is None:
        return Literal(None, pa.null())
    if isinstance(value, Decimal):
        precision, scale = map(int, node.type_name[len("decimal(") : -1].split(","))
        return Literal(value, pa.decimal128(precision, scale))
    kind = arrow_of_plain(node.type_name)
    if kind is None or pa.types.is_binary(kind):
        return None
    if pa.types.is_timestamp(kind):
        point = timestamp_point(node, "local" if kind.tz is None else "instant", columns.zone)
        return None if point is None else Literal(point, kind)
    return Literal(value, kind)


def _case(node: ParsedOperation, columns: Columns) -> Value | None:
    parts = node.operands
    if len(parts) < 2:
        return None
    conditions = [arrow_value(part, columns) for part in parts[: len(parts) // 2 * 2 : 2]]
    values = [arrow_value(part, columns) for part in (*parts[1::2], *(parts[-1:] if len(parts) % 2 else ()))]
    kind = _common([value.type for value in values if value is not None])
    if kind is None or None in values or not all(c is not None and c.type == pa.bool_() for c in conditions):
        return None
    operands = [value for pair in zip(conditions, values, strict=False) for value in pair]
    if len(parts) % 2:
        operands.append(values[-1])
    return Calculation("case", tuple(value for value in operands if value is not None), kind)


def _calculation(node: ParsedOperation, columns: Columns) -> Value | None:
    operands = tuple(value for value in (arrow_value(part, columns) for part in node.operands) if value is not None)
    if len(operands) < len(node.operands):
        return None
    types = [value.type for value in operands]
    if node.op in _ARITHMETIC:
        return _sum_or_product(node.op, operands)
    if node.op == "%":
        remainder = condition_value(node, columns)
        return None if remainder is None else ConditionValue(remainder, max(types, key=_INTEGERS.index))
    if node.op == "concat":
        return Calculation("concat", operands, pa.string()) if set(types) == {pa.string()} else None
    if node.op == "coalesce":
        kind = _common(types)
        return None if kind is None else Calculation("coalesce", operands, kind)
    return None


def _sum_or_product(op: str, operands: tuple[Value, ...]) -> Value | None:
    left, right = operands
    if left.type in _DIGITS and right.type in _DIGITS:
        return Calculation(op, operands, max(left.type, right.type, key=_INTEGERS.index))
    floats = {pa.float32(), pa.float64()}
    if {left.type, right.type} <= floats:
        return Calculation(op, operands, left.type if left.type == right.type else pa.float64())
    if pa.types.is_decimal(left.type) or pa.types.is_decimal(right.type):
        decimals = [_as_decimal(value) for value in operands]
        kind = _decimal_type(op, [value.type for value in decimals if value is not None])
        return None if kind is None else Calculation(op, tuple(v for v in decimals if v is not None), kind)
    return None


def _as_decimal(value: Value) -> Value | None:
    if pa.types.is_decimal(value.type):
        return value
    if value.type not in _DIGITS:
        return None
    if isinstance(value, Literal) and isinstance(value.value, int):
        return Literal(Decimal(value.value), pa.decimal128(len(str(abs(value.value))), 0))
    return Calculation("cast", (value,), pa.decimal128(_DIGITS[value.type], 0))


def _decimal_type(op: str, types: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return the type of a sum or product of two decimals (Spark: DecimalPrecision), None beyond 38 digits."""
    if len(types) < 2:
        return None
    left, right = types
    if op == "*":
        precision, scale = left.precision + right.precision + 1, left.scale + right.scale
    else:
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
    return pa.decimal128(precision, scale) if precision <= _MOST_DIGITS else None


def _common(types: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return the type that holds the values of all; None where there is none, or Spark's rules are less simple."""
    given = [kind for kind in dict.fromkeys(types) if not pa.types.is_null(kind)]
    if len(given) == 1:
        return given[0]
    if given and all(kind in _DIGITS for kind in given):
        return max(given, key=_INTEGERS.index)
    if given and all(kind in _DIGITS or pa.types.is_decimal(kind) for kind in given):
        return _wider_decimal([pa.decimal128(_DIGITS[k], 0) if k in _DIGITS else k for k in given])
    return None


def _wider_decimal(types: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return the decimal that holds the values of all; None beyond 38 digits, where releases of Spark differ."""
    scale = max(kind.scale for kind in types)
    digits = max(kind.precision - kind.scale for kind in types) + scale
    return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else None
