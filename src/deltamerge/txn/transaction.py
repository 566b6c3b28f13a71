"""The optimistic transaction: write the next version unless it is taken; if it is, check and try the one after.

After it the log is maintained; see `maintain_log`.

Three outcomes: the commit landed; it conflicts (a `DeltaConcurrentModificationException`, or the store's own error:
nothing was written, the caller may delete its files); it is not known (`CommitStateUnknownException`: it must not).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from deltamerge.exceptions import ConcurrentWriteException, DeltaConcurrentModificationException
from deltamerge.log.actions import Metadata
from deltamerge.log.change_feed import check_reserved_names
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.cleanup import clean_up_expired_log
from deltamerge.log.commits import read_commit
from deltamerge.log.features.row_tracking import high_water_mark
from deltamerge.log.properties import integer
from deltamerge.log.segment import commit_path, list_log
from deltamerge.log.snapshot import load_snapshot
from deltamerge.log.version_checksum import checksum_content, checksum_path, state_after
from deltamerge.txn.commit_file import commit_content, commits_say_when, write_commit
from deltamerge.txn.conflicts import ROW_CONFLICTS, WinningCommit, check_conflicts
from deltamerge.txn.prepared import Committed, PreparedCommit, ReadSet
from deltamerge.txn.symlink_manifests import asks_for_manifests, check_manifests, write_manifests

__all__ = ["Committed", "PreparedCommit", "ReadSet", "commit"]

MAX_ATTEMPTS = 1000
"""How many versions are tried while other writers are faster."""
# So long after its snapshot was read a transaction looks whether the log still has what follows.
_LOOKS_AGAIN_SECONDS = 30


Reconcile: TypeAlias = Callable[[Sequence[WinningCommit], DeltaConcurrentModificationException], PreparedCommit | None]
"""Returns what to commit after others, or None where they conflict.

