"""Conditions over Arrow columns, and which clause of a MERGE takes a row by them.

`merge.analysis.arrow_conditions` admits only conditions that Arrow evaluates as Spark does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Kind: TypeAlias = Literal["whole", "decimal", "double", "string", "day", "instant", "local", "boolean", "other"]

_MICROSECONDS_OF_A_DAY = 86_400_000_000
ARROW_TYPES: dict[Kind, pa.DataType] = {
    "whole": pa.int64(),
    # Of at most 20 digits before the point and 18 after it, as any whole number.
    "decimal": pa.decimal128(38, 18),
    "double": pa.float64(),
    "string": pa.string(),
    "day": pa.date32(),
    "instant": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "boolean": pa.bool_(),
}


@dataclass(frozen=True)
class Column:
    """A column by its position; rows name their columns by these positions, as strings."""

    index: int
    kind: Kind


@dataclass(frozen=True)
class Constant:
    value: object
    kind: Kind


@dataclass(frozen=True)
class Operation:
    """An operator of `EVALUATORS` over its operands: boolean but for ``%``, `DATE_PARTS` and ``date``."""

    op: str
    operands: tuple[Condition, ...]

    @property
    def kind(self) -> Kind:
        if self.op == "date":
            return "day"
        return "whole" if self.op == "%" or self.op in DATE_PARTS else "boolean"


Condition: TypeAlias = Column | Constant | Operation


def columns_of(condition: Condition) -> frozenset[int]:
    if isinstance(condition, Column):
        return frozenset({condition.index})
    if isinstance(condition, Constant):
        return frozenset()
    return frozenset[int]().union(*map(columns_of, condition.operands))


def evaluate(condition: Condition, rows: pa.Table) -> Any:  # noqa: ANN401
    """Evaluate a condition; the result is an array or, where no column is in it, a scalar."""
    if isinstance(condition, Column):
        column = rows.column(str(condition.index))
        return column.cast(ARROW_TYPES[condition.kind]) if condition.kind in ARROW_TYPES else column
    if isinstance(condition, Constant):
        return pa.scalar(condition.value, ARROW_TYPES[condition.kind])
    values = [evaluate(operand, rows) for operand in condition.operands]
    if {operand.kind for operand in condition.operands} == {"whole", "decimal"}:
        values = [value.cast(ARROW_TYPES["decimal"]) for value in values]
    found = EVALUATORS[condition.op](values)
    if condition.op in (">", ">=") and condition.operands[0].kind == "double":
        # For Spark NaN is above all other numbers.
        return pc.or_(found, pc.is_nan(values[0]))
    return found


@dataclass(frozen=True)
class ClauseChoice:
    """Which of several clauses takes a row, or a pair of rows.

    Args:
        clauses: The clauses' numbers in their order, each with its condition; None where it has none.
        returned: The numbers to return; rows that another clause takes are NULL.
    """

    clauses: tuple[tuple[int, Condition | None], ...]
    returned: frozenset[int]

    @property
    def columns(self) -> frozenset[int]:
        conditions = [condition for _, condition in self.clauses if condition is not None]
        return frozenset[int]().union(*map(columns_of, conditions))

    def of(self, rows: pa.Table, count: int) -> pa.Array:
        """Return the number of the first clause whose condition is TRUE, NULL where there is none (INT).

        Args:
            rows: The columns in the conditions; constants need none, and a table without columns has no rows.
        """
        free = np.ones(count, np.bool_)
        numbers, is_returned = np.zeros(count, np.int32), np.zeros(count, np.bool_)
        for number, condition in self.clauses:
            takes = free if condition is None else free & _is_true(evaluate(condition, rows), count)
            numbers[takes], is_returned[takes] = number, number in self.returned
            free = free & ~takes
        return pa.array(numbers, mask=~is_returned)


@dataclass(frozen=True)
class RowCheck:
    """What must hold for each row; NULL counts as violated.

    Args:
        columns: By the position that `condition` has for a column, its name in data files.
    """

    name: str
    condition: Condition
    columns: Mapping[int, str]

    def check(self, rows: Mapping[str, Any], count: int) -> None:
        """Raise ValueError where it does not hold for one of some rows.

        Args:
            rows: Their columns by the names in data files.
        """
        seen = pa.table({str(index): rows[name] for index, name in self.columns.items()})
        if not _is_true(evaluate(self.condition, seen), count).all():
            raise ValueError(f"a row violates constraint {self.name}")


def _is_true(value: Any, rows: int) -> np.ndarray[Any, np.dtype[np.bool_]]:  # noqa: ANN401
    if isinstance(value, pa.Scalar):
        return np.full(rows, value.as_py() is True)
    found: np.ndarray[Any, np.dtype[np.bool_]] = value.fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _is_in(values: list[Any]) -> Any:  # noqa: ANN401
    value, *items = values
    if isinstance(value, pa.Scalar) or pa.types.is_floating(value.type) or not all(map(_is_constant, items)):
        # Arrow's `is_in` tells -0.0 from 0.0.
        return reduce(pc.or_kleene, (pc.equal(value, item) for item in items))
    return pc.if_else(pc.is_valid(value), pc.is_in(value, pa.array(items, value.type)), pa.scalar(None, pa.bool_()))


def _is_constant(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, pa.Scalar) and value.is_valid


def _null_safe_equal(values: list[Any]) -> Any:  # noqa: ANN401
    left, right = values
    both = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.coalesce(pc.equal(left, right), both)


def _between(values: list[Any]) -> Any:  # noqa: ANN401
    value, low, high = values
    return pc.and_kleene(pc.greater_equal(value, low), pc.less_equal(value, high))


def _like(values: list[Any]) -> Any:  # noqa: ANN401
    """Match a pattern with ``%`` at its ends only, byte by byte as Spark does: a string need not be UTF-8."""
    value, pattern = values[0], values[1].as_py()
    part, is_open, ends_open = pattern.strip("%"), pattern.startswith("%"), pattern.endswith("%")
    if is_open and ends_open:
        return pc.match_substring(value, part)
    if is_open or ends_open:
        return pc.ends_with(value, part) if is_open else pc.starts_with(value, part)
    return pc.equal(value, part)


def _remainder(values: list[Any]) -> Any:  # noqa: ANN401
    """Return the remainder of a division that rounds towards zero, as Java's ``%`` does."""
    value, divisor = values
    return pc.subtract(value, pc.multiply(pc.divide(value, divisor), divisor))


