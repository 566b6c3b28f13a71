"""Merge by key lookup: key columns of files are looked up in the source's, without a join.

The source is computed once into Arrow files, or read where it is. Each file's key columns are looked up in them, which
returns pairs of rows. PyArrow then writes what changes; what it cannot compute Spark evaluates over only the pairs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from deltamerge.log.actions import AddFile
from deltamerge.merge.executors import arrow_changes
from deltamerge.merge.executors.arrow_changes import ArrowChanges
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.job_errors import changed_source_in
from deltamerge.merge.executors.key_matching import Pairs, find_pairs, fires_twice
from deltamerge.merge.executors.lookup import Lookup, StagedSource
from deltamerge.merge.executors.lookup_recipe import LookupRecipe, differs_by_pair, lookup_recipe, may_differ_by_pair
from deltamerge.merge.executors.merge_changes import MergeChanges
from deltamerge.merge.executors.pair_frames import PairFrames
from deltamerge.merge.executors.pair_values import evaluate_pairs
from deltamerge.merge.executors.source_exchange import with_exchanged
from deltamerge.merge.executors.source_in_place import decoded, source_in_place, with_chosen, with_computed
from deltamerge.merge.executors.spark_staging import check_there, computing_for_all, stage_computed
from deltamerge.merge.executors.staged_columns import columns_to_stage
from deltamerge.merge.executors.staged_keys import with_index, with_keys
from deltamerge.merge.plan import Declined, RowsCompete
from deltamerge.merge.planning.target_files import TargetFiles
from deltamerge.merge.source.key_summary import NO_ROWS
from deltamerge.spark.session import SPARK_ERRORS
from deltamerge.workers.staged_rows import SourceChanged, StagedFile, StagedRows


def execute_key_lookup(execution: Execution) -> MergeChanges:
    """Run a merge by key lookup.

    Raises:
        Declined: It came out on the way that another operator must do a part of it.
    """
    with _reading_source(execution), _scratch_folder(execution, f"{execution.folder}/_staged") as folder:
        started = replace(execution, scratch=folder)
        recipe = lookup_recipe(execution.context, execution.plan.changed_rows.choice)
        staged = _staged_source(started, recipe)
        changes = _looked_up(Lookup(started, recipe, staged))
    return replace(changes, finds_rows=partial(_finds_rows, execution, staged.rows.files))


def _finds_rows(execution: Execution, read: tuple[StagedFile, ...], files: Sequence[AddFile]) -> bool:
    """Look the source up once more, in other files; see `MergeChanges`.

    Args:
        read: The source's files as they were read first. Where they have changed, other keys may be in them now.
    """
    recipe = lookup_recipe(execution.context, execution.plan.changed_rows.choice)
    with _reading_source(execution), _scratch_folder(execution, f"{execution.folder}/_staged") as folder:
        again = replace(execution, scratch=folder, opened=execution.files.for_one_run())
        staged = _staged_source(again, recipe)
        if staged.rows.files != read:
            return True
        unmatchable = frozenset() if staged.row_count else frozenset(file.path for file in files)
        return bool(find_pairs(with_index(Lookup(again, recipe, staged)), files, unmatchable))


def _looked_up(lookup: Lookup) -> MergeChanges:
    execution, recipe, steps = lookup.execution, lookup.recipe, lookup.execution.steps
    with steps.step("plan", "choosing the files to read"):
        lookup, possible = with_keys(lookup)
        target = execution.target_files(lookup.staged.summary.predicate, possible)
    found: tuple[Pairs, ...] = ()
    if target.files and (lookup.staged.row_count or recipe.clauses.by_source):
        with steps.step("find_touched_files", "scanning files for matches", target.files):
            found = find_pairs(lookup, target.files, target.unmatchable)
        found = with_exchanged(lookup, found)
    return _write_changes(lookup, target, found)


def _staged_source(execution: Execution, recipe: LookupRecipe) -> StagedSource:
    """Read the source; one that was computed for it stays for another run, in a folder of its own."""
    if execution.plan.source.choice in ("in_place", "none"):
        return stage_source(execution, recipe)

    def stage() -> tuple[StagedSource, ExitStack]:
        with ExitStack() as files:
            folder = files.enter_context(_scratch_folder(execution, f"{execution.folder}-source"))
            return stage_source(replace(execution, scratch=folder), recipe), files.pop_all()

    staged, _ = execution.kept.once(execution.source_key, stage, lambda kept: kept[1].close())
    return staged


def _write_changes(lookup: Lookup, target: TargetFiles, found: tuple[Pairs, ...]) -> MergeChanges:
    execution, recipe, staged = lookup.execution, lookup.recipe, lookup.staged
    may_differ = not recipe.reads_pairs and may_differ_by_pair(execution.context)
    if may_differ and fires_twice(found, staged.row_count) and differs_by_pair(execution.context):
        reason = "a source row matches several target rows, and each gets a value of its own"
        raise Declined("changed_rows", "arrow", reason)
    taken, values = found, None
    if recipe.reads_pairs and found:
        frames = PairFrames(lookup, found)
        with execution.steps.step("find_touched_files", "evaluating clauses on matched rows"):
            taken, values = evaluate_pairs(frames)
    competing = any(pairs.taken > pairs.taken_rows for pairs in taken)
    if competing and not execution.merge.is_only_one_unconditional_delete:
        raise RowsCompete
    return arrow_changes.write_changes(ArrowChanges(lookup, target, taken, found, values))


@contextmanager
def _reading_source(execution: Execution) -> Iterator[None]:
    """Decline a source of which a file is no longer the one that was looked at."""
    try:
        yield
    except (SourceChanged, *SPARK_ERRORS) as error:
        changed = changed_source_in(error)
        if changed is None:
            raise
        raise Declined("source", execution.plan.source.choice, changed) from error


@contextmanager
def _scratch_folder(execution: Execution, name: str) -> Iterator[str]:
    """Make a folder for staged rows and pairs, which driver and tasks open, and delete it with all that is in it.

    Tasks do not make it, so that one that still runs when the run has failed leaves nothing.

    Args:
        name: Where in the table it is, unless the driver's own disk does.
    """
    store = execution.table.store
    if not store.is_local and execution.context.session.runs_in_local_mode:
        with tempfile.TemporaryDirectory(prefix="deltamerge-", ignore_cleanup_errors=True) as folder:
            yield folder
        return
    try:
        store.make_folder(name)
        yield execution.located(name)
    finally:
        store.delete_folder(name)


def stage_source(execution: Execution, recipe: LookupRecipe) -> StagedSource:
    """Read the source as planned.

    Raises:
        Declined: It is not plain Parquet files, it has too many rows, or tasks write to another machine's disk.
    """
    steps, in_place = execution.steps, execution.plan.source.choice == "in_place"
    columns = columns_to_stage(execution, recipe)
    computing = computing_for_all(execution, recipe, columns)
    if execution.plan.source.choice == "none":
        return StagedSource(columns, StagedRows(()), row_count=0, bytes=0, bytes_in_memory=0, summary=NO_ROWS)
    if not in_place:
        with steps.step("materialize_source", "materializing the source"), computing:
            return _are_there(execution, stage_computed(execution, recipe, columns))
    with steps.step("plan_source", "looking at the source"):
        source, files = source_in_place(execution, recipe, columns)
    if source.bytes_in_memory > execution.limits.source_bytes and execution.maps_source:
        with steps.step("materialize_source", "decoding the source's files"):
            source = decoded(execution, source, files)
    with steps.step("plan_source", "looking at the source"):
        chosen = None if columns.needs_spark else with_chosen(execution, source)
    if chosen is not None:
        return chosen
    with steps.step("materialize_source", "materializing the source"), computing:
        return _are_there(execution, with_computed(execution, recipe, source, files))


def _are_there(execution: Execution, staged: StagedSource) -> StagedSource:
    check_there(execution, (*staged.rows.files, *staged.rows.computed))
    return staged
