"""Removing expired log files, as far as a checkpoint that stays covers them.

Source: Delta protocol, "Metadata Cleanup". Every version that was the latest at some time within
``delta.logRetentionDuration`` stays readable.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from deltamerge.exceptions import DeltaLogCorruptException
from deltamerge.log.actions import Protocol
from deltamerge.log.checkpoint.reading import read_checkpoint_actions, read_checkpoint_files
from deltamerge.log.properties import interval_ms, is_enabled
from deltamerge.log.protocol import writer_features
from deltamerge.log.segment import (
    LOG_FOLDER,
    SIDECAR_FOLDER,
    Checkpoint,
    CommitFile,
    LogListing,
    log_file_version,
    sort_log_files,
)
from deltamerge.log.snapshot import Snapshot
from deltamerge.storage.local_store import TEMP_SUFFIX
from deltamerge.storage.store import Store

_LOGGER = logging.getLogger(__name__)
_DAY = 24 * 3_600_000

PROTECTION = "checkpointProtection"
PROTECTED_BEFORE = "delta.requireCheckpointProtectionBeforeVersion"


def clean_up_expired_log(snapshot: Snapshot, now_ms: int) -> tuple[str, ...]:
    """Delete log files that no readable version needs and whose retention is over; return their paths.

    How long commits are kept is ``delta.logRetentionDuration``, whether they are cleaned up at all
    ``delta.enableExpiredLogCleanup``.
    """
    if not is_enabled(snapshot.metadata.configuration, "delta.enableExpiredLogCleanup", default=True):
        return ()
    retention = interval_ms(snapshot.metadata, "delta.logRetentionDuration", "interval 30 days")
    # Whole days, as delta-spark does: the same files expire all day long, so most calls find none.
    return clean_up_log_before(snapshot, (now_ms - retention) // _DAY * _DAY, now_ms)


def clean_up_log_before(snapshot: Snapshot, cutoff: int, now_ms: int) -> tuple[str, ...]:
    """Delete log files that only versions need which were replaced before a time; return their paths.

    Args:
        cutoff: That time, in milliseconds since 1970.
    """
    store = snapshot.store
    files = store.list_folder(LOG_FOLDER)
    listing = sort_log_files(files)
    # What is younger may be of a commit or a checkpoint that is being written.
    of_nobody = min(cutoff, now_ms - _DAY)
    expired = [file.path for file in files if file.name.endswith(TEMP_SUFFIX) and file.modification_time < of_nobody]
    versions = {file.path: version for file in files if (version := log_file_version(file.name)) is not None}
    protected = _protected_before(snapshot)
    for base in _covering_checkpoints(listing, cutoff):
        old = [path for path, version in versions.items() if version < base.version]
        if base.version < protected or not old:
            break
        if _is_sound(store, base):
            expired.extend([*sorted(old), *_orphaned_sidecars(store, listing, base, of_nobody)])
            break
    store.delete(expired)
    return tuple(expired)


def protection_kept(protocol: Protocol, *snapshots: Snapshot) -> dict[str, str]:
    """Return the property by which a table's history stays protected, with a protocol that may have the feature."""
    if PROTECTION not in writer_features(protocol):
        return {}
    version = max(map(_protected_before, snapshots))
    return {PROTECTED_BEFORE: str(version)} if version else {}


def _protected_before(snapshot: Snapshot) -> int:
    """Return the version up to which the log may only be deleted as a whole (Protocol: Checkpoint Protection)."""
    if PROTECTION not in writer_features(snapshot.protocol):
        return 0
    version = snapshot.metadata.configuration.get(PROTECTED_BEFORE, "0")
    return int(version) if version.isdecimal() else snapshot.version + 1


def adjusted_timestamps(commits: tuple[CommitFile, ...]) -> list[int]:
    """Return the modification times of commits, oldest first, each after the last, as delta-spark does."""
    times: list[int] = []
    for commit in commits:
        time = commit.file.modification_time
        times.append(time if not times or time > times[-1] else times[-1] + 1)
    return times


def _covering_checkpoints(listing: LogListing, cutoff: int) -> Iterator[Checkpoint]:
    """Yield the checkpoints from which all versions within the retention can be read, the newest first."""
    times = zip(listing.commits, adjusted_timestamps(listing.commits), strict=True)
    # The newest expired commit was still the latest version when the retention began.
    newest = max((commit.start for commit, time in times if time <= cutoff), default=-1)
    return (checkpoint for checkpoint in reversed(listing.checkpoints) if checkpoint.version <= newest)


def _is_sound(store: Store, checkpoint: Checkpoint) -> bool:
    """Read a checkpoint, on which alone what stays of the log will rest."""
    try:
        found = read_checkpoint_actions(store, checkpoint)
        read_checkpoint_files(store, checkpoint, found, "add")
        read_checkpoint_files(store, checkpoint, found, "remove")
    except DeltaLogCorruptException:
        _LOGGER.warning("The checkpoint of version %s is damaged: the log before it is kept.", checkpoint.version)
        return False
    return True


def _parquet_files(store: Store, checkpoint: Checkpoint) -> tuple[str, ...] | None:
    try:
        return read_checkpoint_actions(store, checkpoint).parquet_files
    except DeltaLogCorruptException:
        return None


def _orphaned_sidecars(store: Store, listing: LogListing, base: Checkpoint, cutoff: int) -> list[str]:
    old = {file.path for file in store.list_folder(SIDECAR_FOLDER) if file.modification_time < cutoff}
    for checkpoint in listing.checkpoints:
        if old and checkpoint.version >= base.version:
            files = _parquet_files(store, checkpoint)
            # What a damaged checkpoint refers to is unknown: keep all.
            old = set() if files is None else old.difference(files)
    return sorted(old)
