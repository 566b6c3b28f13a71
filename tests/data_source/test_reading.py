"""Tables read by ``format("delta")``, beside the same tables read by the rest of the library."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import convert_to_deltalake
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

import deltamerge
from deltamerge import DeltaTable, sql, write_delta
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from log.logs import PROTOCOL, Log, add, metadata
from merge.tables import CONNECT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = Path(__file__).parents[1] / "data" / "tables"
NAMES = sorted(path.name for path in TABLES.iterdir() if path.is_dir() and not path.name.startswith("broken-"))


def read(spark: SparkSession, path: object, **options: Any) -> DataFrame:
    return spark.read.format("delta").options(**options).load(str(path))


def rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != "variant-shredded"])
def test_tables_of_other_writers(registered: SparkSession, name: str) -> None:
    expected = DeltaTable.forPath(registered, str(TABLES / name)).toDF()
    found = read(registered, TABLES / name)
    assert found.schema.simpleString() == expected.schema.simpleString()
    assert rows(found) == rows(expected)


@pytest.mark.slow
def test_shredded_variants_are_refused(registered: SparkSession) -> None:
    with pytest.raises(Exception, match="shredded VARIANT"):
        read(registered, TABLES / "variant-shredded").collect()


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.4.8", "3.0.3", "3.1.0"])
def test_times_as_int96_by_the_version_that_wrote_them(registered: SparkSession, tmp_path: Path, version: str) -> None:
    """Up to 3.0 Spark wrote them in the calendar of Spark 2, and did not say so."""
    path, days = tmp_path / "t", pa.array([datetime(1000, 1, 1, 12, tzinfo=timezone.utc)])
    path.mkdir()
    table = pa.table({"at": days})
    with pq.ParquetWriter(path / "a.parquet", table.schema, use_deprecated_int96_timestamps=True) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"org.apache.spark.version": version})
    convert_to_deltalake(path)
    spelled = DeltaTable.forPath(registered, str(path)).toDF().selectExpr("string(at)").collect()[0][0]
    assert spelled.startswith("1000-01-01" if version == "3.1.0" else "0999-12-27")
    found = read(registered, path).selectExpr("string(at)")
    if version == "3.1.0":
        assert found.collect()[0][0] == spelled
        return
    with pytest.raises(Exception, match="in the calendar of Spark 2"):
        found.collect()


def test_columns_of_types_that_only_arrow_has(registered: SparkSession, tmp_path: Path) -> None:
    """Arrow finds them in the metadata of a file; Spark reads what the file has for Parquet."""
    columns = {
        "id": pa.array(range(4), pa.int64()),
        "j": pa.array(['{"a": 1}', None, "[]", "1"], pa.json_()),
        "b": pa.array([1, None, 0, 1], pa.bool8()),
        "d": pa.array([1, None, -1, 0], pa.duration("ms")),
        "l": pa.array([[1.5], None, [], [None, 2.5]], pa.list_view(pa.float64())),
        "s": pa.array([b"a", None, b"\xff\xfe", b""], pa.binary()),
    }
    kinds: dict[str, object] = {"id": "long", "j": "string", "b": "byte", "d": "long", "s": "string"}
    kinds["l"] = {"type": "array", "elementType": "double", "containsNull": True}
    fields = [{"name": name, "type": kinds[name], "nullable": True, "metadata": {}} for name in columns]
    pq.write_table(pa.table(columns), tmp_path / "f.parquet", row_group_size=3)
    size = (tmp_path / "f.parquet").stat().st_size
    schema = json.dumps({"type": "struct", "fields": fields})
    Log(tmp_path).commit(PROTOCOL, metadata(schemaString=schema), add("f.parquet", size=size))
    as_bytes = F.col("s").cast("binary").alias("s")
    expected = DeltaTable.forPath(registered, str(tmp_path)).toDF().withColumn("s", as_bytes)
    assert rows(read(registered, tmp_path).withColumn("s", as_bytes)) == rows(expected)
    assert bytes(read(registered, tmp_path).where("id = 2").select(as_bytes).collect()[0].s) == b"\xff\xfe"


@pytest.fixture(scope="module")
def table(registered: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with change data: ten rows, of which one is updated and one deleted, in two partitions."""
    path = str(tmp_path_factory.mktemp("source") / "t")
    frame = registered.range(10).select("id", (F.col("id") % 2).alias("p"), F.col("id").cast("string").alias("s"))
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
    write_delta(frame, path, partition_by="p", properties=properties)
    DeltaTable.forPath(registered, path).update("id = 1", {"s": "'new'"})
    DeltaTable.forPath(registered, path).delete("id = 2")
    return path


