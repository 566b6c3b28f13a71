"""The optimistic transaction: write the next version unless it is taken; if it is, check and try the one after.

After it the log is maintained; see `upkeep`.

Three outcomes: the commit landed; it conflicts (a `DeltaConcurrentModificationException`, or the store's own error:
nothing was written, the caller may delete its files); it is not known (`CommitStateUnknownException`: it must not).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from deltamerge.exceptions import ConcurrentWriteException, DeltaConcurrentModificationException
from deltamerge.log.change_feed import check_reserved_names
from deltamerge.log.commits import read_commit
from deltamerge.log.features.row_tracking import high_water_mark
from deltamerge.log.segment import list_log
from deltamerge.txn.commit_file import commit_content, commits_say_when, write_commit
from deltamerge.txn.conflicts import ROW_CONFLICTS, WinningCommit, check_conflicts
from deltamerge.txn.prepared import Committed, PreparedCommit, ReadSet
from deltamerge.txn.upkeep import maintain_log

__all__ = ["Committed", "PreparedCommit", "ReadSet", "commit"]

MAX_ATTEMPTS = 1000
"""How many versions are tried while other writers are faster."""


Reconcile: TypeAlias = Callable[[Sequence[WinningCommit], DeltaConcurrentModificationException], PreparedCommit | None]
"""Returns what to commit after others, or None where they conflict.

Its arguments are all commits since the version that was read, and the first conflict about files with one of them.
"""


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return int(time.time() * 1000)


def commit(
    prepared: PreparedCommit, clock: Callable[[], int] = now_ms, reconcile: Reconcile | None = None
) -> Committed:
    """Commit a transaction; `clock` returns milliseconds since the epoch.

    Args:
        reconcile: Looks at the rows where others changed files that the transaction read; None for no second look.

    Raises:
        DeltaAnalysisException: The table would have a change data feed and columns of its names; nothing was written.
        DeltaConcurrentModificationException: Another writer's commit conflicts; nothing was written.
        CommitStateUnknownException: It is not known whether the commit landed.
        Exception: The store's own error; nothing was written.
    """
    if prepared.new_metadata is not None:
        read = prepared.read_snapshot
        check_reserved_names(prepared.new_metadata, None if read is None else read.metadata)
    _check_not_cleaned_up(prepared)

    def landed(version: int, timestamp: int, attempts: int, content: bytes | None) -> Committed:
        committed = Committed(version, timestamp, attempts, prepared.store, prepared.read_snapshot)
        maintain_log(committed, prepared, content, clock)
        return committed

    seen = prepared.read_version
    last_timestamp, last_row_id = _read_timestamp(prepared), _read_row_id(prepared)
    winners: list[WinningCommit] = []
    for attempt in range(1, MAX_ATTEMPTS + 1):
        timestamp = max(clock(), last_timestamp + 1) if commits_say_when(prepared) else clock()
        content = commit_content(prepared, seen + 1, timestamp, last_row_id)
        if write_commit(prepared.store, seen + 1, content, prepared.txn_id):
            return landed(seen + 1, timestamp, attempt, content)
        conflict: DeltaConcurrentModificationException | None = None
        for winner in _winning_commits(prepared, seen + 1):
            if winner.txn_id == prepared.txn_id:
                return landed(winner.version, timestamp, attempt, None)
            try:
                check_conflicts(prepared, winner)
            except ROW_CONFLICTS as error:
                if reconcile is None:
                    raise
                conflict = conflict or error
            winners.append(winner)
            seen = winner.version
            last_timestamp = max(last_timestamp, winner.info.in_commit_timestamp or 0)
            # Row ids are assigned anew for every version that is tried.
            last_row_id = max(last_row_id, -1 if (mark := winner.row_id_high_water_mark) is None else mark)
        if conflict is not None and reconcile is not None:
            reconciled = reconcile(winners, conflict)
            if reconciled is None:
                raise conflict
            prepared = reconciled
    raise _too_many(prepared, seen, MAX_ATTEMPTS)


def _check_not_cleaned_up(prepared: PreparedCommit) -> None:
    """Refuse to write a version that was there and has been cleaned up: no reader would find it below a checkpoint.

    By default the log is kept for 30 days, longer than any transaction takes; what a table asks for may be shorter.
    """
    read = prepared.read_snapshot
    if read is None or "delta.logRetentionDuration" not in read.metadata.configuration:
        return
    listing = list_log(prepared.store, read.version + 1)
    later = [*(commit.start for commit in listing.commits), *(found.version for found in listing.checkpoints)]
    if later and read.version + 1 not in (commit.start for commit in listing.commits):
        raise _too_many(prepared, max(later), 1)


def _read_timestamp(prepared: PreparedCommit) -> int:
    return 0 if prepared.read_snapshot is None else prepared.read_snapshot.timestamp_ms


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
                raise _too_many(prepared, version, 1) from None
            return
        version += 1


def _too_many(prepared: PreparedCommit, version: int, attempts: int) -> ConcurrentWriteException:
    return ConcurrentWriteException(
        "DELTA_CONCURRENT_WRITE",
        "ConcurrentWriteException: Concurrent transactions have written new data since this transaction "
        f"({prepared.operation}) read version {prepared.read_version} of {prepared.store.root}: they were "
        f"faster {attempts} times, up to version {version}. This transaction was not committed; run it again "
        "when fewer writers are at work.",
        parameters={
            "tableName": prepared.store.root,
            "version": str(version),
            "readVersion": str(prepared.read_version),
        },
    )
