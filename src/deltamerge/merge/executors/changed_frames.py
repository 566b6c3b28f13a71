"""The rows that Spark writes beside deletion vectors or patched files: updated, deleted (for change data), inserted.

Each part is a frame of the same columns: the output columns, what change the row is, the number of the clause of each
kind that takes it and, for change data, the target's own values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType, LongType, StringType

from deltamerge.merge.analysis.internal_columns import InternalColumns
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.executors.classic import changes_output, keep_one_match
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.insert_only import WHEN_NO_MATCHES, generate_inserts_only_output
from deltamerge.merge.executors.matches import Matches
from deltamerge.merge.output.clause_expressions import (
    evaluate_clauses,
    generate_clause_values,
    target_copy,
)
from deltamerge.merge.output.frames import Rows, with_unmatchable
from deltamerge.scan.row_positions import block_of, is_in_block
from deltamerge.spark import columns as F
from deltamerge.sql.names import quote
from deltamerge.workers.row_blocks import blocks_table
from deltamerge.workers.row_tracking import HiddenColumns
from deltamerge.workers.vector_blocks import blocks_of


@dataclass(frozen=True)
class ChangedRows:
    execution: Execution
    matches: Matches

    @property
    def merge(self) -> ResolvedMerge:
        return self.execution.merge

    @property
    def change_data(self) -> bool:
        return self.execution.writes_change_data

    @property
    def hidden(self) -> HiddenColumns | None:
        return self.execution.row_tracking

    @property
    def _names(self) -> InternalColumns:
        return self.merge.names

    @property
    def columns(self) -> tuple[str, ...]:
        names, width = self._names, range(len(self.merge.output_schema.fields))
        copies = tuple(names.copy(i) for i in width) if self.change_data else ()
        own = (names.change, *names.clauses, names.file_rewritten)
        return (*(names.output(i) for i in width), *own, *copies, *self.hidden_names)

    @property
    def hidden_names(self) -> tuple[str, ...]:
        return () if self.hidden is None else self.hidden.names

    @property
    def need_target(self) -> bool:
        """Whether the changed rows can only be made from the target's own."""
        merge = self.merge
        # Rows keep their ids, which only the target's rows have.
        if self.change_data or self.hidden is not None:
            return True
        if any(c.action == "update" for c in merge.not_matched_by_source):
            return True
        updating = [clause for clause in merge.matched if clause.action == "update"]
        if updating and not self.matches.sources_fire_once:
            return True
        return not all(all(self.execution.references.of(clause).from_source) for clause in updating)

    def updated_from_source(self, source: Rows) -> DataFrame:
        """Return the updated rows, one for each source row that updates a target row."""
        names = self._names
        merge = replace(self.merge, clauses=self.merge.matched)
        found = source
        clause: Column = F.lit(None).cast("int")
        for number, rows in self.matches.updating.items():
            name = f"{names.block_words}{number}"
            found = self._with_words(found, rows, name)
            taken = is_in_block(F.col(name), F.col(names.source_row_index))
            clause = F.when(taken, F.lit(number)).otherwise(clause)
        found = found.adding([(names.clause("matched"), clause)])
        found = generate_clause_values(found, merge.matched, "matched", names).renamed()
        found = Rows(found.frame.where(F.col(names.clause("matched")).isNotNull()), found.names)
        found = found.adding([*self._absent_target(), (names.target_row_present, F.lit(True))])
        return self._selected(changes_output(merge, found, self.execution.defaults))

    def changed(self, rows: Rows, unmatchable: Rows | None) -> DataFrame:
        """Return the rows that a clause updates and, for change data, deletes.

        Args:
            rows: Joined rows, both sides visible, by `join_type`.
        """
        names, looked_at = self._names, self.merge.not_matched_by_source if self._by_source else ()
        merge = replace(self.merge, clauses=(*self.merge.matched, *looked_at))
        rows = evaluate_clauses(rows, merge, "matched", values=True)
        if self._by_source:
            rows = with_unmatchable(rows, unmatchable)
            rows = evaluate_clauses(rows, merge, "not_matched_by_source", values=True)
        rows = rows.adding([(names.file_rewritten, F.lit(True))])
        output = changes_output(merge, rows, self.execution.defaults)
        changed = Rows(output.frame.where(F.col(names.change).isin(*self._wanted)), output.names)
        if self.matches.has_competing:
            changed = keep_one_match(changed, names)
        return self._selected(self._with_ids(changed, None))

    @property
    def _wanted(self) -> tuple[str, ...]:
        return ("update", "delete") if self.change_data else ("update",)

    @property
    def _by_source(self) -> bool:
        return any(clause.action in self._wanted for clause in self.merge.not_matched_by_source)

    @property
    def join_type(self) -> str:
        """How `changed` wants source (left) and target (right) joined."""
        return "right_outer" if self._by_source else "inner"

    def inserted(self, source: Rows) -> DataFrame:
        merge, names = self.merge, self._names
        if len(self.matches.matched_sources):
            source = self._with_words(source, self.matches.matched_sources, names.block_words)
            matched = is_in_block(F.col(names.block_words), F.col(names.source_row_index))
            # A filter would let Spark evaluate the clauses' conditions, which may fail, before it.
            source = source.adding([(names.target_row_present, F.when(matched, F.lit(True)))])
        rows = generate_inserts_only_output(merge, source, self.execution.defaults, WHEN_NO_MATCHES)
        frame = rows.frame.select(
            "*",
            F.lit("insert").alias(names.change),
            F.lit(True).alias(names.file_rewritten),
            *(self._absent_copies() if self.change_data else ()),
        )
        return self._selected(self._with_ids(Rows(frame, rows.names), None))

    def unchanged(self, target: DataFrame, changed: Mapping[str, BitMap64]) -> DataFrame:
        """Return the rows that no clause changes, of files that Spark writes again.

        Args:
            changed: By file, in all ways that Spark may spell its URI, the rows that change.
        """
        names = self._names
        row = F.col(names.row_index)
        same = (F.col(names.file_name) == F.col(names.block_file)) & (block_of(row) == F.col(names.block))
        found = target.join(self._blocks(changed, names.block_words), same, "left")
        width = range(len(self.merge.output_schema.fields))
        kept = () if self.hidden is None else (names.row_id, names.row_commit_version)
        frame = found.where(~is_in_block(F.col(names.block_words), row)).select(
            *(target_copy(self.merge, i).alias(names.output(i)) for i in width),
            F.lit(None).cast("string").alias(names.change),
            F.lit(True).alias(names.file_rewritten),
            *(self._absent_copies() if self.change_data else ()),
            *kept,
        )
        return self._selected(self._with_ids(Rows(frame, kept), names.row_commit_version))

    def _with_ids(self, rows: Rows, version: str | None) -> Rows:
        """Add the hidden columns: a row keeps its id, and gets the commit's where it has none.

        Args:
            version: The column with the version that last changed a row; None where it is the commit's.
        """
        if self.hidden is None:
            return rows
        absent = F.lit(None).cast("bigint")
        row_id = F.col(self._names.row_id) if self._names.row_id in rows.names else absent
        columns = [(self.hidden.row_id, row_id)]
        columns.append((self.hidden.row_commit_version, absent if version is None else F.col(version)))
        return rows.adding(columns)

    def _selected(self, rows: Rows) -> DataFrame:
        """Select the columns of all parts; clauses of kinds that were not evaluated take none of the rows."""
        absent = [name for name in self._names.clauses if name not in rows.names]
        frame = rows.frame.select("*", *(F.lit(None).cast("int").alias(name) for name in absent))
        return frame.select(*(quote(name) for name in self.columns))

    def _absent_target(self) -> list[tuple[str, Column]]:
        names = self._names
        fields: list[tuple[str, DataType]] = [
            (names.target(i), field.dataType) for i, field in enumerate(self.merge.target_schema.fields)
        ]
        fields += [(names.file_name, StringType()), (names.row_index, LongType())]
        absent = [(name, F.lit(None).cast(data_type)) for name, data_type in fields]
        return [*absent, (names.file_rewritten, F.lit(True))]

    def _absent_copies(self) -> list[Column]:
        fields = enumerate(self.merge.output_schema.fields)
        return [F.lit(None).cast(field.dataType).alias(self._names.copy(i)) for i, field in fields]

    def _with_words(self, source: Rows, rows: BitMap64, name: str) -> Rows:
        """Add to each source row the words of a set for its block, if any."""
        number = f"{name}_block"
        blocks = self._blocks({"": rows}, name).select(F.col(self._names.block).alias(number), name)
        same = block_of(F.col(self._names.source_row_index)) == F.col(number)
        return Rows(source.frame.join(blocks, same, "left"), (*source.names, number, name))

    def _blocks(self, sets: Mapping[str, BitMap64], words: str) -> DataFrame:
        names = self._names
        parts = ((name, blocks_of(rows)) for name, rows in sets.items())
        table = blocks_table(parts, (names.block_file, names.block, words))
        return F.broadcast(self.execution.table.spark.createDataFrame(table))