def test_char_is_compared_with_literals(registered: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    deltamerge.sql(
        registered, f"CREATE TABLE delta.`{path}` (id INT, c CHAR(5), p CHAR(3)) USING delta PARTITIONED BY (p)"
    )
    deltamerge.sql(registered, f"INSERT INTO delta.`{path}` VALUES (1, 'ab', 'x'), (2, 'c', 'y')")
    for condition in ("c = 'ab'", "c IN ('ab', 'z')", "p = 'x'", "c = 'ab' AND p = 'x  '", "'ab' <=> c"):
        assert [row.id for row in read(registered, path).where(condition).collect()] == [1], condition
        assert [row.id for row in DeltaTable.forPath(registered, path).toDF().where(condition).collect()] == [1]


def test_char_partitions_are_padded(registered: SparkSession, tmp_path: Path) -> None:
    """Also where their writer has not padded the values in the log."""
    path = tmp_path / "t"
    builder = DeltaTable.create(registered).location(str(path)).addColumn("id", "BIGINT")
    builder.addColumn("c", "CHAR(4)").addColumn("v", "VARCHAR(4)").partitionedBy("c", "v").execute()
    write_delta(registered.sql("SELECT 1L AS id, 'x' AS c, 'y' AS v"), str(path), mode="append")
    log = path / "_delta_log" / f"{1:020}.json"
    log.write_text(log.read_text().replace('"c":"x   "', '"c":"x"'))
    for checksum in log.parent.glob("*.crc"):
        checksum.unlink()
    assert read(registered, path).collect()[0].asDict() == {"id": 1, "c": "x   ", "v": "y"}
    assert read(registered, path).where("c = 'x   '").count() == 1


def test_a_file_that_lost_its_only_column(registered: SparkSession, tmp_path: Path) -> None:
    """Columns that a table has when it begins to map them get ids by their places, not by their age."""
    path = str(tmp_path / "t")
    write_delta(registered.sql("SELECT 1 AS a"), path)
    for change in (
        "ALTER TABLE {} ADD COLUMN z INT FIRST",
        "INSERT INTO {} (z, a) VALUES (2, 2)",
        "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "ALTER TABLE {} DROP COLUMN a",
    ):
        deltamerge.sql(registered, change.format(f"delta.`{path}`"))
    assert rows(DeltaTable.forPath(registered, path).toDF()) == ["Row(z=2)", "Row(z=None)"]
    assert rows(read(registered, path)) == ["Row(z=2)", "Row(z=None)"]
    deltamerge.merge_sql(
        registered,
        f"MERGE INTO delta.`{path}` t USING (SELECT 2 AS z) s ON t.z = s.z WHEN MATCHED THEN UPDATE SET z = 3 "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET z = 4",
    )
    assert rows(read(registered, path)) == ["Row(z=3)", "Row(z=4)"]


def test_char_within_other_types(registered: SparkSession, tmp_path: Path) -> None:
    """As another writer leaves it, and in a field that was renamed since."""
    table = pa.table({"a": [["a"]], "m": pa.array([[("k", "v")]], pa.map_(pa.string(), pa.string()))})
    table = table.append_column("s", pa.array([{"x": 1, "new": ["c", None], "z": "z"}]))
    pq.write_table(table, tmp_path / "f.parquet")
    ddl = "a ARRAY<STRING>, m MAP<STRING, STRING>, s STRUCT<x: BIGINT, new: ARRAY<STRING>, z: STRING>"
    schema = registered.createDataFrame([], ddl).schema
    kinds = ("array<varchar(3)>", "map<char(2),string>", "struct<x:bigint,y:array<char(3)>,z:varchar(9)>")
    fields = [
        StructField(field.name, field.dataType, True, {CHAR_VARCHAR_TYPE: kind})
        for field, kind in zip(schema.fields, kinds, strict=True)
    ]
    file = add("f.parquet", size=(tmp_path / "f.parquet").stat().st_size)
    Log(tmp_path).commit(PROTOCOL, metadata(schemaString=StructType(fields).json()), file)
    expected = [Row(a=["a"], m={"k ": "v"}, s=Row(x=1, new=["c  ", None], z="z"))]
    assert DeltaTable.forPath(registered, str(tmp_path)).toDF().collect() == expected
    assert read(registered, tmp_path).collect() == expected
    narrow = registered.read.format("delta").schema("s STRUCT<new: ARRAY<STRING>>").load(str(tmp_path))
    assert narrow.collect() == [Row(s=Row(new=["c  ", None]))]
    with pytest.raises(Exception, match="writing CHAR or VARCHAR within other types, as in column a"):
        registered.createDataFrame(expected, schema).write.format("delta").mode("append").save(str(tmp_path))


@pytest.mark.parametrize("day", ["+10000-01-01", "-0001-01-01"])
def test_partitions_of_years_that_python_lacks(registered: SparkSession, tmp_path: Path, day: str) -> None:
    frame = registered.sql(
        f"SELECT 1 AS id, DATE'{day}' AS d, TIMESTAMP'{day} 00:00:00' AS i, TIMESTAMP_NTZ'{day} 00:00:00' AS n"
    )
    frame.write.format("delta").mode("append").option("partitionBy", "d,i,n").save(str(tmp_path / "t"))
    shown = ["CAST(d AS STRING)", "CAST(i AS STRING)", "CAST(n AS STRING)"]
    expected = [(day, f"{day} 00:00:00", f"{day} 00:00:00")]
    for found in (read(registered, tmp_path / "t"), DeltaTable.forPath(registered, str(tmp_path / "t")).toDF()):
        assert found.selectExpr(*shown).collect() == expected


def test_a_partitions_folder_is_no_table(registered: SparkSession, table: str) -> None:
    with pytest.raises(Exception, match=r"is a partition of it: .*\.load\('.*/t'\)\.where\(\"p = '1'\"\)"):
        read(registered, f"{table}/p=1")


def test_columns_of_several_tables_are_none_of_them(registered: SparkSession, table: str, tmp_path: Path) -> None:
    """Files have the metadata that their columns had in the catalog."""
    registered.sql(f"CREATE TABLE copied_columns USING delta LOCATION '{table}'")
    try:
        given = registered.table("copied_columns").selectExpr("id", "p", "s || 'x' AS s", "1 AS more")
        given.write.parquet(str(tmp_path / "files"))
        schema = registered.read.parquet(str(tmp_path / "files")).schema
        with pytest.raises(Exception, match="DELTA_TABLE_PATH_NOT_GIVEN"):
            registered.read.format("delta").schema(schema).load().collect()
        assert registered.table("copied_columns").count() == 9
    finally:
        registered.sql("DROP TABLE copied_columns")


@pytest.mark.sessions
def test_versions(registered: SparkSession, table: str) -> None:
    assert read(registered, table).count() == 9
    assert read(registered, table, versionAsOf=0).count() == 10
    first, second, _ = reversed(DeltaTable.forPath(registered, table).history().collect())
    assert second.version == 1
    at = first.timestamp.astimezone().isoformat(sep=" ", timespec="milliseconds")
    assert rows(read(registered, table, timestampAsOf=at).where("id = 1")) == ["Row(id=1, p=1, s='1')"]
    with pytest.raises(Exception, match="DELTA_TIMESTAMP_INVALID"):
        read(registered, table, timestampAsOf="yesterday").collect()
    with pytest.raises(Exception, match="DELTA_VERSION_NOT_FOUND"):
        read(registered, table, versionAsOf="-1").collect()
    with pytest.raises(Exception, match="DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE"):
        read(registered, table, versionAsOf="abc").collect()


@pytest.mark.sessions
def test_a_frame_stays_at_its_version(registered: SparkSession, tmp_path: Path) -> None:
    """But not over Connect, where Spark resolves a frame anew with each action."""
    path = str(tmp_path / "t")
    write_delta(registered.range(3), path)
    before = read(registered, path)
    write_delta(registered.range(3), path, mode="append")
    rows_before = 6 if CONNECT else 3
    found = (before.count(), before.where("id >= 0").count(), read(registered, path).count())
    assert found == (rows_before, rows_before, 6)


@pytest.mark.sessions
def test_changes(registered: SparkSession, table: str) -> None:
    found = read(registered, table, readChangeFeed="true", startingVersion=0)
    expected = DeltaTable.forPath(registered, table).changes(0)
    assert found.columns == expected.columns
    assert rows(found) == rows(expected)
    kinds = [
        row[0]
        for row in read(registered, table, readChangeFeed="true", startingVersion=2).select("_change_type").collect()
    ]
    assert kinds == ["delete"]


def test_changes_before_a_column_was_renamed(registered: SparkSession, tmp_path: Path) -> None:
    properties = {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"}
    write_delta(registered.range(2).selectExpr("id", "id + 10 AS v"), str(tmp_path), properties=properties)
    sql(registered, f"ALTER TABLE delta.`{tmp_path}` RENAME COLUMN v TO w")
    found = read(registered, tmp_path, readChangeFeed="true", startingVersion=0, endingVersion=0)
    assert sorted((row.id, row.v) for row in found.collect()) == [(0, 10), (1, 11)]


@pytest.mark.sessions
def test_files_are_skipped(registered: SparkSession, table: str, tmp_path: Path) -> None:
    """A file that is not read may as well be missing."""
    copy = tmp_path / "t"
    write_delta(registered.range(0, 10, 1, 1), str(copy))
    write_delta(registered.range(100, 110, 1, 1), str(copy), mode="append")
    for line in (copy / "_delta_log" / "00000000000000000001.json").read_text().splitlines():
        if "add" in (action := json.loads(line)):
            (copy / action["add"]["path"]).unlink()
    if registered.conf.get("spark.sql.python.filterPushdown.enabled", None) == "true":
        assert read(registered, copy).where("id < 5").count() == 5
    with pytest.raises(Exception, match="DELTA_FILE_NOT_FOUND_DETAILED"):
        read(registered, copy).collect()


@pytest.mark.sessions
def test_tables_of_the_catalog_and_views(registered: SparkSession, table: str) -> None:
    registered.sql(f"CREATE TABLE attached USING delta LOCATION '{table}'")
    try:
        assert registered.table("attached").where("p = 1").count() == 5
        assert DeltaTable.forName(registered, "attached").toDF().count() == 9
        with pytest.raises(Exception, match="CREATE TABLE name USING delta LOCATION"):
            registered.sql("INSERT INTO attached SELECT * FROM attached")
        registered.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING delta OPTIONS (path '{table}', versionAsOf '0')")
        assert registered.table("seen").count() == 10
    finally:
        registered.sql("DROP TABLE attached")
        registered.catalog.dropTempView("seen")


@pytest.mark.sessions
def test_a_schema_of_ones_own_prunes_columns(registered: SparkSession, table: str) -> None:
    found = registered.read.format("delta").schema("s STRING, id BIGINT").load(table).where("id = 1")
    assert rows(found) == ["Row(s='new', id=1)"]
    with pytest.raises(Exception, match="DELTA_SCHEMA_CHANGED"):
        registered.read.format("delta").schema("id INT").load(table).collect()
