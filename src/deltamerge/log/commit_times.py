"""When versions were committed, and which version a timestamp means.

Source: Delta protocol, "In-Commit Timestamps". A table that has them counts by them from the version that enabled
them; all other versions count by their files' modification times, made to grow with the versions.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from deltamerge.exceptions import (
    DeltaAnalysisException,
    DeltaLogCorruptException,
    VersionNotFoundException,
)
from deltamerge.log.actions import Metadata
from deltamerge.log.cleanup import adjusted_timestamps
from deltamerge.log.commits import read_commit
from deltamerge.log.properties import has_in_commit_timestamps
from deltamerge.log.segment import LOG_FOLDER, commit_path, list_log
from deltamerge.log.snapshot import Snapshot
from deltamerge.storage.store import Store

ENABLEMENT_VERSION = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIRST_MS = (datetime.min.replace(tzinfo=timezone.utc) - _EPOCH) // timedelta(milliseconds=1)
_LAST_MS = (datetime.max.replace(tzinfo=timezone.utc) - _EPOCH) // timedelta(milliseconds=1)


@dataclass(frozen=True, eq=False)
class CommitTimes:
    """The commits that the log still has, and when each was made.

    Args:
        versions: Rising by 1.
        modified: For each its file's modification time, made to grow; milliseconds since the epoch.
        first_by_itself: The index of the first commit that counts by its in-commit timestamp.
    """

    store: Store
    versions: tuple[int, ...]
    modified: tuple[int, ...]
    first_by_itself: int
    _read: dict[int, int] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(snapshot: Snapshot, *, recreatable: bool = True) -> CommitTimes:
        """Return the commits up to a snapshot, the latest one; a log without any is refused.

        Unless `recreatable` is false, versions whose state can no longer be read are left out.
        """
        listing = list_log(snapshot.store)
        commits = [commit for commit in listing.commits if commit.start <= snapshot.version]
        times = adjusted_timestamps(tuple(commits))
        begin = len(commits)
        while begin and (begin == len(commits) or commits[begin - 1].end + 1 == commits[begin].start):
            begin -= 1
        # A version is read from its checkpoint, or from the one before it and its own commit.
        readable = {0, *(c.version + n for c in listing.checkpoints for n in (0, 1))}
        while recreatable and begin < len(commits) and commits[begin].start not in readable:
            begin += 1
        versions = tuple(commit.start for commit in commits[begin:])
        if not versions:
            raise _no_commits(snapshot)
        return CommitTimes(
            snapshot.store, versions, tuple(times[begin:]), _first_by_itself(snapshot.metadata, versions)
        )

    def at(self, place: int) -> int:
        """Return when the commit at an index was made, milliseconds since the epoch."""
        if place < self.first_by_itself:
            return self.modified[place]
        version = self.versions[place]
        if version not in self._read:
            self._read[version] = _in_commit_timestamp(self.store, version)
        return self._read[version]

    def of_version(self, version: int) -> int:
        """Return when a version was made; one before a gap in the log is refused."""
        if not self.versions[0] <= version <= self.versions[-1]:
            raise VersionNotFoundException(
                "DELTA_VERSION_NOT_FOUND",
                f"When version {version} of the table {self.store.root} was made is not known, since a later commit "
                f"was cleaned up. Available versions: [{self.versions[0]}, {self.versions[-1]}].",
                parameters={"userVersion": str(version)},
            )
        return self.at(version - self.versions[0])

    def last_not_after(self, timestamp_ms: int) -> int | None:
        """Return the index of the last commit that is not after a timestamp; None where all are later."""
        split, end = self.first_by_itself, len(self.versions)
        place = bisect_right(range(split, end), timestamp_ms, key=self.at) + split
        if place == split:
            place = bisect_right(self.modified[:split], timestamp_ms)
        return place - 1 if place else None


def version_at(times: CommitTimes, timestamp_ms: int) -> int:
    """Return the version that a table had at a timestamp, as ``TIMESTAMP AS OF`` means it.

    A timestamp before the first version that can be read, or after the last one, is refused.
    """
    place = times.last_not_after(timestamp_ms)
    if place is None:
        raise _too_early(times, timestamp_ms)
    if place == len(times.versions) - 1 and times.at(place) < timestamp_ms:
        raise _too_late(times, timestamp_ms, ", or leave it out for the latest version")
    return times.versions[place]


def first_version_from(times: CommitTimes, timestamp_ms: int) -> int:
    """Return the first version made at a timestamp or later, as ``startingTimestamp`` means it; else refuse it."""
    place = times.last_not_after(timestamp_ms)
    if place is None:
        return times.versions[0]
    if times.at(place) == timestamp_ms:
        return times.versions[place]
    if place == len(times.versions) - 1:
        raise _too_late(times, timestamp_ms)
    return times.versions[place + 1]


def _first_by_itself(metadata: Metadata, versions: tuple[int, ...]) -> int:
    if not has_in_commit_timestamps(metadata):
        return len(versions)
    enabled = metadata.configuration.get(ENABLEMENT_VERSION, "0")
    first = int(enabled) if enabled.isdecimal() else 0
    return sum(1 for version in versions if version < first)


def _in_commit_timestamp(store: Store, version: int) -> int:
    try:
        info = read_commit(store, version).info
    except FileNotFoundError as error:
        # The log was cleaned up since it was listed.
        raise VersionNotFoundException(
            "DELTA_VERSION_NOT_FOUND",
            f"When version {version} of the table {store.root} was made is not known: its commit was cleaned up.",
            parameters={"userVersion": str(version)},
        ) from error
    if info is not None and info.in_commit_timestamp is not None:
        return info.in_commit_timestamp
    path = store.absolute(commit_path(version))
    raise DeltaLogCorruptException(
        "DELTA_MISSING_COMMIT_INFO" if info is None else "DELTA_MISSING_COMMIT_TIMESTAMP",
        "This table has the feature inCommitTimestamp enabled, which requires a commitInfo action with a timestamp of "
        f"its own in every commit, and version {version} ({path}) has none. Its writer does not know the feature; "
        "restore or remove what it wrote.",
        parameters={"featureName": "inCommitTimestamp", "version": str(version)},
    )


def _no_commits(snapshot: Snapshot) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTA_NO_COMMITS_FOUND",
        f"No commits found at {snapshot.store.absolute(LOG_FOLDER)} of versions that can be read, so that neither "
        "their times nor their changes are known. Read the table by a version, or without one.",
        parameters={"logPath": snapshot.store.absolute(LOG_FOLDER)},
    )


def _too_early(times: CommitTimes, timestamp_ms: int) -> DeltaAnalysisException:
    asked, first = _formatted(timestamp_ms), _formatted(times.at(0))
    return DeltaAnalysisException(
        "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION",
        f"The provided timestamp ({asked}) is before the earliest version available to the table "
        f"{times.store.root}: version {times.versions[0]} of {first}. Please use a timestamp from {first} on.",
        parameters={"userTimestamp": asked, "commitTs": first, "timestampString": first},
    )


def _too_late(times: CommitTimes, timestamp_ms: int, otherwise: str = "") -> DeltaAnalysisException:
    asked, last = _formatted(timestamp_ms), _formatted(times.at(len(times.versions) - 1))
    return DeltaAnalysisException(
        "DELTA_TIMESTAMP_GREATER_THAN_COMMIT",
        f"Timestamp {asked} is after the latest version of the table {times.store.root}: version "
        f"{times.versions[-1]} of {last}. Use a timestamp at or before "
        f"{last}{otherwise}.",
        parameters={"providedTimestamp": asked, "lastCommitTimestamp": last, "maximumTimestamp": last},
    )


def _formatted(milliseconds: int) -> str:
    time = datetime_of(milliseconds)
    return f"{milliseconds} ms" if time is None else time.isoformat(sep=" ", timespec="milliseconds")


def datetime_of(milliseconds: object) -> datetime | None:
    """Return milliseconds since the epoch as a datetime in UTC; None for what is none in the years from 1 to 9999."""
    if isinstance(milliseconds, int) and _FIRST_MS <= milliseconds <= _LAST_MS:
        return as_datetime(milliseconds)
    return None


def as_datetime(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
