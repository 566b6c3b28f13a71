"""Which files of the log make up a version: a checkpoint, the commits after it, compacted commits.

Source: Delta protocol, "Delta Log Entries", "Checkpoints", "Log Compaction Files", "Last Checkpoint File".
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deltamerge.exceptions import (
    DeltaLogCorruptException,
    DeltaTableException,
    DeltaTableNotFoundException,
    VersionNotFoundException,
)
from deltamerge.storage.store import Store, StoredFile
from deltamerge.workers.partition_names import split_partition

LOG_FOLDER = "_delta_log"
LAST_CHECKPOINT = f"{LOG_FOLDER}/_last_checkpoint"
SIDECAR_FOLDER = f"{LOG_FOLDER}/_sidecars"

_COMMIT = re.compile(r"(\d{20})\.json")
_COMPACTED = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json")
_CLASSIC = re.compile(r"(\d{20})\.checkpoint\.parquet")
_MULTI_PART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_CHECKSUM = re.compile(r"(\d{20})\.crc")
_V2 = re.compile(r"(\d{20})\.checkpoint\.[0-9a-fA-F\-]{36}\.(?:json|parquet)")


@dataclass(frozen=True)
class CommitFile:
    """The changes of the versions `start` to `end`: one commit, or several compacted into one file."""

    start: int
    end: int
    file: StoredFile


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: one file, or all parts of a multi-part one, in order."""

    version: int
    files: tuple[StoredFile, ...]


def is_v2(checkpoint: Checkpoint) -> bool:
    return _V2.fullmatch(checkpoint.files[0].name) is not None


@dataclass(frozen=True)
class LogSegment:
    """What has to be read for one version: the commits after a checkpoint or version 0, without gaps.

    `last_commit` is the commit file of `version`; None where only its checkpoint is left. `checksum` is the file with
    the version's checksum.
    """

    version: int
    checkpoint: Checkpoint | None
    commits: tuple[CommitFile, ...]
    last_commit: StoredFile | None
    checksum: StoredFile | None = None


@dataclass(frozen=True)
class LogListing:
    """The files of a log by kind; each list is sorted by version."""

    commits: tuple[CommitFile, ...]
    compacted: tuple[CommitFile, ...]
    checkpoints: tuple[Checkpoint, ...]
    incomplete_checkpoints: tuple[int, ...]
    checksums: Mapping[int, StoredFile] = field(hash=False)


_VERSIONED = re.compile(
    r"\.?(\d{20})\.(?:json|crc|checkpoint\.parquet|checkpoint\.\d{10}\.\d{10}\.parquet"
    r"|checkpoint\.[0-9a-fA-F\-]{36}\.(?:json|parquet)|\d{20}\.compacted\.json)(?:\.crc)?"
)


def log_file_version(name: str) -> int | None:
    """Return the version of a file of the log folder; None for files that are none of the log's.

    Compacted commits count by their first version; Hadoop's checksums of log files count too.
    """
    match = _VERSIONED.fullmatch(name)
    return int(match[1]) if match else None


def commit_path(version: int) -> str:
    return f"{LOG_FOLDER}/{version:020d}.json"


def list_log(store: Store, from_version: int = 0) -> LogListing:
    """Return the log's files from a version on; all else in the folder is passed over."""
    start_after = f"{LOG_FOLDER}/{from_version:020d}" if from_version > 0 else None
    return sort_log_files(store.list_folder(LOG_FOLDER, start_after))


def sort_log_files(files: Iterable[StoredFile]) -> LogListing:
    commits, compacted = [], []
    single: list[Checkpoint] = []
    parts: dict[tuple[int, int], dict[int, StoredFile]] = {}
    checksums: dict[int, StoredFile] = {}
    for file in files:
        name = file.name
        if match := _COMMIT.fullmatch(name):
            commits.append(CommitFile(int(match[1]), int(match[1]), file))
        elif match := _COMPACTED.fullmatch(name):
            compacted.append(CommitFile(int(match[1]), int(match[2]), file))
        elif match := _CHECKSUM.fullmatch(name):
            checksums[int(match[1])] = file
        # An empty checkpoint is one that its writer did not finish.
        elif file.size > 0 and (match := _CLASSIC.fullmatch(name) or _V2.fullmatch(name)):
            single.append(Checkpoint(int(match[1]), (file,)))
        elif file.size > 0 and (match := _MULTI_PART.fullmatch(name)):
            parts.setdefault((int(match[1]), int(match[3])), {})[int(match[2])] = file
    whole = [
        Checkpoint(version, tuple(found[part] for part in sorted(found)))
        for (version, total), found in parts.items()
        if sorted(found) == list(range(1, total + 1))
    ]
    checkpoints = sorted((*single, *whole), key=lambda item: (item.version, len(item.files)))
    complete = {item.version for item in checkpoints}
    return LogListing(
        commits=tuple(sorted(commits, key=lambda item: item.start)),
        compacted=tuple(sorted(compacted, key=lambda item: (item.start, item.end))),
        checkpoints=tuple(checkpoints),
        incomplete_checkpoints=tuple(sorted({version for version, _ in parts} - complete)),
        checksums=checksums,
    )


