from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import AddFile, Protocol
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.features.row_tracking import high_water_mark
from deltamerge.log.snapshot import Snapshot, load_snapshot
from deltamerge.txn.transaction import commit
from txn.tables import clock, create, prepare

FEATURE = Protocol(1, 7, None, frozenset({"rowTracking", "domainMetadata"}))


def file(path: str, rows: int, **changes: Any) -> AddFile:
    return AddFile(path, {}, 10, 1, stats=json.dumps({"numRecords": rows}), **changes)


def ids(snapshot: Snapshot) -> dict[str, tuple[int | None, int | None]]:
    return {f.path: (f.base_row_id, f.default_row_commit_version) for f in snapshot.files.add_files()}


def mark(snapshot: Snapshot) -> int | None:
    return high_water_mark(snapshot.domain_metadata.values())


def test_files_get_ids_one_after_the_other(tmp_path: Path) -> None:
    snapshot = create(tmp_path, protocol=FEATURE)
    commit(prepare(snapshot, file("a", 3), file("b", 2)), clock)
    latest = load_snapshot(snapshot.store)
    assert ids(latest) == {"a": (0, 1), "b": (3, 1)}
    assert mark(latest) == 4
    # A file that comes back with what it had keeps it; nothing new was given out.
    kept = next(f for f in latest.files.add_files() if f.path == "a")
    commit(prepare(latest, kept.remove(clock()), replace(kept, path="c")), clock)
    again = load_snapshot(snapshot.store)
    assert ids(again) == {"b": (3, 1), "c": (0, 1)}
    assert mark(again) == 4
    write_checkpoint(again, clock())
    again.store.delete([f"_delta_log/{version:020d}.json" for version in range(3)])
    assert (ids(load_snapshot(again.store)), mark(load_snapshot(again.store))) == (ids(again), 4)


def test_ids_are_given_out_again_where_another_commit_came_first(tmp_path: Path) -> None:
    snapshot = create(tmp_path, protocol=FEATURE)
    commit(prepare(snapshot, file("theirs", 5)), clock)
    done = commit(prepare(snapshot, file("ours", 4)), clock)
    assert done.version == 2
    latest = load_snapshot(snapshot.store)
    assert ids(latest) == {"theirs": (0, 1), "ours": (5, 2)}
    assert mark(latest) == 8


def test_tables_without_the_feature_get_none(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    commit(prepare(snapshot, file("a", 3)), clock)
    assert ids(load_snapshot(snapshot.store)) == {"a": (None, None)}


def test_suspended_row_tracking_gives_out_none(tmp_path: Path) -> None:
    snapshot = create(tmp_path, protocol=FEATURE, rowTrackingSuspended="true")
    commit(prepare(snapshot, file("a", 3)), clock)
    assert ids(load_snapshot(snapshot.store)) == {"a": (None, None)}


def test_a_file_without_its_number_of_rows_is_refused(tmp_path: Path) -> None:
    snapshot = create(tmp_path, protocol=FEATURE)
    with pytest.raises(DeltaTableException, match="the file a has none") as raised:
        commit(prepare(snapshot, AddFile("a", {}, 10, 1)), clock)
    assert raised.value.getErrorClass() == "DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS"
    assert load_snapshot(snapshot.store).version == 0
