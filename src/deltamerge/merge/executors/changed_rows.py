"""The rows that a low-shuffle merge writes through Spark: updated, deleted (for change data) and inserted ones.

Each part is a frame of the same columns: the output columns, what change the row is, the number of the clause of each
kind that takes it, and, for change data, the target's own values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StringType

from deltamerge.merge.analysis.column_references import assigns_from_source
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.executors.bitmaps import RowSet
from deltamerge.merge.executors.classic import changes_output, keep_one_match
from deltamerge.merge.executors.insert_only import WHEN_NO_MATCHES, generate_inserts_only_output
from deltamerge.merge.executors.matches import Matches
from deltamerge.merge.output.clause_expressions import (
    evaluate_matched,
    evaluate_not_matched_by_source,
    generate_clause_values,
    target_copy,
)
from deltamerge.merge.output.frames import Rows, TargetSide, joined, with_rows_alone
from deltamerge.merge.output.internal_columns import MergeNames
from deltamerge.workers.row_blocks import block_of, blocks_table, holds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True)
class ChangedRows:
    """Makes the parts of what is written.

    Args:
        spark: The session.
        merge: The merge.
        names: The merge's own names.
        matches: What the first scan found.
        defaults: Gives an output column's default.
        change_data: Whether the table has a change data feed.
    """

    spark: SparkSession
    merge: ResolvedMerge
    names: MergeNames
    matches: Matches
    defaults: Callable[[int], Column]
    change_data: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of each part."""
        names, width = self.names, range(len(self.merge.output_schema.fields))
        copies = tuple(names.copy(i) for i in width) if self.change_data else ()
        own = (names.change, *names.clauses, names.file_rewritten)
        return (*(names.output(i) for i in width), *own, *copies)

    @property
    def need_target(self) -> bool:
        """Whether the changed rows can only be made from the target's own."""
        merge = self.merge
        if self.change_data or any(c.action == "update" for c in merge.not_matched_by_source):
            return True
        updating = [clause for clause in merge.matched if clause.action == "update"]
        if updating and not self.matches.sources_fire_once:
            return True
        return not all(assigns_from_source(merge, clause) for clause in updating)

    def updated_from_source(self, source: Rows) -> DataFrame:
        """Makes updated rows of the source's alone.

        Args:
            source: The source's side.

        Returns:
            A row for each source row by which a clause updates a target row.
        """
        merge, names = replace(self.merge, clauses=self.merge.matched), self.names
        found = source
        clause: Column = F.lit(None).cast("int")
        for number, rows in self.matches.updating.items():
            name = f"{names.block_words}{number}"
            found = self._with_words(found, rows, name)
            taken = holds(F.col(name), F.col(names.source_row_index))
            clause = F.when(taken, F.lit(number)).otherwise(clause)
        found = found.adding([(names.clause("matched"), clause)])
        found = generate_clause_values(found, merge.matched, "matched", names).renamed()
        found = Rows(found.frame.where(F.col(names.clause("matched")).isNotNull()), found.names)
        found = found.adding([*self._absent_target(), (names.target_row_present, F.lit(True))])
        return self._selected(changes_output(merge, found, names, self.defaults))

    def changed_in_target(self, sent: Rows, target: TargetSide) -> DataFrame:
        """Makes changed rows of the touched files' rows.

        Args:
            sent: The source's side, perhaps to be sent to every executor.
            target: The target's side, of the touched files.

        Returns:
            A row for each target row that a clause updates and, for change data, deletes.
        """
        merge, names = self.merge, self.names
        wanted = ("update", "delete") if self.change_data else ("update",)
        by_source = any(clause.action in wanted for clause in merge.not_matched_by_source)
        looked_at = merge.not_matched_by_source if by_source else ()
        merge = replace(merge, clauses=(*merge.matched, *looked_at))
        rows = joined(sent, target.joined, merge.condition, "right_outer" if by_source else "inner")
        rows = evaluate_matched(rows, merge, names, values=True)
        if by_source:
            rows = with_rows_alone(rows, target.alone)
            rows = evaluate_not_matched_by_source(rows, merge, names, values=True)
        rows = rows.adding([(names.file_rewritten, F.lit(True))])
        output = changes_output(merge, rows, names, self.defaults)
        changed = Rows(output.frame.where(F.col(names.change).isin(*wanted)), output.names)
        if self.matches.has_competing:
            changed = keep_one_match(changed, names)
        return self._selected(changed)

    def inserted(self, source: Rows) -> DataFrame:
        """Makes the inserted rows.

        Args:
            source: The source's side.

        Returns:
            A row for each source row that matches nothing and that an INSERT takes.
        """
        merge, names = self.merge, self.names
        if len(self.matches.matched_sources):
            source = self._with_words(source, self.matches.matched_sources, names.block_words)
            matched = holds(F.col(names.block_words), F.col(names.source_row_index))
            source = Rows(source.frame.where(~matched), source.names)
        rows = generate_inserts_only_output(merge, source, names, self.defaults, WHEN_NO_MATCHES)
        frame = rows.frame.select(
            "*",
            F.lit("insert").alias(names.change),
            F.lit(True).alias(names.file_rewritten),
            *(self._absent_copies() if self.change_data else ()),
        )
        return self._selected(Rows(frame, rows.names))

    def kept(self, target: DataFrame, changed: Mapping[str, RowSet]) -> DataFrame:
        """Makes the rows that stay of files that are not patched.

        Args:
            target: The rows of these files under the target's own names.
            changed: By file, in all ways that Spark may spell its URI, the rows that do not stay.

        Returns:
            The rows, no change.
        """
        names = self.names
        row = F.col(names.row_index)
        same = (F.col(names.file_name) == F.col(names.block_file)) & (block_of(row) == F.col(names.block))
        found = target.join(self._blocks(changed, names.block_words), same, "left")
        width = range(len(self.merge.output_schema.fields))
        frame = found.where(~holds(F.col(names.block_words), row)).select(
            *(target_copy(self.merge, i, names).alias(names.output(i)) for i in width),
            F.lit(None).cast("string").alias(names.change),
            F.lit(True).alias(names.file_rewritten),
            *(self._absent_copies() if self.change_data else ()),
        )
        return self._selected(Rows(frame, ()))

    def _selected(self, rows: Rows) -> DataFrame:
        """Brings a part to the columns of all parts; clauses of kinds that it does not know take none of its rows."""
        absent = [name for name in self.names.clauses if name not in rows.names]
        frame = rows.frame.select("*", *(F.lit(None).cast("int").alias(name) for name in absent))
        return frame.select(*self.columns)

    def _absent_target(self) -> list[tuple[str, Column]]:
        names = self.names
        fields: list[tuple[str, DataType]] = [
            (names.target(i), field.dataType) for i, field in enumerate(self.merge.target_schema.fields)
        ]
        fields += [(names.file_name, StringType()), (names.row_index, LongType())]
        absent = [(name, F.lit(None).cast(data_type)) for name, data_type in fields]
        return [*absent, (names.file_rewritten, F.lit(True))]

    def _absent_copies(self) -> list[Column]:
        fields = enumerate(self.merge.output_schema.fields)
        return [F.lit(None).cast(field.dataType).alias(self.names.copy(i)) for i, field in fields]

    def _with_words(self, source: Rows, rows: RowSet, name: str) -> Rows:
        """Adds to each source row the words of a set for the block that it is in, if any."""
        names, number = self.names, f"{name}_block"
        blocks = self._blocks({"": rows}, name).select(F.col(names.block).alias(number), name)
        same = block_of(F.col(names.source_row_index)) == F.col(number)
        return Rows(source.frame.join(blocks, same, "left"), (*source.names, number, name))

    def _blocks(self, sets: Mapping[str, RowSet], words: str) -> DataFrame:
        names = self.names
        parts = ((name, blocks) for name, rows in sets.items() for blocks in rows.blocks())
        table = blocks_table(parts, (names.block_file, names.block, words))
        return F.broadcast(self.spark.createDataFrame(table))
