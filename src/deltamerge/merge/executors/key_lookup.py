"""KeyLookupMergeExecutor: source rows found in the target by plain keys, and written as they are.

Where ON only equates keys, what the clauses write comes from the source's row, and what they ask of the target's is
plain, Spark is needed for the source alone: it is computed once into Arrow files. Files are then searched by their key
columns, and written again with the changed rows in their places; all that happens in Arrow, inside Spark's tasks (where
it is little, in the driver), and rows never become Spark's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark import cloudpickle

from deltamerge.log.add_file_stats import rows_about
from deltamerge.log.paths import decode_path
from deltamerge.merge.analysis import arrow_conditions
from deltamerge.merge.executors.execute import BY_KEYS_AND_CONDITIONS, notes_of
from deltamerge.merge.executors.execution import NOTHING_WRITTEN, Execution, MergeChanges
from deltamerge.merge.executors.pairs import MOST_LEAVING, Pairs, find_pairs, fires_twice
from deltamerge.merge.executors.partitions import Partition, partitions_of
from deltamerge.merge.executors.row_counts import count_rows, inserting_clauses
from deltamerge.merge.executors.touched_files import NOTHING_TOUCHED, TRACE, TouchedFiles
from deltamerge.merge.planning.key_lookup_fit import KeyLookup
from deltamerge.merge.planning.placement import MOST_SOURCE_IN_DRIVER, bytes_for_driver, fits, run_near
from deltamerge.merge.planning.target_files import ScanPlan, may_match_mask, plan_scan, read_predicate
from deltamerge.merge.source.staging import (
    StagedSource,
    source_as_it_lies,
    stage_source,
    staged_columns,
    with_chosen,
    with_computed,
    with_gaps,
    with_keys_counted,
)
from deltamerge.scan.paths import without_file_scheme
from deltamerge.skipping.keys import Mask
from deltamerge.workers import arrow_rows, nan_columns, parquet_patch
from deltamerge.workers.arrow_rows import DONE_SCHEMA, NewRows, new_file_work, patch_work, writing
from deltamerge.workers.key_lookup import UNFIT
from deltamerge.workers.row_pairs import distinct, of_by_source, read_pairs
from deltamerge.workers.staged_rows import SPARK_VERSION, open_staged
from deltamerge.write.append_only import refuse_append_only
from deltamerge.write.data_files import WrittenFiles, collect_files
from deltamerge.write.deletion_vectors import NO_VECTORS, VectorChanges, write_deletion_vectors
from deltamerge.write.patching import patchable

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")

EXECUTOR = "key_lookup"
REASON = "ON only equates keys, and all that clauses ask and write comes from the source's rows"
REASON_WITH_TARGET = "ON only equates keys, clauses write the source's values, and ask little of the target"

# Executors need not have this package: what they run travels with the task.
for module in (arrow_rows, parquet_patch, nan_columns, arrow_conditions):
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]

_PAIRS_OF_A_FILE = 500_000
_SMALL_BYTES = 8 << 20


def execute_key_lookup(execution: Execution, how: KeyLookup) -> MergeChanges | None:
    """Runs a merge by key lookup.

    Args:
        execution: What to work on.
        how: How.

    Returns:
        The files written and those they replace; None where it came out on the way that another executor must do it:
        the source is large, rows compete for a row of the target, very many may leave it, or a file holds other types
        than the table says. What was written until then lies in the execution's folder.
    """
    steps = execution.steps
    if any(clause.condition is None for clause in how.by_source) and _has_very_many_rows(execution):
        return None
    # Tasks make none, so that one that still runs when this has failed leaves nothing.
    execution.table.store.make_folder(execution.folder)
    staged = _staged(execution, how)
    if staged is None or not _are_there(execution, staged):
        return None
    with steps.step("plan", "choosing the files to read"):
        staged, possible = _looked_at(execution, how, staged)
        zone, wanted = execution.conf.session_time_zone, staged.summary.predicate
        plan = plan_scan(execution.snapshot, execution.merge, how.lookup.shape, wanted, zone, possible)
    found: tuple[Pairs, ...] | None = ()
    if plan.files and (staged.rows or how.by_source):
        with steps.step("find_touched_files", "scanning files for matches"):
            found = find_pairs(execution, how, staged, plan)
    if found is None:
        return None
    if how.computes and fires_twice(found):
        return None
    competing = any(pairs.pairs > pairs.rows for pairs in found)
    if competing and not execution.merge.is_only_one_unconditional_delete:
        return None
    return _write_changes(_Work(execution, how, staged, found, plan))


def _has_very_many_rows(execution: Execution) -> bool:
    """Tells whether more rows than may leave without a match are in the table, before its source is kept for that."""
    return rows_about((f.stats, f.size) for f in execution.snapshot.files.add_files()) > MOST_LEAVING


def _looked_at(execution: Execution, how: KeyLookup, staged: StagedSource) -> tuple[StagedSource, Mask]:
    """Looks at the source's keys for NULLs and repetitions, and for gaps where their ranges leave several files.

    Returns:
        The source, and which files the ranges leave.
    """
    predicate = read_predicate(execution.merge, how.lookup.shape, staged.summary.predicate)
    files = may_match_mask(execution.snapshot, predicate, execution.conf.session_time_zone)
    if not staged.rows:
        return staged, files
    keys = open_staged(staged.kept, list(dict.fromkeys(staged.columns.keys)))
    staged = with_keys_counted(staged, keys)
    return (with_gaps(staged, keys) if files.sum() > 1 else staged), files


def _staged(execution: Execution, how: KeyLookup) -> StagedSource | None:
    """Keeps the source's rows, the ones that lie in files where they are; None where they are too many."""
    steps = execution.steps
    columns = staged_columns(execution, how)
    lying = None
    if execution.conf.materialize_source != "all":
        with steps.step("plan_source", "looking at the source"):
            lying = source_as_it_lies(execution, how, columns)
            if lying is not None and lying.is_too_large:
                return None
            if lying is not None and not columns.needs_spark:
                chosen = with_chosen(execution, lying.source)
                if chosen is not None:
                    return chosen
    with steps.step("materialize_source", "materializing the source"):
        staged = None if lying is None else with_computed(execution, how, lying)
        return staged or stage_source(execution, how, columns)


