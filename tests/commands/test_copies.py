"""CLONE and CONVERT: tables made of other tables' and of Parquet files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as DeltaRs
from obstore.store import MemoryStore
from pyspark.errors import PySparkException

from deltamerge import DeltaTable, merge_sql, sql, write_delta
from deltamerge.api.delta_table import IdentityGenerator
from deltamerge.commands.clone import shallow_clone
from deltamerge.data_source.reading import plan_read, schema_of
from deltamerge.exceptions import (
    DeltaAnalysisException,
    DeltaRuntimeException,
    DeltaTableException,
    DeltaTableNotFoundException,
    DeltaUnsupportedFeatureException,
    DeltaUnsupportedOperationException,
)
from deltamerge.log.actions import DomainMetadata
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.object_store import ObjectStore
from deltamerge.storage.store import open_store
from deltamerge.txn.transaction import commit
from deltamerge.workers.parquet_footer import footer_bytes
from merge.tables import EXECUTOR, VECTORS, actions, commit_info, delete_checksums, files_below
from txn.tables import clock, prepare
from write.foreign_files import write_encrypted, write_optional_keys

from .test_delete_update import table, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_clone(spark: SparkSession, tmp_path: Path) -> None:
    """A clone has the source's rows, deletion vectors too, and goes its own way."""
    path, target = table(spark, tmp_path, VECTORS, partition_by=("p",)), str(tmp_path / "clone")
    source = DeltaTable.forPath(spark, path)
    source.delete("id % 5 = 0")
    clone = source.clone(target, isShallow=True, properties={"own": "1"})
    expected = values(spark, path)
    assert values(spark, target) == expected
    assert not [name for name in files_below(target) if name.endswith(".parquet")]
    info = commit_info(target, 0)
    assert info["operationParameters"] == {"source": f"delta.`file:{path}`", "sourceVersion": 2}
    assert clone.detail().collect()[0]["properties"]["own"] == "1"
    clone.update("id = 1", {"v": "-1"})
    clone.delete("id = 2")
    assert values(spark, target) == {i: -1 if i == 1 else v for i, v in expected.items() if i != 2}
    assert values(spark, path) == expected
    with pytest.raises(DeltaAnalysisException, match="DELTA_PATH_EXISTS"):
        source.clone(target, True)
    with pytest.raises(ValueError, match="isShallow needs to be a boolean"):
        source.clone(target, 1)  # type: ignore[arg-type]
    earlier = source.cloneAtVersion(1, str(tmp_path / "earlier"), True)
    assert earlier.toDF().count() == 20


def test_clone_into_a_name(spark: SparkSession, tmp_path: Path) -> None:
    """A target that is no path is a table's name, which the catalog has afterwards; so is ``delta.`path` `` a path."""
    source = DeltaTable.forPath(spark, table(spark, tmp_path))
    spark.sql("CREATE DATABASE IF NOT EXISTS backups")
    clone = source.clone("backups.of_orders", isShallow=True)
    assert DeltaTable.forName(spark, "backups.of_orders").toDF().count() == clone.toDF().count() == 20
    assert not Path("backups.of_orders").exists()
    with pytest.raises(DeltaAnalysisException, match=r"DELTA_TABLE_ALREADY_EXISTS\] Table backups.of_orders already"):
        source.clone("backups.of_orders", isShallow=True)
    again = sql(spark, f"CREATE TABLE IF NOT EXISTS backups.of_orders SHALLOW CLONE delta.`{source.table.location}`")
    assert (len(again.columns), again.columns[0], again.count()) == (6, "source_table_size", 0)
    asked = sql(spark, "SHOW TBLPROPERTIES backups.of_orders ('nope')").collect()[0]["value"]
    assert asked == "Table spark_catalog.backups.of_orders does not have property: nope"
    source.delete("id = 1")
    source.clone(f"delta.`{tmp_path}/clone`", isShallow=True)
    assert DeltaTable.forPath(spark, f"{tmp_path}/clone").toDF().count() == 19
    sql(spark, "DROP TABLE backups.of_orders")


def test_a_clone_in_another_store_has_no_deletion_vectors(spark: SparkSession, tmp_path: Path) -> None:
    source = DeltaTable.forPath(spark, table(spark, tmp_path, VECTORS)).table
    target = replace(source, store=ObjectStore("s3://elsewhere/t", MemoryStore(), "t"))
    shallow_clone(source, None, target, {}, replaces=False)
    assert target.snapshot().files.num_files == 2
    DeltaTable.forPath(spark, source.location).delete("id % 5 = 0")
    target = replace(source, store=ObjectStore("s3://elsewhere/u", MemoryStore(), "u"))
    with pytest.raises(DeltaUnsupportedOperationException, match="REORG TABLE") as caught:
        shallow_clone(source, None, target, {}, replaces=False)
    assert caught.value.getCondition() == "DELTAMERGE_CLONE_IN_ANOTHER_STORE"
    assert target.store.list() == []


