"""The two sides of a merge as frames in which users' expressions see just the names they may see.

A joined frame keeps both sides' qualifiers for as long as it is only selected from with ``*``; renaming all its
columns by position ends that. A single side's scope is made again by copies under the users' names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from deltamerge.merge.output.internal_columns import MergeNames

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class Rows:
    """A frame, and its columns' names in their order (asking the frame for them costs a call on Connect).

    Args:
        frame: The rows.
        names: The columns; those that still have users' names stand under the merge's own.
    """

    frame: DataFrame
    names: tuple[str, ...]

    def adding(self, columns: Sequence[tuple[str, Column]]) -> Rows:
        """Adds columns and keeps what each name can see."""
        if not columns:
            return self
        added = self.frame.select("*", *(column.alias(name) for name, column in columns))
        return Rows(added, (*self.names, *(name for name, _ in columns)))

    def renamed(self) -> Rows:
        """Ends the users' names: every column has the merge's own name from here on."""
        return Rows(self.frame.toDF(*self.names), self.names)


@dataclass(frozen=True)
class TargetSide:
    """The target's side of a merge.

    Args:
        joined: The rows of files that source rows may match.
        alone: The rows of files that BY SOURCE clauses alone can change; None where there are none.
    """

    joined: Rows
    alone: Rows | None = None


def target_rows(frame: DataFrame, schema: StructType, alias: str, names: MergeNames) -> Rows:
    """Makes the target's side of a join.

    Args:
        frame: The target's columns, then file name and row index.
        schema: The target's schema.
        alias: The name that qualifies its columns.
        names: The merge's own names.

    Returns:
        The rows under the alias, marked as present.
    """
    marked = frame.select("*", F.lit(True).alias(names.target_row_present)).alias(alias)
    own = (*(names.target(i) for i in range(len(schema.fields))), names.file_name, names.row_index)
    return Rows(marked, (*own, names.target_row_present))


def source_rows(frame: DataFrame, schema: StructType, alias: str | None, names: MergeNames) -> Rows:
    """Makes the source's side of a join.

    Args:
        frame: The source's columns, then the row number.
        schema: The source's schema.
        alias: The name that qualifies its columns, or None where the frame's own qualifiers hold.
        names: The merge's own names.

    Returns:
        The rows, marked as present.
    """
    marked = frame.select("*", F.lit(True).alias(names.source_row_present))
    if alias is not None:
        marked = marked.alias(alias)
    own = tuple(names.source(i) for i in range(len(schema.fields)))
    return Rows(marked, (*own, names.source_row_index, names.source_row_present))


def joined(source: Rows, target: Rows, condition: Column, how: str) -> Rows:
    """Joins the two sides, both in sight."""
    return Rows(source.frame.join(target.frame, condition, how), (*source.names, *target.names))


def with_rows_alone(rows: Rows, alone: Rows | None) -> Rows:
    """Adds rows of the target that need no join, since no source row can match them.

    Args:
        rows: Joined rows, renamed.
        alone: The target's side of files that are not joined; None where all are.

    Returns:
        All of them; columns of the source, and what was computed of pairs of rows, are NULL in the added ones.
    """
    if alone is None:
        return rows
    return Rows(rows.frame.unionByName(alone.renamed().frame, allowMissingColumns=True), rows.names)


def seeing_source(rows: Rows, schema: StructType, alias: str | None, names: MergeNames) -> Rows:
    """Gives renamed rows the source's names back, and only these."""
    return _seeing(rows, [(names.source(i), f.name) for i, f in enumerate(schema.fields)], alias)


def seeing_target(rows: Rows, schema: StructType, alias: str, names: MergeNames) -> Rows:
    """Gives renamed rows the target's names back, and only these."""
    return _seeing(rows, [(names.target(i), f.name) for i, f in enumerate(schema.fields)], alias)


def _seeing(rows: Rows, visible: list[tuple[str, str]], alias: str | None) -> Rows:
    copies = rows.frame.select(*rows.names, *(F.col(own).alias(name) for own, name in visible))
    return Rows(copies if alias is None else copies.alias(alias), rows.names)


def own_columns(rows: Rows) -> Rows:
    """Takes the users' names away again.

    Args:
        rows: Rows that see one side, perhaps with columns added.

    Returns:
        The same rows under the merge's own names alone.
    """
    return Rows(rows.frame.select(*rows.names), rows.names)
