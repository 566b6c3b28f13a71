"""Random conditions and values over the columns that a clause sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from corpus.sql import quote

from .kinds import NUMBERS, TEXTS, Array, Kind, Scalar, Struct, value
from .merge import Column, Expr, Side


@dataclass(frozen=True)
class Visible:
    """A column, or a field of one, that an expression may name."""

    side: Side
    column: str
    text: str
    kind: Kind

    def expr(self) -> Expr:
        """Gives the expression that names it."""
        return Expr(self.text, frozenset({(self.side, self.column)}))


def visible(side: Side, columns: Sequence[Column]) -> list[Visible]:
    """Lists a side's columns and the fields of its structs."""
    found = []
    for column in columns:
        name = f"{side}.{quote(column.name)}"
        found.append(Visible(side, column.name, name, column.kind))
        if isinstance(column.kind, Struct):
            found += [Visible(side, column.name, f"{name}.{quote(f.name)}", f.kind) for f in column.kind.fields]
    return found


class Expressions:
    """Makes expressions over some columns.

    Args:
        random: Where chance comes from.
        seen: What may be named.
    """

    def __init__(self, random: Random, seen: Sequence[Visible]) -> None:
        self.random = random
        self.seen = seen

    def condition(self, depth: int = 2) -> Expr:
        """Makes a condition."""
        drawn = self.random.random()
        if depth > 0 and drawn < 0.25:
            word = self.random.choice(("AND", "OR"))
            return _joined("({} " + word + " {})", self.condition(depth - 1), self.condition(depth - 1))
        if depth > 0 and drawn < 0.33:
            return _joined("NOT ({})", self.condition(depth - 1))
        if drawn < 0.37:
            return Expr(self.random.choice(("true", "false", "CAST(NULL AS BOOLEAN)")))
        scalars = [v for v in self.seen if isinstance(v.kind, Scalar)]
        if not scalars:
            return Expr("true")
        left = self.random.choice(scalars)
        if drawn < 0.52:
            word = self.random.choice(("IS NULL", "IS NOT NULL"))
            return _joined("{} " + word, self.random.choice(self.seen).expr())
        sign = self.random.choice(("=", "<", ">", "<=", "<>", "<=>", "="))
        return _joined("{} " + sign + " {}", left.expr(), self._comparable(left))

    def _comparable(self, left: Visible) -> Expr:
        others = [v for v in self.seen if v != left and _comparable(v.kind, left.kind)]
        if others and self.random.random() < 0.4:
            return self.random.choice(others).expr()
        return Expr(value(self.random, left.kind, nulls=0.02))

    def value(self, kind: Kind, depth: int = 1) -> Expr:
        """Makes a value that a column of a type takes, as a rule."""
        drawn = self.random.random()
        same = [v for v in self.seen if v.kind == kind]
        if same and drawn < 0.5:
            return self.random.choice(same).expr()
        if drawn < 0.62:
            return Expr(value(self.random, kind))
        if drawn < 0.7 and self.seen:
            # Of any type: the store assignment or its refusal.
            wanted = [v for v in self.seen if isinstance(v.kind, Scalar) == isinstance(kind, Scalar)]
            return self.random.choice(wanted or self.seen).expr()
        if depth == 0:
            return Expr(value(self.random, kind))
        ways: list[Callable[[], Expr]] = [
            lambda: _joined("CASE WHEN {} THEN {} ELSE {} END", self.condition(1), *self._two(kind, depth)),
            lambda: _joined("coalesce({}, {})", *self._two(kind, depth)),
        ]
        if isinstance(kind, Scalar) and kind.sql in NUMBERS:
            ways.append(lambda: _joined("{} + 1", self.value(kind, depth - 1)))
            ways.append(lambda: _joined("CAST({} AS " + kind.sql + ")", self._other(NUMBERS, kind)))
        if isinstance(kind, Scalar) and kind.sql in TEXTS:
            ways.append(lambda: _joined("concat({}, 'x')", self.value(kind, depth - 1)))
            ways.append(lambda: _joined("CAST({} AS STRING)", self._other(NUMBERS, kind)))
        if isinstance(kind, Struct):
            ways += [lambda: self._struct(kind, depth)] * 3
        if isinstance(kind, Array):
            ways.append(lambda: _joined("array({}, {})", *(self.value(kind.element, depth - 1) for _ in "ab")))
        return self.random.choice(ways)()

    def _two(self, kind: Kind, depth: int) -> tuple[Expr, Expr]:
        return self.value(kind, depth - 1), self.value(kind, depth - 1)

    def _other(self, names: Sequence[str], kind: Scalar) -> Expr:
        found = [v for v in self.seen if isinstance(v.kind, Scalar) and v.kind.sql in names]
        return self.random.choice(found).expr() if found else Expr(value(self.random, kind))

    def _struct(self, kind: Struct, depth: int) -> Expr:
        fields = list(kind.fields)
        if self.random.random() < 0.4:
            self.random.shuffle(fields)
        if len(fields) > 1 and self.random.random() < 0.1:
            fields.pop()
        values = [self.value(f.kind, depth - 1) for f in fields]
        text = ", ".join(f"'{f.name}', {v.text}" for f, v in zip(fields, values, strict=True))
        return Expr(f"named_struct({text})", frozenset().union(*(v.columns for v in values)))


def _comparable(left: Kind, right: Kind) -> bool:
    if not isinstance(left, Scalar) or not isinstance(right, Scalar):
        return False
    families = (NUMBERS, TEXTS, ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"), ("BOOLEAN",), ("BINARY",))
    return any(left.sql in family and right.sql in family for family in families)


def _joined(form: str, *parts: Expr) -> Expr:
    columns = frozenset[tuple[Side, str]]().union(*(part.columns for part in parts))
    return Expr(form.format(*(part.text for part in parts)), columns)
