"""Makes a failing merge small: leaves out whatever it fails without. Pure but for the question whether it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from .kinds import INT
from .merge import Clause, Expr, RandomMerge, RandomSource, RandomTable
from .plans import AUTO

T = TypeVar("T")


def shrink(merge: RandomMerge, fails: Callable[[RandomMerge], bool], attempts: int = 80) -> RandomMerge:
    """Takes a merge apart as long as it fails.

    Args:
        merge: A merge that fails.
        fails: Whether a merge fails in the same way.
        attempts: How many merges to try.

    Returns:
        The smallest that was found.
    """
    tried = set[str]()
    while True:
        for smaller in candidates(merge):
            shown = smaller.show()
            if shown in tried:
                continue
            if attempts <= 0:
                return merge
            tried.add(shown)
            attempts -= 1
            if fails(smaller):
                merge = smaller
                break
        else:
            return merge


def candidates(merge: RandomMerge) -> Iterator[RandomMerge]:
    """Lists smaller merges, those that leave out most first."""
    table, source = merge.table, merge.source
    if len(merge.clauses) > 1:
        for clauses in _without_one(merge.clauses):
            yield replace(merge, clauses=clauses)
    if len(table.writes) > 1:
        for writes in _without_one(table.writes):
            yield replace(merge, table=replace(table, writes=writes))
    yield from _fewer_source_rows(merge)
    if source.format:
        yield replace(merge, source=replace(source, format=None))
    for key in merge.conf:
        yield replace(merge, conf={k: v for k, v in merge.conf.items() if k != key})
    for properties in _without_one(table.properties):
        yield replace(merge, table=replace(table, properties=properties))
    if table.constraints:
        yield replace(merge, table=replace(table, constraints=(), constraint_columns=()))
    if table.deleted is not None:
        yield replace(merge, table=replace(table, deleted=None))
    for names in _without_one(table.clustered_by):
        yield replace(merge, table=replace(table, clustered_by=names))
    for names in _without_one(table.partition_by):
        yield replace(merge, table=replace(table, partition_by=names))
    if table.made_by != "deltamerge" and all("GENERATED" not in c.options for c in table.columns):
        yield replace(merge, table=replace(table, made_by="deltamerge"))
    if merge.plan != AUTO:
        yield replace(merge, plan=AUTO)
    yield from _fewer_columns(merge)
    yield from _smaller_clauses(merge)
    yield from _fewer_target_rows(merge)
    if len(merge.on) > 1:
        for on in _without_one(merge.on):
            yield replace(merge, on=on)
    yield from _plainer_columns(merge)


def _without_one(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    for index in range(len(items)):
        yield items[:index] + items[index + 1 :]


def _fewer_source_rows(merge: RandomMerge) -> Iterator[RandomMerge]:
    rows = merge.source.rows
    halves = [rows[: len(rows) // 2], rows[len(rows) // 2 :]] if len(rows) > 3 else []
    for fewer in [*halves, *_without_one(rows)]:
        yield replace(merge, source=replace(merge.source, rows=fewer))


def _fewer_target_rows(merge: RandomMerge) -> Iterator[RandomMerge]:
    writes = merge.table.writes
    for index, rows in enumerate(writes):
        if len(rows) > 1:
            for fewer in _without_one(rows):
                changed = (*writes[:index], fewer, *writes[index + 1 :])
                yield replace(merge, table=replace(merge.table, writes=changed))


def _fewer_columns(merge: RandomMerge) -> Iterator[RandomMerge]:
    for column in merge.table.columns:
        smaller = _without_column(merge, column.name)
        if smaller is not None:
            yield smaller
    for column in merge.source.columns:
        if not _named(merge, "s", column.name) and len(merge.source.columns) > 1:
            yield replace(merge, source=_source_without(merge.source, column.name))


def _named(merge: RandomMerge, side: str, column: str) -> bool:
    in_on = any((side, column) in part.columns for part in merge.on)
    return in_on or any(clause.uses(side, column) for clause in merge.clauses)  # type: ignore[arg-type]


def _without_column(merge: RandomMerge, name: str) -> RandomMerge | None:
    table, source = merge.table, merge.source
    if len(table.columns) == 1 or name in (
        *table.partition_by,
        *table.constraint_columns,
        *table.clustered_by,
        *table.deleted_by,
    ):
        return None
    if any(c.is_generated and c.name != name and name in c.options for c in table.columns):
        return None
    clauses = tuple(
        replace(c, assignments=tuple(a for a in c.assignments if a[0][0].lower() != name.lower()))
        for c in merge.clauses
    )
    emptied = any(c.action in ("update", "insert") and not c.assignments for c in clauses)
    smaller = replace(merge, clauses=clauses)
    if emptied or _named(smaller, "t", name):
        return None
    place = [c.name for c in table.written].index(name) if name in [c.name for c in table.written] else None
    writes = table.writes
    if place is not None:
        writes = tuple(tuple(row[:place] + row[place + 1 :] for row in rows) for rows in writes)
    columns = tuple(c for c in table.columns if c.name != name)
    smaller = replace(smaller, table=replace(table, columns=columns, writes=writes))
    of_source = next((c.name for c in source.columns if c.name.lower() == name.lower()), None)
    if of_source is not None and not _named(smaller, "s", of_source):
        smaller = replace(smaller, source=_source_without(source, of_source))
    return smaller


def _source_without(source: RandomSource, name: str) -> RandomSource:
    place = [c.name for c in source.columns].index(name)
    rows = tuple(row[:place] + row[place + 1 :] for row in source.rows)
    return replace(source, columns=tuple(c for c in source.columns if c.name != name), rows=rows)


def _smaller_clauses(merge: RandomMerge) -> Iterator[RandomMerge]:
    last = {clause.kind: index for index, clause in enumerate(merge.clauses)}
    for index, clause in enumerate(merge.clauses):
        for smaller in _smaller(clause, last[clause.kind] == index):
            yield replace(merge, clauses=(*merge.clauses[:index], smaller, *merge.clauses[index + 1 :]))


def _smaller(clause: Clause, is_last: bool) -> Iterator[Clause]:
    if clause.condition is not None:
        if is_last:
            yield replace(clause, condition=None)
        elif clause.condition.text != "true":
            yield replace(clause, condition=Expr("true"))
    if len(clause.assignments) > 1:
        for fewer in _without_one(clause.assignments):
            yield replace(clause, assignments=fewer)
    for index, (path, value) in enumerate(clause.assignments):
        if value.text != "NULL":
            plainer = (path, Expr("NULL"))
            changed = (*clause.assignments[:index], plainer, *clause.assignments[index + 1 :])
            yield replace(clause, assignments=changed)


def _plainer_columns(merge: RandomMerge) -> Iterator[RandomMerge]:
    """Takes options away, and makes columns that no one names whole numbers."""
    table = merge.table
    for index, column in enumerate(table.columns):
        if column.options and not column.is_generated:
            columns = (*table.columns[:index], replace(column, options=""), *table.columns[index + 1 :])
            yield replace(merge, table=replace(table, columns=columns))
    if merge.evolution:
        yield replace(merge, evolution=False)
    for smaller in _as_numbers(table):
        yield replace(merge, table=smaller)


def _as_numbers(table: RandomTable) -> Iterator[RandomTable]:
    for index, column in enumerate(table.columns):
        generates = any(c.is_generated and column.name in c.options for c in table.columns)
        named = column.name in (*table.constraint_columns, *table.deleted_by)
        if column.kind == INT or column.options or generates or named:
            continue
        columns = (*table.columns[:index], replace(column, kind=INT), *table.columns[index + 1 :])
        place = table.written.index(column)
        writes = tuple(
            tuple((*row[:place], str(number), *row[place + 1 :]) for number, row in enumerate(rows))
            for rows in table.writes
        )
        yield replace(table, columns=columns, writes=writes)