def test_only_delta_is_cloned(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.parquet(f"{tmp_path}/p")
    with pytest.raises(DeltaAnalysisException, match=r"DELTA_CLONE_UNSUPPORTED_SOURCE.*CONVERT TO DELTA"):
        sql(spark, f"CREATE TABLE delta.`{tmp_path}/c` SHALLOW CLONE parquet.`{tmp_path}/p`")


HIDDEN = ("delta.rowTracking.materializedRowIdColumnName", "delta.rowTracking.materializedRowCommitVersionColumnName")


def test_clone_has_its_own_rows_and_domains(spark: SparkSession, tmp_path: Path) -> None:
    """Hidden columns of row ids are not the source's; a clustering that the source lacks ends."""
    path, target = table(spark, tmp_path, {"delta.enableRowTracking": "true"}), str(tmp_path / "clone")
    source = DeltaTable.forPath(spark, path)
    source.update("id = 3", {"v": "0"})

    def hidden(of: str, version: int) -> set[str]:
        return {actions(of, version, "metaData")[0]["configuration"][key] for key in HIDDEN}

    clone = source.clone(target, True)
    assert len(hidden(target, 0) | hidden(path, 0)) == 4
    clone.update("id = 4", {"v": "0"})
    found = clone.with_row_ids().collect()
    assert {row["id"]: row["v"] for row in found} == {i: 0 if i in (3, 4) else 10 * i for i in range(20)}
    assert {row["_metadata"]["row_id"] for row in found} == set(range(20))

    replaced = str(tmp_path / "replaced")
    builder = DeltaTable.create(spark).location(replaced).addColumn("id", "BIGINT").clusterBy("id")
    builder.property("delta.enableRowTracking", "true").execute()
    source.clone(replaced, True, True)
    assert hidden(replaced, 1) == hidden(replaced, 0)
    ended = [domain["domain"] for domain in actions(replaced, 1, "domainMetadata") if domain["removed"]]
    assert ended == ["delta.clustering"]
    assert DeltaTable.forPath(spark, replaced).detail().collect()[0]["clusteringColumns"] == []


def with_domain(path: str, name: str, configuration: str) -> None:
    """Lets another application store something in a table's log."""
    snapshot = load_snapshot(open_store(path))
    commit(prepare(snapshot, DomainMetadata(name, configuration)), clock)


def test_domains_of_others_are_neither_copied_nor_restored(spark: SparkSession, tmp_path: Path) -> None:
    path, target = str(tmp_path / "t"), str(tmp_path / "clone")
    DeltaTable.create(spark).location(path).addColumn("id", "BIGINT").clusterBy("id").execute()
    with_domain(path, "app", "1")
    with_domain(path, "app", "2")
    with_domain(path, "other", "x")
    source = DeltaTable.forPath(spark, path)
    source.restoreToVersion(1)
    found = load_snapshot(open_store(path)).domain_metadata
    assert {name: domain.configuration for name, domain in found.items() if "." not in name} == {
        "app": "2",
        "other": "x",
    }
    sql(spark, f"ALTER TABLE delta.`{path}` CLUSTER BY NONE")
    source.restoreToVersion(1)
    assert load_snapshot(open_store(path)).clustered_by == (("id",),)

    DeltaTable.create(spark).location(target).addColumn("v", "BIGINT").clusterBy("v").execute()
    with_domain(target, "own", "y")
    source.clone(target, True, True)
    cloned = load_snapshot(open_store(target))
    assert (sorted(cloned.domain_metadata), cloned.clustered_by) == (["delta.clustering", "own"], (("id",),))


def test_convert(spark: SparkSession, tmp_path: Path) -> None:
    """Parquet files become a table where they are, with statistics and partition values from their folders."""
    path = str(tmp_path / "t")
    rows = spark.range(10).selectExpr(
        "id", "IF(id % 3 = 0, NULL, CONCAT('a b/', id % 3)) AS p", "DATE'2024-01-01' AS d"
    )
    rows.write.partitionBy("p").parquet(path)
    with pytest.raises(DeltaAnalysisException, match="DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS"):
        DeltaTable.convertToDelta(spark, f"parquet.`{path}`")
    made = DeltaTable.convertToDelta(spark, f"parquet.`{path}`", "p STRING")
    assert made.toDF().exceptAll(rows.select("id", "d", "p")).count() == 0
    assert made.toDF().count() == 10
    assert all("numRecords" in add["stats"] for add in actions(path, 0, "add"))
    assert commit_info(path, 0)["operation"] == "CONVERT"
    made.delete("p IS NULL")
    made.update("p = 'a b/1'", {"id": "-id"})
    assert made.toDF().where("id < 0").count() == 3
    DeltaTable.convertToDelta(spark, f"parquet.`{path}`", "p STRING")
    assert DeltaTable.convertToDelta(spark, f"delta.`{path}`").history().count() == 3
    with pytest.raises(DeltaAnalysisException, match="DELTA_MISSING_PROVIDER_FOR_CONVERT"):
        DeltaTable.convertToDelta(spark, path)
    with pytest.raises(DeltaTableNotFoundException, match="DELTA_EMPTY_DIRECTORY"):
        DeltaTable.convertToDelta(spark, f"parquet.`{tmp_path / 'none'}`")


def test_convert_takes_all_files(spark: SparkSession, tmp_path: Path) -> None:
    """Files count whatever their names; what cannot be a part of the table is refused by name."""
    path = tmp_path / "t"
    spark.range(10).selectExpr("id", "id % 2 AS p").coalesce(1).write.partitionBy("p").parquet(str(path))
    for number, file in enumerate(sorted(path.rglob("*.parquet"))):
        file.rename(file.with_name(("000000_0", "a.parq")[number]))
        file.with_name(f".{file.name}.crc").unlink()

    def convert() -> DeltaTable:
        return DeltaTable.convertToDelta(spark, f"parquet.`{path}`", "p INT")

    other = path / "p=1" / "readme"
    other.write_text("no Parquet")
    with pytest.raises(DeltaTableException, match=r"CANNOT_READ_FILE_FOOTER.*p=1/readme"):
        convert()
    other.unlink()
    (path / "p=1").rename(path / "p=abc")
    with pytest.raises(DeltaRuntimeException, match=r"CAST_FAILED.*`abc` to `INT` .* `p`, of the folder .*t/p=abc"):
        convert()
    (path / "p=abc").rename(path / "p=1")
    (path / "_spark_metadata").mkdir()
    (path / "_spark_metadata" / "0").write_text("v1")
    with pytest.raises(DeltaUnsupportedOperationException, match="streaming query's output"):
        convert()
    assert not (path / "_delta_log").exists()
    (path / "_spark_metadata" / "0").unlink()
    assert sorted(convert().toDF().collect()) == [(i, i % 2) for i in range(10)]


def test_convert_a_folder_whose_name_is_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    path, sibling = tmp_path / "run[1]", tmp_path / "run1"
    for folder, columns in ((path, "id"), (sibling, "id AS other")):
        spark.range(3).selectExpr(columns).coalesce(1).write.parquet(str(tmp_path / "made"))
        (tmp_path / "made").rename(folder)
        next(folder.glob("*.parquet")).rename(folder / "{a}.parquet")
    converted = DeltaTable.convertToDelta(spark, f"parquet.`{path}`")
    assert sorted(row.id for row in converted.toDF().collect()) == [0, 1, 2]


def test_convert_with_the_sessions_properties(spark: SparkSession, tmp_path: Path) -> None:
    path, default = str(tmp_path / "t"), "spark.databricks.delta.properties.defaults."
    spark.range(10).selectExpr("id", "id AS `a b`", "id % 2 AS p").write.partitionBy("p").parquet(path)
    spark.conf.set(default + "columnMapping.mode", "id")
    with pytest.raises(DeltaAnalysisException, match="by ids"):
        DeltaTable.convertToDelta(spark, f"parquet.`{path}`", "p INT")
    properties = {
        "columnMapping.mode": "name",
        "enableChangeDataFeed": "true",
        "enableDeletionVectors": "true",
        "enableRowTracking": "true",
        "dataSkippingNumIndexedCols": "1",
    }
    for name, value in properties.items():
        spark.conf.set(default + name, value)
    made = DeltaTable.convertToDelta(spark, f"parquet.`{path}`", "p INT")
    configuration = actions(path, 0, "metaData")[0]["configuration"]
    assert {f"delta.{name}": value for name, value in properties.items()}.items() <= configuration.items()
    features = set(actions(path, 0, "protocol")[0]["writerFeatures"])
    assert features >= {"changeDataFeed", "columnMapping", "deletionVectors", "rowTracking"}
    stats = [json.loads(add["stats"]) for add in actions(path, 0, "add")]
    assert all(set(of["minValues"]) == {"id"} and of["tightBounds"] for of in stats)
    assert sorted(row["_metadata"]["row_id"] for row in made.with_row_ids().collect()) == list(range(10))
    made.delete("id = 3")
    assert [(row["a b"], row["_change_type"]) for row in made.changes(1, 1).collect()] == [(3, "delete")]
    assert made.toDF().count() == 9


def test_clone_onto_a_table_that_must_not_be_written(spark: SparkSession, tmp_path: Path) -> None:
    source, target = table(spark, tmp_path, VECTORS, partition_by=("p",)), tmp_path / "target"
    DeltaTable.create(spark).location(str(target)).addColumn("x", "INT").execute()
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["unknownFeature"]}}
    (target / "_delta_log" / f"{1:020d}.json").write_text(json.dumps(protocol))
    with pytest.raises(DeltaTableException, match="unknownFeature"):
        DeltaTable.forPath(spark, source).clone(str(target), isShallow=True, replace=True)
    assert not (target / "_delta_log" / f"{2:020d}.json").exists()


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT 1 AS `my col`", "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"),
        ("SELECT TIME'10:00:00' AS t, 1 AS id", "DELTA_UNSUPPORTED_DATA_TYPES"),
    ],
)
def test_files_that_cannot_be_a_table(spark: SparkSession, tmp_path: Path, query: str, error: str) -> None:
    path = str(tmp_path / "t")
    try:
        spark.sql(query).write.parquet(path)
    except PySparkException:
        # This version of Spark has no such type or does not store it.
        return
    with pytest.raises(DeltaAnalysisException, match=error):
        DeltaTable.convertToDelta(spark, f"parquet.`{path}`")
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_a_restore_assigns_no_identity_again(spark: SparkSession, tmp_path: Path) -> None:
    """Also where the column was renamed in between."""
    path = str(tmp_path / "t")
    made = DeltaTable.create(spark).location(path).addColumn("v", "INT").property("delta.columnMapping.mode", "name")
    made.addColumn("k", "BIGINT", generatedAlwaysAs=IdentityGenerator()).execute()
    sql(spark, f"ALTER TABLE delta.`{path}` RENAME COLUMN k TO key")
    write_delta(spark.range(5).selectExpr("CAST(id AS INT) AS v"), path, mode="append")
    given = max(row.key for row in DeltaTable.forPath(spark, path).toDF().collect())
    sql(spark, f"ALTER TABLE delta.`{path}` ADD COLUMN k BIGINT")
    DeltaTable.forPath(spark, path).restoreToVersion(0)
    write_delta(spark.sql("SELECT 1 AS v"), path, mode="append")
    (row,) = DeltaTable.forPath(spark, path).toDF().collect()
    assert row.k > given


