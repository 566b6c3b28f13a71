"""Files in the gaps between the source's keys are not read, whoever runs the merge, and no match is missed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from deltalake import WriterProperties, write_deltalake

from deltamerge import DeltaTable, MergeReport, write_delta
from deltamerge.exceptions import DeltaConcurrentModificationException
from merge.tables import CONNECT, DRIVER_BYTES, EXECUTOR, VECTORS, delete_checksums, made_once, rows
from merge.test_transactions import At

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


FILES, ROWS = 10, 20
KEYS = {
    "BIGINT": "id * 7 - 300",
    "INT": "cast(id * 7 - 300 AS int)",
    "DATE": "date_add(date'1960-01-01', cast(id * 40 AS int))",
    "TIMESTAMP": "timestamp_micros(id * 86400000000 - 5000000000001)",
    "STRING": "format_string('k%05d', id)",
    "DECIMAL(12,2)": "cast(id * 1.25 AS decimal(12,2))",
    "DECIMAL(38,17)": "cast(id * 0.125 - 10 AS decimal(38,17))",
    "DECIMAL(22,0)": "cast(9223372036854775807 AS decimal(20,0)) + cast(id AS decimal(20,0))",
}
EXECUTORS = ("key_lookup", "low_shuffle", "classic")
# Each kind of key by the route that finds its gaps in a way of its own; over Connect one of each way.
BY_EXECUTOR = [
    *(("BIGINT", executor) for executor in EXECUTORS),
    *(("STRING", executor) for executor in EXECUTORS if executor != "low_shuffle"),
    *((kind, "classic") for kind in ("INT", "DATE", "TIMESTAMP", "DECIMAL(12,2)") if not CONNECT),
    *((kind, "low_shuffle") for kind in ("TIMESTAMP",) if not CONNECT),
]
APPENDED = [
    (executor, *appended)
    for executor in EXECUTORS
    for appended in ((100, False), (66, True), (5_000, True))
    if executor == "classic" or (executor == "key_lookup" and not CONNECT)
]


def table(spark: SparkSession, path: Path, kind: str, **options: object) -> str:
    """Makes a table of ten files of twenty rows each, by their keys."""

    def make(folder: str) -> None:
        frame = spark.range(0, FILES * ROWS, 1, FILES).selectExpr(f"{KEYS[kind]} AS k", "id AS v")
        write_delta(frame, folder, **options)  # type: ignore[arg-type]

    return made_once(path, f"gaps {kind} {options}", make)


def source(spark: SparkSession, kind: str, ids: list[int]) -> DataFrame:
    """Makes rows of the table's keys for some ids, and one without a key."""
    frame = spark.createDataFrame([(i,) for i in ids], "id BIGINT")
    some = frame.selectExpr(f"{KEYS[kind]} AS k", "-1 - id AS v")
    return some.union(some.selectExpr("nullif(k, k) AS k", "0 AS v").limit(1))


def upsert(spark: SparkSession, path: str, new: DataFrame, on: str = "t.k = s.k") -> MergeReport:
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), on)
    return merge.whenMatchedUpdateAll().whenNotMatchedInsertAll("s.k IS NOT NULL").run()


def values(spark: SparkSession, path: str) -> list[int]:
    return sorted(row.v for row in DeltaTable.forPath(spark, path).toDF().select("v").collect())


def merged(ids: list[int]) -> list[int]:
    """What the values are after an upsert of ids into the whole table."""
    return sorted([*(i for i in range(FILES * ROWS) if i not in ids), *(-1 - i for i in ids)])


@pytest.mark.sessions
@pytest.mark.parametrize(("kind", "executor"), BY_EXECUTOR)
def test_files_in_gaps_are_not_read(spark: SparkSession, tmp_path: Path, kind: str, executor: str) -> None:
    path = table(spark, tmp_path / "t", kind)
    spark.conf.set(EXECUTOR, executor)
    ids = [5, 6, 66, 195]
    report = upsert(spark, path, source(spark, kind, ids))
    assert report.outcome.executor == executor
    assert report.metrics["numTargetFilesAfterSkipping"] == 3
    assert values(spark, path) == merged(ids)


