"""What an upsert makes of a table, in plain Python: each source row beside the target rows with its key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A row of the target, or with `gone` of the source."""

    key: int | None
    at: int | None
    values: tuple[str | int | None, ...]
    gone: bool | None = None


@dataclass(frozen=True)
class Rules:
    """The arguments of an upsert.

    Args:
        order_by: Whether the latest row by `at` is taken.
        keeps_order: Whether the target has the column `at`.
        delete_when: Whether rows that are gone are deleted.
    """

    order_by: bool = False
    keeps_order: bool = True
    delete_when: bool = False
    null_safe: bool = True
    ignore_nulls: bool = False
    skip_unchanged: bool = False


class NoLatestRow(Exception):
    """Different rows of a key are equally late."""


def later(left: int | None, right: int | None) -> bool:
    """Gives whether a time is later than another; NULL is the earliest."""
    return left is not None and (right is None or left > right)


def one_of_each(source: Sequence[Row], rules: Rules) -> list[Row]:
    """Gives the source rows that are merged."""
    without_rivals = [row for row in source if row.key is None and not rules.null_safe]
    rivals = [row for row in source if row.key is not None or rules.null_safe]
    for key in {row.key for row in rivals}:
        found = {row for row in rivals if row.key == key}
        if rules.order_by:
            found = {row for row in found if not any(later(other.at, row.at) for other in found)}
        if len(found) > 1:
            raise NoLatestRow(key)
        without_rivals.extend(found)
    return without_rivals


@dataclass(frozen=True)
class Upserted:
    rows: list[Row]
    inserted: int
    updated: int
    deleted: int


def upserted(target: Sequence[Row], source: Sequence[Row], rules: Rules) -> Upserted:
    """Gives the target's rows after an upsert, and how many were inserted, updated and deleted."""
    rows, inserted, updated, deleted = list[Row](), 0, 0, 0
    given = one_of_each(source, rules)

    def are_same(left: int | None, right: int | None) -> bool:
        return left == right and (left is not None or rules.null_safe)

    for old in target:
        new = next((row for row in given if are_same(row.key, old.key)), None)
        after: Row | None = old
        if new is not None and (not (rules.order_by and rules.keeps_order) or later(new.at, old.at)):
            after = None if rules.delete_when and new.gone else changed(old, new, rules)
        if after is None:
            deleted += 1
            continue
        updated += after is not old
        rows.append(after)
    for new in given:
        is_known = any(are_same(new.key, old.key) for old in target)
        if not is_known and not (rules.delete_when and new.gone):
            inserted += 1
            rows.append(Row(new.key, new.at if rules.keeps_order else None, new.values))
    return Upserted(rows, inserted, updated, deleted)


def changed(old: Row, new: Row, rules: Rules) -> Row:
    """Gives the row that an update makes: the old one itself where it is left alone."""
    at, values = new.at if rules.keeps_order else None, new.values
    if rules.ignore_nulls:
        at = old.at if at is None else at
        values = tuple(kept if value is None else value for value, kept in zip(values, old.values, strict=True))
    row = Row(old.key, at, values)
    return old if rules.skip_unchanged and row == old else row