@pytest.mark.parametrize("change", ["TYPE DECIMAL(20, 0)", "SET DEFAULT 5", "DROP NOT NULL", "DROP DEFAULT"])
def test_identity_columns_stay_as_they_are(spark: SparkSession, tmp_path: Path, change: str) -> None:
    path = str(tmp_path / "t")
    made = DeltaTable.create(spark).location(path).addColumn("id", "BIGINT")
    made = made.property("delta.enableTypeWidening", "true").property("delta.feature.allowColumnDefaults", "supported")
    made.addColumn("k", "BIGINT", generatedAlwaysAs=IdentityGenerator()).execute()
    with pytest.raises(DeltaUnsupportedOperationException, match="DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED"):
        sql(spark, f"ALTER TABLE delta.`{path}` ALTER COLUMN k {change}")
    sql(spark, f"ALTER TABLE delta.`{path}` ALTER COLUMN k COMMENT 'the key'")
    sql(spark, f"ALTER TABLE delta.`{path}` CHANGE COLUMN k k BIGINT COMMENT 'its key'")
    sql(spark, f"ALTER TABLE delta.`{path}` ALTER COLUMN k FIRST")
    assert DeltaTable.forPath(spark, path).toDF().columns == ["k", "id"]


def test_a_clone_assigns_no_identity_again(spark: SparkSession, tmp_path: Path) -> None:
    def made(name: str) -> str:
        path = str(tmp_path / name)
        made = DeltaTable.create(spark).location(path).addColumn("v", "INT")
        made.addColumn("k", "BIGINT", generatedAlwaysAs=IdentityGenerator()).execute()
        return path

    source, target = made("source"), made("target")
    write_delta(spark.range(5).selectExpr("CAST(id AS INT) AS v"), target, mode="append")
    given = max(row.k for row in DeltaTable.forPath(spark, target).toDF().collect())
    DeltaTable.forPath(spark, target).delete()
    DeltaTable.forPath(spark, source).clone(target, True, replace=True)
    write_delta(spark.sql("SELECT 1 AS v"), target, mode="append")
    (row,) = DeltaTable.forPath(spark, target).toDF().collect()
    assert row.k > given