@pytest.mark.sessions
@pytest.mark.parametrize(
    "kind",
    ["STRING", "DECIMAL(12,2)"] if CONNECT else ["BIGINT", "STRING", *(k for k in KEYS if k[1] == "E")],
)
def test_gaps_of_sources_that_are_not_small(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path = table(spark, tmp_path / "t", kind)
    spark.conf.set(EXECUTOR, "classic")
    ids = [*range(-70, 0), *range(15), *range(60, 80), 195, *range(1_000, 1_100)]
    report = upsert(spark, path, source(spark, kind, ids).coalesce(1))
    # Of a span that begins beyond 2^62 units nothing but its ends is known.
    assert report.metrics["numTargetFilesAfterSkipping"] == (10 if kind == "DECIMAL(22,0)" else 3)
    assert values(spark, path) == merged(ids)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_no_match_is_missed(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    chance = random.Random(executor)
    for number, kind in enumerate(("BIGINT", "DATE", "TIMESTAMP")):
        path = table(spark, tmp_path / str(number), kind, properties=VECTORS if number else {})
        fits = executor != "key_lookup" or kind != "TIMESTAMP"
        spark.conf.set(EXECUTOR, executor if fits else "auto")
        spark.conf.set(DRIVER_BYTES, "0")
        # Some lie before or behind all that the table has.
        ids = chance.sample(range(-40, FILES * ROWS + 40), chance.choice([1, 3, 30]))
        upsert(spark, path, source(spark, kind, ids))
        assert values(spark, path) == merged(ids)


@pytest.mark.parametrize("executor", ["auto", "insert_only", "classic"])
def test_inserts_alone(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    path = table(spark, tmp_path / "t", "BIGINT")
    spark.conf.set(EXECUTOR, executor)
    ids = [5, 150, 1000, -1000]
    merge = DeltaTable.forPath(spark, path).alias("t")
    merge.merge(source(spark, "BIGINT", ids).alias("s"), "t.k = s.k").whenNotMatchedInsertAll("s.k IS NOT NULL").run()
    assert values(spark, path) == sorted([*range(FILES * ROWS), -1001, 999])


@pytest.mark.parametrize("executor", ["auto", "low_shuffle", "classic"])
def test_null_keys_that_match(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    path = table(spark, tmp_path / "t", "BIGINT")
    write_delta(spark.sql("SELECT CAST(NULL AS BIGINT) AS k, 777L AS v"), path, mode="append")
    spark.conf.set(EXECUTOR, executor)
    report = upsert(spark, path, source(spark, "BIGINT", [5, 195]), "t.k <=> s.k")
    assert report.metrics["numTargetFilesAfterSkipping"] == 3
    assert values(spark, path) == sorted([*(i for i in range(200) if i not in (5, 195)), -6, -196, 0])


@pytest.mark.parametrize("executor", ["low_shuffle", "classic"])
def test_by_source_sees_rows_in_gaps(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    path = table(spark, tmp_path / "t", "BIGINT")
    spark.conf.set(EXECUTOR, executor)
    merge = DeltaTable.forPath(spark, path).alias("t")
    report = (
        merge.merge(source(spark, "BIGINT", [5, 195]).alias("s"), "t.k = s.k")
        .whenMatchedUpdateAll()
        .whenNotMatchedBySourceDelete("t.k BETWEEN 400 AND 420")
        .run()
    )
    assert report.metrics["numTargetRowsDeleted"] == 3
    gone = {i for i in range(200) if 400 <= i * 7 - 300 <= 420}
    assert values(spark, path) == sorted([*({*range(200)} - gone - {5, 195}), -6, -196])


@pytest.mark.sessions
@pytest.mark.parametrize(("executor", "appended", "conflicts"), APPENDED)
def test_what_another_writer_appends(
    spark: SparkSession, tmp_path: Path, executor: str, appended: int, conflicts: bool
) -> None:
    path = table(spark, tmp_path / "t", "BIGINT", properties={"delta.isolationLevel": "Serializable"})
    spark.conf.set(EXECUTOR, executor)
    spark.conf.set("spark.deltamerge.merge.conflictRetries", "0")
    new = source(spark, "BIGINT", [5, 66, 195, 5_000])
    other = At("commit", lambda: write_delta(source(spark, "BIGINT", [appended]).limit(1), path, mode="append"))
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.k = s.k")
    merge = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll("s.k IS NOT NULL")
    if conflicts:
        with pytest.raises(DeltaConcurrentModificationException):
            merge.run(progress=other)
    else:
        merge.run(progress=other)
        assert values(spark, path) == sorted([*merged([5, 66, 195, 5_000]), -1 - appended])


@pytest.mark.parametrize("executor", ["low_shuffle", "classic"])
def test_row_groups_in_gaps(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    path = str(tmp_path / "t")
    numbers = np.arange(60_000)
    small = WriterProperties(max_row_group_size=5_000)
    for half in (numbers[:30_000], numbers[30_000:]):
        table = pa.table({"k": half, "v": half * 2})
        write_deltalake(path, table, mode="append", writer_properties=small)
    spark.conf.set(EXECUTOR, executor)
    new = spark.createDataFrame([(3, -1), (29_990, -2), (45_001, -3)], "k BIGINT, v BIGINT")
    upsert(spark, path, new)
    found = dict(rows(DeltaTable.forPath(spark, path).toDF()))
    assert found == {**{i: i * 2 for i in range(60_000)}, 3: -1, 29_990: -2, 45_001: -3}


def test_no_source_row_that_an_insert_takes(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t", "BIGINT")
    target = DeltaTable.forPath(spark, path).alias("t")
    merge = target.merge(source(spark, "BIGINT", [5, 195]).alias("s"), "t.k = s.k")
    report = merge.whenNotMatchedInsertAll("s.v > 0").run()
    assert (report.outcome.executor, report.version) == ("key_lookup", None)


def test_one_source_column_for_two_keys(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(0, FILES * ROWS, 1, FILES).selectExpr("id AS a", "id AS b", "0 AS v"), path)
    new = spark.createDataFrame([(5, 1), (195, 1)], "k BIGINT, v INT")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.a = s.k AND t.b = s.k")
    report = merge.whenMatchedUpdate(set={"v": "s.v"}).run()
    assert report.outcome.executor == "key_lookup"
    assert report.metrics["numTargetFilesAfterSkipping"] == 2
    assert report.metrics["numTargetRowsUpdated"] == 2


def test_texts_that_are_no_text(spark: SparkSession, tmp_path: Path) -> None:
    """Statistics of other engines have U+FFFD in the place of such bytes, which stands elsewhere in their order."""
    path = tmp_path / "t"
    bad = "CAST(X'617AAF206E' AS STRING)"
    for number, text in enumerate([bad, "'a000'", "'zzzz'"]):
        write_delta(spark.sql(f"SELECT {text} AS k, {number}L AS v"), str(path), mode="append")
    [entry] = path.glob("_delta_log/*0.json")
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            text = "az\ufffd n"
            action["add"]["stats"] = json.dumps({"numRecords": 1, "minValues": {"k": text}, "maxValues": {"k": text}})
    entry.write_text("\n".join(map(json.dumps, actions)))
    delete_checksums(path)
    spark.conf.set(EXECUTOR, "classic")
    new = spark.sql(
        f"SELECT {bad} AS k, -1L AS v UNION ALL SELECT 'a000', -2 UNION ALL SELECT 'zzzz', -3 "
        "UNION ALL SELECT concat('zz', id), 0 FROM range(100)"
    )
    report = upsert(spark, str(path), new.coalesce(1))
    assert report.metrics["numTargetRowsUpdated"] == 3


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_decimals_that_spark_compares_with_fewer_digits(spark: SparkSession, tmp_path: Path, ansi: str) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(0, 100_000, 1, 4).selectExpr("cast(id / 1000 AS decimal(5,3)) AS k", "id AS v"), path)
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    spark.conf.set("spark.sql.legacy.decimal.retainFractionDigitsOnTruncate", "true")
    spark.conf.set(EXECUTOR, "classic")
    new = spark.range(99).selectExpr("cast(id AS decimal(38,36)) AS k", "-1L AS v").coalesce(1)
    report = upsert(spark, path, new)
    assert (report.metrics["numTargetRowsUpdated"], report.metrics["numTargetRowsInserted"]) == (99, 0)
