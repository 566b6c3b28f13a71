"""What MERGE means, in plain Python: rows are dicts, tables are lists of them.

Everything that a MERGE does to a table is said here once, without files, versions or Spark. It is to be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .language import Expression, Row

Kind: TypeAlias = Literal["matched", "not_matched", "not_matched_by_source"]
Action: TypeAlias = Literal["update", "insert", "delete", "do_nothing"]


@dataclass(frozen=True)
class Clause:
    """One WHEN clause.

    Args:
        kind: Which rows it looks at.
        action: What it does with a row.
        condition: Its condition; None is always TRUE.
        assignments: Paths of columns and fields with their values; None is the star.
        excepted: Columns that the star leaves out.
    """

    kind: Kind
    action: Action
    condition: Expression | None = None
    assignments: tuple[tuple[tuple[str, ...], Expression], ...] | None = None
    excepted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Merge:
    """A MERGE.

    Args:
        on: When a target row and a source row match.
        clauses: The WHEN clauses.
        skip_unchanged: Whether a pair fires no UPDATE that leaves the row as it is.
    """

    on: Expression
    clauses: tuple[Clause, ...]
    skip_unchanged: bool = False

    def of(self, kind: Kind) -> list[Clause]:
        """Gives the clauses of a kind in their order."""
        return [clause for clause in self.clauses if clause.kind == kind]


class SeveralSourceRows(Exception):
    """Clauses fire for several source rows on one target row."""


@dataclass
class Merged:
    """What a MERGE leaves.

    Args:
        rows: The table's rows.
        changes: The change data: kind of change and row.
        metrics: Counts of rows, under Delta's names.
    """

    rows: list[Row] = field(default_factory=list)
    changes: list[tuple[str, Row]] = field(default_factory=list)
    metrics: dict[str, int] = field(default_factory=dict)


def merge_rows(columns: Sequence[str], target: list[Row], source: list[Row], merge: Merge) -> Merged:
    """Merges source rows into target rows.

    Args:
        columns: The target's columns.
        target: Its rows.
        source: The source's rows.
        merge: The statement.

    Raises:
        SeveralSourceRows: Nothing is merged.
    """
    done = Merged()
    counted = dict.fromkeys([(k, a) for k in ("matched", "not_matched_by_source") for a in ("update", "delete")], 0)
    matched_source: set[int] = set()
    skipped = 0
    for old in target:
        partners = [i for i, new in enumerate(source) if merge.on.value({"t": old, "s": new}) is True]
        matched_source.update(partners)
        kind: Kind = "matched" if partners else "not_matched_by_source"
        fired = []
        skips = False
        candidates: list[Row | None] = [source[i] for i in partners]
        for new in candidates or [None]:
            clause = first_true(merge.of(kind), {"t": old, "s": new})
            if clause is None or clause.action == "do_nothing":
                continue
            if merge.skip_unchanged and clause.action == "update" and is_unchanged(columns, clause, old, new):
                skips = True
                continue
            fired.append((clause, new))
        if len(fired) > 1 and not is_one_unconditional_delete(merge.of("matched")):
            raise SeveralSourceRows
        if not fired:
            skipped += skips
            done.rows.append(old)
            continue
        clause, new = fired[0]
        counted[kind, clause.action] += 1
        if clause.action == "delete":
            done.changes.append(("delete", old))
        else:
            updated = updated_row(columns, clause, old, new)
            done.rows.append(updated)
            done.changes += [("update_preimage", old), ("update_postimage", updated)]
    if merge.skip_unchanged:
        done.metrics["numTargetRowsSkipped"] = skipped
    inserted = 0
    for i, new in enumerate(source):
        if i in matched_source:
            continue
        clause = first_true(merge.of("not_matched"), {"t": None, "s": new})
        if clause is not None and clause.action == "insert":
            row = inserted_row(columns, clause, new)
            done.rows.append(row)
            done.changes.append(("insert", row))
            inserted += 1
    done.metrics |= {
        "numSourceRows": len(source),
        "numTargetRowsInserted": inserted,
        "numTargetRowsUpdated": counted["matched", "update"] + counted["not_matched_by_source", "update"],
        "numTargetRowsMatchedUpdated": counted["matched", "update"],
        "numTargetRowsNotMatchedBySourceUpdated": counted["not_matched_by_source", "update"],
        "numTargetRowsDeleted": counted["matched", "delete"] + counted["not_matched_by_source", "delete"],
        "numTargetRowsMatchedDeleted": counted["matched", "delete"],
        "numTargetRowsNotMatchedBySourceDeleted": counted["not_matched_by_source", "delete"],
    }
    return done


def first_true(clauses: list[Clause], scope: dict[str, Row | None]) -> Clause | None:
    """Gives the clause that takes a row: the first whose condition is TRUE; NULL is not."""
    for clause in clauses:
        if clause.condition is None or clause.condition.value(scope) is True:
            return clause
    return None


def is_one_unconditional_delete(matched: list[Clause]) -> bool:
    """Tells whether several source rows may delete one row."""
    return len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None


def updated_row(columns: Sequence[str], clause: Clause, old: Row, new: Row | None) -> Row:
    """Gives a row as an UPDATE leaves it: what is not assigned keeps its value."""
    row = deepcopy(old)
    if clause.assignments is None:
        assert new is not None
        row.update({name: new[name] for name in columns if name not in clause.excepted})
        return row
    for path, expression in clause.assignments:
        set_field(row, path, expression.value({"t": old, "s": new}))
    return row


def is_unchanged(columns: Sequence[str], clause: Clause, old: Row, new: Row | None) -> bool:
    """Tells whether an UPDATE leaves a row as it is, by text: -0.0 is not 0.0, and NaN is itself."""
    return repr(updated_row(columns, clause, old, new)) == repr(old)


def set_field(row: Row, path: tuple[str, ...], value: Any) -> None:
    """Sets a column or a field; a field of a NULL struct makes the struct, its other fields NULL."""
    if len(path) == 1:
        row[path[0]] = value
        return
    if row[path[0]] is None:
        row[path[0]] = dict.fromkeys(STRUCT_FIELDS)
    set_field(row[path[0]], path[1:], value)


# The fields of the one type of struct that there is in the model.
STRUCT_FIELDS = ("a", "b")


def inserted_row(columns: Sequence[str], clause: Clause, new: Row) -> Row:
    """Gives the row that an INSERT makes: what is not assigned is NULL."""
    if clause.assignments is None:
        return {name: None if name in clause.excepted else new[name] for name in columns}
    row: Row = dict.fromkeys(columns)
    for (name,), expression in clause.assignments:
        row[name] = expression.value({"t": None, "s": new})
    return row
