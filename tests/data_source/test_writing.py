"""Tables written by ``format("delta")``, read back by it, by the rest of the library and by delta-rs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as DeltaRs
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from corpus.runner import settings
from deltamerge import DeltaTable, write_delta
from deltamerge.data_source.writing import plan_write
from deltamerge.exceptions import DeltaIllegalArgumentException
from deltamerge.workers.table_files import RowsToWrite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NESTED = (
    "SELECT id, named_struct('a', id, 'b', array(named_struct('x', cast(id AS INT), 'y', 'q'))) AS s, "
    "map('k', named_struct('c', id)) AS m, cast(id AS DECIMAL(10, 2)) AS n, cast(id AS FLOAT) AS f, X'01' AS bytes, "
    "if(id = 1, NULL, id % 2 = 0) AS flag, TIMESTAMP_NTZ'2024-01-01 00:00:00' AS local FROM range(3)"
)
PARTITIONED = (
    "SELECT id, cast(id % 3 AS INT) AS p, DATE'2024-01-01' + cast(id % 2 AS INT) AS d, "
    "if(id = 5, NULL, TIMESTAMP'2024-05-01 12:00:00') AS t, 'a/b=' || (id % 2) AS s FROM range(10)"
)


def write(frame: DataFrame, path: object, mode: str = "append", **options: Any) -> None:
    frame.write.format("delta").mode(mode).options(**options).save(str(path))


def read(spark: SparkSession, path: object) -> DataFrame:
    return spark.read.format("delta").load(str(path))


def ids(spark: SparkSession, path: object) -> list[int]:
    found = sorted(row.id for row in read(spark, path).select("id").collect())
    assert found == sorted(row.id for row in DeltaTable.forPath(spark, str(path)).toDF().select("id").collect())
    return found


def test_files_are_rearranged_without_changes(registered: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    with pytest.raises(Exception, match="DELTA_DATA_CHANGE_FALSE"):
        write(registered.range(3), path, dataChange="false")
    write_delta(registered.range(3, numPartitions=3), str(path), properties={"delta.enableChangeDataFeed": "true"})
    write(read(registered, path).coalesce(1), path, "overwrite", dataChange="false")
    assert ids(registered, path) == [0, 1, 2]
    assert len(DeltaRs(path).file_uris()) == 1
    assert {row._commit_version for row in DeltaTable.forPath(registered, str(path)).changes(0).collect()} == {0}
    with pytest.raises(Exception, match="DELTA_DATA_CHANGE_FALSE"):
        write(registered.range(3), path, "overwrite", dataChange="false", overwriteSchema="true")


def test_a_copy_does_not_know_where_its_source_is(registered: SparkSession, tmp_path: Path) -> None:
    write_delta(registered.range(3), str(tmp_path / "original"))
    registered.sql(f"CREATE TABLE copied USING delta LOCATION '{tmp_path / 'original'}'")
    try:
        frame = registered.table("copied")
        write_delta(frame, str(tmp_path / "written"))
        DeltaTable.create(registered).location(str(tmp_path / "built")).addColumns(frame.schema).execute()
        write(frame, tmp_path / "source")
    finally:
        registered.sql("DROP TABLE copied")
    for name in ("written", "built", "source"):
        assert "deltamerge.location" not in (tmp_path / name / "_delta_log" / f"{0:020}.json").read_text()


@pytest.mark.sessions
def test_append_and_overwrite(registered: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(registered.range(3), path)
    write(registered.range(3, 5), path)
    assert ids(registered, path) == [0, 1, 2, 3, 4]
    write(registered.range(7, 8), path, "overwrite", userMetadata="by hand")
    assert ids(registered, path) == [7]
    last, _, first = DeltaTable.forPath(registered, str(path)).history().collect()
    assert (first.operation, first.operationParameters["mode"]) == ("WRITE", "Append")
    assert (last.operationParameters["mode"], last.userMetadata) == ("Overwrite", "by hand")
    assert last.operationMetrics["numOutputRows"] == "1"
    assert DeltaRs(path).to_pyarrow_table().to_pydict() == {"id": [7]}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_types(registered: SparkSession, tmp_path: Path, mode: str) -> None:
    path = tmp_path / "t"
    frame = registered.sql(NESTED)
    write(frame, path, **({} if mode == "none" else {"delta.columnMapping.mode": mode}))
    expected = frame.orderBy("id").collect()
    assert read(registered, path).orderBy("id").collect() == expected
    assert DeltaTable.forPath(registered, str(path)).toDF().orderBy("id").collect() == expected
    evolving = registered.sql("SELECT 9L AS id, named_struct('new', 1, 'a', 2L) AS s, 5 AS more")
    write(evolving, path, mergeSchema="true")
    found = read(registered, path).where("id = 9").select("s.*", "more", "f").collect()
    assert [row.asDict() for row in found] == [{"a": 2, "b": None, "new": 1, "more": 5, "f": None}]


@pytest.mark.slow
def test_partitions(registered: SparkSession, tmp_path: Path) -> None:
    path, frame = tmp_path / "t", registered.sql(PARTITIONED)
    write(frame, path, partitionBy="p,d,t,s")
    assert read(registered, path).orderBy("id").collect() == frame.orderBy("id").collect()
    assert DeltaTable.forPath(registered, str(path)).toDF().orderBy("id").collect() == frame.orderBy("id").collect()
    assert sorted(DeltaRs(path).to_pyarrow_table()["id"].to_pylist()) == list(range(10))
    moved = frame.withColumn("id", F.col("id") + 100)
    write(moved.where("p = 1"), path, "overwrite", replaceWhere="p = 1 AND d > '2000-01-01'")
    assert ids(registered, path) == [0, 2, 3, 5, 6, 8, 9, 101, 104, 107]
    write(moved.where("p = 2"), path, "overwrite", partitionOverwriteMode="dynamic")
    assert ids(registered, path) == [0, 3, 6, 9, 101, 102, 104, 105, 107, 108]
    itself = read(registered, path)
    write(itself.where("p = 1").withColumn("id", F.col("id") + 100), path, "overwrite", replaceWhere="p = 1")
    assert ids(registered, path) == [0, 3, 6, 9, 102, 105, 108, 201, 204, 207]
    write(read(registered, path).withColumn("id", F.col("id") + 1), path, "overwrite")
    assert ids(registered, path) == [1, 4, 7, 10, 103, 106, 109, 202, 205, 208]
    with pytest.raises(Exception, match="DELTA_REPLACE_WHERE_MISMATCH"):
        write(frame, path, "overwrite", replaceWhere="p = 1")
    with pytest.raises(Exception, match="DELTAMERGE_UNSUPPORTED_BY_DATA_SOURCE"):
        write(frame, path, "overwrite", replaceWhere="id = 1")
    write(read(registered, path).limit(1), path, replaceWhere="p = 99")
    assert len(ids(registered, path)) == 11


def test_overwrite_mode_and_time_zone_are_those_of_the_query(registered: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(registered.sql("SELECT id, id % 2 AS p FROM range(4)"), path, partitionBy="p")
    moved = registered.sql("SELECT id + 10 AS id, 1L AS p FROM range(2)")
    with settings(registered, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        write(moved, path, "overwrite")
        assert ids(registered, path) == [0, 2, 10, 11]
        write(moved.limit(0), path, "overwrite")
        assert ids(registered, path) == [0, 2, 10, 11]
        write(moved.limit(1), path, "overwrite", partitionOverwriteMode="static")
        assert ids(registered, path) == [10]
    write(moved, path, "overwrite")
    assert ids(registered, path) == [10, 11]

    by_time = tmp_path / "times"
    write(registered.sql("SELECT 1L AS id, TIMESTAMP'2024-05-01 12:00:00' AS t"), by_time, partitionBy="t")
    with settings(registered, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        assert ids(registered, path) == [10, 11]
        with pytest.raises(Exception, match="DELTAMERGE_TIME_ZONE_CHANGED"):
            ids(registered, by_time)
        with pytest.raises(Exception, match="DELTAMERGE_TIME_ZONE_CHANGED"):
            write(registered.sql("SELECT 2L AS id, current_timestamp() AS t"), by_time)
    assert ids(registered, by_time) == [1]


@pytest.mark.sessions
def test_columns_must_fit(registered: SparkSession, tmp_path: Path) -> None:
    path, frame = tmp_path / "t", registered.sql("SELECT 1L AS id, 'a' AS s")
    write(frame, path)
    with pytest.raises(Exception, match=r"DELTA_METADATA_MISMATCH.*mergeSchema"):
        write(frame.withColumn("z", F.lit(1)), path)
    with pytest.raises(Exception, match=r"DELTA_FAILED_TO_MERGE_FIELDS.*column id is string"):
        write(frame.select(F.col("s").alias("id")), path)
    write(frame.selectExpr("s AS S", "cast(id AS INT) AS ID"), path)
    write(frame.selectExpr("NULL AS s", "id"), path)
    assert ids(registered, path) == [1, 1, 1]
    write(frame.select("s"), path, "overwrite", overwriteSchema="true")
    assert read(registered, path).columns == ["s"]


@pytest.mark.sessions
def test_transactions_are_written_once(registered: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    for _ in range(3):
        write(registered.range(2), path, txnAppId="job", txnVersion="1")
    assert ids(registered, path) == [0, 1]
    assert {str(file) for file in path.rglob("*.parquet")} == set(DeltaRs(path).file_uris())
    with pytest.raises(Exception, match="DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS"):
        write(registered.range(2), path, txnAppId="job")


@pytest.mark.sessions
def test_constraints(registered: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    builder = DeltaTable.create(registered).location(path)
    builder.addColumn("id", "BIGINT", nullable=False).addColumn("v", "VARCHAR(3)").execute()
    with pytest.raises(Exception, match="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"):
        write(registered.sql("SELECT cast(NULL AS BIGINT) AS id, 'a' AS v"), path)
    with pytest.raises(Exception, match="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"):
        write(registered.sql("SELECT 'a' AS v"), path)
    with pytest.raises(Exception, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT"):
        write(registered.sql("SELECT 1L AS id, 'abcd' AS v"), path)
    assert not list(Path(path).rglob("*.parquet"))
    write(registered.sql("SELECT 1L AS id, 'abc' AS v"), path)
    assert ids(registered, path) == [1]
    checked = str(tmp_path / "checked")
    properties = {"delta.constraints.positive": "id > 0"}
    write_delta(registered.range(1, 2), checked, properties=properties)
    with pytest.raises(Exception, match=r"DELTA_VIOLATE_CONSTRAINT_WITH_VALUES.*positive \(id > 0\)"):
        write(registered.range(2), checked)
    write(registered.range(2, 3), checked)
    assert ids(registered, checked) == [1, 2]
    write_delta(registered.range(1, 2), checked, "overwrite", properties={"delta.constraints.odd": "abs(id) > 0"})
    with pytest.raises(Exception, match=r"CHECK constraints that need Spark, such as odd.*deltamerge.write_delta"):
        write(registered.range(1, 2), checked)


@pytest.mark.sessions
def test_what_spark_does_not_hand_over(registered: SparkSession) -> None:
    with pytest.raises(Exception, match="DELTA_TABLE_PATH_NOT_GIVEN"):
        registered.range(1).write.format("delta").saveAsTable("never_made")
    assert not registered.catalog.tableExists("never_made")


@pytest.mark.sessions
def test_a_table_without_rows(registered: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(registered.range(0), path)
    assert ids(registered, path) == []
    assert [entry.name for entry in path.iterdir()] == ["_delta_log"]


BIGINT = StructType([StructField("id", LongType())])


def planned(path: Path, settings: Mapping[str, str] | None = None, **options: str) -> RowsToWrite:
    return plan_write({"path": str(path), **options}, settings or {}, BIGINT, overwrite=False)[0]


def test_codecs(tmp_path: Path) -> None:
    """As Spark's writer: one that is not known is no reason to take another one silently."""
    session = {"spark.sql.parquet.compression.codec": "zstd"}
    assert planned(tmp_path).options["compression"] == "snappy"
    assert planned(tmp_path, session).options["compression"] == "zstd"
    assert planned(tmp_path, session, **{"parquet.compression": "GZIP"}).options["compression"] == "gzip"
    for codec, stored in {"uncompressed": "UNCOMPRESSED", "LZ4": "LZ4", "lz4_raw": "LZ4"}.items():
        rows = planned(tmp_path, session, compression=codec)
        pq.write_table(pa.table({"id": [1]}), tmp_path / "f", compression=rows.options["compression"])
        assert pq.read_metadata(tmp_path / "f").row_group(0).column(0).compression == stored
    for codec in ("lzo", "snapy", ""):
        with pytest.raises(DeltaIllegalArgumentException, match=f"The codec {codec} is not available") as caught:
            planned(tmp_path / "new", compression=codec)
        assert caught.value.getCondition() == "CODEC_NOT_AVAILABLE.WITH_AVAILABLE_CODECS_SUGGESTION"
        assert caught.value.getSqlState() == "56038"
    assert not (tmp_path / "new").exists()


def test_the_most_rows_of_a_file(tmp_path: Path) -> None:
    session = {"spark.sql.files.maxRecordsPerFile": "7"}
    assert planned(tmp_path).most_rows is None
    assert planned(tmp_path, {"spark.sql.files.maxRecordsPerFile": "0"}).most_rows is None
    assert planned(tmp_path, session).most_rows == 7
    assert planned(tmp_path, session, maxrecordsperfile="3").most_rows == 3
    assert planned(tmp_path, session, maxrecordsperfile="0").most_rows is None


def test_files_of_few_rows(registered: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write(registered.range(10).coalesce(1), path, maxRecordsPerFile=4, compression="lz4")
    assert ids(registered, path) == list(range(10))
    sizes = sorted(pq.read_metadata(file).num_rows for file in DeltaRs(path).file_uris())
    assert sizes == [2, 4, 4]
