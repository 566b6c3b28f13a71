"""The two sides of a merge as frames in which users' expressions see just the names they may see.

A joined frame keeps both sides' qualifiers for as long as it is only selected from with ``*``; renaming all its
columns by position ends that. A single side's scope is made again by copies under the users' names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructField

from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.scan.char_padding import with_length
from deltamerge.spark import columns as F


@dataclass(frozen=True)
class Rows:
    """A frame and its columns' names in their order; asking the frame for them costs a request on Connect.

    Args:
        names: The columns; those under users' names are listed by their internal names.
    """

    frame: DataFrame
    names: tuple[str, ...]

    def adding(self, columns: Sequence[tuple[str, Column]]) -> Rows:
        if not columns:
            return self
        added = self.frame.select("*", *(column.alias(name) for name, column in columns))
        return Rows(added, (*self.names, *(name for name, _ in columns)))

    def renamed(self) -> Rows:
        """End the users' names: every column has its internal name from here on."""
        return Rows(self.frame.toDF(*self.names), self.names)


@dataclass(frozen=True)
class TargetSide:
    """The target's side of a merge.

    Args:
        unmatchable: The rows of files that only BY SOURCE clauses can change; None where there are none.
    """

    joined: Rows
    unmatchable: Rows | None = None


def target_rows(frame: DataFrame, merge: ResolvedMerge) -> Rows:
    names = merge.names
    marked = frame.select("*", F.lit(True).alias(names.target_row_present)).alias(merge.target_alias)
    own = (*(names.target(i) for i in range(len(merge.target_schema))), names.file_name, names.row_index)
    return Rows(marked, (*own, names.target_row_present))


def source_rows(frame: DataFrame, merge: ResolvedMerge) -> Rows:
    names = merge.names
    marked = merge.statement.under_source_alias(frame.select("*", F.lit(True).alias(names.source_row_present)))
    own = tuple(names.source(i) for i in range(len(merge.source_schema)))
    return Rows(marked, (*own, names.source_row_index, names.source_row_present))


def joined(source: Rows, target: Rows, condition: Column, how: str) -> Rows:
    return Rows(source.frame.join(target.frame, condition, how), (*source.names, *target.names))


def with_unmatchable(rows: Rows, unmatchable: Rows | None) -> Rows:
    """Add rows of the target that no source row can match to joined, renamed rows.

    Columns of the source, and those computed of pairs of rows, are NULL in the added rows.
    """
    if unmatchable is None:
        return rows
    return Rows(rows.frame.unionByName(unmatchable.renamed().frame, allowMissingColumns=True), rows.names)


def seeing_source(rows: Rows, merge: ResolvedMerge) -> Rows:
    """Make the source's names, and only these, visible on renamed rows."""
    visible = [(merge.names.source(i), f) for i, f in enumerate(merge.source_schema.fields)]
    return _seeing(rows, visible, merge.source_alias)


def seeing_target(rows: Rows, merge: ResolvedMerge) -> Rows:
    """Make the target's names, and only these, visible on renamed rows; columns that are not read are not there."""
    fields, there = enumerate(merge.target_schema.fields), frozenset(rows.names)
    visible = [(merge.names.target(i), f) for i, f in fields if merge.names.target(i) in there]
    return _seeing(rows, visible, merge.target_alias)


def _seeing(rows: Rows, visible: list[tuple[str, StructField]], alias: str | None) -> Rows:
    copies = rows.frame.select(*rows.names, *(with_length(F.col(own), field) for own, field in visible))
    return Rows(copies if alias is None else copies.alias(alias), rows.names)


def own_columns(rows: Rows) -> Rows:
    return Rows(rows.frame.select(*rows.names), rows.names)