def _are_there(execution: Execution, staged: StagedSource) -> bool:
    """Tells whether tasks write where the driver reads: a session may be on another machine."""
    written = _own_files(staged)
    if not written:
        return True
    listed = {_name(file.path) for file in execution.table.store.list(execution.folder)}
    return all(_name(path) in listed for path in written)


def _own_files(staged: StagedSource) -> list[str]:
    return [file.path for file in (*staged.kept.files, *staged.kept.computed) if file.is_arrow]


def _name(path: str) -> str:
    return path.rpartition("/")[2]


@dataclass(frozen=True)
class _Work:
    """What is known once matches are found."""

    execution: Execution
    how: KeyLookup
    staged: StagedSource
    found: tuple[Pairs, ...]
    plan: ScanPlan

    @property
    def touched(self) -> TouchedFiles:
        files = tuple(pairs.file for pairs in self.found if pairs.rows)
        if not files:
            return NOTHING_TOUCHED
        codes = [
            *((clause, clause.number) for clause in self.how.matched),
            *((clause, of_by_source(clause.number)) for clause in self.how.by_source),
        ]
        counts: dict[tuple[str, int], int] = {
            (clause.clause.kind, clause.number): sum(p.rows_by_clause.get(code, 0) for p in self.found)
            for clause, code in codes
        }
        return TouchedFiles(files, (), counts, has_multiple_matches=False)

    def local(self, path: str) -> str:
        return without_file_scheme(self.execution.table.store.absolute(path))

    def updated(self, pairs: Pairs) -> int:
        """Counts the rows of a file that are updated."""
        return sum(pairs.rows_by_clause.get(clause.number, 0) for clause in self.how.updates)

    def located(self, pairs: Sequence[Pairs]) -> list[tuple[str, str]]:
        return [(self.local(decode_path(p.file.path)), p.path) for p in pairs]

    def new_file(self, partition: Partition, kind: str, *numbers: int) -> str:
        name = "-".join([kind, *(f"{number:05d}" for number in numbers)])
        return self.local(f"{self.execution.folder}/{partition.folders}{name}.parquet")


