from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.cleanup import adjusted_timestamps, clean_up_expired_log
from deltamerge.log.segment import list_log, log_file_version
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.local_store import TEMP_SUFFIX
from log.logs import Log, live_at, metadata, set_time, simple_log

DAY = 24 * 3_600_000
NOW = 20_000 * DAY + 5_000


def dated_log(root: Path, ages: Sequence[int], checkpoints: Sequence[int], **properties: str) -> Log:
    """`simple_log` whose commits are so many days old, with checkpoints."""
    log = simple_log(root, len(ages), **properties)
    for version, age in enumerate(ages):
        set_time(log.path(version), NOW - age * DAY)
        log.path(version, "crc").write_text("{}")
        (log.folder / f".{version:020d}.json.crc").write_text("x")
    for version in checkpoints:
        write_checkpoint(load_snapshot(log.store, version), now_ms=0)
    return log


def clean(log: Log, now: int = NOW) -> tuple[str, ...]:
    return clean_up_expired_log(load_snapshot(log.store), now)


def commits(log: Log) -> list[int]:
    return [commit.start for commit in list_log(log.store).commits]


def test_what_is_expired_and_covered_goes(tmp_path: Path) -> None:
    log = dated_log(tmp_path, [60, 50, 45, 40, 35, 20, 10, 0], [1, 4, 6])
    log.compact(0, 3)
    log.compact(3, 6)
    log.compact(5, 7)
    deleted = clean(log)
    # Version 4 was the latest when the retention began: its checkpoint is the base of all that stays.
    assert commits(log) == [4, 5, 6, 7]
    assert [item.version for item in list_log(log.store).checkpoints] == [4, 6]
    assert [item.start for item in list_log(log.store).compacted] == [5]
    left = {path.name for path in log.folder.iterdir()}
    assert not any((log_file_version(name) or 99) < 4 for name in left)
    assert len(deleted) == len(set(deleted)) == 4 * 3 + 1 + 2
    for version in range(4, 8):
        assert set(load_snapshot(log.store, version).files.paths()) == live_at(version)
    assert clean(log) == ()


def test_every_version_within_the_retention_stays_readable(tmp_path: Path) -> None:
    # The newest expired commit has no checkpoint: the one before it must stay, with all commits since.
    log = dated_log(tmp_path, [60, 50, 45, 40, 35, 20, 10, 0], [2, 6])
    clean(log)
    assert commits(log) == [2, 3, 4, 5, 6, 7]
    for version in range(4, 8):
        assert set(load_snapshot(log.store, version).files.paths()) == live_at(version)


@pytest.mark.parametrize(
    ("ages", "checkpoints"),
    [
        ([60, 50, 40, 35], []),
        ([20, 15, 10, 5], [3]),
        ([60, 20, 10, 5], [3]),
    ],
)
def test_nothing_goes(tmp_path: Path, ages: list[int], checkpoints: list[int]) -> None:
    log = dated_log(tmp_path, ages, checkpoints)
    assert clean(log) == ()
    assert commits(log) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("properties", "first"),
    [
        ({"delta.enableExpiredLogCleanup": "false"}, 0),
        ({"delta.enableExpiredLogCleanup": "TRUE"}, 2),
        ({"delta.logRetentionDuration": "interval 1 hour"}, 3),
        ({"delta.logRetentionDuration": "interval 100 days"}, 0),
    ],
)
def test_properties(tmp_path: Path, properties: dict[str, str], first: int) -> None:
    log = dated_log(tmp_path, [60, 50, 40, 3], [1, 2, 3], **properties)
    clean(log)
    assert commits(log)[0] == first


def test_whole_days_count(tmp_path: Path) -> None:
    log = dated_log(tmp_path, [31, 30, 0], [1, 2])
    # Version 1 was committed at 0:00:05 of the day that the retention reaches back to.
    clean(log)
    assert commits(log) == [0, 1, 2]
    clean(log, NOW + DAY)
    assert commits(log) == [1, 2]


def test_damaged_checkpoint_covers_nothing(tmp_path: Path) -> None:
    log = dated_log(tmp_path, [60, 50, 45, 40, 35, 0], [2, 4])
    log.path(4, "checkpoint.parquet").write_bytes(b"damaged")
    clean(log)
    assert commits(log) == [2, 3, 4, 5]
    assert set(load_snapshot(log.store).files.paths()) == live_at(5)


def test_a_checkpoint_with_a_damaged_page_covers_nothing(tmp_path: Path) -> None:
    log = dated_log(tmp_path, [60, 50, 45, 40, 35, 0], [2, 4])
    path = log.path(4, "checkpoint.parquet")
    group = pq.read_metadata(path).row_group(0)
    (column,) = (c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "add.path")
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 20] ^= 1
    path.write_bytes(content)
    clean(log)
    assert commits(log) == [2, 3, 4, 5]
    assert set(load_snapshot(log.store).files.paths()) == live_at(5)


