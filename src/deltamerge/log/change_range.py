"""Which versions' changes are asked for."""

from __future__ import annotations

from dataclasses import dataclass

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.commit_times import CommitTimes, first_version_from, version_at
from deltamerge.log.snapshot import Snapshot


@dataclass(frozen=True)
class ChangeBoundary:
    """Where changes begin or end: a version, or a moment in milliseconds since the epoch, or neither."""

    version: int | None = None
    moment_ms: int | None = None


def change_range(snapshot: Snapshot, start: ChangeBoundary, end: ChangeBoundary) -> tuple[int, int] | None:
    """Finds the versions between two boundaries.

    Args:
        snapshot: The latest version.
        start: Where the changes begin, inclusive; a moment means the first version made then or later.
        end: Where they end, inclusive; a moment means the last version not after it, neither means the latest.

    Returns:
        The first and the last version, or None where two moments have no version between them.

    Raises:
        DeltaAnalysisException: The boundaries are missing, doubled or in the wrong order, or not in the log.
    """
    _check("starting", start)
    _check("ending", end)
    if start.version is None and start.moment_ms is None:
        raise DeltaAnalysisException(
            "DELTA_NO_START_FOR_CDC_READ",
            "No startingVersion or startingTimestamp provided for CDC read.",
            sqlstate="42601",
        )
    times = CommitTimes.of(snapshot, recreatable=False)
    first = start.version if start.moment_ms is None else first_version_from(times, start.moment_ms)
    assert first is not None
    if first > snapshot.version:
        raise DeltaAnalysisException(
            "DELTA_CDC_START_VERSION_AFTER_LATEST",
            f"Start version {first} for change data feed exceeds the latest table version {snapshot.version}.",
            sqlstate="22003",
            parameters={"start": str(first), "latest": str(snapshot.version)},
        )
    last = snapshot.version if end.version is None else end.version
    if end.moment_ms is not None:
        last = version_at(CommitTimes.of(snapshot), end.moment_ms)
    if last < first:
        if start.moment_ms is not None and end.moment_ms is not None and start.moment_ms <= end.moment_ms:
            return None
        raise DeltaAnalysisException(
            "DELTA_INVALID_CDC_RANGE",
            f"CDC range from start {first} to end {last} was invalid. End cannot be before start.",
            sqlstate="22003",
            parameters={"start": str(first), "end": str(last)},
        )
    return first, min(last, snapshot.version)


def _check(which: str, boundary: ChangeBoundary) -> None:
    if boundary.version is not None and boundary.moment_ms is not None:
        raise DeltaAnalysisException(
            "DELTA_MULTIPLE_CDC_BOUNDARY",
            f"Multiple {which} arguments provided for CDC read. Please provide one of either {which}Timestamp or "
            f"{which}Version.",
            sqlstate="42614",
            parameters={"startingOrEnding": which},
        )
    if boundary.version is not None and boundary.version < 0:
        raise DeltaAnalysisException(
            "DELTA_VERSION_INVALID",
            f"The provided version ({boundary.version}) is not a valid version.",
            sqlstate="42815",
            parameters={"version": str(boundary.version)},
        )
