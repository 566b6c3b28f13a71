"""The rows that a merge changed, with change data and without, by each plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from combinations import combinations
from deltamerge import DeltaTable, sql, write_delta
from deltamerge.api import merge_builder
from deltamerge.exceptions import DeltaAnalysisException, DeltaRuntimeException

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROPERTIES: dict[str, dict[str, str]] = {
    "plain": {},
    "change_data": {"delta.enableChangeDataFeed": "true"},
    "deletion_vectors": {"delta.enableDeletionVectors": "true"},
}
EXPECTED = [
    ("DELETE", 2, "b", 20),
    ("DELETE", 5, None, 50),
    ("INSERT", 8, None, None),
    ("INSERT", None, "new", 0),
    ("UPDATE", 1, "A", 11),
    ("UPDATE", 4, "d", -1),
]


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def table_of(spark: SparkSession, path: Path, properties: dict[str, str]) -> DeltaTable:
    rows = [(1, "a", 10), (2, "b", 20), (3, "c", 30), (4, "d", 40), (5, None, 50)]
    write_delta(spark.createDataFrame(rows, "id INT, name STRING, n INT"), str(path), properties=properties)
    return DeltaTable.forPath(spark, str(path))


@pytest.mark.parametrize(("kind", "executor"), combinations(PROPERTIES, ["auto", "classic", "low_shuffle"]))
def test_changed_rows(spark: SparkSession, tmp_path: Path, kind: str, executor: str) -> None:
    spark.conf.set("spark.deltamerge.merge.executor", executor)
    table = table_of(spark, tmp_path / "t", PROPERTIES[kind])
    source = spark.createDataFrame(
        [(1, "A", 1), (2, None, 2), (3, "c", 0), (8, None, None), (None, "new", 0)], "id INT, name STRING, n INT"
    )
    changed = (
        table.alias("t")
        .merge(source.alias("s"), "t.id = s.id")
        .whenMatchedDelete("s.name IS NULL")
        .whenMatchedUpdate("s.n > 0", {"name": "s.name", "n": "t.n + s.n"})
        .whenNotMatchedInsertAll()
        .whenNotMatchedBySourceUpdate("t.id = 4", {"n": "-1"})
        .whenNotMatchedBySourceDelete("t.id = 5")
        .returning()
    )
    metrics = table.history(1).collect()[0].operationMetrics
    assert (metrics["numTargetChangeFilesAdded"] != "0") is (kind == "change_data")
    assert changed.columns == ["merge_action", "id", "name", "n"]
    assert rows_of(changed) == EXPECTED
    after = [row[1:] for row in EXPECTED if row[0] != "DELETE"]
    assert rows_of(table.toDF()) == sorted([*after, (3, "c", 30)], key=repr)
    names = [name for name, *_ in table.table.snapshot().metadata.configuration.items()]
    assert ("delta.enableChangeDataFeed" in names) == (kind == "change_data")
    # What was returned stays as it was, whatever comes after.
    table.delete()
    assert rows_of(changed) == EXPECTED


@pytest.mark.sessions
def test_inserts_new_columns_and_a_second_run(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(spark, tmp_path / "t", {})
    source = spark.createDataFrame([(1, "x", 1, 7), (9, "y", 9, 8)], "id INT, name STRING, n INT, more INT")
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id").whenNotMatchedInsertAll().withSchemaEvolution()
    for expected in ([("INSERT", 9, "y", 9, 8)], []):
        changed = merge.returning(txn_app_id="load", txn_version=1)
        assert changed.columns == ["merge_action", "id", "name", "n", "more"]
        assert rows_of(changed) == expected
    assert rows_of(table.alias("t").merge(source.alias("s"), "t.id = s.id").whenMatchedDelete().returning()) == [
        ("DELETE", 1, "a", 10, None),
        ("DELETE", 9, "y", 9, 8),
    ]
    assert not [path for path in (tmp_path / "t" / "_delta_log").glob("*.json") if '"cdc"' in path.read_text()]


def test_reserved_names(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.createDataFrame([(1,)], "merge_action INT")
    write_delta(source, str(tmp_path / "t"))
    merge = DeltaTable.forPath(spark, str(tmp_path / "t")).merge(source.alias("s"), "false").whenNotMatchedInsertAll()
    with pytest.raises(DeltaAnalysisException, match="reserved names merge_action"):
        merge.returning()


@pytest.mark.parametrize("name", ["merge_action", "_change_type", "_Commit_Version", "_commit_timestamp"])
def test_reserved_names_of_new_columns(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.createDataFrame([(1,)], "id INT"), path)
    source, table = spark.createDataFrame([(1, 1)], f"id INT, {name} INT"), DeltaTable.forPath(spark, path)
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id").whenMatchedUpdateAll().withSchemaEvolution()
    with pytest.raises(DeltaAnalysisException, match=f"reserved names {name}.*without returning"):
        merge.returning()
    assert table.history().count() == 1
    # A column that the table does not get is none of its.
    table.merge(source.alias("s"), "false").whenNotMatchedInsertAll().returning()
    assert table.toDF().columns == ["id"]


@pytest.mark.parametrize("name", ["_change_type", "_commit_version", "_commit_timestamp"])
def test_reserved_names_in_a_table_with_change_data(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """As delta-spark has it; a table that has both anyway it writes wrongly, we do not."""
    path, enabled = str(tmp_path / "t"), {"delta.enableChangeDataFeed": "true"}
    rows = spark.createDataFrame([(1, "x")], f"id INT, {name} STRING")
    with pytest.raises(DeltaAnalysisException) as refused:
        write_delta(rows, path, properties=enabled)
    assert refused.value.getCondition() == "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS"
    write_delta(rows, path)
    table = DeltaTable.forPath(spark, path)
    with pytest.raises(DeltaAnalysisException) as refused:
        sql(spark, f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    assert refused.value.getCondition() == "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS"
    log = tmp_path / "t" / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    metadata["configuration"].update(enabled)
    protocol = {"minReaderVersion": 1, "minWriterVersion": 4}
    lines = [{"commitInfo": {"timestamp": 1, "operation": "other"}}, {"protocol": protocol}, {"metaData": metadata}]
    (log / f"{1:020}.json").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(DeltaAnalysisException, match=f"reserved names {name}.*disable the change data feed"):
        table.alias("t").merge(rows.alias("s"), "t.id = s.id").whenMatchedUpdateAll().execute()
    assert rows_of(table.toDF()) == [(1, "x")]

    other = str(tmp_path / "u")
    write_delta(spark.createDataFrame([(1,)], "id INT"), other, properties=enabled)
    table = DeltaTable.forPath(spark, other)
    evolving = table.alias("t").merge(rows.alias("s"), "t.id = s.id").withSchemaEvolution()
    with pytest.raises(DeltaAnalysisException) as refused:
        evolving.whenMatchedUpdateAll().execute()
    assert refused.value.getCondition() == "RESERVED_CDC_COLUMNS_ON_WRITE"
    assert table.history().count() == 1


def test_what_fails_after_the_commit_names_the_version(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(spark, tmp_path / "t", {})

    def fails(*_: object) -> object:
        raise OSError("the store does not answer")

    source = spark.createDataFrame([(1, "A")], "id INT, name STRING").alias("s")
    merge = table.alias("t").merge(source, "t.id = s.id").whenMatchedUpdate(set={"name": "s.name"})
    monkeypatch.setattr(merge_builder, "rows_changed", fails)
    with pytest.raises(DeltaRuntimeException, match=r"as version 1, but .* the store does not answer") as raised:
        merge.returning()
    assert raised.value.error_class == "DELTA_POST_COMMIT_HOOK_FAILED"
    assert {row.name for row in table.toDF().where("id = 1").collect()} == {"A"}
