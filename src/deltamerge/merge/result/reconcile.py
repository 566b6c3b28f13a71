"""A merge and commits that came first, where they share files: both hold if they changed and read other rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyroaring import BitMap64

from deltamerge.log.actions import AddFile
from deltamerge.log.features.deletion_vectors import deleted_positions, read_deletion_vectors, with_only
from deltamerge.log.paths import canonical_path
from deltamerge.merge.analysis.spark_analysis import holds_subqueries
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.job_errors import is_stopped
from deltamerge.merge.executors.merge_changes import MergeChanges
from deltamerge.merge.plan import Declined
from deltamerge.scan.table_reads import has_hidden_reads, reads_table, surely_reads_table
from deltamerge.spark.session import SPARK_ERRORS
from deltamerge.spark.tasks import PythonWorkersUnfit
from deltamerge.txn.conflicts import WinningCommit, files_to_read
from deltamerge.txn.prepared import PreparedCommit
from deltamerge.txn.row_conflicts import RowsToCheck, other_changes, resolve_rows
from deltamerge.write.deletion_vectors import VectorChanges, write_deletion_vectors

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")


def reconciled(
    changes: MergeChanges, prepared: PreparedCommit, winners: Sequence[WinningCommit]
) -> MergeChanges | None:
    """Return a merge's changes as they are after other commits, or None where it must run again.

    Args:
        changes: What the merge found and wrote at the version that it read.
        winners: All commits since that version.
    """
    execution = changes.execution
    store, root = execution.table.store, prepared.store.root
    if execution.source_read_table or changes.finds_rows is None:
        return None
    statement, quoted = execution.merge.statement, execution.conf.double_quoted_identifiers
    if holds_subqueries(statement, quoted) or reads_table(statement.source, execution.table):
        return None
    others = other_changes(changes.target.files, winners, root, blind_appends=prepared.counts_blind_appends)
    deleted = _deleted(changes, root, set(others.states))
    resolution = resolve_rows(
        others,
        deleted,
        frozenset(canonical_path(file.path, root) for file in changes.removed_files),
        read_deletion_vectors(store, others.vectors),
        deletes_what_matched=execution.merge.changes_all_it_matches,
    )
    if resolution is None or _reads_any(changes, prepared, resolution.to_check):
        return None
    return _united(changes, deleted, resolution.united) if resolution.united else changes


def reads_target(execution: Execution) -> bool:
    """Return whether the source reads the target, or a subquery may: then any row may matter."""
    statement, quoted = execution.merge.statement, execution.conf.double_quoted_identifiers
    source = statement.source
    return (
        holds_subqueries(statement, quoted) or surely_reads_table(source, execution.table) or has_hidden_reads(source)
    )


def _deleted(changes: MergeChanges, root: str, shared: set[str]) -> dict[str, BitMap64]:
    """Return the positions that the merge deletes by vectors in files that others changed, by canonical path."""
    before = {file.path: file for file in changes.touched.rewrite}
    pairs = {canonical_path(file.path, root): (before[file.path], file) for file in changes.vectors.kept}
    pairs = {path: files for path, files in pairs.items() if path in shared}
    vectors = [file.deletion_vector for files in pairs.values() for file in files]
    found = read_deletion_vectors(changes.execution.table.store, [v for v in vectors if v is not None])
    return {path: deleted_positions(new, found) - deleted_positions(old, found) for path, (old, new) in pairs.items()}


def _reads_any(changes: MergeChanges, prepared: PreparedCommit, rows: Sequence[RowsToCheck]) -> bool:
    """Return whether the merge would have read any of these rows; statistics first, then the source's keys."""
    store = changes.execution.table.store
    files = [r.file if r.positions is None else with_only(store, r.file, r.positions) for r in rows]
    files = files_to_read(prepared, files)
    if not files:
        return False
    assert changes.finds_rows is not None
    try:
        return changes.finds_rows(files)
    except (Declined, PythonWorkersUnfit, *SPARK_ERRORS) as error:
        if is_stopped(error):
            raise
        # What cannot be looked at counts as read: the merge that runs again has other operators, and words its errors.
        logger.info("the rows of other writers cannot be looked at, so the merge runs again: %s", error)
        return True


def _united(changes: MergeChanges, deleted: Mapping[str, BitMap64], latest: Mapping[str, AddFile]) -> MergeChanges:
    """Let the vectors of files grow as others left them; these files are removed, and added, as they are now."""
    root, store = changes.execution.table.store.root, changes.execution.table.store
    rows = {path: deleted[path] for path in latest}
    grown = write_deletion_vectors(store, changes.execution.folder, rows, latest)

    def now(file: AddFile) -> AddFile:
        return latest.get(canonical_path(file.path, root), file)

    def is_other(file: AddFile) -> bool:
        return canonical_path(file.path, root) not in latest

    touched = replace(changes.touched, rewrite=tuple(map(now, changes.touched.rewrite)))
    kept = (*filter(is_other, changes.vectors.kept), *grown.kept)
    vectors = VectorChanges.of(kept, (*changes.vectors.removed, *grown.removed), touched.rewrite)
    return replace(changes, touched=touched, vectors=vectors)
