"""KeyLookupMergeExecutor: key columns of files are looked up in the source's, without a join.

The source is computed once into Arrow files, or read where it is. Each file's key columns are looked up in them, which
returns pairs of rows. What changes is then written by PyArrow, or evaluated by Spark over only the pairs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.errors import AnalysisException
from pyspark.sql.types import LongType, StringType, StructField, StructType

from deltamerge.log.actions import AddFile
from deltamerge.log.paths import decode_path
from deltamerge.merge.executors import arrow_changes, spark_changes
from deltamerge.merge.executors.arrow_changes import ArrowChanges
from deltamerge.merge.executors.changed_rows import ChangedRows
from deltamerge.merge.executors.execution import Execution, MergeChanges
from deltamerge.merge.executors.key_matching import Pairs, find_pairs, fires_twice, matched_sources
from deltamerge.merge.executors.lookup_recipe import LookupRecipe, lookup_recipe
from deltamerge.merge.executors.matches import Matches, find_matches
from deltamerge.merge.executors.pair_values import check_count, evaluate_pairs
from deltamerge.merge.executors.placement import fits_driver
from deltamerge.merge.executors.scratch import scratch_folder
from deltamerge.merge.executors.spark_changes import SparkChanges
from deltamerge.merge.executors.staged_source import StagedSource, stage_source, with_gaps, with_keys_counted
from deltamerge.merge.output.clause_expressions import evaluate_matched
from deltamerge.merge.output.frames import Rows, source_rows
from deltamerge.merge.output.identity_columns import generated_identities
from deltamerge.merge.planning.declined import Declined
from deltamerge.merge.planning.target_files import TargetFiles, may_match_mask, target_files
from deltamerge.skipping.keys import Mask
from deltamerge.spark import columns as F
from deltamerge.spark import tasks
from deltamerge.workers.matched_rows import pairing_rows, reading_staged
from deltamerge.workers.row_pairs import by_source_number
from deltamerge.workers.staged_rows import open_staged
from deltamerge.write.identity_columns import RowNumbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def execute_key_lookup(execution: Execution) -> MergeChanges:
    """Run a merge by key lookup.

    Raises:
        Declined: It came out on the way that another operator must do a part of it.
    """
    with scratch_folder(execution, f"{execution.folder}/_staged") as folder:
        changes = _looked_up(replace(execution, scratch=folder))
    return replace(changes, finds_rows=partial(_finds_rows, execution))


def _finds_rows(execution: Execution, files: Sequence[AddFile]) -> bool:
    """Look the source up once more, in other files; see `MergeChanges`."""
    recipe = lookup_recipe(execution.context, execution.plan.changed_rows.choice)
    with scratch_folder(execution, f"{execution.folder}/_staged") as folder:
        again = replace(execution, scratch=folder)
        staged = _kept_source(again, recipe)
        unmatchable = frozenset() if staged.rows else frozenset(file.path for file in files)
        return bool(find_pairs(again, recipe, staged, files, unmatchable))


def _looked_up(execution: Execution) -> MergeChanges:
    steps = execution.steps
    recipe = lookup_recipe(execution.context, execution.plan.changed_rows.choice)
    staged = _kept_source(execution, recipe)
    with steps.step("plan", "choosing the files to read"):
        staged, possible = _with_keys(execution, recipe, staged)
        zone, wanted = execution.conf.session_time_zone, staged.summary.predicate
        target = target_files(execution.snapshot, execution.references, wanted, zone, possible)
    found: tuple[Pairs, ...] = ()
    if target.files and (staged.rows or recipe.by_source):
        with steps.step("find_touched_files", "scanning files for matches"):
            found = find_pairs(execution, recipe, staged, target.files, target.unmatchable)
    if recipe.by_spark:
        return _by_spark(execution, recipe, staged, target, found)
    return _by_arrow(execution, recipe, staged, target, found)


def _kept_source(execution: Execution, recipe: LookupRecipe) -> StagedSource:
    """Read the source; one that was computed for it stays for another run, in a folder of its own."""
    if execution.plan.source.choice == "in_place":
        return stage_source(execution, recipe)

    def stage() -> tuple[StagedSource, ExitStack]:
        with ExitStack() as files:
            folder = files.enter_context(scratch_folder(execution, f"{execution.folder}-source"))
            return stage_source(replace(execution, scratch=folder), recipe), files.pop_all()

    staged, _ = execution.kept.once(execution.source_key, stage, lambda kept: kept[1].close())
    return staged


def _with_keys(execution: Execution, recipe: LookupRecipe, staged: StagedSource) -> tuple[StagedSource, Mask]:
    """Look at the keys for NULLs, repetitions and gaps, and return which files their ranges leave."""
    predicate = execution.references.to_read(staged.summary.predicate)
    files = may_match_mask(execution.snapshot, predicate, execution.conf.session_time_zone)
    if not staged.rows:
        return staged, files
    keys = open_staged(execution.files, staged.kept, list(dict.fromkeys(staged.columns.keys)))
    staged = with_keys_counted(staged, recipe, keys)
    return (with_gaps(staged, recipe, keys) if files.sum() > 1 else staged), files


def _by_arrow(
    execution: Execution,
    recipe: LookupRecipe,
    staged: StagedSource,
    target: TargetFiles,
    found: tuple[Pairs, ...],
) -> MergeChanges:
    if recipe.computes and fires_twice(found):
        raise Declined(
            "changed_rows",
            "arrow",
            "a source row matches several target rows, and each gets a value of its own",
        )
    taken, values = found, None
    if recipe.reads_pairs and found and recipe.matched:
        check_count(execution, recipe, found)
        needed = execution.references.matched_columns or (None, None)
        pairs = _PairFrames(execution, recipe, staged, found, *needed)
        _check_visible(execution, lambda: pairs.rows(found[:1], changing=False))
        with execution.steps.step("find_touched_files", "evaluating clauses on matched rows"):
            evaluated = evaluate_pairs(execution, recipe, found, pairs.rows(found, changing=not recipe.undecided))
        taken, values = evaluated.found, evaluated.kept
    _check_competing(execution, any(pairs.pairs > pairs.rows for pairs in taken))
    return arrow_changes.write_changes(ArrowChanges(execution, recipe, staged, target, taken, found, values))


def _check_competing(execution: Execution, competing: bool) -> None:
    """Decline source rows that compete for a target row: the join that knows the rows themselves reports them."""
    if competing and not execution.merge.is_only_one_unconditional_delete:
        raise Declined("match", "key_lookup", "several source rows match and change one target row")


def _by_spark(
    execution: Execution,
    recipe: LookupRecipe,
    staged: StagedSource,
    target: TargetFiles,
    found: tuple[Pairs, ...],
) -> MergeChanges:
    if generated_identities(execution.merge):
        execution = replace(execution, row_numbers=RowNumbers((0,), staged.rows))
    pairs = _PairFrames(execution, recipe, staged, found)
    if found:
        _check_visible(execution, lambda: pairs.rows(found[:1], changing=False))
    if recipe.undecided and found:
        with execution.steps.step("find_touched_files", "evaluating conditions on matched rows"):
            merge = execution.merge
            matches = find_matches(merge, pairs.rows(found, changing=False), None, str, of_source=True)
    else:
        matches = _matches_of(recipe, found)
    _check_competing(execution, matches.has_competing)
    source = source_rows(pairs.source_frame(), execution.merge)
    changes = SparkChanges(execution, staged.summary, target, source, pairs.touched, matches)
    return spark_changes.write_changes(changes)


def _check_visible(execution: Execution, rows: Callable[[], Rows]) -> None:
    """Decline expressions that refer to the source by more than names and its alias.

    A Column may be bound to the user's DataFrame, and a frame without an alias may have qualifiers of its own; neither
    is known in the rows of pairs.
    """
    merge = execution.merge
    expressions = [c.clause.condition for c in merge.matched]
    expressions += [value for c in merge.matched for value in c.clause.values]
    if merge.source_alias is not None and all(e is None or e.column is None for e in expressions):
        return
    try:
        _ = evaluate_matched(rows(), merge, values=True).frame.schema
    except AnalysisException as error:
        reason = "an expression refers to the source otherwise than by its columns' names or its alias"
        raise Declined("match", "key_lookup", reason) from error


def _matches_of(recipe: LookupRecipe, found: Sequence[Pairs]) -> Matches:
    numbers = {("matched", clause.number): clause.number for clause in recipe.matched}
    numbers |= {("not_matched_by_source", c.number): by_source_number(c.number) for c in recipe.by_source}
    changing = [pairs for pairs in found if pairs.rows]
    return Matches(
        changed={pairs.file.path: pairs.changed for pairs in changing},
        rows_by_clause={
            key: sum(pairs.rows_by_clause.get(number, 0) for pairs in found) for key, number in numbers.items()
        },
        updating=_updating(recipe, found),
        matched_sources=matched_sources(found),
        has_competing=any(pairs.pairs > pairs.rows for pairs in found),
        sources_fire_once=not fires_twice(found),
    )


def _updating(recipe: LookupRecipe, found: Sequence[Pairs]) -> dict[int, BitMap64]:
    updating: dict[int, BitMap64] = {}
    for clause in recipe.updates:
        sources = [pairs.read().of_clause(clause.number).sources for pairs in found]
        if sources and sum(map(len, sources)):
            updating[clause.number] = BitMap64(np.unique(np.concatenate(sources)).astype(np.uint64))
    return updating


@dataclass(frozen=True)
class _PairFrames:
    """The rows of pairs as frames.

    Args:
        of_target: The positions of the target's columns that are read, the others being NULL; None for all.
        of_source: The same of the source's columns.
    """

    execution: Execution
    recipe: LookupRecipe
    staged: StagedSource
    found: tuple[Pairs, ...]
    of_target: frozenset[int] | None = None
    of_source: frozenset[int] | None = None

    def touched(self, _: ChangedRows, files: Sequence[AddFile]) -> tuple[Rows, None]:
        """Return the rows of both sides that belong together, of touched files."""
        paths = {file.path for file in files}
        of_files = [pairs for pairs in self.found if pairs.file.path in paths]
        return self.rows(of_files, changing=not self.recipe.undecided), None

    def rows(self, found: Sequence[Pairs], *, changing: bool) -> Rows:
        """Return the rows of pairs, both sides visible."""
        merge, names = self.execution.merge, self.execution.merge.names
        frame = self._frame(found, changing=changing)
        hidden = [names.target(index) for index in range(len(merge.target_schema))]
        rest = [*hidden, *self._rest]
        source = frame.select(
            *(F.col(names.source(i)).alias(f.name) for i, f in enumerate(merge.source_schema.fields)),
            *rest,
            F.when(F.col(names.source_row_index).isNotNull(), F.lit(True)).alias(names.source_row_present),
            F.lit(True).alias(names.target_row_present),
        )
        if merge.source_alias is not None:
            source = source.alias(merge.source_alias)
        # A lateral subquery over one row is a projection that qualifies the target's columns.
        columns = [F.col(own).outer().alias(f.name) for own, f in zip(hidden, merge.target_schema.fields, strict=True)]
        one_row = self.execution.table.spark.sql("SELECT 1").select(*columns).alias(merge.target_alias)
        own_names = (
            *(names.source(i) for i in range(len(merge.source_schema))),
            *rest,
            names.source_row_present,
            names.target_row_present,
            *(names.visible(i) for i in range(len(merge.target_schema))),
        )
        return Rows(source.lateralJoin(one_row), own_names)

    def _frame(self, found: Sequence[Pairs], *, changing: bool) -> DataFrame:
        merge, names, recipe = self.execution.merge, self.execution.merge.names, self.recipe
        of_source = _those(merge.source_schema, self.of_source)
        of_target = _those(merge.target_schema, self.of_target)
        source = [names.source(index) for index, _ in of_source]
        stored = ((index, recipe.stored[field.name]) for index, field in of_target)
        target = {names.target(index): (field.name, field.type) for index, field in stored}
        tracked = self.execution.row_tracking
        row_id = None if tracked is None else tracked.row_id
        work = pairing_rows(
            self.execution.files, self.staged.kept, source, target, self._rest, changing=changing, row_id=row_id
        )
        files = pa.table(
            {
                "path": [self.execution.located(decode_path(pairs.file.path)) for pairs in found],
                "file": [pairs.file.path for pairs in found],
                "values": [json.dumps(dict(pairs.file.partition_values)) for pairs in found],
                "pairs": [pairs.path for pairs in found],
                "row_id": pa.array([pairs.file.base_row_id for pairs in found], pa.int64()),
            }
        )
        schema = StructType(
            [
                *(StructField(names.source(i), f.dataType) for i, f in of_source),
                *(StructField(names.target(i), f.dataType) for i, f in of_target),
                StructField(names.file_name, StringType()),
                *(StructField(name, LongType()) for name in self._rest[1:]),
            ]
        )
        rows = sum(pairs.pairs if changing else pairs.found for pairs in found)
        spark, in_driver = self.execution.table.spark, self._fits_driver(found, rows)
        frame = tasks.frame_of(spark, work, files, schema, in_driver=in_driver)
        absent = {names.source(i): f.dataType for i, f in enumerate(merge.source_schema.fields)}
        absent |= {names.target(i): f.dataType for i, f in enumerate(merge.target_schema.fields)}
        nulls = [F.lit(None).cast(kind).alias(n) for n, kind in absent.items() if n not in {*source, *target}]
        frame = frame.select("*", *nulls) if nulls else frame
        # Of so few rows every core would write a file.
        return frame.coalesce(1) if in_driver and rows <= self.execution.limits.one_task_rows else frame

    @property
    def _rest(self) -> tuple[str, ...]:
        """The columns beside those of both sides: whence a pair is and, with row tracking, the row's id."""
        names = self.execution.merge.names
        places = names.file_name, names.row_index, names.source_row_index
        return places if self.execution.row_tracking is None else (*places, names.row_id)

    def _fits_driver(self, found: Sequence[Pairs], rows: int) -> bool:
        limits, staged = self.execution.limits, self.staged
        width = staged.bytes_in_memory / max(1, staged.rows)
        size = sum(pairs.file.size for pairs in found)
        return (
            staged.bytes_in_memory <= limits.driver_source_bytes
            and 2 * width * rows <= limits.driver_rows_bytes
            and fits_driver(self.execution, staged.bytes + size, len(found))
        )

    def source_frame(self) -> DataFrame:
        merge, names, staged = self.execution.merge, self.execution.merge.names, self.staged
        source = [names.source(index) for index in range(len(merge.source_schema))]
        schema = StructType(
            [
                *(StructField(names.source(i), f.dataType) for i, f in enumerate(merge.source_schema.fields)),
                StructField(names.source_row_index, LongType()),
            ]
        )
        rows, most = staged.rows, self.execution.limits.rows_of_a_task
        firsts = np.arange(0, rows, most)
        ranges = pa.table({"first": firsts, "end": np.minimum(rows, firsts + most)})
        work = reading_staged(self.execution.files, staged.kept, source, names.source_row_index)
        in_driver = self._fits_driver((), rows)
        frame = tasks.frame_of(self.execution.table.spark, work, ranges, schema, in_driver=in_driver)
        return frame.toDF(*merge.source_schema.names, names.source_row_index)


def _those(schema: StructType, positions: frozenset[int] | None) -> list[tuple[int, StructField]]:
    return [(i, field) for i, field in enumerate(schema.fields) if positions is None or i in positions]
