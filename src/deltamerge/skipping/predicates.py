"""Conditions as far as skipping files can use them: a small tree over target columns and literals.

Anything that this tree cannot express is `Unknown`, which every file may match. NOT is pushed down to the leaves by
three-valued logic, so that skipping never negates a "may".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class ColumnRef:
    """A target column or one of its nested struct fields: its path as the table spells it."""

    path: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """``column op value``.

    Args:
        op: One of ``=  <=>  <>  <  <=  >  >=``.
        value: A Python value (None, bool, int, Decimal, float, str, bytes, date, datetime); a datetime with a time
            zone is an instant, one without a local time.
        type_name: Spark's name of the literal's type, such as ``int``, ``string``, ``decimal(3,1)``.
    """

    op: str
    column: ColumnRef
    value: object
    type_name: str


@dataclass(frozen=True)
class In:
    """``column IN (values)``; see `Comparison` for values and type."""

    column: ColumnRef
    values: tuple[object, ...]
    type_name: str


@dataclass(frozen=True)
class IsNull:
    column: ColumnRef


@dataclass(frozen=True)
class IsNotNull:
    column: ColumnRef


@dataclass(frozen=True)
class StartsWith:
    """``column LIKE 'prefix%'`` or ``startswith(column, prefix)``."""

    column: ColumnRef
    prefix: str


@dataclass(frozen=True)
class InRanges:
    """The column's value is in one of some closed ranges, or is NULL where that is allowed.

    Ranges are pairs of lowest and highest value, sorted, without overlap; values as in `Comparison`.
    """

    column: ColumnRef
    ranges: tuple[tuple[object, object], ...]
    or_null: bool
    type_name: str


@dataclass(frozen=True)
class And:
    """All of the parts; no part at all is TRUE."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Or:
    """Any of the parts; no part at all is FALSE."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Not:
    """The part is FALSE."""

    part: Predicate


@dataclass(frozen=True)
class Unknown:
    """Nothing is known: every file may match."""


ColumnPredicate: TypeAlias = Comparison | In | IsNull | IsNotNull | StartsWith | InRanges
Predicate: TypeAlias = ColumnPredicate | And | Or | Not | Unknown

ALWAYS: Predicate = And(())
NEVER: Predicate = Or(())

NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
# Beyond this many values NOT IN only proves that the column is not NULL.
MAX_NOT_IN = 32


def push_not_down(predicate: Predicate) -> Predicate:
    """Return a predicate without `Not` that is TRUE at least for every row that this one is TRUE for.

    NOT is pushed into comparisons by De Morgan's rules; NULL stays neither TRUE nor FALSE, so ``NOT (x = NULL)`` is
    never TRUE.
    """
    if isinstance(predicate, And):
        return And(tuple(push_not_down(part) for part in predicate.parts))
    if isinstance(predicate, Or):
        return Or(tuple(push_not_down(part) for part in predicate.parts))
    if isinstance(predicate, Not):
        return _negate(predicate.part)
    return predicate


def _negate(predicate: Predicate) -> Predicate:
    if isinstance(predicate, Not):
        return push_not_down(predicate.part)
    if isinstance(predicate, And):
        return Or(tuple(_negate(part) for part in predicate.parts))
    if isinstance(predicate, Or):
        return And(tuple(_negate(part) for part in predicate.parts))
    if isinstance(predicate, Comparison):
        return _negate_comparison(predicate)
    if isinstance(predicate, In):
        return _negate_in(predicate)
    if isinstance(predicate, IsNotNull):
        return IsNull(predicate.column)
    if isinstance(predicate, (IsNull, StartsWith)):
        return IsNotNull(predicate.column)
    return Unknown()


def _negate_comparison(predicate: Comparison) -> Predicate:
    if predicate.op == "<=>":
        if predicate.value is None:
            return IsNotNull(predicate.column)
        differs = Comparison("<>", predicate.column, predicate.value, predicate.type_name)
        return Or((differs, IsNull(predicate.column)))
    if predicate.value is None:
        return NEVER
    op = NEGATED.get(predicate.op)
    if op is None:
        return Unknown()
    return Comparison(op, predicate.column, predicate.value, predicate.type_name)


def _negate_in(predicate: In) -> Predicate:
    if any(value is None for value in predicate.values):
        return NEVER
    if not predicate.values:
        return And(())
    if len(predicate.values) > MAX_NOT_IN:
        return IsNotNull(predicate.column)
    return And(tuple(Comparison("<>", predicate.column, value, predicate.type_name) for value in predicate.values))
