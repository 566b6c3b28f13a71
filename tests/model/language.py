"""A small expression language: each expression has its SQL text and its value in Python.

Values are None, bool, int, float, Decimal, str, date and datetime; a STRUCT is a dict. NULL is None, and logic has
three values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

Row: TypeAlias = "dict[str, Any]"
Scope: TypeAlias = "Mapping[str, Row | None]"


class Expression:
    """An expression over the row of a source ``s`` and the row of a target ``t``."""

    def sql(self) -> str:
        """Gives its text."""
        raise NotImplementedError

    def value(self, scope: Scope) -> Any:
        """Gives its value where the rows of both sides are known."""
        raise NotImplementedError


@dataclass(frozen=True)
class Name(Expression):
    """``t.a`` or ``t.a.b``."""

    side: str
    path: tuple[str, ...]

    def sql(self) -> str:
        return ".".join((self.side, *(f"`{part}`" for part in self.path)))

    def value(self, scope: Scope) -> Any:
        value: Any = scope[self.side]
        for part in self.path:
            value = None if value is None else value[part]
        return value


@dataclass(frozen=True)
class Literal(Expression):
    """A value with its type, so that NULL has one too."""

    known: Any
    data_type: str

    def sql(self) -> str:
        if self.data_type in ("INT", "STRING") and self.known is not None:
            # As people write them: these are read without Spark, a cast is not.
            return _untyped(self.known)
        return literal(self.known, self.data_type)

    def value(self, scope: Scope) -> Any:
        return self.known


@dataclass(frozen=True)
class Compare(Expression):
    """``=``, ``<=>`` or ``<`` between values of one type."""

    sign: str
    left: Expression
    right: Expression

    def sql(self) -> str:
        return f"({self.left.sql()} {self.sign} {self.right.sql()})"

    def value(self, scope: Scope) -> bool | None:
        left, right = self.left.value(scope), self.right.value(scope)
        if left is None or right is None:
            return (left is None and right is None) if self.sign == "<=>" else None
        return _order(left) < _order(right) if self.sign == "<" else _order(left) == _order(right)


def _order(value: Any) -> Any:
    """Makes a value comparable as Spark does: NaN equals NaN and is above all, -0.0 equals 0.0."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


@dataclass(frozen=True)
class And(Expression):
    """FALSE if either is FALSE, else NULL if either is NULL."""

    left: Expression
    right: Expression

    def sql(self) -> str:
        return f"({self.left.sql()} AND {self.right.sql()})"

    def value(self, scope: Scope) -> bool | None:
        values = (self.left.value(scope), self.right.value(scope))
        return False if False in values else None if None in values else True


@dataclass(frozen=True)
class Or(Expression):
    """TRUE if either is TRUE, else NULL if either is NULL."""

    left: Expression
    right: Expression

    def sql(self) -> str:
        return f"({self.left.sql()} OR {self.right.sql()})"

    def value(self, scope: Scope) -> bool | None:
        values = (self.left.value(scope), self.right.value(scope))
        return True if True in values else None if None in values else False


@dataclass(frozen=True)
class Not(Expression):
    """NULL of NULL."""

    of: Expression

    def sql(self) -> str:
        return f"NOT ({self.of.sql()})"

    def value(self, scope: Scope) -> bool | None:
        value = self.of.value(scope)
        return None if value is None else not value


@dataclass(frozen=True)
class IsNull(Expression):
    """``IS NULL``."""

    of: Expression

    def sql(self) -> str:
        return f"({self.of.sql()} IS NULL)"

    def value(self, scope: Scope) -> bool:
        return self.of.value(scope) is None


@dataclass(frozen=True)
class Plus(Expression):
    """``+`` between numbers of one type."""

    left: Expression
    right: Expression

    def sql(self) -> str:
        return f"({self.left.sql()} + {self.right.sql()})"

    def value(self, scope: Scope) -> Any:
        left, right = self.left.value(scope), self.right.value(scope)
        return None if left is None or right is None else left + right


@dataclass(frozen=True)
class Case(Expression):
    """``CASE WHEN … THEN … ELSE … END``."""

    when: Expression
    then: Expression
    otherwise: Expression

    def sql(self) -> str:
        return f"CASE WHEN {self.when.sql()} THEN {self.then.sql()} ELSE {self.otherwise.sql()} END"

    def value(self, scope: Scope) -> Any:
        return (self.then if self.when.value(scope) is True else self.otherwise).value(scope)


@dataclass(frozen=True)
class Coalesce(Expression):
    """The first that is not NULL."""

    first: Expression
    second: Expression

    def sql(self) -> str:
        return f"coalesce({self.first.sql()}, {self.second.sql()})"

    def value(self, scope: Scope) -> Any:
        first = self.first.value(scope)
        return self.second.value(scope) if first is None else first


def literal(value: Any, data_type: str) -> str:
    """Writes a value as SQL.

    >>> literal(float("nan"), "DOUBLE")
    "CAST('nan' AS DOUBLE)"
    """
    if value is None:
        return f"CAST(NULL AS {data_type})"
    if isinstance(value, dict):
        parts = ", ".join(f"'{name}', {_untyped(part)}" for name, part in value.items())
        return f"CAST(named_struct({parts}) AS {data_type})"
    if isinstance(value, bool):
        return str(value).lower()
    return f"CAST({_untyped(value)} AS {data_type})"


def _untyped(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, (bool, int)):
        return str(value)
    if isinstance(value, (float, Decimal)):
        return f"'{value}'"
    if isinstance(value, datetime):
        return f"'{value.isoformat(' ')}'"
    if isinstance(value, date):
        return f"'{value.isoformat()}'"
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"
