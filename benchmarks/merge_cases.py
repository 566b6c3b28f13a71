"""The merges of Delta's own MergeBenchmark, on TPC-H's lineitem."""

from __future__ import annotations

from dataclasses import dataclass, replace

KEYS = ("l_orderkey", "l_linenumber")
ON = " AND ".join(f"t.{key} = s.{key}" for key in KEYS)


@dataclass(frozen=True)
class Clause:
    """One WHEN clause.

    Args:
        kind: ``update``, ``delete`` or ``insert``.
        condition: Its condition as SQL, or None.
    """

    kind: str
    condition: str | None = None

    def sql(self) -> str:
        """Write the clause."""
        when = "NOT MATCHED" if self.kind == "insert" else "MATCHED"
        condition = f" AND {self.condition}" if self.condition else ""
        action = {"update": "UPDATE SET *", "delete": "DELETE", "insert": "INSERT *"}[self.kind]
        return f"WHEN {when}{condition} THEN {action}"


@dataclass(frozen=True)
class MergeCase:
    """One merge.

    Args:
        name: Its name, such as ``upsert-.05-.01-.1``.
        files: The fraction of the table's files that the source's rows are taken from.
        matched: The fraction of those files' rows that the source holds with their keys.
        not_matched: The fraction of those files' rows that the source holds with new keys.
        clauses: What the merge does.
        in_order: Whether the source's rows are in the order of the table's files; else in no order.
        is_query: Whether the source is a query over its files.
    """

    name: str
    files: float
    matched: float
    not_matched: float
    clauses: tuple[Clause, ...]
    in_order: bool = True
    is_query: bool = False

    def sql(self, target: str, source: str) -> str:
        """Write the statement over a table and a Parquet folder."""
        clauses = " ".join(clause.sql() for clause in self.clauses)
        rows = f"parquet.`{source}`"
        using = f"(SELECT * FROM {rows} WHERE l_quantity IS NOT NULL)" if self.is_query else rows
        return f"MERGE INTO delta.`{target}` t USING {using} s ON {ON} {clauses}"


def _plain(fraction: float) -> str:
    return f"{fraction:g}".lstrip("0") or "0"


def _cases() -> tuple[MergeCase, ...]:
    one = (Clause("insert"),)
    two = (Clause("insert", "s.l_orderkey % 2 = 0"), Clause("insert"))
    upsert = (Clause("update"), Clause("insert"))
    inserts = [
        MergeCase(f"insert-{name}-.05-{_plain(rows)}", 0.05, 0.0, rows, clauses)
        for name, clauses in (("one", one), ("two", two))
        for rows in (0.05, 0.5, 1.0)
    ]
    upserts = [
        MergeCase(f"upsert-{_plain(files)}-{_plain(matched)}-{_plain(new)}", files, matched, new, upsert)
        for files, matched, new in (
            (0.05, 0.0, 0.1),
            (0.05, 0.01, 0.1),
            (0.05, 0.1, 0.1),
            (0.05, 0.1, 0.0),
            (0.05, 0.5, 0.001),
            (0.05, 0.99, 0.001),
            (0.05, 1.0, 0.001),
            (0.5, 0.01, 0.001),
            (1.0, 0.01, 0.001),
        )
    ]
    return (*inserts, MergeCase("delete-.05-.05", 0.05, 0.05, 0.0, (Clause("delete"),)), *upserts)


CASES = _cases()
_LARGE = MergeCase("upsert-1-.83-.001", 1.0, 0.83, 0.001, (Clause("update"), Clause("insert")))
LARGE_SOURCES = (
    _LARGE,
    replace(_LARGE, name=f"{_LARGE.name}-unordered", in_order=False),
    replace(_LARGE, name=f"{_LARGE.name}-query", is_query=True),
)
"""At scale 2 sources of ten million rows; they run where they are named."""