def _write_changes(work: _Work) -> MergeChanges | None:
    execution, touched = work.execution, work.touched
    merge, steps = execution.merge, execution.steps
    if touched.rewrite:
        refuse_append_only(execution.snapshot, execution.table.name, "the merge updates or deletes rows")
        patched = () if execution.writes_deletion_vectors else touched.rewrite
        if len(patchable(execution.table.store, patched)) < len(patched):
            return None
    partitions = _partitions(work)
    if partitions is None:
        return None
    items = _items(work, partitions)
    written, by_clause = NOTHING_WRITTEN, dict[int, int]()
    if items:
        with steps.step(*_said(work)):
            told = _write_files(work, items)
            if told is None:
                return None
            by_clause = told
            written = collect_files(execution.write_target)
            _remove_empty_folders(work, partitions, written)
    copied, inserted = count_rows(execution, touched, written)
    vectors = NO_VECTORS
    if touched.rewrite and execution.writes_deletion_vectors:
        with steps.step("write_deletion_vectors", "writing deletion vectors"):
            vectors = _delete_rows(work)
    _remove_staged(work)
    return MergeChanges(
        execution=execution,
        source_rows=work.staged.summary.row_count,
        second_scan_rows=work.staged.summary.row_count
        if items and not merge.statement.is_insert_only
        else -1,
        plan=work.plan,
        touched=touched,
        written=written,
        inserted=inserted,
        inserted_by_clause={
            ("not_matched", clause.number): by_clause.get(clause.number, 0)
            for clause in inserting_clauses(merge)
        },
        copied=copied,
        notes=notes_of(work.plan.sizes, BY_KEYS_AND_CONDITIONS, work.staged.summary),
        vectors=vectors,
    )


def _said(work: _Work) -> tuple[str, str]:
    """Gives the name of the step that writes, and what it is about to do."""
    touched = len(work.touched.rewrite)
    if not touched:
        return "write_only_inserts", "writing new files for only inserts"
    if work.execution.writes_deletion_vectors:
        return (
            "write_all_changes",
            f"writing new and changed rows of {touched} file{'' if touched == 1 else 's'}",
        )
    return "write_all_changes", f"rewriting {touched} file{'' if touched == 1 else 's'}"


def _partitions(work: _Work) -> list[Partition] | None:
    """Finds the partitions that get files, and makes their folders."""
    touched = {file.path for file in work.touched.rewrite}
    logger.log(
        TRACE, "findTouchedFiles: matched files:\n%s", "\n".join(f"  {path}" for path in sorted(touched))
    )
    pairs = sorted((p for p in work.found if p.file.path in touched), key=lambda pairs: -pairs.file.size)
    if work.execution.writes_deletion_vectors:
        pairs = [found for found in pairs if work.updated(found)]
    partitions = partitions_of(work.execution, work.how, work.staged, work.found, pairs)
    for folder in sorted({partition.folders for partition in partitions or ()}):
        work.execution.table.store.make_folder(f"{work.execution.folder}/{folder}")
    return partitions


def _remove_empty_folders(work: _Work, partitions: Sequence[Partition], written: WrittenFiles) -> None:
    """Deletes the folders of partitions of which no row is left."""
    root = work.execution.folder
    used = [decode_path(file.path) for file in written.files]
    for partition in partitions:
        levels = partition.folders.split("/")[:-1]
        for depth in range(len(levels)):
            folder = "/".join([root, *levels[: depth + 1], ""])
            if not any(path.startswith(folder) for path in used):
                work.execution.table.store.delete_folder(folder)


def _items(work: _Work, partitions: Sequence[Partition]) -> list[str]:
    """Describes the files to be written, the ones that take longest first."""
    changed: list[str] = []
    new: list[str] = []
    for number, partition in enumerate(partitions):
        if _is_small(work, partition):
            new += _one_item(work, partition, number)
        else:
            changed += _changed_items(work, partition, number)
            new += _new_items(work, partition, number)
    return [*changed, *new]


def _one_item(work: _Work, partition: Partition, number: int) -> list[str]:
    """Describes one file for all that is written to a partition."""
    target = work.new_file(partition, "part", number, 0)
    files, values = work.located(partition.pairs), partition.values
    (inserted,) = partition.inserted or ((0, 0),)
    if work.execution.writes_deletion_vectors:
        return [new_file_work(target, changed=files, inserted=inserted, values=values)]
    return [new_file_work(target, rewritten=files, inserted=inserted, values=values)]


def _changed_items(work: _Work, partition: Partition, number: int) -> list[str]:
    """Describes the files of a partition for changed rows, and for those that stay with them."""
    if not work.execution.writes_deletion_vectors:
        return [
            patch_work(path, work.new_file(partition, "kept", number, i), found)
            for i, (path, found) in enumerate(work.located(partition.pairs))
        ]
    most = min(work.how.records_per_file or _PAIRS_OF_A_FILE, _PAIRS_OF_A_FILE)
    return [
        new_file_work(work.new_file(partition, "changed", number, i), changed=work.located(group))
        for i, group in enumerate(_groups(work, partition.pairs, most))
    ]


def _new_items(work: _Work, partition: Partition, number: int) -> list[str]:
    """Describes the files of a partition for new rows."""
    return [
        new_file_work(work.new_file(partition, "part", number, i), inserted=inserted, values=partition.values)
        for i, inserted in enumerate(partition.inserted)
    ]


