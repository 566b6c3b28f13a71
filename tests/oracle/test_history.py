"""delta-spark and deltamerge say the same of a table's history: changes, times, checkpoints, row ids, clustering."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import deltamerge
from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.exceptions import DeltaAnalysisException
from oracle.client import LineProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
UPSERT = (
    "MERGE INTO delta.`{path}` t USING (SELECT * FROM VALUES {values} AS x(k, v)) s ON t.k = s.k "
    "WHEN MATCHED AND s.v IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def asked(oracle: LineProcess, *statements: str) -> list[dict[str, Any]]:
    return oracle.ask("sql", statements=list(statements))


def made_by_delta_spark(oracle: LineProcess, path: str, properties: str, clustered: str = "") -> None:
    asked(
        oracle,
        f"CREATE TABLE delta.`{path}` (k INT, v STRING) USING delta {clustered} TBLPROPERTIES ({properties})",
        f"INSERT INTO delta.`{path}` SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )


def made_here(spark: SparkSession, path: str, **properties: str) -> None:
    rows = spark.sql("SELECT * FROM VALUES (1, 'a'), (2, 'b'), (3, 'c') AS x(k, v)").coalesce(1)
    write_delta(rows, path, properties={f"delta.{name}": value for name, value in properties.items()})


def upsert(spark: SparkSession, path: str, values: str) -> None:
    merge_sql(spark, UPSERT.format(path=path, values=values))


def theirs(oracle: LineProcess, query: str) -> list[tuple[str, ...]]:
    return sorted(tuple(str(value) for value in row.values()) for row in asked(oracle, query))


def ours(frame: Any) -> list[tuple[str, ...]]:
    return sorted(tuple(str(value) for value in row) for row in frame.collect())


def test_change_data_feed(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    made_here(spark, here, enableChangeDataFeed="true")
    made_by_delta_spark(oracle, there, "delta.enableChangeDataFeed = true")
    for path in (here, there):
        upsert(spark, path, "(1, NULL), (2, 'B'), (7, 'g')")
        asked(
            oracle,
            UPSERT.format(path=path, values="(2, NULL), (3, 'C')"),
            f"DELETE FROM delta.`{path}` WHERE k = 7",
            f"INSERT INTO delta.`{path}` VALUES (8, 'h')",
            f"ALTER TABLE delta.`{path}` ADD COLUMN w INT",
            f"INSERT OVERWRITE delta.`{path}` VALUES (9, 'i', 1)",
            f"OPTIMIZE delta.`{path}`",
        )
        first = 0 if path == here else 1
        table = DeltaTable.forPath(spark, path)
        for asking, last in ((first, None), (2, 3), (4, 4)):
            end = "" if last is None else f", {last}"
            said = theirs(oracle, f"SELECT * FROM table_changes_by_path('{path}', {asking}{end})")
            assert said
            assert ours(table.changes(asking, last)) == said


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ("99", {"startingVersion": 99}),
        ("2, 1", {"startingVersion": 2, "endingVersion": 1}),
        ("0", {"startingVersion": 0}),
        ("'2999-01-01'", {"startingTimestamp": "2999-01-01"}),
        ("1, '1999-01-01'", {"startingVersion": 1, "endingTimestamp": "1999-01-01"}),
    ],
)
def test_errors_of_the_change_data_feed(
    oracle: LineProcess, spark: SparkSession, tmp_path: Path, arguments: str, given: dict[str, Any]
) -> None:
    path = str(tmp_path / "t")
    made_by_delta_spark(oracle, path, "'a' = 'b'")
    asked(
        oracle,
        f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)",
        f"INSERT INTO delta.`{path}` VALUES (8, 'h')",
    )
    with pytest.raises(Exception) as raised:
        asked(oracle, f"SELECT * FROM table_changes_by_path('{path}', {arguments})")
    with pytest.raises(Exception, match="DELTA_") as here:
        DeltaTable.forPath(spark, path).changes(**given)
    assert here.value.getCondition() in str(raised.value)  # type: ignore[attr-defined]


def test_in_commit_timestamps(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    made_here(spark, here, enableInCommitTimestamps="true")
    made_by_delta_spark(oracle, there, "'a' = 'b'")
    asked(oracle, f"ALTER TABLE delta.`{there}` SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
    for path in (here, there):
        upsert(spark, path, "(1, NULL), (2, 'B'), (7, 'g')")
        asked(oracle, UPSERT.format(path=path, values="(2, NULL), (3, 'C')"))
        upsert(spark, path, "(4, 'd')")
        # Files that are copied get other modification times.
        for number, file in enumerate(sorted(Path(path, "_delta_log").glob("*.json"))):
            if path == here or number > 2:
                file.touch()
        table = DeltaTable.forPath(spark, path)
        mine = {row.version: row.timestamp for row in table.history().collect()}
        said = asked(oracle, f"DESCRIBE HISTORY delta.`{path}`")
        assert {row["version"]: dt.datetime.fromisoformat(str(row["timestamp"])) for row in said} == mine
        for version in sorted(mine)[-3:]:
            query = f"SELECT * FROM delta.`{path}` TIMESTAMP AS OF '{mine[version]}'"
            assert ours(table.at(timestamp=str(mine[version]))) == theirs(oracle, query)


def test_v2_checkpoints(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made_here(spark, path, checkpointPolicy="v2", checkpointInterval="2", setTransactionRetentionDuration="1 day")
    upsert(spark, path, "(1, NULL), (2, 'B'), (7, 'g')")
    upsert(spark, path, "(2, 'BB')")
    log = Path(path, "_delta_log")
    assert len(list(log.glob("*2.checkpoint.*-*.parquet"))) == 1
    for name in ("0", "1"):
        log.joinpath(f"{name:0>20}.json").unlink()
    assert theirs(oracle, f"SELECT * FROM delta.`{path}`") == [("2", "BB"), ("3", "c"), ("7", "g")]
    # Theirs on top of it, and ours on top of that.
    asked(
        oracle,
        f"INSERT INTO delta.`{path}` VALUES (8, 'h')",
        f"INSERT INTO delta.`{path}` VALUES (9, 'i')",
    )
    upsert(spark, path, "(9, NULL)")
    expected = [("2", "BB"), ("3", "c"), ("7", "g"), ("8", "h")]
    assert theirs(oracle, f"SELECT * FROM delta.`{path}`") == expected
    assert ours(DeltaTable.forPath(spark, path).toDF()) == expected


@pytest.mark.parametrize("feed", ["false", "true"])
def test_row_tracking(oracle: LineProcess, spark: SparkSession, tmp_path: Path, feed: str) -> None:
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    made_here(spark, here, enableRowTracking="true", enableChangeDataFeed=feed)
    made_by_delta_spark(
        oracle,
        there,
        f"delta.enableRowTracking = true, delta.enableChangeDataFeed = {feed}, delta.enableDeletionVectors = false",
    )
    for path in (here, there):
        table = DeltaTable.forPath(spark, path)
        query = f"SELECT k, v, _metadata.row_id, _metadata.row_commit_version FROM delta.`{path}`"
        columns = ("k", "v", "_metadata.row_id", "_metadata.row_commit_version")
        before = {row[0]: row[2] for row in theirs(oracle, query)}
        upsert(spark, path, "(1, NULL), (2, 'B'), (7, 'g')")
        assert ours(table.with_row_ids().select(*columns)) == theirs(oracle, query)
        asked(oracle, UPSERT.format(path=path, values="(3, 'C'), (8, 'h')"))
        assert ours(table.with_row_ids().select(*columns)) == theirs(oracle, query)
        upsert(spark, path, "(2, 'BB'), (9, 'i')")
        after = theirs(oracle, query)
        assert ours(table.with_row_ids().select(*columns)) == after
        kept = {row[0]: row[2] for row in after}
        assert {key: kept[key] for key in ("2", "3")} == {key: before[key] for key in ("2", "3")}
        assert len(set(kept.values())) == len(kept) == 5


def test_clustered_tables(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    DeltaTable.create(spark).location(here).addColumn("k", "INT").addColumn("v", "STRING").clusterBy("v", "k").execute()
    made_by_delta_spark(oracle, there, "delta.enableDeletionVectors = false", "CLUSTER BY (v, k)")
    for path in (here, there):
        upsert(spark, path, "(1, 'x'), (2, 'B'), (7, 'g')")
        asked(oracle, f"OPTIMIZE delta.`{path}`", UPSERT.format(path=path, values="(3, 'C')"))
        upsert(spark, path, "(7, NULL), (9, 'i')")
        said = theirs(oracle, f"SELECT * FROM delta.`{path}`")
        assert said == ours(DeltaTable.forPath(spark, path).toDF())
        assert said == [("1", "x"), ("2", "B"), ("3", "C"), ("9", "i")]
        detail = asked(oracle, f"DESCRIBE DETAIL delta.`{path}`")[0]
        assert detail["clusteringColumns"] == ["v", "k"]


def test_shallow_clones(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    origin, clone = str(tmp_path / "an origin é"), str(tmp_path / "a clone")
    made_here(spark, origin)
    asked(oracle, f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{origin}`")
    upsert(spark, clone, "(1, NULL), (2, 'B'), (7, 'g')")
    assert ours(DeltaTable.forPath(spark, origin).toDF()) == [("1", "a"), ("2", "b"), ("3", "c")]
    expected = [("2", "B"), ("3", "c"), ("7", "g")]
    assert ours(DeltaTable.forPath(spark, clone).toDF()) == expected
    assert theirs(oracle, f"SELECT * FROM delta.`{clone}`") == expected
    assert theirs(oracle, f"SELECT * FROM delta.`{origin}`") == [("1", "a"), ("2", "b"), ("3", "c")]


def test_clustering_and_z_order_by_fields_and_names_with_dots(
    oracle: LineProcess, spark: SparkSession, tmp_path: Path
) -> None:
    """Both engines cluster each other's tables by a struct's field and by a column whose name has a dot."""
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    create = (
        "CREATE TABLE delta.`{path}` (k INT, s STRUCT<x: INT,y: STRING>, `a.b` INT) USING delta CLUSTER BY (s.x, `a.b`)"
        " TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    rows = "INSERT INTO delta.`{path}` SELECT id, named_struct('x', id % 7, 'y', 'v'), id % 5 FROM range(100)"
    deltamerge.sql(spark, create.format(path=here))
    asked(oracle, create.format(path=there), rows.format(path=there))
    deltamerge.sql(spark, rows.format(path=here))
    for path in (here, there):
        deltamerge.sql(spark, f"OPTIMIZE delta.`{path}`")
        detail = asked(oracle, f"DESCRIBE DETAIL delta.`{path}`")[0]
        assert detail["clusteringColumns"] == ["s.x", "`a.b`"]
        assert DeltaTable.forPath(spark, path).detail().collect()[0].clusteringColumns == ["s.x", "`a.b`"]
        # Each engine knows the other's cube: nothing is left to cluster.
        assert asked(oracle, f"OPTIMIZE delta.`{path}`")[0]["metrics"]["numFilesRemoved"] == 0
        alter = f"ALTER TABLE delta.`{path}` CLUSTER BY (`a.b`)"
        asked(oracle, alter) if path == here else deltamerge.sql(spark, alter)
        assert asked(oracle, f"DESCRIBE DETAIL delta.`{path}`")[0]["clusteringColumns"] == ["`a.b`"]
        last = DeltaTable.forPath(spark, path).history(1).collect()[0].operationParameters
        assert (last["oldClusteringColumns"], last["newClusteringColumns"]) == ("s.x,`a.b`", "`a.b`")
        asked(oracle, f"OPTIMIZE delta.`{path}`")
        said = theirs(oracle, f"SELECT k, s.x, `a.b` FROM delta.`{path}`")
        assert said == sorted((str(k), str(k % 7), str(k % 5)) for k in range(100))
    with pytest.raises(DeltaAnalysisException, match="DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN"):
        deltamerge.sql(spark, f"ALTER TABLE delta.`{here}` DROP COLUMN `a.b`")


@pytest.mark.parametrize(
    "columns, error",
    [
        ("s", "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED"),
        ("s.z", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        ("a.b", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        ("s.f", "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED"),
        ("s.x, S.x", "DELTA_DUPLICATE_COLUMNS_FOUND"),
    ],
)
def test_fields_that_no_table_is_clustered_by(spark: SparkSession, tmp_path: Path, columns: str, error: str) -> None:
    with pytest.raises(PySparkException, match=error):
        deltamerge.sql(
            spark,
            f"CREATE TABLE delta.`{tmp_path}/t` (k INT, s STRUCT<x: INT, f: BOOLEAN>, `a.b` INT) USING delta "
            f"CLUSTER BY ({columns}) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        )
    assert not (tmp_path / "t").exists()


def test_z_order_by_a_field_and_by_a_name_with_a_dot(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    asked(
        oracle,
        f"CREATE TABLE delta.`{path}` (k INT, s STRUCT<x: INT>, `a.b` INT) USING delta "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        f"INSERT INTO delta.`{path}` SELECT id, named_struct('x', id % 7), id % 5 FROM range(100)",
    )
    deltamerge.sql(spark, f"OPTIMIZE delta.`{path}` ZORDER BY (S.x, `a.B`)")
    parameters = DeltaTable.forPath(spark, path).history(1).collect()[0].operationParameters
    asked(oracle, f"OPTIMIZE delta.`{path}` ZORDER BY (S.x, `a.B`)")
    assert DeltaTable.forPath(spark, path).history(1).collect()[0].operationParameters == parameters
    DeltaTable.forPath(spark, path).optimize().executeZOrderBy("`a.b`", "s.x")
    said = theirs(oracle, f"SELECT k, s.x, `a.b` FROM delta.`{path}`")
    assert said == sorted((str(k), str(k % 7), str(k % 5)) for k in range(100))
