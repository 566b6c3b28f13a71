"""Finds the side of a MERGE that a name belongs to, as Spark resolves it (`AttributeSeq.resolve`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal as OneOf
from typing import TypeAlias

FieldTree: TypeAlias = "Mapping[str, FieldTree | None]"
"""Columns or fields by name; of a struct its fields, None for every other type."""

SideName: TypeAlias = OneOf["target", "source"]


@dataclass(frozen=True)
class Relation:
    """One side of a MERGE, as far as names go.

    Args:
        qualifiers: What may precede a column's name: only the alias, or, without an alias, the table's name in full
            (``("db", "tbl")``, ``("delta", "/path")``), of which the last parts will do too.
        duplicates: Names that several columns have; they are never resolved.
        is_qualified_within: Whether the columns may have qualifiers besides, those of the frames that were joined.
    """

    qualifiers: tuple[tuple[str, ...], ...]
    columns: FieldTree
    duplicates: frozenset[str] = field(default_factory=frozenset)
    is_qualified_within: bool = False

    @cached_property
    def by_lower_case(self) -> Mapping[str, Sequence[str]]:
        """The columns' names by what they are in lower case."""
        found: dict[str, list[str]] = defaultdict(list)
        for column in self.columns:
            found[column.lower()].append(column)
        return found


@dataclass(frozen=True)
class Found:
    """A column or field that a name may mean.

    Args:
        path: The column and its fields, as the side spells them.
        known: Whether every field of the path is known to exist; below arrays, maps and unknown types it is not,
            and then the path ends where knowledge does.
    """

    side: SideName
    path: tuple[str, ...]
    known: bool


@dataclass(frozen=True)
class Scope:
    """What names can mean in a condition; a side that the condition does not see has no columns."""

    target: Relation
    source: Relation
    case_sensitive: bool

    def resolve(self, parts: tuple[str, ...]) -> Found | None:
        """Return the column that a name means; None where there is none, or where both sides have it."""
        found = self.candidates(parts)
        return found[0] if len(found) == 1 else None

    def candidates(self, parts: tuple[str, ...]) -> tuple[Found, ...]:
        """Return every column that a name may mean; a qualified reading goes before an unqualified one.

        The field of a struct may as well be another column, where qualifiers are not known.
        """
        for length in range(len(parts) - 1, -1, -1):
            found = tuple(
                match
                for side, relation in self._sides()
                if length == 0 or self._is_qualifier(parts[:length], relation)
                for match in self._columns(side, relation, parts[length:])
            )
            if found:
                return (*found, *self._within(parts)) if length == 0 else found
        return ()

    def _within(self, parts: tuple[str, ...]) -> list[Found]:
        return [
            match
            for side, relation in self._sides()
            if relation.is_qualified_within
            for length in range(1, len(parts))
            for match in self._columns(side, relation, parts[length:])
        ]

    def is_qualified(self, parts: tuple[str, ...]) -> bool:
        """Return whether a name begins with the alias or the name of a side."""
        return any(
            self._is_qualifier(parts[:length], relation)
            for length in range(1, len(parts) + 1)
            for _, relation in self._sides()
        )

    def _sides(self) -> tuple[tuple[SideName, Relation], ...]:
        return (("target", self.target), ("source", self.source))

    def _same(self, left: str, right: str) -> bool:
        return left == right or (not self.case_sensitive and left.lower() == right.lower())

    def _is_qualifier(self, parts: tuple[str, ...], relation: Relation) -> bool:
        return any(
            len(parts) <= len(qualifier)
            and all(self._same(left, right) for left, right in zip(parts, qualifier[-len(parts) :], strict=True))
            for qualifier in relation.qualifiers
        )

    def _columns(self, side: SideName, relation: Relation, parts: tuple[str, ...]) -> list[Found]:
        """Return the columns of one side; several where names differ only in case or are duplicates."""
        found = [
            Found(side, *self._fields((column,), relation.columns[column], parts[1:]))
            for column in relation.by_lower_case.get(parts[0].lower(), ())
            if self._same(column, parts[0])
        ]
        if found and any(self._same(name, parts[0]) for name in relation.duplicates):
            return [*found, *found]
        return found

    def _fields(
        self, path: tuple[str, ...], tree: FieldTree | None, parts: tuple[str, ...]
    ) -> tuple[tuple[str, ...], bool]:
        for part in parts:
            same = [name for name in tree or () if self._same(name, part)]
            if tree is None or len(same) != 1:
                return path, False
            path, tree = (*path, same[0]), tree[same[0]]
        return path, True