def test_convert_with_a_length(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.sql("SELECT 1L AS id, 'ab   ' AS c").write.partitionBy("c").parquet(path)
    sql(spark, f"CONVERT TO DELTA parquet.`{path}` PARTITIONED BY (c CHAR(5))")
    assert DeltaRs(path).to_pyarrow_table().to_pylist() == [{"id": 1, "c": "ab   "}]
    assert DeltaTable.forPath(spark, path).toDF().where("c = 'ab'").count() == 1


def test_a_restore_to_what_cannot_be_written(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(1), path)
    log = Path(path, "_delta_log", f"{0:020d}.json")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            plain = json.dumps(line)
            line["metaData"]["configuration"]["delta.universalFormat.enabledFormats"] = "iceberg"
    log.write_text("\n".join(map(json.dumps, lines)))
    log.with_name(f"{1:020d}.json").write_text(plain)
    delete_checksums(path)
    opened = DeltaTable.forPath(spark, path)
    with pytest.raises(DeltaUnsupportedFeatureException, match="universalFormat"):
        opened.restoreToVersion(0)
    write_delta(spark.range(1), path, mode="append")


def test_convert_files_that_pyarrow_does_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads them; they have only the count of their rows as statistics."""
    path, maps = tmp_path / "t", pa.map_(pa.string(), pa.int64())
    path.mkdir()
    write_optional_keys(path / "keys.parquet", [(1, {"a": 1}), (2, {"c": 5, "d": 6})])
    write_optional_keys(path / "more.parquet", [(4, {"e": 7}), (5, {"f": 8})])
    pq.write_table(pa.table({"id": [3], "m": pa.array([[("b", 2)]], maps)}), path / "plain.parquet")
    made = DeltaTable.convertToDelta(spark, f"parquet.`{path}`")
    stats = {add["path"]: json.loads(add["stats"]) for add in actions(str(path), 0, "add")}
    assert stats["keys.parquet"] == {"numRecords": 2}
    assert stats["plain.parquet"]["maxValues"] == {"id": 3}
    assert sorted(row.asDict()["id"] for row in made.toDF().collect()) == [1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match=r"(keys|more).parquet of table .*Map keys must.*DeltaTable.toDF\(\)"):
        plan_and_read(path)
    merge = "MERGE INTO delta.`{}` t USING (SELECT {} AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = -t.id"
    merge_sql(spark, merge.format(path, 1))
    spark.conf.set(EXECUTOR, "low_shuffle")
    merge_sql(spark, merge.format(path, 4))
    merged = {row.id: row.m for row in made.toDF().collect()}
    assert merged == {-1: {"a": 1}, 2: {"c": 5, "d": 6}, 3: {"b": 2}, -4: {"e": 7}, 5: {"f": 8}}


def test_convert_opens_each_file_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The footers of many files are not in memory together."""
    path, opened = tmp_path / "t", []

    def counted(source: Any) -> int:
        opened.append(source)
        return footer_bytes(source)

    monkeypatch.setattr("deltamerge.commands.convert.footer_bytes", counted)
    spark.range(3).repartition(3).write.parquet(str(path))
    DeltaTable.convertToDelta(spark, f"parquet.`{path}`")
    assert len(opened) == len(actions(str(path), 0, "add"))


def test_convert_encrypted_files(spark: SparkSession, tmp_path: Path) -> None:
    """Without their keys they are refused before anything is written, or have no statistics of columns."""
    path = tmp_path / "t"
    path.mkdir()
    write_encrypted(path / "x.parquet", plaintext_footer=False)
    with pytest.raises(DeltaTableException, match=r"CANNOT_READ_FILE_FOOTER.*x\.parquet"):
        DeltaTable.convertToDelta(spark, f"parquet.`{path}`")
    assert not (path / "_delta_log").exists()
    write_encrypted(path / "x.parquet", plaintext_footer=True)
    DeltaTable.convertToDelta(spark, f"parquet.`{path}`")
    (add,) = actions(str(path), 0, "add")
    assert json.loads(add["stats"]) == {"numRecords": 2}


def plan_and_read(path: Path) -> list[pa.RecordBatch]:
    """Read a table by the data source in Python."""
    schema, version = schema_of({"path": str(path)}, {})
    rows, plan = plan_read({"path": str(path)}, {}, schema, version)
    return [batch for parts in plan([]) for batch in rows.read(parts)]
