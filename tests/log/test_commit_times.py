from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException

from deltamerge.exceptions import DeltaAnalysisException, DeltaLogCorruptException, DeltaTableException
from deltamerge.log.change_feed import ENABLED, ChangeBoundary, ChangeFeed, change_range
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.commit_times import CommitTimes, first_version_from, version_at
from deltamerge.log.snapshot import Snapshot, load_snapshot
from log.logs import PROTOCOL, Log, info, metadata, simple_log

IN_COMMIT = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}}


def by_modification_time(tmp_path: Path) -> Snapshot:
    log = Log(tmp_path)
    for number, time in enumerate((1_000, 3_000, 2_000, 9_000)):
        actions = (PROTOCOL, metadata()) if number == 0 else (info(),)
        log.commit(*actions, time_ms=time)
    return load_snapshot(log.store)


def enabled_at_two(tmp_path: Path) -> Log:
    """Two versions by modification time, which a copy has moved, then two by themselves."""
    log = Log(tmp_path)
    enabling = metadata(
        configuration={
            "delta.enableInCommitTimestamps": "true",
            "delta.inCommitTimestampEnablementVersion": "2",
            "delta.inCommitTimestampEnablementTimestamp": "500",
        }
    )
    log.commit(PROTOCOL, metadata(), time_ms=100)
    log.commit(info(), time_ms=90_000)
    log.commit(info(inCommitTimestamp=500), IN_COMMIT, enabling, time_ms=91_000)
    log.commit(info(inCommitTimestamp=700), time_ms=92_000)
    return log


def test_versions_by_modification_time(tmp_path: Path) -> None:
    times = CommitTimes.of(by_modification_time(tmp_path))
    assert [times.at(place) for place in range(4)] == [1_000, 3_000, 3_001, 9_000]
    assert [version_at(times, moment) for moment in (1_000, 2_999, 3_000, 3_001, 8_999, 9_000)] == [
        0,
        0,
        1,
        2,
        2,
        3,
    ]
    assert [first_version_from(times, moment) for moment in (0, 1_000, 1_001, 3_001, 3_002)] == [
        0,
        0,
        1,
        2,
        3,
    ]


def test_moments_outside_the_log_are_refused(tmp_path: Path) -> None:
    times = CommitTimes.of(by_modification_time(tmp_path))
    with pytest.raises(DeltaAnalysisException, match="version 0 of 1970-01-01 00:00:01") as early:
        version_at(times, 999)
    assert early.value.getErrorClass() == "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"
    for late in (version_at, first_version_from):
        with pytest.raises(DeltaAnalysisException, match="version 3 of 1970-01-01 00:00:09") as raised:
            late(times, 9_001)
        assert raised.value.getErrorClass() == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"


def test_in_commit_timestamps_count_from_their_enablement_on(tmp_path: Path) -> None:
    times = CommitTimes.of(load_snapshot(enabled_at_two(tmp_path).store))
    assert [times.of_version(version) for version in range(4)] == [100, 90_000, 500, 700]
    assert [version_at(times, moment) for moment in (100, 499, 500, 600, 700)] == [0, 0, 2, 2, 3]
    with pytest.raises(DeltaAnalysisException):
        version_at(times, 701)


def test_a_commit_without_its_timestamp_is_named(tmp_path: Path) -> None:
    log = enabled_at_two(tmp_path)
    log.commit(info(), time_ms=93_000)
    times = CommitTimes.of(load_snapshot(log.store))
    with pytest.raises(DeltaLogCorruptException, match=r"version 4 \(.*0004\.json\) has none") as raised:
        version_at(times, 800)
    assert raised.value.getErrorClass() == "DELTA_MISSING_COMMIT_TIMESTAMP"


def test_versions_that_cannot_be_read_any_more_are_left_out(tmp_path: Path) -> None:
    log = simple_log(tmp_path, 6)
    write_checkpoint(load_snapshot(log.store, 3), now_ms=0)
    log.store.delete(["_delta_log/00000000000000000000.json"])
    snapshot = load_snapshot(log.store)
    assert CommitTimes.of(snapshot).versions == (3, 4, 5)
    assert CommitTimes.of(snapshot, recreatable=False).versions == (1, 2, 3, 4, 5)


