"""Tables of rare kinds: delta-spark makes them, and both engines merge into them in turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable as DeltaRs
from pyspark.errors import PySparkException

from corpus.canonical import canonical_lines
from deltamerge import DeltaTable, merge_sql
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.store import open_store
from merge.tables import actions, edited, latest_version
from merge.test_deletion_vectors import respelled

from .client import LineProcess, RequestFailed
from .turns import FIRST, UPSERT, all_read, asked, delta_rs_reads, made, merged_in_turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

VECTORS = "TBLPROPERTIES (delta.enableDeletionVectors = true)"


def test_void_columns(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    path = made(oracle, tmp_path / "t", "k INT, n VOID, v STRING, s STRUCT<a: INT, b: VOID>")
    lines = merged_in_turn(oracle, spark, path, FIRST)
    assert json.loads(lines[0]) == {"k": 10, "n": None, "v": "0", "s": None}
    assert actions(path, 0, "metaData")[0]["schemaString"].count('"void"') == 2


def test_char_and_varchar(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    columns = "k INT, v VARCHAR(3), c CHAR(5), s STRUCT<c: CHAR(4)>, a ARRAY<VARCHAR(2)>"
    path = made(oracle, tmp_path / "t", columns)
    asked(oracle, f"UPDATE delta.`{path}` SET c = 'é', s = named_struct('c', 'x'), a = array('q') WHERE k = 4")
    lines = merged_in_turn(oracle, spark, path, FIRST)
    assert json.loads(lines[-2]) == {"k": 4, "v": "D", "c": "é    ", "s": {"c": "x   "}, "a": ["q"]}
    too_long = UPSERT.format(path=path, values="(4, 'long')")
    with pytest.raises(PySparkException, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT"):
        merge_sql(spark, too_long)
    with pytest.raises(RequestFailed, match=r"EXCEED_.*L(IMIT|ENGTH)"):
        asked(oracle, too_long)
    delta_rs_reads(spark, path, lines, tmp_path)


def test_append_only(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    path = made(oracle, tmp_path / "t", "k INT, v STRING", "TBLPROPERTIES (delta.appendOnly = true)")
    insert = "MERGE INTO delta.`{}` t USING (SELECT {} AS k, 'new' AS v) s ON t.k = s.k WHEN NOT MATCHED THEN INSERT *"
    for key in (1, 7):
        merge_sql(spark, insert.format(path, key))
    asked(oracle, insert.format(path, 8))
    for values in ("(1, NULL)", "(2, 'B')"):
        with pytest.raises(PySparkException) as raised:
            merge_sql(spark, UPSERT.format(path=path, values=values))
        assert raised.value.getCondition() == "DELTA_CANNOT_MODIFY_APPEND_ONLY"
        with pytest.raises(RequestFailed, match="DELTA_CANNOT_MODIFY_APPEND_ONLY"):
            asked(oracle, UPSERT.format(path=path, values=values))
    delta_rs_reads(spark, path, all_read(oracle, spark, path, FIRST | {7: "new", 8: "new"}), tmp_path)


def test_clones_of_tables_with_vectors(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    """A shallow clone's files and vectors lie at absolute paths, in the folder of the table that it came from."""
    origin = made(oracle, tmp_path / "origin é%20", "k INT, v STRING", VECTORS)
    asked(oracle, f"DELETE FROM delta.`{origin}` WHERE k = 5")
    before = {file: file.read_bytes() for file in Path(origin).rglob("*") if file.is_file()}
    clone = str(tmp_path / "clone")
    asked(oracle, f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{origin}`")
    (add,) = actions(clone, 0, "add")
    assert add["path"].startswith("file:/")
    assert add["deletionVector"]["storageType"] == "p"
    values = {key: value for key, value in FIRST.items() if key != 5}
    lines = merged_in_turn(oracle, spark, clone, values)
    assert {file: file.read_bytes() for file in Path(origin).rglob("*") if file.is_file()} == before
    all_read(oracle, spark, origin, values)
    delta_rs_reads(spark, clone, lines, tmp_path)


@pytest.mark.parametrize("kind", ["i", "p"])
def test_vectors_of_delta_spark_in_other_places(
    kind: str, oracle: LineProcess, spark: SparkSession, tmp_path: Path
) -> None:
    path = made(oracle, tmp_path / "t t", "k INT, v STRING", VECTORS)
    asked(oracle, f"DELETE FROM delta.`{path}` WHERE k = 5")

    def change(add: dict[str, Any]) -> None:
        if "deletionVector" in add:
            add["deletionVector"] = respelled(path, add["deletionVector"], kind)

    edited(path, latest_version(path), change)
    # Hadoop's checksum of the commit that is another one now.
    Path(path, "_delta_log", f".{latest_version(path):020d}.json.crc").unlink()
    assert actions(path, latest_version(path), "add")[0]["deletionVector"]["storageType"] == kind
    values = {key: value for key, value in FIRST.items() if key != 5}
    delta_rs_reads(spark, path, merged_in_turn(oracle, spark, path, values), tmp_path)


def test_compacted_log(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    """delta-spark reads compacted commits but writes none: delta-rs compacts its log."""
    path = made(oracle, tmp_path / "t", "k INT, v STRING", VECTORS)
    for number in (6, 7):
        asked(
            oracle,
            f"INSERT INTO delta.`{path}` VALUES ({number}, 'x')",
            f"DELETE FROM delta.`{path}` WHERE k = {number}",
        )
    DeltaRs(path).compact_logs(1, 4)
    commits = load_snapshot(open_store(path)).segment.commits
    assert [(item.start, item.end) for item in commits] == [(0, 0), (1, 4), (5, 5)]
    delta_rs_reads(spark, path, merged_in_turn(oracle, spark, path, FIRST), tmp_path)


def test_clustered_tables(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    path = made(oracle, tmp_path / "t", "k INT, v STRING", "CLUSTER BY (v)")
    delta_rs_reads(spark, path, merged_in_turn(oracle, spark, path, FIRST), tmp_path)
    assert asked(oracle, f"DESCRIBE DETAIL delta.`{path}`")[0]["clusteringColumns"] == ["v"]
    asked(oracle, f"OPTIMIZE delta.`{path}`")
    assert list(oracle.ask("lines", path=path)) == list(canonical_lines(DeltaTable.forPath(spark, path).toDF()))