def test_clocks_that_went_back(tmp_path: Path) -> None:
    log = dated_log(tmp_path, [60, 20, 50, 40, 35, 0], [4])
    times = adjusted_timestamps(list_log(log.store).commits)
    assert times == sorted(set(times))
    # Version 1 is not expired, so those after it, which look older, are not either.
    clean(log)
    assert commits(log) == [0, 1, 2, 3, 4, 5]


def test_temporary_files_of_killed_writers(tmp_path: Path) -> None:
    log = dated_log(tmp_path, [1, 0], [])
    old, new = (log.folder / f".{name}.json.0{TEMP_SUFFIX}" for name in ("old", "new"))
    for path, age in ((old, 40), (new, 0)):
        path.write_text("half")
        set_time(path, NOW - age * DAY)
    clean(log)
    assert not old.exists()
    assert new.exists()


def test_sidecars_that_nothing_refers_to(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    from log.test_snapshot import UNIQUE, split_checkpoint

    log = dated_log(tmp_path, [60, 50, 40, 0], [])
    sidecars = []
    for version in (1, 2):
        path = log.root / write_checkpoint(load_snapshot(log.store, version), now_ms=0)
        sidecar, _, table = split_checkpoint(log, path)
        path.unlink()
        pq.write_table(table, log.path(version, f"{UNIQUE}.parquet"))
        sidecars.append(log.folder / "_sidecars" / sidecar)
    young = log.folder / "_sidecars" / "young.parquet"
    young.write_bytes(b"of a checkpoint that is being written")
    for path in sidecars:
        set_time(path, NOW - 50 * DAY)
    set_time(young, NOW)
    clean(log)
    assert [sidecar.exists() for sidecar in (*sidecars, young)] == [False, True, True]
    assert commits(log) == [2, 3]
    assert set(load_snapshot(log.store).files.paths()) == live_at(3)


@pytest.mark.parametrize("spelled", ["{folder}/{name}", "file:{folder}/{name}", "file://{folder}/{name}", "{escaped}"])
def test_sidecars_by_other_spellings_of_their_paths(tmp_path: Path, spelled: str) -> None:
    """They are read, and no clean-up takes them."""
    from log.test_snapshot import UNIQUE, split_checkpoint

    log = dated_log(tmp_path, [60, 50, 0], [])
    path = log.root / write_checkpoint(load_snapshot(log.store, 1), now_ms=0)
    sidecar, lines, _ = split_checkpoint(log, path)
    path.unlink()
    folder = log.folder / "_sidecars"
    written = spelled.format(folder=folder, name=sidecar, escaped=sidecar.replace("-", "%2D"))
    given = [json.dumps(line).replace(sidecar, written) for line in lines]
    log.path(1, f"{UNIQUE}.json").write_text("".join(f"{line}\n" for line in given))
    set_time(folder / sidecar, NOW - 50 * DAY)
    clean(log)
    assert commits(log) == [1, 2]
    assert (folder / sidecar).exists()
    assert set(load_snapshot(log.store).files.paths()) == live_at(2)


def test_other_files_stay(tmp_path: Path) -> None:
    log = dated_log(tmp_path, [60, 50, 40, 0], [2])
    others = ["info.txt", "_last_checkpoint", "0.json", f"{1:020d}.json.bak", f"{1:020d}.{'a' * 36}.json"]
    for name in others[:1] + others[2:]:
        (log.folder / name).write_text("x")
        set_time(log.folder / name, 0)
    clean(log)
    assert {name for name in others if (log.folder / name).exists()} == set(others)


def test_empty_log_has_no_times() -> None:
    assert adjusted_timestamps(()) == []


def test_log_is_not_touched_without_expired_commits(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log = dated_log(tmp_path, [0, 0, 0], [2])
    before = sorted(path.name for path in log.folder.iterdir())
    clean(log)
    assert sorted(path.name for path in log.folder.iterdir()) == before


@pytest.mark.parametrize(("protected", "kept"), [(4, [4, 5, 6, 7]), (5, list(range(8)))])
def test_protected_log_goes_as_a_whole_or_not_at_all(tmp_path: Path, protected: int, kept: list[int]) -> None:
    log = dated_log(tmp_path, [60, 50, 45, 40, 35, 20, 10, 0], [1, 4, 6])
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["checkpointProtection"]}
    configuration = {"delta.requireCheckpointProtectionBeforeVersion": str(protected)}
    log.commit({"protocol": features}, metadata(configuration=configuration))
    set_time(log.path(8), NOW)
    clean(log)
    assert commits(log) == [*kept, 8]