Its arguments are all commits since the version that was read, and the first conflict about files with one of them.
"""


_LOGGER = logging.getLogger(__name__)


def now_ms() -> int:
    return int(time.time() * 1000)


def commit(
    prepared: PreparedCommit,
    clock: Callable[[], int] = now_ms,
    reconcile: Reconcile | None = None,
    reads_all: Callable[[], bool] = lambda: False,
) -> Committed:
    """Commit a transaction; `clock` returns milliseconds since the epoch.

    Args:
        reconcile: Looks at the rows where others changed files that the transaction read; None for no second look.
        reads_all: Returns whether the whole table counts as read; it is asked once another writer was first.

    Raises:
        DeltaAnalysisException: The table would have a change data feed and columns of its names; nothing was written.
        DeltaTableException: The table would have symlink manifests and deletion vectors; nothing was written.
        DeltaConcurrentModificationException: Another writer's commit conflicts; nothing was written.
        CommitStateUnknownException: It is not known whether the commit landed.
        Exception: The store's own error; nothing was written.
    """
    read = prepared.read_snapshot
    if prepared.new_metadata is not None:
        check_reserved_names(prepared.new_metadata, None if read is None else read.metadata)
        check_manifests(prepared.new_metadata, read)
    _check_not_cleaned_up(prepared)

    def landed(version: int, content: bytes | None) -> Committed:
        committed = Committed(version, prepared.store, prepared.read_snapshot)
        maintain_log(committed, prepared, content, clock)
        return committed

    seen = prepared.read_version
    last_timestamp, last_row_id = 0 if read is None else read.timestamp_ms, _read_row_id(prepared)
    winners: list[WinningCommit] = []
    for attempt in range(MAX_ATTEMPTS):
        timestamp = max(clock(), last_timestamp + 1) if commits_say_when(prepared) else clock()
        content = commit_content(prepared, seen + 1, timestamp, last_row_id)
        if write_commit(prepared.store, seen + 1, content, prepared.txn_id):
            return landed(seen + 1, content)
        if attempt == 0 and reads_all():
            prepared = replace(prepared, read_set=replace(prepared.read_set, whole_table=True))
        conflict: DeltaConcurrentModificationException | None = None
        for winner in _winning_commits(prepared, seen + 1):
            if winner.txn_id == prepared.txn_id:
                return landed(winner.version, None)
            try:
                check_conflicts(prepared, winner)
            except ROW_CONFLICTS as error:
                if reconcile is None:
                    raise
                conflict = conflict or error
            winners.append(winner)
            seen = winner.version
            last_timestamp = max(last_timestamp, winner.info.in_commit_timestamp or _written_at(prepared, seen))
            # Row ids are assigned anew for every version that is tried.
            last_row_id = max(last_row_id, -1 if (mark := winner.row_id_high_water_mark) is None else mark)
        if conflict is not None and reconcile is not None:
            reconciled = reconcile(winners, conflict)
            if reconciled is None:
                raise conflict
            prepared = reconciled
    raise _lost(prepared, seen, f"they were faster {MAX_ATTEMPTS} times", "when fewer writers are at work")


def _written_at(prepared: PreparedCommit, version: int) -> int:
    """Return when a version without an in-commit timestamp was written, where this commit turns these on."""
    if not commits_say_when(prepared):
        return 0
    commits = list_log(prepared.store, version).commits
    return next((commit.file.modification_time for commit in commits if commit.start == version), 0)


def _check_not_cleaned_up(prepared: PreparedCommit) -> None:
    """Refuse to write a version that was there and has been cleaned up: no reader would find it below a checkpoint.

    By default the log is kept for 30 days, longer than any transaction takes; what a table asks for may be shorter, and
    a feature that is dropped may take all of the history with it.
    """
    read = prepared.read_snapshot
    if read is None:
        return
    last = read.segment.last_commit
    is_old = time.monotonic() - read.read_at > _LOOKS_AGAIN_SECONDS
    # Of an empty file nobody knows whether it is still written.
    is_empty = last is not None and last.size == 0
    if not (is_old or is_empty or "delta.logRetentionDuration" in read.metadata.configuration):
        return
    listing = list_log(prepared.store, read.version)
    commits = {commit.start: commit.file for commit in listing.commits}
    latest = max([*commits, *(found.version for found in listing.checkpoints)], default=None)
    if latest is None or (last is not None and commits.get(read.version, last) != last):
        why = "it was being written as it was read" if is_empty else "the table was dropped, or made anew, meanwhile"
        raise _lost(prepared, read.version, why, "on what is there now")
    if latest > read.version and read.version + 1 not in commits:
        raise _cleaned_up(prepared, read.version + 1, latest)


def _read_row_id(prepared: PreparedCommit) -> int:
    read = prepared.read_snapshot
    mark = None if read is None else high_water_mark(read.domain_metadata.values())
    return -1 if mark is None else mark


def _winning_commits(prepared: PreparedCommit, first: int) -> Iterator[WinningCommit]:
    """Yield the commits from one that exists up to the latest."""
    version = first
    while True:
        try:
            yield WinningCommit.of(read_commit(prepared.store, version))
        except FileNotFoundError:
            if version == first:
                # It existed just now: the log has been cleaned up past it.
                raise _cleaned_up(prepared, version, version) from None
            return
        version += 1


def _cleaned_up(prepared: PreparedCommit, missing: int, latest: int) -> ConcurrentWriteException:
    why = f"version {missing} was cleaned up meanwhile (delta.logRetentionDuration, DROP FEATURE … TRUNCATE HISTORY)"
    return _lost(prepared, latest, why, "on the latest version")


def _lost(prepared: PreparedCommit, version: int, why: str, again: str) -> ConcurrentWriteException:
    return ConcurrentWriteException(
        "DELTA_CONCURRENT_WRITE",
        "ConcurrentWriteException: Concurrent transactions have written new data since this transaction "
        f"({prepared.operation}) read version {prepared.read_version} of {prepared.store.root}, up to version "
        f"{version}: {why}. This transaction was not committed; run it again {again}.",
        parameters={
            "tableName": prepared.store.root,
            "version": str(version),
            "readVersion": str(prepared.read_version),
            "reason": why,
        },
    )


def maintain_log(
    committed: Committed, prepared: PreparedCommit, content: bytes | None, clock: Callable[[], int]
) -> None:
    """Write what belongs to a new version; nothing that fails here is an error of the commit, which has landed.

    Args:
        content: The commit file's; None where it is not known to be this one.
        clock: Returns milliseconds since the epoch.
    """
    if prepared.settings.writes_checksum:
        with _no_error_of(committed, "version checksum"):
            _write_checksum(committed, prepared, content)
    if prepared.metadata is not None and _is_checkpoint_due(committed.version, prepared.metadata):
        with _no_error_of(committed, "checkpoint or the log's clean-up"):
            write_checkpoint(committed.snapshot, clock())
            clean_up_expired_log(committed.snapshot, clock())
    if prepared.metadata is not None and asks_for_manifests(prepared.metadata, prepared.actions):
        with _no_error_of(committed, "symlink manifests"):
            # The newest version, which may be another writer's: theirs may have been written already.
            write_manifests(load_snapshot(committed.store, previous=committed.read))


@contextlib.contextmanager
def _no_error_of(committed: Committed, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # Whatever fails, no error may make the commit look as if it had not landed.
        _LOGGER.warning(
            "Version %s of %s is committed, but its %s failed: %s",
            committed.version,
            committed.store.root,
            what,
            error,
            exc_info=True,
        )


def _write_checksum(committed: Committed, prepared: PreparedCommit, content: bytes | None) -> None:
    read, store = prepared.read_snapshot, committed.store
    if content is not None and committed.version == prepared.read_version + 1:
        # Known without reading anything back.
        before = None if read is None else read.state
        state = state_after(before, commit_path(committed.version), content, store.root)
    else:
        state = committed.snapshot.state
    # A file that is there already is another writer's, and stays (Protocol: Writer Requirements).
    with contextlib.suppress(FileExistsError):
        store.put_if_absent(checksum_path(committed.version), checksum_content(state, prepared.txn_id))


def _is_checkpoint_due(version: int, metadata: Metadata) -> bool:
    interval = integer(metadata.configuration, "delta.checkpointInterval", 10)
    return version > 0 and interval > 0 and version % interval == 0
