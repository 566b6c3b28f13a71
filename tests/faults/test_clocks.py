"""Writers whose clocks differ by more than a day, and jump between a read and its commit."""

from __future__ import annotations

import os
import random
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from combinations import some
from deltamerge.commands import vacuum
from deltamerge.exceptions import ConcurrentWriteException, DeltaConcurrentModificationException
from deltamerge.log.actions import Action, AddFile, Protocol
from deltamerge.log.commit_times import CommitTimes, version_at
from deltamerge.log.snapshot import Snapshot, load_snapshot
from deltamerge.spark.config import CommandConf
from deltamerge.spark.table import Table
from deltamerge.storage.store import open_store
from deltamerge.txn.prepared import ReadSet
from deltamerge.txn.transaction import commit
from txn.tables import PROTOCOL, clock, create, prepare, write_file

DAY = 24 * 3_600_000
HISTORIES = int(os.environ.get("DELTAMERGE_HISTORIES", "200")) // 20
COMMITS = 24
IN_COMMIT_TIMESTAMPS = Protocol(1, 7, None, frozenset({"inCommitTimestamp", "appendOnly", "invariants"}))


def jumping(rng: random.Random) -> int:
    """Returns the time of a clock that may be more than a day behind or ahead.

    Logs are cleaned up to the last midnight before their retention. A clock 30 hours ahead reaches past the present
    with a retention of two hours, whatever the time of day.
    """
    ahead = 30 * 3_600_000
    return clock() + rng.choice((-ahead, 0, ahead))


def times_of(snapshot: Snapshot) -> list[int]:
    times = CommitTimes.of(snapshot)
    return [times.at(place) for place in range(len(times.versions))]


@pytest.mark.slow
@pytest.mark.parametrize("by", some(["files", "in-commit timestamps"]))
def test_histories(tmp_path: Path, by: str) -> None:
    """No row is lost, though logs are cleaned up by clocks that are ahead; the times of versions grow."""
    seen: Counter[str] = Counter()
    for seed in range(HISTORIES):
        rng = random.Random(seed)
        is_within = by == "in-commit timestamps"
        protocol = IN_COMMIT_TIMESTAMPS if is_within else PROTOCOL
        asked: dict[str, Any] = {"enableInCommitTimestamps": "true"} if is_within else {}
        root = tmp_path / str(seed)
        made = create(root, protocol=protocol, checkpointInterval="4", logRetentionDuration="interval 2 hours", **asked)
        store, live = made.store, dict[str, AddFile]()
        writers = [made] * 3
        for number in range(COMMITS):
            writer = rng.randrange(3)
            if rng.random() < 0.7:
                writers[writer] = load_snapshot(store)
            read = writers[writer]
            added, removed = write_file(read, [number]), [f for f in read.files.add_files() if rng.random() < 0.2]
            by_path = ReadSet((), frozenset(file.path for file in removed))
            actions: list[Action] = [added, *(file.remove(jumping(rng)) for file in removed)]
            try:
                done = commit(prepare(read, *actions, read=by_path if removed else None), partial(jumping, rng))
            except DeltaConcurrentModificationException:
                seen["conflicts"] += 1
                continue
            live |= {added.path: added}
            for file in removed:
                del live[file.path]
            path = root / "_delta_log" / f"{done.version:020d}.json"
            if not is_within and path.exists():
                at = jumping(rng) / 1000
                os.utime(path, (at, at))
        found = load_snapshot(open_store(str(root)))
        assert {file.path for file in found.files.add_files()} == set(live), f"seed {seed}"
        times = times_of(found)
        assert all(one < other for one, other in pairwise(times)), f"seed {seed}"
        first = found.version - len(times) + 1
        versions = [version_at(CommitTimes.of(found), time) for time in times]
        assert versions == list(range(first, found.version + 1)), f"seed {seed}"
        seen["commits"] += found.version
        seen["cleaned up"] += first
    print(f"{HISTORIES} histories by {by}: {dict(seen)}")
    assert seen["cleaned up"] > 0 and seen["conflicts"] > 0


@pytest.mark.parametrize("vacuums", [-DAY, 0, DAY])
@pytest.mark.parametrize("writes", [-DAY, 0, DAY])
def test_vacuum(tmp_path: Path, writes: int, vacuums: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With clocks that differ by up to two days a retention of a week keeps what readers and writers still need."""
    snapshot = create(tmp_path)
    one, other = write_file(snapshot, [1]), write_file(snapshot, [2])
    both = commit(prepare(snapshot, one, other), lambda: clock() + writes).snapshot
    assert both is not None
    gone = ReadSet((), frozenset({one.path}))
    commit(prepare(both, one.remove(clock() + writes), read=gone), lambda: clock() + writes)
    # A merge that has not committed yet.
    unfinished = write_file(snapshot, [3])
    for path in (one.path, other.path, unfinished.path):
        at = (clock() + writes) / 1000
        os.utime(tmp_path / path, (at, at))
    table = Table(cast("Any", None), open_store(str(tmp_path)), str(tmp_path))

    def found(after: int) -> set[str]:
        monkeypatch.setattr(vacuum, "now_ms", lambda: clock() + vacuums + after)
        return {file.path for file in vacuum.find_garbage(table, None, CommandConf()).files}

    assert found(0) == set()
    assert found(4 * DAY) == set()
    assert found(10 * DAY) == {one.path, unfinished.path}


def test_a_log_that_was_cleaned_up_past_what_was_read(tmp_path: Path) -> None:
    """The version after the one that was read is free again; a commit there would be lost."""
    stale = create(tmp_path, checkpointInterval="2", logRetentionDuration="interval 1 hours")
    for number in range(5):
        latest = load_snapshot(stale.store)
        commit(prepare(latest, write_file(latest, [number])), lambda: clock() + 2 * DAY)
    assert not stale.store.exists(f"_delta_log/{stale.version + 1:020d}.json")
    before = stale.store.list()
    with pytest.raises(ConcurrentWriteException, match="up to version 5"):
        commit(prepare(stale, write_file(stale, [99])), clock)
    assert {file.path for file in stale.store.list("_delta_log")} == {f.path for f in before if "_delta_log" in f.path}
