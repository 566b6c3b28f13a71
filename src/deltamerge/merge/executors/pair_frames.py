"""The rows of pairs as frames: what Spark evaluates clauses over."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from deltamerge.log.paths import decode_path
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.executors.key_matching import Pairs
from deltamerge.merge.executors.lookup import Lookup
from deltamerge.merge.output.frames import Rows
from deltamerge.merge.plan import Declined
from deltamerge.scan.char_padding import scanned, with_length
from deltamerge.scan.column_mapping import physical_field
from deltamerge.spark import columns as F
from deltamerge.spark import tasks
from deltamerge.spark.nested_types import as_nullable
from deltamerge.workers.matched_rows import pairing_rows


def check_visible(merge: ResolvedMerge, evaluated: Callable[[], DataFrame]) -> None:
    """Decline expressions that refer to the source by more than names and its alias.

    A Column may be bound to the user's DataFrame, and a frame without an alias may have qualifiers of its own; neither
    is known in the rows of pairs.

    Args:
        evaluated: Returns rows of pairs on which the MATCHED clauses are evaluated.
    """
    if not merge.matched:
        return
    expressions = [c.clause.condition for c in merge.matched]
    expressions += [value for c in merge.matched for value in c.clause.values]
    if merge.source_alias is not None and all(e is None or e.column is None for e in expressions):
        return
    try:
        _ = evaluated().schema
    except AnalysisException as error:
        reason = "an expression refers to the source otherwise than by its columns' names or its alias"
        raise Declined("match", "key_lookup", reason) from error


@dataclass(frozen=True)
class PairFrames:
    lookup: Lookup
    found: tuple[Pairs, ...]

    @property
    def _of_source(self) -> list[tuple[int, StructField]]:
        return _those(self.lookup.execution.merge.source_schema, self.lookup.recipe.pair_values.source)

    @property
    def _of_target(self) -> list[tuple[int, StructField]]:
        return _those(self.lookup.execution.merge.target_schema, self.lookup.recipe.pair_values.target)

    def valued(self, found: Sequence[Pairs], number: str, code: str) -> Rows:
        """Return the rows of pairs of which values are computed, both sides visible.

        Args:
            number: The column with the row of values.
            code: The column with the code of the clause that takes the pair, as far as that is known.
        """
        merge, names = self.lookup.execution.merge, self.lookup.execution.merge.names
        of_source, of_target = self._of_source, self._of_target
        hidden = [names.target(index) for index, _ in of_target]
        rest = [*hidden, number, code]
        source = self._frame(found, number, code).select(
            *(with_length(F.col(names.source(index)), field) for index, field in of_source),
            *rest,
            F.lit(True).alias(names.target_row_present),
        )
        source = merge.statement.under_source_alias(source)
        own_names = (*(names.source(index) for index, _ in of_source), *rest, names.target_row_present)
        if not of_target:
            return Rows(source, own_names)
        # A lateral subquery over one row is a projection that qualifies the target's columns.
        columns = [with_length(F.col(own).outer(), field) for own, (_, field) in zip(hidden, of_target, strict=True)]
        one_row = self.lookup.execution.table.spark.sql("SELECT 1").select(*columns).alias(merge.target_alias)
        return Rows(source.lateralJoin(one_row), (*own_names, *(names.visible(index) for index, _ in of_target)))

    def _frame(self, found: Sequence[Pairs], number: str, code: str) -> DataFrame:
        execution, recipe, staged = self.lookup.execution, self.lookup.recipe, self.lookup.staged
        names, mode = execution.merge.names, execution.context.mapping_mode
        of_source, of_target = self._of_source, self._of_target
        # A source without rows has no file, so nothing says in a task what its columns are: Spark makes the NULLs.
        read = of_source if staged.row_count else []
        source = [names.source(index) for index, _ in read]
        stored = ((index, recipe.table.before[field.name]) for index, field in of_target)
        target = {names.target(index): (field.name, field.type) for index, field in stored}
        work = pairing_rows(execution.files, staged.rows, source, target, number, code)
        files = pa.table(
            {
                "path": [execution.located(decode_path(pairs.file.path)) for pairs in found],
                "values": [json.dumps(dict(pairs.file.partition_values)) for pairs in found],
                "pairs": [pairs.path for pairs in found],
                "exchanged": [json.dumps([astuple(group) for group in pairs.exchanged]) for pairs in found],
            }
        )
        schema = StructType(
            [
                *(StructField(names.source(i), as_nullable(f.dataType)) for i, f in read),
                *(StructField(names.target(i), physical_field(f, mode).dataType) for i, f in of_target),
                StructField(number, LongType()),
                StructField(code, IntegerType()),
            ]
        )
        rows = sum(map(self._rows_at_most, found))
        spark, in_driver = execution.table.spark, self._fits_driver(found, rows)
        frame = tasks.frame_of(spark, work, files, schema, in_driver=in_driver)
        as_scanned = {names.target(i): scanned(F.col(names.target(i)), f, mode) for i, f in of_target}
        frame = frame.select(*(as_scanned.get(name, F.col(name)).alias(name) for name in schema.names))
        if not staged.row_count:
            frame = frame.select("*", *(F.lit(None).cast(f.dataType).alias(names.source(i)) for i, f in of_source))
        # Of so few rows every core would write a file.
        return frame.coalesce(1) if in_driver and rows <= execution.limits.one_task_rows else frame

    def _rows_at_most(self, pairs: Pairs) -> int:
        if self.lookup.recipe.pair_values.are_literals:
            return len(self.lookup.recipe.clauses.updates)
        return pairs.count if self.lookup.recipe.undecided else pairs.taken

    def _fits_driver(self, found: Sequence[Pairs], rows: int) -> bool:
        limits, staged = self.lookup.execution.limits, self.lookup.staged
        width = staged.bytes_in_memory / max(1, staged.row_count)
        size = sum(pairs.file.size for pairs in found) if self._of_target else 0
        return (
            staged.bytes_in_memory <= limits.driver_source_bytes
            and 2 * width * rows <= limits.driver_rows_bytes
            and self.lookup.execution.fits_driver(staged.bytes + size, len(found))
        )


def _those(schema: StructType, positions: frozenset[int]) -> list[tuple[int, StructField]]:
    return [(i, schema.fields[i]) for i in sorted(positions)]