def read_last_checkpoint(store: Store) -> int | None:
    """Return the version of the last checkpoint by the log's own pointer.

    None where the pointer is missing or damaged: it is a hint, never the truth.
    """
    try:
        version = json.loads(store.get(LAST_CHECKPOINT))["version"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return version if isinstance(version, int) and version >= 0 else None


def find_segment(store: Store, version: int | None = None, unreadable: frozenset[str] = frozenset()) -> LogSegment:
    """Return the files that make up a version, from the newest usable checkpoint.

    `version` is None for the latest; `unreadable` are paths of checkpoints and compacted commits that turned out to
    be damaged. Raises what `load_snapshot` does.
    """
    hint = read_last_checkpoint(store)
    if hint is not None and (version is None or hint <= version):
        listing = list_log(store, hint)
        # Without its checkpoint the hint is of no use: look at the whole log.
        if any(item.version >= hint and _usable(item, unreadable) for item in listing.checkpoints):
            # Out of range or with gaps: the error must be about the whole log.
            with contextlib.suppress(DeltaTableException):
                return _choose_segment(store, listing, version, unreadable)
    try:
        return _choose_segment(store, list_log(store), version, unreadable)
    except DeltaLogCorruptException:
        # A folder that is listed while others write may show a commit and not the one before.
        return _choose_segment(store, list_log(store), version, unreadable)


def _choose_segment(store: Store, listing: LogListing, version: int | None, unreadable: frozenset[str]) -> LogSegment:
    checkpoints = [item for item in listing.checkpoints if _usable(item, unreadable)]
    compacted = [item for item in listing.compacted if item.file.path not in unreadable]
    # Compacted commits only speed up reading: the versions are those of commits and checkpoints.
    known = [item.start for item in listing.commits] + [item.version for item in checkpoints]
    if not known:
        raise _no_table(store, listing)
    latest = max(known)
    target = latest if version is None else version
    if not 0 <= target <= latest:
        raise _version_not_found(store, listing, target, latest)
    base = max(
        (item for item in checkpoints if item.version <= target),
        key=lambda item: (item.version, -len(item.files)),
        default=None,
    )
    first = 0 if base is None else base.version + 1
    commits = _cover(first, target, listing.commits, compacted)
    if isinstance(commits, int):
        # Where an old version is asked for and the log begins later, it was cleaned up: nothing is damaged.
        cleaned_up = version is not None and base is None and all(item.start > commits for item in listing.commits)
        gap = None if cleaned_up else _gap(store, listing, commits, target, base)
        raise gap or _version_not_found(store, listing, target, latest)
    last = next((item.file for item in reversed(listing.commits) if item.start == target), None)
    return LogSegment(target, base, tuple(commits), last, listing.checksums.get(target))


def extended(known: LogSegment, version: int, new: Sequence[CommitFile], listing: LogListing) -> LogSegment:
    """Return the segment of a later version: with the newest checkpoint, so that it does not grow for ever.

    Args:
        new: The commits after the version of `known`.
        listing: The log from the version of `known` on.
    """
    commits = (*known.commits, *new)
    base = known.checkpoint
    for checkpoint in listing.checkpoints:
        # A compacted commit may hold versions on both sides.
        if checkpoint.version <= version and all(not c.start <= checkpoint.version < c.end for c in commits):
            base = checkpoint
    left = tuple(item for item in commits if base is None or item.start > base.version)
    return LogSegment(version, base, left, new[-1].file, listing.checksums.get(version))


def _usable(checkpoint: Checkpoint, unreadable: frozenset[str]) -> bool:
    return not any(file.path in unreadable for file in checkpoint.files)


def _cover(
    first: int, target: int, commits: Sequence[CommitFile], compacted: Sequence[CommitFile]
) -> list[CommitFile] | int:
    """Return files that cover `first` to `target` without gaps, or the first version that is missing."""
    by_version = {item.start: item for item in commits}
    longest: dict[int, CommitFile] = {}
    for item in compacted:
        if item.start < item.end <= target:
            longest[item.start] = item
    chosen = []
    at = first
    while at <= target:
        found = longest.get(at) or by_version.get(at)
        if found is None:
            return at
        chosen.append(found)
        at = found.end + 1
    return chosen


def _no_table(store: Store, listing: LogListing) -> DeltaTableException:
    if listing.incomplete_checkpoints:
        version = listing.incomplete_checkpoints[-1]
        return DeltaLogCorruptException(
            "DELTA_MISSING_PART_FILES",
            f"Parts of the checkpoint of version {version} are missing in {store.absolute(LOG_FOLDER)}, "
            "and there are no commits to read instead.",
            parameters={"version": str(version)},
        )
    return table_not_found(store)


def table_not_found(store: Store) -> DeltaTableNotFoundException:
    """Return the error for a path without a Delta table: the path is missing, or has no log."""
    if store.is_local and not Path(store.root).exists():
        return DeltaTableNotFoundException(
            "DELTA_MISSING_DELTA_TABLE",
            f"`{store.root}` doesn't exist, or is not a Delta table. Path does not exist: check the table's path."
            f"{_partition_hint(store.root)}",
            parameters={"tableName": store.root},
        )
    return DeltaTableNotFoundException(
        "DELTA_MISSING_DELTA_TABLE",
        f"`{store.root}` is not a Delta table: it has no commits in {LOG_FOLDER}.{_partition_hint(store.root)}",
        parameters={"tableName": store.root},
    )


def _partition_hint(path: str) -> str:
    """Return how to read a partition, where a path looks like one of a table's partitions."""
    root, values = split_partition(path)
    if not values:
        return ""
    condition = " AND ".join(f"{n} IS NULL" if value is None else f"{n} = '{value}'" for n, value in values.items())
    return (
        f" If {root} is the table and this is a partition of it: "
        f"spark.read.format('delta').load('{root}').where(\"{condition}\")."
    )


def _version_not_found(store: Store, listing: LogListing, version: int, latest: int) -> DeltaTableException:
    starts = [item.version for item in listing.checkpoints]
    if listing.commits and listing.commits[0].start == 0:
        starts.append(0)
    earliest = min(starts, default=latest)
    return VersionNotFoundException(
        "DELTA_VERSION_NOT_FOUND",
        f"Cannot time travel Delta table to version {version}. Available versions: [{earliest}, {latest}]. "
        f"The table is {store.root}.",
        parameters={"userVersion": str(version), "earliest": str(earliest), "latest": str(latest)},
    )


def _gap(
    store: Store, listing: LogListing, missing: int, target: int, base: Checkpoint | None
) -> DeltaLogCorruptException | None:
    before = [item.start for item in listing.commits if item.start < missing]
    after = [item.start for item in listing.commits if item.start > missing]
    path = store.absolute(commit_path(missing))
    if (before or base is not None) and after:
        left = before[-1] if before else missing - 1
        return DeltaLogCorruptException(
            "DELTA_VERSIONS_NOT_CONTIGUOUS",
            f"Versions ({left}, {after[0]}) are not contiguous: the commit file of version {missing}, "
            f"{path}, is missing and no checkpoint bridges the gap. Restore the file.",
            parameters={"startVersion": str(left), "endVersion": str(after[0]), "path": path},
        )
    if base is None and not before:
        versions = listing.incomplete_checkpoints[-1:]
        incomplete = "".join(f" (parts of the checkpoint of version {last} are missing)" for last in versions)
        return DeltaLogCorruptException(
            "DELTA_TRUNCATED_TRANSACTION_LOG",
            f"{path}: the state of version {target} cannot be reconstructed, as the log starts with version "
            f"{min(after, default=target)} and no complete checkpoint covers what is missing"
            f"{incomplete}. Restore the missing files.",
            parameters={"path": path, "version": str(target)},
        )
    return None
