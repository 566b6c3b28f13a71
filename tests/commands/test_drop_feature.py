"""Features that are dropped with the history that uses them, and files that are written again for it.

What each feature's drop commits is recorded (tests/data/statements/drop_feature.json).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as DeltaRs

import deltamerge
from deltamerge import DeltaTable
from deltamerge.commands.stored_columns import with_dropped_columns, with_narrower_types
from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import AddFile
from deltamerge.log.schema import parse_schema
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def made(spark: SparkSession, path: Path, options: str) -> DeltaTable:
    deltamerge.sql(spark, f"CREATE TABLE delta.`{path}` (id BIGINT, v INT) USING delta {options}")
    deltamerge.sql(spark, f"INSERT INTO delta.`{path}` SELECT /*+ COALESCE(1) */ id, CAST(id AS INT) FROM range(10)")
    return DeltaTable.forPath(spark, str(path))


def age(path: Path, days: int) -> None:
    """Makes a table's log look older."""
    then = time.time() - days * 86_400
    for file in (path / "_delta_log").iterdir():
        os.utime(file, (then, then))


def test_history_is_truncated(spark: SparkSession, tmp_path: Path) -> None:
    """The feature goes only when no version is left that uses it, and nothing then protects checkpoints."""
    table = made(spark, tmp_path / "t", "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    table.delete("id < 3")
    with pytest.raises(DeltaTableException, match="DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD"):
        table.dropFeatureSupport("deletionVectors", truncateHistory=True)
    with pytest.raises(DeltaTableException, match="DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST"):
        table.dropFeatureSupport("deletionVectors", truncateHistory=True)
    age(tmp_path / "t", days=2)
    table.dropFeatureSupport("deletionVectors", truncateHistory=True)
    snapshot = load_snapshot(open_store(str(tmp_path / "t")))
    assert (snapshot.protocol.min_reader_version, snapshot.protocol.min_writer_version) == (1, 2)
    assert not (tmp_path / "t" / "_delta_log" / f"{2:020}.json").exists()
    assert sorted(DeltaRs(str(tmp_path / "t")).to_pyarrow_table()["id"].to_pylist()) == list(range(3, 10))


def test_a_protected_history_stays_until_it_can_go_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(spark, path, "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    table.delete("id < 3")
    table.dropFeatureSupport("deletionVectors")
    assert "checkpointProtection" in (load_snapshot(open_store(str(path))).protocol.writer_features or ())
    assert table.at(version=1).count() == 10
    with pytest.raises(DeltaTableException, match="DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION"):
        table.dropFeatureSupport("checkpointProtection", truncateHistory=True)
    age(path, days=2)
    table.dropFeatureSupport("checkpointProtection", truncateHistory=True)
    snapshot = load_snapshot(open_store(str(path)))
    assert (snapshot.protocol.min_writer_version, dict(snapshot.metadata.configuration)) == (2, {})
    assert not (path / "_delta_log" / f"{1:020}.json").exists()
    assert table.toDF().count() == 7


@pytest.mark.parametrize(
    "how", ["RESTORE TABLE {} TO VERSION AS OF 1", "CREATE OR REPLACE TABLE {} (id INT) USING delta"]
)
def test_a_history_stays_protected(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """Whatever becomes of the table, earlier versions have rows that only readers with the feature leave out."""
    path = tmp_path / "t"
    table = made(spark, path, "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    table.delete("id < 3")
    table.dropFeatureSupport("deletionVectors")
    key = "delta.requireCheckpointProtectionBeforeVersion"
    protected = load_snapshot(open_store(str(path))).metadata.configuration[key]
    deltamerge.sql(spark, how.format(f"delta.`{path}`"))
    snapshot = load_snapshot(open_store(str(path)))
    assert "checkpointProtection" in (snapshot.protocol.writer_features or ())
    assert snapshot.metadata.configuration[key] == protected


def test_a_clustered_table_stays_clustered_without_its_mapping(spark: SparkSession, tmp_path: Path) -> None:
    table = made(spark, tmp_path / "t", "CLUSTER BY (v) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    table.dropFeatureSupport("columnMapping")
    assert table.detail().collect()[0]["clusteringColumns"] == ["v"]
    (file,) = DeltaRs(str(tmp_path / "t")).file_uris()
    assert pq.read_schema(file).names == ["id", "v"]
    table.optimize().executeCompaction()
    assert table.toDF().count() == 10


def test_files_are_chosen_by_their_footers(tmp_path: Path) -> None:
    inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
    columns = {
        "now": pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64())])), ("l", pa.list_(pa.int16()))]),
        "narrow_in_list": pa.schema([("id", pa.int64()), ("l", pa.list_(pa.int8()))]),
        "narrow_in_large_list": pa.schema([("l", pa.large_list(pa.int8()))]),
        "narrow_in_lists_of_two": pa.schema([("l", pa.list_(pa.int8(), 2))]),
        "narrow_and_more_in_struct": pa.schema([("id", pa.int64()), ("s", inner)]),
        "more": pa.schema([("id", pa.int64()), ("gone", pa.string())]),
        "hidden": pa.schema([("id", pa.int64()), ("_row-id", pa.int64())]),
    }
    for name, schema in columns.items():
        pq.write_table(schema.empty_table(), tmp_path / f"{name}.parquet")
    files = [AddFile(f"{name}.parquet", {}, 1, 0) for name in columns]
    store = open_store(str(tmp_path))
    fields = (
        '{"name":"id","type":"long","nullable":true,"metadata":{}},'
        '{"name":"x","type":{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]},'
        '"nullable":true,"metadata":{"delta.columnMapping.physicalName":"s"}},'
        '{"name":"l","type":{"type":"array","elementType":"short","containsNull":true},"nullable":true,"metadata":{}}'
    )
    schema = parse_schema(f'{{"type":"struct","fields":[{fields}]}}')

    def names(found: list[AddFile]) -> list[str]:
        return [file.path.removesuffix(".parquet") for file in found]

    narrow = [name for name in columns if name.startswith("narrow_")]
    assert names(with_narrower_types(lambda _: store, files, schema)) == narrow
    dropped = with_dropped_columns(lambda _: store, files, schema, ("_row-id",))
    assert names(dropped) == ["narrow_and_more_in_struct", "more"]