def _is_small(work: _Work, partition: Partition) -> bool:
    """Tells whether a partition gets one file alone: small merges shall not leave ever more small files."""
    rows, most = partition.rows, work.how.records_per_file
    if most is not None and rows + _rows_written_again(work, partition.pairs) > most:
        return False
    size = work.staged.bytes + sum(pairs.file.size for pairs in partition.pairs)
    if len(partition.inserted) > 1 or not fits(_SMALL_BYTES, size, len(partition.pairs)):
        return False
    return bool(rows) or len(partition.pairs) > 1


def _rows_written_again(work: _Work, changed: Sequence[Pairs]) -> int:
    """Counts about how many rows of files go into new ones."""
    if work.execution.writes_deletion_vectors:
        return sum(map(work.updated, changed))
    return rows_about((pairs.file.stats, pairs.file.size) for pairs in changed)


def _groups(work: _Work, changed: Sequence[Pairs], most: int) -> Iterator[list[Pairs]]:
    """Puts files together whose updated rows go into one new file, of at most so many unless one file has more."""
    group: list[Pairs] = []
    for pairs in changed:
        if group and sum(map(work.updated, group)) + work.updated(pairs) > most:
            yield group
            group = []
        group.append(pairs)
    if group:
        yield group


def _write_files(work: _Work, items: Sequence[str]) -> dict[int, int] | None:
    """Writes all files in one job.

    Returns:
        How many rows each INSERT clause took; None where a file is not to be written in this way.
    """
    columns, how, spark = work.staged.columns, work.how, work.execution.table.spark
    partition_columns = work.execution.snapshot.metadata.partition_columns
    stored = {name: kind for name, kind in how.types.items() if name not in partition_columns}
    new = NewRows(
        staged=work.staged.kept,
        updates={
            number: {name: column for name, column in setting.items() if name in stored}
            for number, setting in columns.updates.items()
        },
        inserts=columns.inserts,
        clause=columns.clause,
        types=stored,
        not_null=how.not_null,
        metadata={SPARK_VERSION: spark.version.encode()},
        pairs=tuple(pairs.path for pairs in work.found),
        options={
            "compression": how.codec,
            "store_decimal_as_integer": True,
            "store_schema": False,
            "write_page_index": True,
        },
    )
    rows = pa.table({"work": pa.array(items, pa.string())})
    here = work.staged.bytes_in_memory <= MOST_SOURCE_IN_DRIVER and fits(
        bytes_for_driver(spark, work.execution.conf), _bytes_read(work, new), len(work.found)
    )
    done = run_near(spark, writing(new), rows, DONE_SCHEMA, here=here)
    unfit = [row["told"] for row in done if row["rows"] == UNFIT]
    if unfit:
        logger.info("another executor writes the merge: %s", unfit[0])
        return None
    counts: dict[int, int] = {}
    for row in done:
        for number, count in json.loads(row["told"]).items():
            counts[int(number)] = counts.get(int(number), 0) + count
    return counts


def _bytes_read(work: _Work, new: NewRows) -> float:
    """Says how many bytes of source and files are read to write new files."""
    share = 1.0
    if work.execution.writes_deletion_vectors:
        # Of a changed row only what its UPDATE leaves as it was is read in its file.
        kept = [name for name in new.types if any(name not in setting for setting in new.updates.values())]
        share = len(kept) / len(new.types)
    return work.staged.bytes + share * sum(pairs.file.size for pairs in work.found)


def _delete_rows(work: _Work) -> VectorChanges:
    changed = [pairs for pairs in work.found if pairs.rows]
    deleted = {p.file.path: _bitmap(read_pairs(p.path).changing.rows) for p in changed}
    files = {pairs.file.path: pairs.file for pairs in changed}
    return write_deletion_vectors(work.execution.table.store, work.execution.folder, deleted, files)


def _bitmap(rows: np.ndarray[Any, Any]) -> BitMap64:
    return BitMap64(distinct(rows).astype(np.uint64))


def _remove_staged(work: _Work) -> None:
    """Deletes what was kept on the way, so that the folder holds what the commit names alone."""
    store = work.execution.table.store
    # All of them, since a task that ran twice left some that no answer names.
    listed = store.list(work.execution.folder)
    staged = [file.path for file in listed if file.path.endswith(".arrow")]
    if len(staged) < len(listed):
        store.delete(staged)
    else:
        store.delete_folder(work.execution.folder)
