from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltamerge.log.actions import Protocol
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.snapshot import Snapshot, load_snapshot
from deltamerge.txn.transaction import commit
from txn.tables import clock, create, metadata, prepare

FEATURE = Protocol(1, 7, None, frozenset({"inCommitTimestamp", "appendOnly", "invariants"}))


def first_action(snapshot: Snapshot, version: int) -> dict[str, Any]:
    text = snapshot.store.get(f"_delta_log/{version:020d}.json").split(b"\n")[0]
    return json.loads(text)["commitInfo"]


def test_commits_of_a_new_table_say_when_they_were_made_and_grow(tmp_path: Path) -> None:
    snapshot = create(tmp_path, protocol=FEATURE, enableInCommitTimestamps="true")
    begin = first_action(snapshot, 0)["inCommitTimestamp"]
    stopped = commit(prepare(snapshot), lambda: begin - 5_000)
    assert first_action(snapshot, 1)["inCommitTimestamp"] == begin + 1 == stopped.snapshot.timestamp_ms
    # Another writer's clock is ahead: the next commit is later all the same.
    commit(prepare(load_snapshot(snapshot.store)), lambda: begin + 90_000)
    behind = commit(prepare(snapshot), lambda: begin)
    assert behind.version == 3
    assert first_action(snapshot, 3)["inCommitTimestamp"] == begin + 90_001
    latest = load_snapshot(snapshot.store)
    assert latest.timestamp_ms == begin + 90_001
    assert "delta.inCommitTimestampEnablementVersion" not in latest.metadata.configuration


def test_enabling_them_after_another_writer_whose_clock_is_ahead(tmp_path: Path) -> None:
    """The time of the version before is that of its file, where it says none."""
    snapshot = create(tmp_path)
    commit(prepare(snapshot), clock)
    before = clock() + 50_000
    os.utime(tmp_path / "_delta_log/00000000000000000001.json", ns=(before * 1_000_000, before * 1_000_000))
    asked = replace(metadata(enableInCommitTimestamps="true"), id=snapshot.metadata.id)
    assert commit(prepare(snapshot, FEATURE, asked), clock).version == 2
    assert first_action(snapshot, 2)["inCommitTimestamp"] == before + 1


@pytest.mark.parametrize("checksum", ["kept", "damaged", "deleted"])
def test_the_commit_of_the_version_before_was_cleaned_up(tmp_path: Path, checksum: str) -> None:
    """Where only the checkpoint of a version is left, its checksum says when it was made."""
    snapshot = create(tmp_path, protocol=FEATURE, enableInCommitTimestamps="true")
    ahead = clock() + 90_000
    made = commit(prepare(snapshot), lambda: ahead).snapshot
    write_checkpoint(made, clock())
    for version in (0, 1):
        (tmp_path / f"_delta_log/{version:020d}.json").unlink()
    written = tmp_path / "_delta_log/00000000000000000001.crc"
    if checksum == "damaged":
        written.write_text("{")
    elif checksum == "deleted":
        written.unlink()
    left = load_snapshot(snapshot.store)
    if checksum == "kept":
        assert left.timestamp_ms == ahead
        assert commit(prepare(left), clock).snapshot.timestamp_ms == ahead + 1
    else:
        assert left.timestamp_ms < ahead


def test_enabling_them_later_is_noted_in_the_metadata(tmp_path: Path) -> None:
    snapshot = create(tmp_path)
    commit(prepare(snapshot), lambda: 5_000)
    asked = replace(metadata(enableInCommitTimestamps="true"), id=snapshot.metadata.id)
    # The version that was read is not the one before: the note holds the version that is made.
    done = commit(prepare(snapshot, FEATURE, asked), lambda: snapshot.timestamp_ms + 7_000)
    latest = load_snapshot(snapshot.store)
    assert latest.version == done.version == 2
    assert first_action(snapshot, 2)["inCommitTimestamp"] == snapshot.timestamp_ms + 7_000
    assert latest.metadata.configuration["delta.inCommitTimestampEnablementVersion"] == "2"
    assert latest.metadata.configuration["delta.inCommitTimestampEnablementTimestamp"] == str(
        snapshot.timestamp_ms + 7_000
    )
    commit(prepare(latest, replace(latest.metadata, description="still on")), lambda: 1)
    after = load_snapshot(snapshot.store)
    assert after.metadata.configuration == latest.metadata.configuration
    assert after.timestamp_ms == latest.timestamp_ms + 1
