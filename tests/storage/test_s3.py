"""Merges into tables in S3: by options and by the session's settings, without a JAR that reads S3."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRs
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from deltamerge import merge_sql, sql
from deltamerge.cli.app import app
from deltamerge.exceptions import DeltaIllegalArgumentException, DeltaTableException
from deltamerge.log.add_file_stats import logical_rows
from deltamerge.spark.file_stores import file_stores
from deltamerge.tables import DeltaTable

from .s3 import BUCKET, KEY_ID, S3, SECRET, server, with_settings

DRIVER_BYTES = "spark.deltamerge.merge.driverBytes"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with server(tmp_path_factory.mktemp("s3")) as running:
        yield running


def make(s3: S3, name: str, rows: int = 10, **options: Any) -> str:
    table = pa.table({"id": pa.array(range(rows), pa.int64()), "v": pa.array([0] * rows, pa.int64())})
    table = table.append_column("p", pa.array([f"p{i % 3}" for i in range(rows)]))
    write_deltalake(f"s3://{BUCKET}/{name}", table, storage_options=s3.options, **options)
    return f"s3a://{BUCKET}/{name}"


def upsert(spark: SparkSession, s3: S3, path: str, first: int = 5, end: int = 15) -> Any:
    source = spark.range(first, end).selectExpr("id", "id * 10 AS v", "concat('p', id % 3) AS p")
    target = DeltaTable.forPath(spark, path, s3.options)
    merge = target.alias("t").merge(source.alias("s"), "t.id = s.id")
    return merge.whenMatchedUpdate(set={"v": "s.v"}).whenNotMatchedInsertAll()


def rows_of(s3: S3, path: str) -> list[tuple[Any, ...]]:
    table = DeltaRs(path.replace("s3a://", "s3://"), storage_options=s3.options).to_pyarrow_table()
    return sorted(zip(*(table[name].to_pylist() for name in ("id", "v", "p")), strict=True))


def expected(rows: int = 10, first: int = 5, end: int = 15) -> list[tuple[Any, ...]]:
    new = {i: i * 10 for i in range(first, end)}
    return [(i, new.get(i, 0), f"p{i % 3}") for i in range(max(rows, end))]


def check_clean(s3: S3, path: str) -> None:
    """Looks for objects that no version names, and for unfinished uploads."""
    name = path.removeprefix(f"s3a://{BUCKET}/")
    named = set()
    objects = s3.objects(name)
    for log in sorted(each for each in objects if each.startswith("_delta_log/")):
        content = s3.files.open_input_stream(f"{BUCKET}/{name}/{log}").read().decode()
        assert KEY_ID not in content and SECRET not in content
        actions = [json.loads(line) for line in content.splitlines()]
        named |= {action["add"]["path"].replace("%3D", "=") for action in actions if "add" in action}
    assert {each for each in objects if not each.startswith("_delta_log/")} == named
    assert "<Upload>" not in s3.uploads()


def test_a_clone_is_opened_as_its_source(spark: SparkSession, s3: S3) -> None:
    path = make(s3, "cloned")
    clone = DeltaTable.forPath(spark, path, s3.options).clone(f"s3a://{BUCKET}/clone", isShallow=True)
    assert clone.detail().collect()[0].numFiles == 1
    report = upsert(spark, s3, f"s3a://{BUCKET}/clone").run()
    assert (report.metrics["numTargetRowsUpdated"], report.metrics["numTargetRowsInserted"]) == (5, 5)
    assert rows_of(s3, path) == expected(end=5)


def test_files_of_a_clone_in_another_store(spark: SparkSession, s3: S3, tmp_path: Path) -> None:
    path, target = make(s3, "elsewhere"), str(tmp_path / "clone")
    upsert(spark, s3, path, 20, 25).run()
    clone = DeltaTable.forPath(spark, path, s3.options).clone(target, isShallow=True)
    clone.delete()
    (row,) = clone.restoreToVersion(0).collect()
    assert row["num_restored_files"] == 2
    sql(spark, f"ALTER TABLE delta.`{target}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    with with_settings(spark, s3.settings):
        (row,) = sql(spark, f"REORG TABLE delta.`{target}` APPLY (PURGE)").collect()
    assert row["metrics"]["numFilesRemoved"] == 0
    # As OPTIMIZE counts rows; this Spark does not read S3.
    store_of, files = file_stores(clone.table), clone.table.snapshot().files.add_files()
    assert sum(logical_rows(store_of(file.path), replace(file, stats=None)) for file in files) == 15
    clone.delete()
    s3.files.delete_dir(f"{BUCKET}/elsewhere")
    with pytest.raises(DeltaIllegalArgumentException, match=f"MISSING_FILES.*{BUCKET}/elsewhere/part-"):
        clone.restoreToVersion(0)


@pytest.mark.sessions
@pytest.mark.parametrize("driver_bytes", [None, "0"])
@pytest.mark.parametrize("partition_by", [None, ["p"]])
def test_upsert(driver_bytes: str | None, partition_by: list[str] | None, spark: SparkSession, s3: S3) -> None:
    path = make(s3, f"upsert-{driver_bytes}-{len(partition_by or [])}", partition_by=partition_by)
    with with_settings(spark, {} if driver_bytes is None else {DRIVER_BYTES: driver_bytes}):
        report = upsert(spark, s3, path).run()
    assert report.outcome.executor == "key_lookup"
    assert rows_of(s3, path) == expected()
    check_clean(s3, path)
    assert SECRET not in f"{report}{report.to_json()}" and KEY_ID not in f"{report}{report.to_json()}"


def test_files_that_are_uploaded_in_parts(spark: SparkSession, s3: S3) -> None:
    path = make(s3, "large", rows=2)
    # What does not get smaller in Parquet.
    long = "array_join(transform(sequence(1, 100000), i -> sha2(concat(id, '-', i), 512)), '')"
    source = spark.range(2).selectExpr("id", "id AS v", f"{long} AS p")
    merge = DeltaTable.forPath(spark, path, s3.options).alias("t").merge(source.alias("s"), "t.id = s.id")
    before = len(s3.requests())
    requests = merge.whenMatchedUpdateAll().run().outcome.requests
    assert requests is not None
    assert requests.requests == len(s3.requests()) - before
    assert 20_000_000 < requests.bytes_written < 26_000_000
    assert [len(row[2]) for row in rows_of(s3, path)] == [12_800_000] * 2
    check_clean(s3, path)


def test_a_spark_without_a_file_system_for_the_store_has_cached_nothing_of_it(
    spark: SparkSession, s3: S3, caplog: pytest.LogCaptureFixture
) -> None:
    upsert(spark, s3, make(s3, "quiet")).run()
    assert "cache" not in caplog.text


def test_few_requests(spark: SparkSession, s3: S3) -> None:
    path = make(s3, "few")
    upsert(spark, s3, path).run()
    merge = upsert(spark, s3, path, 3, 12)
    before = len(s3.requests())
    report = merge.run()
    found = s3.requests()[before:]
    requests = report.outcome.requests
    assert requests is not None
    assert requests.requests == len(found), found
    assert requests.in_sequence <= 8
    assert requests.bytes_read > 500 and requests.bytes_written > 500
    assert f"{requests.requests} by the driver, {requests.in_sequence} in sequence" in str(report)
    assert report.to_dict()["requests"]["in_sequence"] == requests.in_sequence


@pytest.mark.sessions
@pytest.mark.parametrize("driver_bytes", [None, "0"])
def test_a_provider_of_credentials(driver_bytes: str | None, spark: SparkSession, s3: S3) -> None:
    path, calls = f"s3a://{BUCKET}/provided-{driver_bytes}", []

    def provide() -> dict[str, Any]:
        calls.append(1)
        expires = datetime.now(timezone.utc) + timedelta(minutes=4)
        return {"access_key_id": KEY_ID, "secret_access_key": SECRET, "expires_at": expires}

    keys = ("access_key_id", "secret_access_key")
    options: dict[str, Any] = {key: value for key, value in s3.options.items() if key not in keys}
    options["credential_provider"] = provide
    assert not DeltaTable.isDeltaTable(spark, path, options=options)
    DeltaTable.create(spark, options=options).location(path).addColumn("id", "long").addColumn("v", "long").execute()
    asked = len(calls)
    with with_settings(spark, {} if driver_bytes is None else {DRIVER_BYTES: driver_bytes}):
        merge_sql(
            spark,
            f"MERGE INTO delta.`{path}` t USING (SELECT id, id AS v FROM range(9)) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            options=options,
        )
        target = DeltaTable.forPath(spark, path, options).alias("t")
        source = spark.range(5, 12).selectExpr("id", "id * 10 AS v").alias("s")
        report = target.merge(source, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert report.outcome.executor == "key_lookup"
    assert len(calls) > asked
    assert SECRET not in f"{report}{report.to_json()}{target.table}"
    found = DeltaRs(path.replace("s3a://", "s3://"), storage_options=s3.options).to_pyarrow_table().to_pylist()
    assert {row["id"]: row["v"] for row in found} == {i: i * 10 if i > 4 else i for i in range(12)}


def test_the_sessions_settings(spark: SparkSession, s3: S3) -> None:
    path = make(s3, "settings")
    with with_settings(spark, s3.settings):
        assert DeltaTable.isDeltaTable(spark, path)
        source = spark.range(5, 15).selectExpr("id", "id * 10 AS v", "concat('p', id % 3) AS p")
        merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
        merge = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll()
        plan = merge.plan()
        assert SECRET not in f"{plan}{plan.to_json()}"
        merge.run()
    assert rows_of(s3, path) == expected()


def test_a_merge_that_fails_leaves_nothing(spark: SparkSession, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(s3, "fails")
    before = s3.objects("fails")
    source = spark.range(5, 15).selectExpr("id", "id * 10 AS v", "concat('p', id % 3) AS p")
    merge = DeltaTable.forPath(spark, path, s3.options).alias("t").merge(source.alias("s"), "t.id = s.id")

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("the disk of the world is full")

    monkeypatch.setattr("deltamerge.merge.command.commit_merge", refuse)
    with pytest.raises(OSError, match="full"):
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert s3.objects("fails") == before
    assert rows_of(s3, path) == [(i, 0, f"p{i % 3}") for i in range(10)]


def test_two_writers(spark: SparkSession, s3: S3, tmp_path: Path) -> None:
    path = make(s3, "writers")
    merge = upsert(spark, s3, path)
    # Another commit between this merge's opening of the table and its run.
    write_deltalake(
        path.replace("s3a://", "s3://"),
        pa.table({"id": [100], "v": [7], "p": ["p1"]}),
        mode="append",
        storage_options={**s3.options, "conditional_put": "etag"},
    )
    merge.run()
    assert rows_of(s3, path) == [*expected(), (100, 7, "p1")]


UNREACHED = {
    "access_key_id": KEY_ID,
    "secret_access_key": SECRET,
    "allow_http": "true",
    "endpoint": "http://127.0.0.1:9",
}


@pytest.mark.parametrize(("path", "options"), [("s3a://tables/t", UNREACHED), ("s3a://nowhere/t", None)])
def test_a_store_that_is_not_reached(path: str, options: dict[str, str] | None, spark: SparkSession, s3: S3) -> None:
    began = time.monotonic()
    with pytest.raises(DeltaTableException, match="was not reached") as error:
        DeltaTable.forPath(spark, path, options or s3.options)
    assert time.monotonic() - began < 5
    assert path in str(error.value) and "spark.hadoop.fs.s3a.endpoint" in str(error.value)
    assert SECRET not in str(error.value) and KEY_ID not in str(error.value)


def test_options_of_a_statement(spark: SparkSession, s3: S3, capsys: pytest.CaptureFixture[str]) -> None:
    path = make(s3, "statement")
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT id, id * 10 AS v, concat('p', id % 3) AS p FROM range(5, 15)) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        options=s3.options,
    )
    assert rows_of(s3, path) == expected()
    given = [part for key, value in s3.options.items() for part in ("--option", f"{key}={value}")]
    app(["history", path, *given], standalone_mode=False)
    printed = capsys.readouterr().out
    assert "MERGE" in printed
    assert SECRET not in printed
