"""What is known of a condition for skipping files: a small tree over target columns and literals.

Anything that a condition says and this tree cannot is `Unknown`, which every file may match.
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
        column: The target column.
        value: A Python value (None, bool, int, Decimal, float, str, bytes, date, datetime), as a literal of
            `type_name` gives it; a datetime with a time zone is an instant, one without a local time.
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
    """``column IS NULL``."""

    column: ColumnRef


@dataclass(frozen=True)
class IsNotNull:
    """``column IS NOT NULL``."""

    column: ColumnRef


@dataclass(frozen=True)
class StartsWith:
    """``column LIKE 'prefix%'`` or ``startswith(column, prefix)``."""

    column: ColumnRef
    prefix: str


@dataclass(frozen=True)
class InRanges:
    """The column's value is in one of some closed ranges, or is NULL where that is allowed.

    Args:
        ranges: Pairs of lowest and highest value, sorted, without overlap; values as in `Comparison`.
        or_null: Whether a NULL matches too.
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


Predicate: TypeAlias = Comparison | In | IsNull | IsNotNull | StartsWith | InRanges | And | Or | Not | Unknown

ALWAYS: Predicate = And(())
NEVER: Predicate = Or(())
