"""Values that PyArrow computes of rows: what an UPDATE or INSERT sets, and generated columns.

`merge.analysis.arrow_values` admits only what Arrow computes as Spark does. A result that its type does not hold, such
as a sum that overflows, is an error here: whether it is one of the statement, or becomes another value, Spark decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.workers.conditions import Condition, columns_of, evaluate


@dataclass(frozen=True)
class ColumnValue:
    """A column by its position, in its type; rows name their columns by these positions, as strings."""

    index: int
    type: pa.DataType


@dataclass(frozen=True)
class Literal:
    value: object
    type: pa.DataType


@dataclass(frozen=True)
class ConditionValue:
    """What a condition, or a part of a date, has for a row."""

    condition: Condition
    type: pa.DataType


@dataclass(frozen=True)
class Calculation:
    """An operator of `CALCULATIONS` over its operands; of ``case`` conditions and values by turns, and ELSE's value."""

    op: str
    operands: tuple[Value, ...]
    type: pa.DataType


Value: TypeAlias = ColumnValue | Literal | ConditionValue | Calculation


def positions_in(value: Value) -> frozenset[int]:
    if isinstance(value, ColumnValue):
        return frozenset({value.index})
    if isinstance(value, ConditionValue):
        return columns_of(value.condition)
    if isinstance(value, Literal):
        return frozenset()
    return frozenset[int]().union(*map(positions_in, value.operands))


@dataclass(frozen=True)
class RowValue:
    """What a column of a row becomes.

    Args:
        target: By positions in the value the columns of the target's files, with their types.
        source: By positions the staged columns.
        written: By positions the columns, in data files, of the row as it is written: of a generated column.
    """

    value: Value
    target: Mapping[int, pa.Field] = field(default_factory=dict)
    source: Mapping[int, str] = field(default_factory=dict)
    written: Mapping[int, str] = field(default_factory=dict)

    @property
    def target_names(self) -> frozenset[str]:
        return frozenset(column.name for column in self.target.values())

    def of(
        self, rows: int, target: Callable[[pa.Field], Any], source: Callable[[str], Any], written: Callable[[str], Any]
    ) -> pa.Array:
        """Compute it for some rows, given the functions that return their columns.

        Raises:
            pyarrow.ArrowInvalid: A result is not in its type's range.
        """
        columns = {
            **{str(index): target(column) for index, column in self.target.items()},
            **{str(index): source(name) for index, name in self.source.items()},
            **{str(index): written(name) for index, name in self.written.items()},
        }
        found = _computed(self.value, columns)
        if isinstance(found, pa.Scalar):
            return pa.repeat(found, rows)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


Setting: TypeAlias = str | RowValue
"""What a column of a row becomes: what a column of the staged rows has, or what is computed."""


@dataclass(frozen=True)
class ClauseRows:
    """What the rows are made of that one UPDATE or INSERT clause writes.

    Args:
        settings: What each of the table's columns becomes that the clause sets.
        holds: The column that is TRUE where Spark found that a row's constraints hold; None where it evaluated none.
    """

    settings: Mapping[str, Setting]
    holds: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, staged or computed, that are read for them."""
        read = [name for setting in self.settings.values() for name in staged_names(setting)]
        return (*read, *(() if self.holds is None else (self.holds,)))

    @property
    def ordered(self) -> list[str]:
        """The columns that it sets, those that are computed of others last."""
        return sorted(self.settings, key=lambda name: is_last(self.settings[name]))


def staged_names(setting: Setting) -> tuple[str, ...]:
    return (setting,) if isinstance(setting, str) else tuple(setting.source.values())


def is_last(setting: Setting) -> bool:
    """Return whether a column is computed once the row's other columns are known."""
    return isinstance(setting, RowValue) and bool(setting.written)


def _computed(value: Value, columns: Mapping[str, Any]) -> Any:  # noqa: ANN401
    if isinstance(value, ColumnValue):
        return columns[str(value.index)].cast(value.type)
    if isinstance(value, Literal):
        return pa.scalar(value.value, value.type)
    if isinstance(value, ConditionValue):
        return evaluate(value.condition, pa.table(dict(columns))).cast(value.type)
    return CALCULATIONS[value.op]([_computed(operand, columns) for operand in value.operands], value.type)


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[[list[Any], pa.DataType], Any]:
    def of(values: list[Any], kind: pa.DataType) -> Any:  # noqa: ANN401
        if pa.types.is_decimal(kind):
            return function(*values).cast(kind)
        return function(*(value.cast(kind) for value in values))

    return of


def _concat(values: list[Any], kind: pa.DataType) -> Any:  # noqa: ANN401
    return pc.binary_join_element_wise(*values, pa.scalar("", kind), null_handling="emit_null")


def _case(values: list[Any], kind: pa.DataType) -> Any:  # noqa: ANN401
    otherwise = values[-1].cast(kind) if len(values) % 2 else pa.scalar(None, kind)
    branches = zip(values[0::2], values[1::2], strict=False)
    return reduce(
        lambda rest, branch: pc.if_else(pc.fill_null(branch[0], False), branch[1].cast(kind), rest),
        reversed(list(branches)),
        otherwise,
    )


def _rounded(values: list[Any], kind: pa.DataType) -> Any:  # noqa: ANN401
    (value,) = values
    return pc.round(value, ndigits=kind.scale, round_mode="half_towards_infinity").cast(kind)


CALCULATIONS: dict[str, Callable[[list[Any], pa.DataType], Any]] = {
    "+": _arithmetic(pc.add_checked),
    "-": _arithmetic(pc.subtract_checked),
    "*": _arithmetic(pc.multiply_checked),
    "concat": _concat,
    "coalesce": lambda values, kind: pc.coalesce(*(value.cast(kind) for value in values)),
    "case": _case,
    "cast": lambda values, kind: values[0].cast(kind),
    "round": _rounded,
}