def _days(value: Any) -> Any:  # noqa: ANN401
    """Return the days of dates and times, for NumPy: Arrow's own parts of dates stop at the year 32,767."""
    numbers = value.cast(pa.int32() if pa.types.is_date(value.type) else pa.int64())
    days = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    return days if pa.types.is_date(value.type) else days // _MICROSECONDS_OF_A_DAY


def _date_part(part: Callable[[Any], Any]) -> Callable[[list[Any]], Any]:
    def of(values: list[Any]) -> Any:  # noqa: ANN401
        (value,) = values
        found = part(_days(value).astype("datetime64[D]"))
        return pa.array(found, pa.int64(), mask=pc.is_null(value).to_numpy(zero_copy_only=False))

    return of


def _date(values: list[Any]) -> Any:  # noqa: ANN401
    (value,) = values
    if pa.types.is_date(value.type):
        return value
    return pa.array(_days(value).astype(np.int32), pa.date32(), mask=pc.is_null(value).to_numpy(zero_copy_only=False))


def _months(days: Any) -> Any:  # noqa: ANN401
    return days.astype("datetime64[M]").astype(np.int64) % 12


DATE_PARTS: dict[str, Callable[[list[Any]], Any]] = {
    "year": _date_part(lambda days: days.astype("datetime64[Y]").astype(np.int64) + 1970),
    "quarter": _date_part(lambda days: _months(days) // 3 + 1),
    "month": _date_part(lambda days: _months(days) + 1),
    "day": _date_part(lambda days: (days - days.astype("datetime64[M]")).astype(np.int64) + 1),
}
EVALUATORS: dict[str, Callable[[list[Any]], Any]] = {
    "=": lambda values: pc.equal(*values),
    "<>": lambda values: pc.not_equal(*values),
    "<": lambda values: pc.less(*values),
    "<=": lambda values: pc.less_equal(*values),
    ">": lambda values: pc.greater(*values),
    ">=": lambda values: pc.greater_equal(*values),
    "<=>": _null_safe_equal,
    "in": _is_in,
    "between": _between,
    "%": _remainder,
    "and": lambda values: reduce(pc.and_kleene, values),
    "or": lambda values: reduce(pc.or_kleene, values),
    "not": lambda values: pc.invert(values[0]),
    "isnull": lambda values: pc.is_null(values[0]),
    "isnotnull": lambda values: pc.is_valid(values[0]),
    "startswith": lambda values: pc.starts_with(values[0], values[1].as_py()),
    "like": _like,
    "date": _date,
    **DATE_PARTS,
}
