"""Clause conditions evaluated in Arrow: those for which Arrow means exactly what Spark does, whatever its settings.

They compare columns, whole numbers, texts, dates and truth values with others of their kind, and times with times of
other columns; there is nothing in them to cast, to overflow or to divide by zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce
from typing import Any, TypeAlias
from typing import Literal as OneOf

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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

from deltamerge.sql.expression import Literal, Name, Node, Operation
from deltamerge.write.char_varchar import METADATA_KEY

Kind: TypeAlias = OneOf["whole", "text", "day", "instant", "local", "truth", "other"]

_KINDS: dict[DataType, Kind] = {
    ByteType(): "whole",
    ShortType(): "whole",
    IntegerType(): "whole",
    LongType(): "whole",
    StringType(): "text",
    DateType(): "day",
    TimestampType(): "instant",
    TimestampNTZType(): "local",
    BooleanType(): "truth",
}
_ARROW: dict[Kind, pa.DataType] = {
    "whole": pa.int64(),
    "text": pa.string(),
    "day": pa.date32(),
    "instant": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "truth": pa.bool_(),
}
_PYTHON: dict[Kind, type] = {"whole": int, "text": str, "day": date, "truth": bool}
_ORDERED = frozenset({"whole", "text", "day", "instant", "local"})
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@dataclass(frozen=True)
class ArrowValue:
    """A value of each row.

    Args:
        kind: What it is.
        columns: The columns in it, by position.
        of: Gives it for rows, whose columns are named by these positions: as an array, or one for all rows.
    """

    kind: Kind
    columns: frozenset[int]
    of: Callable[[pa.Table], Any]


@dataclass(frozen=True)
class ClauseChoice:
    """Which of several clauses takes a row, or a pair of rows.

    Args:
        clauses: The clauses' numbers in their order, each with its condition; None where it has none.
        kept: The numbers that are told; of a row that another clause takes nothing is.
    """

    clauses: tuple[tuple[int, ArrowValue | None], ...]
    kept: frozenset[int]

    @property
    def columns(self) -> frozenset[int]:
        """The columns that the conditions look at, by position."""
        return frozenset().union(*(c.columns for _, c in self.clauses if c is not None))

    def of(self, rows: pa.Table) -> pa.Array:
        """Gives the number of the first clause whose condition is TRUE, NULL where there is none (INT).

        Args:
            rows: The rows, whose columns are named by their positions.
        """
        free = np.ones(len(rows), np.bool_)
        numbers, is_kept = np.zeros(len(rows), np.int32), np.zeros(len(rows), np.bool_)
        for number, condition in self.clauses:
            takes = free if condition is None else free & _is_true(condition.of(rows), len(rows))
            numbers[takes], is_kept[takes] = number, number in self.kept
            free = free & ~takes
        return pa.array(numbers, mask=~is_kept)


def _is_true(value: Any, rows: int) -> np.ndarray[Any, np.dtype[np.bool_]]:  # noqa: ANN401
    if isinstance(value, pa.Scalar):
        return np.full(rows, value.as_py() is True)
    found: np.ndarray[Any, np.dtype[np.bool_]] = value.fill_null(False).to_numpy(zero_copy_only=False)
    return found


def arrow_condition(
    node: Node, column: Callable[[Name], int | None], fields: Sequence[StructField]
) -> ArrowValue | None:
    """Tells how Arrow evaluates a condition.

    Args:
        node: The condition.
        column: Finds the column of a name; None where it is not certainly one.
        fields: The columns.

    Returns:
        A truth value that is NULL where Spark's is; None where something in the condition is left to Spark.
    """
    found = _Reader(column, fields).value(node)
    return found if found is not None and found.kind == "truth" else None


@dataclass(frozen=True)
class _Reader:
    column: Callable[[Name], int | None]
    fields: Sequence[StructField]

    def value(self, node: Node) -> ArrowValue | None:
        if isinstance(node, Name):
            return self.of_column(node)
        if isinstance(node, Literal):
            return _constant(node)
        if not isinstance(node, Operation):
            return None
        operands = [self.value(operand) for operand in node.operands]
        known = [operand for operand in operands if operand is not None]
        if len(known) < len(operands):
            return None
        return _operation(node, known)

    def of_column(self, name: Name) -> ArrowValue | None:
        index = self.column(name)
        if index is None:
            return None
        field = self.fields[index]
        # A CHAR column is compared with blanks at its end.
        is_padded = METADATA_KEY in (field.metadata or {})
        kind = "other" if is_padded else _KINDS.get(field.dataType, "other")
        return ArrowValue(kind, frozenset({index}), lambda rows: _column(rows, index, kind))


def _column(rows: pa.Table, index: int, kind: Kind) -> Any:  # noqa: ANN401
    column = rows.column(str(index))
    return column.cast(_ARROW[kind]) if kind in _ARROW else column


def _constant(node: Literal) -> ArrowValue | None:
    # A truth value is an int in Python, and an instant a date.
    kind = next((kind for kind, python in _PYTHON.items() if type(node.value) is python), None)
    if kind is None:
        return None
    constant = pa.scalar(node.value, _ARROW[kind])
    return ArrowValue(kind, frozenset(), lambda _: constant)


def _operation(node: Operation, operands: list[ArrowValue]) -> ArrowValue | None:
    first = operands[0]
    columns = frozenset().union(*(operand.columns for operand in operands))
    compute = _compute(node, operands)
    if compute is None:
        return None
    kind: Kind = first.kind if node.op == "%" else "truth"
    return ArrowValue(kind, columns, lambda rows: compute([operand.of(rows) for operand in operands]))


def _compute(node: Operation, operands: list[ArrowValue]) -> Callable[[list[Any]], Any] | None:
    kinds = {operand.kind for operand in operands}
    if node.op in ("isnull", "isnotnull"):
        test = pc.is_null if node.op == "isnull" else pc.is_valid
        return lambda values: test(values[0])
    if len(kinds) > 1:
        return None
    (kind,) = kinds
    if node.op in ("and", "or", "not"):
        return _of_truth(node.op) if kind == "truth" else None
    if node.op == "%":
        divisor = node.operands[1]
        positive = isinstance(divisor, Literal) and isinstance(divisor.value, int) and divisor.value > 0
        return _remainder if kind == "whole" and positive else None
    if node.op == "between":
        return _between if kind in _ORDERED else None
    if node.op in ("=", "<>", "<=>", "in"):
        return _of_equals(node.op) if kind != "other" else None
    compare = _COMPARE.get(node.op)
    if compare is None or kind not in _ORDERED:
        return None
    return lambda values: compare(*values)


def _of_truth(op: str) -> Callable[[list[Any]], Any]:
    if op == "not":
        return lambda values: pc.invert(values[0])
    join = pc.and_kleene if op == "and" else pc.or_kleene
    return lambda values: reduce(join, values)


def _of_equals(op: str) -> Callable[[list[Any]], Any]:
    if op == "in":
        return lambda values: reduce(pc.or_kleene, [pc.equal(values[0], item) for item in values[1:]])
    if op == "<=>":
        return _null_safe_equal
    compare = _COMPARE[op]
    return lambda values: compare(*values)


def _null_safe_equal(values: list[Any]) -> Any:  # noqa: ANN401
    left, right = values
    both = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.coalesce(pc.equal(left, right), both)


def _between(values: list[Any]) -> Any:  # noqa: ANN401
    value, low, high = values
    return pc.and_kleene(pc.greater_equal(value, low), pc.less_equal(value, high))


def _remainder(values: list[Any]) -> Any:  # noqa: ANN401
    """Gives what is left of a division that rounds towards zero, as Java's ``%`` does."""
    value, divisor = values
    return pc.subtract(value, pc.multiply(pc.divide(value, divisor), divisor))