def test_ranges_of_changes(tmp_path: Path) -> None:
    snapshot = by_modification_time(tmp_path)

    def between(start: tuple[int | None, ...], end: tuple[int | None, ...]) -> tuple[int, int] | None:
        return change_range(snapshot, ChangeBoundary(*start), ChangeBoundary(*end))

    assert between((1,), ()) == (1, 3)
    assert between((1,), (2,)) == (1, 2)
    assert between((1,), (99,)) == (1, 3)
    assert between((None, 2_000), (None, 8_000)) == (1, 2)
    assert between((None, 4_000), (None, 5_000)) is None


def with_gap(tmp_path: Path, *missing: int) -> Snapshot:
    """Six versions of which some have no commit; a checkpoint of version 3 bridges the gap."""
    log = Log(tmp_path)
    enabled = metadata(configuration={ENABLED: "true"})
    for version in range(6):
        log.commit(*((PROTOCOL, enabled) if version == 0 else (info(),)), time_ms=1_000 * (version + 1))
    write_checkpoint(load_snapshot(log.store, 3), now_ms=0)
    for version in missing:
        log.path(version).unlink()
    return load_snapshot(log.store)


def test_a_version_before_a_gap_has_no_time(tmp_path: Path) -> None:
    snapshot = with_gap(tmp_path, 2)
    times = CommitTimes.of(snapshot, recreatable=False)
    assert (times.versions, times.of_version(4)) == ((3, 4, 5), 5_000)
    for read in (lambda: times.of_version(1), lambda: ChangeFeed.of(snapshot, 0, 1).read().files):
        with pytest.raises(DeltaTableException, match=r"commit was cleaned up.*\[3, 5\]") as raised:
            read()
        assert raised.value.getErrorClass() == "DELTA_VERSION_NOT_FOUND"


def test_a_checkpoint_without_its_commit(tmp_path: Path) -> None:
    snapshot = with_gap(tmp_path, 0, 1, 2, 3)
    times = CommitTimes.of(snapshot)
    assert times.versions == (4, 5)
    assert version_at(times, 5_000) == 4
    assert change_range(snapshot, ChangeBoundary(4), ChangeBoundary(None, 6_000)) == (4, 5)


def test_a_log_without_commits_has_no_times(tmp_path: Path) -> None:
    snapshot = with_gap(tmp_path, 0, 1, 2, 3, 4, 5)
    for read in (lambda: CommitTimes.of(snapshot), lambda: change_range(snapshot, ChangeBoundary(3), ChangeBoundary())):
        with pytest.raises(DeltaAnalysisException, match="No commits found") as raised:
            read()
        assert raised.value.getErrorClass() == "DELTA_NO_COMMITS_FOUND"


def test_what_to_do_about_a_timestamp_that_is_too_late(tmp_path: Path) -> None:
    times = CommitTimes.of(by_modification_time(tmp_path))
    with pytest.raises(DeltaAnalysisException, match="or leave it out for the latest version"):
        version_at(times, 9_001)
    with pytest.raises(DeltaAnalysisException, match=r"Use a timestamp at or before [\d: .+-]+\. SQLSTATE"):
        first_version_from(times, 9_001)


# As in delta-spark.
_ILLEGAL_ARGUMENTS = ("DELTA_CDC_START_VERSION_AFTER_LATEST", "DELTA_INVALID_CDC_RANGE")


@pytest.mark.parametrize(
    ("start", "end", "error"),
    [
        ((), (2,), "DELTA_NO_START_FOR_CDC_READ"),
        ((1, 1_000), (), "DELTA_MULTIPLE_CDC_BOUNDARY"),
        ((1,), (1, 1_000), "DELTA_MULTIPLE_CDC_BOUNDARY"),
        ((4,), (), "DELTA_CDC_START_VERSION_AFTER_LATEST"),
        ((2,), (1,), "DELTA_INVALID_CDC_RANGE"),
        ((-1,), (), "DELTA_VERSION_INVALID"),
        ((None, 9_001), (), "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"),
        ((1,), (None, 9_001), "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"),
        ((1,), (None, 999), "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"),
    ],
)
def test_wrong_ranges_of_changes(
    tmp_path: Path, start: tuple[int | None, ...], end: tuple[int | None, ...], error: str
) -> None:
    snapshot = by_modification_time(tmp_path)
    kind = IllegalArgumentException if error in _ILLEGAL_ARGUMENTS else AnalysisException
    with pytest.raises(kind) as raised:
        change_range(snapshot, ChangeBoundary(*start), ChangeBoundary(*end))
    assert raised.value.getCondition() == error
