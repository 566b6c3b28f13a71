"""Version checksums that each engine writes and the other compares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltamerge import merge_sql
from deltamerge.exceptions import DeltaLogCorruptException
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.store import open_store

from .client import LineProcess, RequestFailed
from .turns import FIRST, UPSERT, all_read, asked, made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

FEATURES = (
    "TBLPROPERTIES (delta.enableDeletionVectors = true, delta.enableRowTracking = true, "
    "delta.enableInCommitTimestamps = true)"
)


def checksums(path: str) -> list[Path]:
    return sorted(Path(path, "_delta_log").glob("[0-9]*.crc"))


def recorded(path: str, version: int) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(checksums(path)[version].read_bytes())
    return content


def comparable(content: dict[str, Any]) -> dict[str, Any]:
    """What both engines write of one version, in one order."""
    left_out = ("txnId", "fileSizeHistogram", "deletedRecordCountsHistogramOpt")
    found = {name: value for name, value in content.items() if name not in left_out}
    found["allFiles"] = sorted((file["path"], file["size"], file.get("baseRowId")) for file in found["allFiles"])
    found["protocol"] = {name: sorted(v) if isinstance(v, list) else v for name, v in found["protocol"].items()}
    return found


@pytest.mark.parametrize("options", ["", FEATURES])
def test_both_engines_in_turn(options: str, oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    path = made(oracle, tmp_path / "t", "k INT, v STRING", options)
    values = dict(FIRST)
    for turn, key in enumerate((2, 6, 3, 7)):
        statement = UPSERT.format(path=path, values=f"({key}, 'turn {turn}'), ({turn + 20}, 'new')")
        _ = merge_sql(spark, statement) if turn % 2 == 0 else asked(oracle, statement)
        values |= {key: f"turn {turn}", turn + 20: "new"}
        all_read(oracle, spark, path, values)
    latest = len(checksums(path)) - 1
    assert latest == load_snapshot(open_store(path)).version
    ours = comparable(recorded(path, latest - 1))
    assert {name for name, value in ours.items() if value is not None} >= {"setTransactions", "domainMetadata"}
    assert ours.keys() == comparable(recorded(path, latest)).keys()
    # delta-spark computes it anew from our log, where ours is missing.
    checksums(path)[-1].unlink()
    merge_sql(spark, UPSERT.format(path=path, values="(1, 'last')"))
    all_read(oracle, spark, path, {**values, 1: "last"})


def test_each_engine_compares_the_others(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    path = made(oracle, tmp_path / "t", "k INT, v STRING")
    theirs = checksums(path)[-1]
    content = json.loads(theirs.read_bytes())
    theirs.write_text(json.dumps({**content, "numFiles": 9}) + "\n")
    with pytest.raises(DeltaLogCorruptException, match="the numFiles of version 1 is 9"):
        merge_sql(spark, UPSERT.format(path=path, values="(1, 'x')"))
    theirs.write_text(json.dumps(content) + "\n")
    merge_sql(spark, UPSERT.format(path=path, values="(1, 'x')"))
    ours = checksums(path)[-1]
    ours.write_text(json.dumps({**json.loads(ours.read_bytes()), "tableSizeBytes": 9, "allFiles": None}) + "\n")
    # By default it compares before a checkpoint only, and takes what it can from the file without a look at the log.
    incremental = "SET spark.databricks.delta.incremental.commit.enabled = {}"
    with pytest.raises(RequestFailed, match="integrity"):
        asked(oracle, incremental.format("false"), UPSERT.format(path=path, values="(1, 'y')"))
    asked(oracle, incremental.format("true"))
