"""The key lookup: it agrees with the classic route, and leaves to others what it cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as DeltaRs
from deltalake import write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from combinations import combinations
from deltamerge import DeltaTable, merge_sql, sql, write_delta
from deltamerge.exceptions import MultipleSourceRowsException
from deltamerge.merge.executors import key_lookup
from deltamerge.merge.limits import Limits
from deltamerge.merge.plan import Alternative, DecisionName
from deltamerge.workers.parquet_patch import own_metadata
from merge.tables import (
    CONNECT,
    DRIVER_BYTES,
    EXECUTOR,
    VECTORS,
    actions,
    delete_checksums,
    edited,
    files_below,
    folders_below,
    frame,
    made_once,
    people,
    rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions


COLUMNS = (
    "id",
    "if(id % 5 = 0, null, concat('n', id)) AS name",
    "cast(id AS decimal(12,2)) AS d",
    "cast(id AS decimal(30,5)) AS wide",
    "timestamp_micros(id * 1000001) AS ts",
    "cast(timestamp_micros(id) AS timestamp_ntz) AS ntz",
    "date_add(date'2024-01-01', cast(id AS int)) AS day",
    "if(id % 7 = 0, double('NaN'), double(id)) AS x",
    "float(id) AS f",
    "id % 2 = 0 AS b",
    "cast(id AS smallint) AS small",
    "cast(concat('b', id) AS binary) AS bin",
)
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
MERGES = {
    "upsert": UPSERT,
    "delete": "WHEN MATCHED THEN DELETE",
    "delete and insert": "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
    "insert": "WHEN NOT MATCHED THEN INSERT *",
    "insert some": "WHEN NOT MATCHED AND s.id > 505 THEN INSERT *",
    "some columns": "WHEN MATCHED THEN UPDATE SET name = s.name, x = s.x * 2, small = 7",
    "matches stay": "WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED THEN INSERT *",
    "two inserts": "WHEN MATCHED THEN UPDATE SET name = 'z' WHEN NOT MATCHED AND s.id % 2 = 0 THEN INSERT (id) VALUES "
    "(s.id) WHEN NOT MATCHED AND s.id > 507 THEN INSERT (id, x) VALUES (-s.id, s.x)",
    "one is left out": "WHEN NOT MATCHED AND s.id = 501 THEN DO NOTHING WHEN NOT MATCHED THEN INSERT *",
    "change data": "WHEN MATCHED AND s.id % 5 = 0 THEN DELETE WHEN MATCHED AND s.b THEN UPDATE SET small = 7, "
    "x = s.x * 2 WHEN NOT MATCHED AND s.id > 503 THEN INSERT *",
    "two updates": "WHEN MATCHED AND s.id < 60 THEN UPDATE SET name = 'a', x = 1 WHEN MATCHED AND s.b THEN UPDATE SET "
    "x = s.x * 2, small = 7 WHEN MATCHED AND s.name > 'n6' THEN DELETE",
    "some matches stay": "WHEN MATCHED AND s.id < 60 THEN DO NOTHING WHEN MATCHED THEN DELETE "
    "WHEN NOT MATCHED THEN INSERT *",
    "other types": "WHEN MATCHED THEN UPDATE SET d = s.id, name = s.small, ts = s.ntz",
    "by source": f"{UPSERT} WHEN NOT MATCHED BY SOURCE THEN DELETE",
    "by source, some": "WHEN MATCHED AND s.b THEN UPDATE SET x = 1 WHEN MATCHED AND s.id > 80 THEN DELETE "
    "WHEN NOT MATCHED AND s.id > 505 THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.small % 4 = 1 THEN DO NOTHING "
    "WHEN NOT MATCHED BY SOURCE AND t.name < 'n3' THEN DELETE "
    "WHEN NOT MATCHED BY SOURCE AND (b OR t.day > DATE'2024-03-01') AND t.id IS NOT NULL THEN DELETE",
    "by source alone": "WHEN NOT MATCHED BY SOURCE AND (t.name <> 'n7') THEN DELETE",
    "by source, matches stay": "WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED BY SOURCE AND t.id > 70 THEN DELETE",
    "target decides": "WHEN MATCHED AND t.small % 2 = 0 AND s.b THEN UPDATE SET name = s.name, x = s.x "
    "WHEN MATCHED AND t.id < 60 AND s.id % 3 = 0 THEN DO NOTHING WHEN MATCHED AND t.day > s.day THEN DELETE "
    "WHEN MATCHED AND t.ts <= s.ts AND (t.name IS NULL OR s.ntz = t.ntz) THEN DELETE WHEN NOT MATCHED THEN INSERT *",
    "newer rows": "WHEN MATCHED AND (t.name <=> s.name) AND t.id > 50 THEN UPDATE SET * WHEN NOT MATCHED AND s.b THEN "
    "INSERT * WHEN NOT MATCHED BY SOURCE AND t.id BETWEEN 10 AND 30 AND NOT t.b THEN DELETE",
    "by source, computed": "WHEN MATCHED THEN UPDATE SET name = concat(t.name, initcap(s.name)) "
    "WHEN NOT MATCHED BY SOURCE AND t.id > 20 THEN UPDATE SET name = initcap(t.name)",
    "by source and inserts": "WHEN NOT MATCHED AND s.id > 507 THEN INSERT * "
    "WHEN NOT MATCHED BY SOURCE AND t.name IS NULL THEN DELETE",
}


def table(spark: SparkSession, path: Path, properties: dict[str, str]) -> str:
    def make(folder: str) -> None:
        numbers = spark.range(0, 100).selectExpr(*COLUMNS)
        write_delta(numbers.where("id < 50").coalesce(1), folder, properties=properties)
        write_delta(numbers.where("id >= 50").coalesce(1), folder, mode="append")

    return made_once(path, f"key lookup {properties}", make)


def source(spark: SparkSession, folder: Path, kind: str) -> None:
    """Makes the view ``changes_to_merge``: some rows of both files of the table, some new ones, one without a key."""
    some = spark.range(45, 90, 3).union(spark.range(500, 510)).union(spark.sql("SELECT CAST(NULL AS BIGINT) AS id"))
    new = some.selectExpr(*COLUMNS).withColumn("wide", some.id.cast("decimal(30,5)"))
    if kind != "query":
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        new.repartition(2).write.parquet(str(folder / "source"))
        new = spark.read.parquet(str(folder / "source"))
    new.createOrReplaceTempView("changes_to_merge")


def outcome(spark: SparkSession, path: str, executor: str, merge: str) -> dict[str, Any]:
    """Merges, and gives all that two executors must agree on."""
    spark.conf.set(EXECUTOR, executor)
    report = merge_sql(spark, f"MERGE INTO delta.`{path}` t USING changes_to_merge s ON t.id = s.id {merge}")
    assert report.outcome.executor == executor, report.outcome.executor_reason
    assert {Path(name).suffix for name in files_below(path)} <= {".parquet", ".json", ".crc", ".bin"}
    found = DeltaTable.forPath(spark, path).toDF()
    return {
        "rows": sorted(map(repr, found.collect())),
        "metrics": {k: v for k, v in report.metrics.items() if k.startswith("numTargetRows") or k == "numSourceRows"},
        "clauses": [clause.rows for clause in report.clauses],
        "schema": found.schema,
    }


KINDS = {
    "query": VECTORS,
    "files": {},
    "large files": {},
    "parts of files": {},
    "exchanged files": {},
    "exchanged query": VECTORS,
}
# Keys are sorted into an index, not put into hash tables; files are decoded first, or opened in parts.
LARGE = Limits(source_bytes=1, source_rows=0, exchanged_bytes=1)
LIMITS_OF = {"query": Limits(), "files": Limits(source_rows=0)}


def as_large(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Makes a source count as large, and tasks as running on other machines than the driver."""
    monkeypatch.setattr("deltamerge.merge.preparation.LIMITS", LIMITS_OF.get(kind, LARGE))
    if kind.startswith(("parts", "exchanged")):
        monkeypatch.setattr("deltamerge.merge.executors.execution.Execution.maps_source", False)
        read_at_most = 0 if kind.startswith("exchanged") else 1 << 20
        monkeypatch.setattr("deltamerge.merge.executors.source_exchange._READ_AT_MOST", read_at_most)


# Over Connect those with the most parts alone.
MOST_PARTS = ("two inserts", "by source, some", "target decides")
AGREEING = [each for each in combinations(MERGES, KINDS) if not CONNECT or each.values[0] in MOST_PARTS]


@pytest.mark.parametrize(("merge", "kind"), AGREEING)
def test_it_agrees_with_the_classic_route(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge: str, kind: str
) -> None:
    as_large(monkeypatch, kind)
    source(spark, tmp_path, "query" if kind.endswith("query") else kind)
    found = []
    for executor in ("classic", "key_lookup"):
        path = table(spark, tmp_path / executor, KINDS[kind])
        spark.conf.set(DRIVER_BYTES, "0")
        first = outcome(spark, path, executor, MERGES[merge])
        spark.conf.unset(DRIVER_BYTES)
        second = outcome(spark, path, executor, UPSERT)
        # In which files the first merge put its rows is each executor's own matter.
        del second["metrics"]["numTargetRowsCopied"]
        found.append([first, second])
    assert found[0] == found[1]


def test_large_files_of_a_source_are_decoded_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_large(monkeypatch, "large files")
    source(spark, tmp_path, "large files")
    path = table(spark, tmp_path / "t", {})
    report = merge_sql(spark, f"MERGE INTO delta.`{path}` t USING changes_to_merge s ON t.id = s.id {UPSERT}")
    assert report.plan is not None and report.plan.source.choice == "in_place"
    assert "decoding the source's files" in str(report)
    assert not [name for name in files_below(path) if name.endswith(".arrow")]


@pytest.mark.parametrize("kind", ["parts of files", "exchanged files"])
def test_large_files_of_a_source_are_opened_in_parts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    as_large(monkeypatch, kind)
    source(spark, tmp_path, kind)
    path = table(spark, tmp_path / "t", {})
    report = merge_sql(spark, f"MERGE INTO delta.`{path}` t USING changes_to_merge s ON t.id = s.id {UPSERT}")
    assert report.plan is not None and report.plan.source.choice == "in_place"
    assert "decoding the source's files" not in str(report)
    assert ("bringing source rows together" in str(report)) == kind.startswith("exchanged")
    assert report.metrics["numTargetRowsUpdated"] == 15
    # A DELETE takes nothing of the source's rows.
    merge = f"MERGE INTO delta.`{path}` t USING changes_to_merge s ON t.id = s.id WHEN MATCHED THEN DELETE"
    report = merge_sql(spark, merge)
    assert "exchange_source" not in {step.name for step in report.outcome.steps}
    assert report.metrics["numTargetRowsDeleted"] == 25


@pytest.mark.parametrize("step", ["decoded", "evaluate_pairs", "with_exchanged"])
def test_a_source_that_is_replaced_before_tasks_read_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path, source = str(tmp_path / "t"), tmp_path / "source"
    write_delta(spark.range(4).selectExpr("id", "id AS v"), path)
    source.mkdir()
    pq.write_table(pa.table({"id": [2, 7], "v": [5, 6]}), source / "rows.parquet")
    if step != "evaluate_pairs":
        as_large(monkeypatch, "large files" if step == "decoded" else "exchanged files")
    as_it_was = getattr(key_lookup, step)

    def replacing(*given: Any) -> Any:
        pq.write_table(pa.table({"id": [2, 8, 9], "v": [5, 6, 7]}), source / "rows.parquet")
        return as_it_was(*given)

    monkeypatch.setattr(key_lookup, step, replacing)
    spark.read.parquet(str(source)).createOrReplaceTempView("replaced")
    value = "abs(hash(t.v, s.v)) % 2 + s.v * 0 + 10" if step == "evaluate_pairs" else "s.v"
    clauses = f"WHEN MATCHED THEN UPDATE SET v = {value} WHEN NOT MATCHED THEN INSERT *"
    report = merge_sql(spark, f"MERGE INTO delta.`{path}` t USING replaced s ON t.id = s.id {clauses}")
    found = [row for row in rows(DeltaTable.forPath(spark, path).toDF()) if row[0] != 2]
    assert found == [(0, 0), (1, 1), (3, 3), (8, 6), (9, 7)]
    assert report.outcome.plan is not None
    assert any("changed meanwhile" in each.reason for each in report.outcome.plan.source.declined)


@pytest.mark.quick
def test_rows_change_in_their_places(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t", {})
    old_path = next(a["path"] for a in actions(path, 1, "add"))
    old = pq.ParquetFile(Path(path, old_path))
    two = frame(spark, "id BIGINT, name STRING", [(60, "sixty"), (61, None)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(two.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdate(set={"name": "s.name"}).run()
    assert report.outcome.executor == "key_lookup"
    assert [remove["path"] for remove in actions(path, 2, "remove")] == [old_path]
    (added,) = actions(path, 2, "add")
    new = pq.ParquetFile(Path(path, added["path"]))
    assert new.schema.equals(old.schema)
    assert own_metadata(new) == old.metadata.metadata
    names = old.read()["name"].to_pylist()
    names[10:12] = ["sixty", None]
    assert new.read()["name"].to_pylist() == names
    assert new.read().drop_columns(["name", "x"]).equals(old.read().drop_columns(["name", "x"]))


def test_source_files_are_read_as_they_lie(spark: SparkSession, tmp_path: Path) -> None:
    source(spark, tmp_path, "files")
    path = table(spark, tmp_path / "t", {})
    report = merge_sql(spark, f"MERGE INTO delta.`{path}` t USING changes_to_merge s ON t.id = s.id {UPSERT}")
    assert "materialize_source" not in {step.name for step in report.outcome.steps}
    filtered = "(SELECT * FROM changes_to_merge WHERE id > 502)"
    report = merge_sql(spark, f"MERGE INTO delta.`{path}` t USING {filtered} s ON t.id = s.id {UPSERT}")
    assert "materialize_source" in {step.name for step in report.outcome.steps}
    assert report.metrics["numSourceRows"] == 7
    assert report.metrics["numTargetRowsUpdated"] == 7


def test_source_files_in_folders_of_partitions(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    new = frame(spark, "id INT, name STRING, age INT", [(1, "new", 1), (9, "nine", 2)])
    new.write.partitionBy("age").parquet(str(tmp_path / "source = %20"))
    spark.read.parquet(str(tmp_path / "source = %20")).createOrReplaceTempView("parts")
    report = merge_sql(spark, f"MERGE INTO delta.`{path}` t USING parts s ON t.id = s.id {UPSERT}")
    assert report.outcome.executor == "key_lookup"
    expected = [(1, "new", 1), (2, "bob", 40), (3, "cy", 50), (9, "nine", 2)]
    assert rows(DeltaTable.forPath(spark, path).toDF()) == expected


@pytest.mark.parametrize("using", ["parts", "parquet.`{}`"], ids=["view", "path"])
def test_conditions_on_what_only_folders_say(spark: SparkSession, tmp_path: Path, using: str) -> None:
    path = people(spark, tmp_path / "t")
    new = frame(spark, "id INT, name STRING, part INT", [(7, "seven", 1), (8, "eight", 2), (9, "nine", 2)])
    new.repartition(2).write.partitionBy("part").parquet(str(tmp_path / "source"))
    spark.read.parquet(str(tmp_path / "source")).createOrReplaceTempView("parts")
    report = merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING {using.format(tmp_path / 'source')} s ON t.id = s.id "
        "WHEN NOT MATCHED AND s.part = 2 THEN INSERT (id, name) VALUES (s.id, s.name)",
    )
    assert report.outcome.executor == "key_lookup"
    found = rows(DeltaTable.forPath(spark, path).toDF().where("id > 6"))
    assert found == [(8, "eight", None), (9, "nine", None)]


def test_source_file_of_other_types_than_its_frame(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    narrow = pa.table(
        {"id": pa.array([1, 9], pa.int16()), "name": ["new", "nine"], "age": pa.array([1, 2], pa.int32())}
    )
    pq.write_table(narrow, tmp_path / "narrow.parquet")
    wide = spark.read.schema("id INT, name STRING, age INT").parquet(str(tmp_path / "narrow.parquet"))
    merge = DeltaTable.forPath(spark, path).alias("t").merge(wide.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    expected = [(1, "new", 1), (2, "bob", 40), (3, "cy", 50), (9, "nine", 2)]
    assert rows(DeltaTable.forPath(spark, path).toDF()) == expected


def test_files_that_lack_a_column(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    wider = frame(spark, "id INT, name STRING, age INT, more STRING", [(9, "y", 2, "n")])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(wider.alias("s"), "t.id = s.id")
    merge.withSchemaEvolution().whenNotMatchedInsertAll().execute()
    again = frame(spark, "id INT, name STRING, age INT, more STRING", [(1, "x", 1, "m"), (9, "z", 3, "o")])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(again.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert report.outcome.executor == "key_lookup"
    expected = [(1, "x", 1, "m"), (2, "bob", 40, None), (3, "cy", 50, None), (9, "z", 3, "o")]
    assert rows(DeltaTable.forPath(spark, path).toDF()) == expected
    assert DeltaRs(path).to_pyarrow_table().num_rows == 4


def test_competing_source_rows_are_named(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    before = files_below(path), folders_below(path)
    twice = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1), (1, "y", 2)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(twice.alias("s"), "t.id = s.id")
    with pytest.raises(MultipleSourceRowsException, match="modify 1 target row "):
        merge.whenMatchedUpdateAll().execute()
    assert (files_below(path), folders_below(path)) == before
    spark.conf.set(EXECUTOR, "key_lookup")
    with pytest.raises(MultipleSourceRowsException, match="modify 1 target row "):
        merge.whenMatchedUpdateAll().execute()
    spark.conf.unset(EXECUTOR)
    report = DeltaTable.forPath(spark, path).alias("t").merge(twice.alias("s"), "t.id = s.id").whenMatchedDelete().run()
    assert (report.outcome.executor, report.metrics["numTargetRowsDeleted"]) == ("key_lookup", 1)


def test_of_rows_with_one_key_one_may_change_the_target(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    some = [(1, "no", None), (1, "yes", 1), (2, "no", 0), (2, "no", None), (9, "no", 0), (9, "yes", 1)]
    twice = frame(spark, "id INT, name STRING, age INT", some)
    merge = DeltaTable.forPath(spark, path).alias("t").merge(twice.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdateAll("s.age > 0").whenNotMatchedInsertAll("s.age > 0")
    report = merge.run()
    assert report.outcome.executor == "key_lookup"
    found = rows(DeltaTable.forPath(spark, path).toDF())
    assert found == [(1, "yes", 1), (2, "bob", 40), (3, "cy", 50), (9, "yes", 1)]
    again = merge.whenMatchedDelete("s.name = 'no'")
    with pytest.raises(MultipleSourceRowsException, match="modify 3 target rows "):
        again.execute()
    assert rows(DeltaTable.forPath(spark, path).toDF()) == found


def test_one_source_column_for_two_keys(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(frame(spark, "day INT, p INT, v STRING", [(5, 5, "x"), (6, 6, "x"), (5, 1, "x")]), path)
    new = frame(spark, "day INT, op STRING, v STRING", [(5, "u", "y"), (6, "d", "y"), (7, "u", "y"), (8, None, "y")])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.day = s.day AND t.p = s.day")
    merge = merge.whenMatchedDelete("s.op = 'd'").whenMatchedUpdate("s.op = 'u'", {"v": "s.v"})
    merge.whenNotMatchedInsert(values={"day": "s.day", "p": "s.day", "v": "s.v"}).execute()
    found = rows(DeltaTable.forPath(spark, path).toDF())
    assert found == [(5, 1, "x"), (5, 5, "y"), (7, 7, "y"), (8, 8, "y")]


def test_value_that_prints_like_a_column(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(frame(spark, "id INT, x DOUBLE", [(1, 1.0)]), path)
    new = frame(spark, "id INT, nan DOUBLE", [(1, 2.0)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdate(set={"x": F.lit(float("nan"))}).execute()
    assert repr(rows(DeltaTable.forPath(spark, path).toDF())) == "[(1, nan)]"


def test_spark_evaluates_conditions_that_compute_of_the_target(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    new = frame(spark, "id INT, name STRING, age INT", [(1, "new", 1), (2, "new", 1)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdateAll("s.age = 1 AND t.age + 1 < 41").run()
    plan = report.outcome.plan
    assert plan is not None
    assert (plan.name, plan.changed_rows.choice) == ("key_lookup", "pair_values")
    assert rows(DeltaTable.forPath(spark, path).toDF())[:2] == [(1, "new", 1), (2, "bob", 40)]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("on", "clauses", "decision", "reason"),
    [
        (
            "t.id = s.id + 1 AND s.age > 0",
            "MATCHED THEN UPDATE SET *",
            "match",
            "ON compares id with an expression, which may fail for source rows that ON rules out",
        ),
        (
            "t.id = s.id",
            "MATCHED THEN UPDATE SET age = abs(t.age)",
            "changed_rows",
            "Spark computes a value that an UPDATE sets from the target's row",
        ),
        (
            "t.id = s.id",
            "MATCHED AND t.age + 1 = 41 THEN DELETE",
            "changed_rows",
            "a MATCHED condition on the target's row is more than plain comparisons",
        ),
        (
            "t.id = s.id",
            "NOT MATCHED BY SOURCE THEN UPDATE SET age = abs(t.age)",
            "changed_rows",
            "Spark computes a value that a NOT MATCHED BY SOURCE clause sets",
        ),
        (
            "t.id = s.id",
            "NOT MATCHED BY SOURCE AND t.age + 1 = 41 THEN DELETE",
            "match",
            "a NOT MATCHED BY SOURCE condition is more than plain comparisons",
        ),
    ],
)
def test_what_is_against_it_is_in_the_report(
    spark: SparkSession, tmp_path: Path, on: str, clauses: str, decision: DecisionName, reason: str
) -> None:
    path = people(spark, tmp_path / "t")
    frame(spark, "id INT, name STRING, age INT", [(2, "new", 1)]).createOrReplaceTempView("new")
    report = merge_sql(spark, f"MERGE INTO delta.`{path}` t USING new s ON {on} WHEN {clauses}")
    plan = report.outcome.plan
    assert plan is not None
    choice = "key_lookup" if decision == "match" else "arrow"
    assert Alternative(decision, choice, reason) in plan.decisions[decision].declined


@pytest.mark.parametrize("clause", ["update", "insert"])
def test_null_in_a_column_that_is_not_null(spark: SparkSession, tmp_path: Path, clause: str) -> None:
    path = str(tmp_path / "t")
    created = DeltaTable.create(spark).location(path).addColumn("id", "INT").addColumn("v", "STRING", nullable=False)
    created.execute()
    write_delta(frame(spark, "id INT, v STRING", [(1, "a")]), path, mode="append")
    before = files_below(path), folders_below(path)
    new = frame(spark, "id INT, v STRING", [(1 if clause == "update" else 2, None)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    with pytest.raises(PySparkException, match="DELTA_NOT_NULL_CONSTRAINT_VIOLATED"):
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert (files_below(path), folders_below(path)) == before


def test_condition_that_fails_for_rows_that_no_clause_looks_at(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    new = frame(spark, "id INT, name STRING, age INT", [(1, "x", 0), (9, "y", 2)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    report = merge.whenMatchedDelete().whenNotMatchedInsertAll(condition="100 / s.age > 1").run()
    assert report.metrics["numTargetRowsInserted"] == 1
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(2, "bob", 40), (3, "cy", 50), (9, "y", 2)]


def test_source_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    before = files_below(path), folders_below(path)
    failing = spark.range(1, 2000).selectExpr("cast(id AS int) AS id", "'x' AS name", "int(1 / (id - 1500)) AS age")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(failing.alias("s"), "t.id = s.id")
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert (files_below(path), folders_below(path)) == before


@pytest.mark.parametrize("part", ["''", "'p'"])
def test_files_that_are_not_as_the_table(spark: SparkSession, tmp_path: Path, part: str) -> None:
    """Partition values that readers do not agree on are left to Spark; narrower types than the table's are widened."""
    path = tmp_path / "t"
    write_delta(frame(spark, "id INT, v BIGINT, p STRING", [(1, 1, "p")]), str(path), partition_by=["p"])
    (added,) = actions(str(path), 0, "add")
    if part == "'p'":
        narrow = pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([1], pa.int32())})
        pq.write_table(narrow, path / added["path"])
        edited(path, 0, lambda add: add.update(size=Path(path, add["path"]).stat().st_size))
        for crc in path.rglob("*.crc"):
            crc.unlink()
    else:
        log = path / "_delta_log" / f"{0:020}.json"
        log.write_text(log.read_text().replace('"p":"p"', '"p":""'))
        delete_checksums(path)
    one = frame(spark, "id INT", [(1,)]).alias("s")
    merge = DeltaTable.forPath(spark, str(path)).alias("t").merge(one, "t.id = s.id")
    report = merge.whenMatchedUpdate(set={"v": "if(t.p = 'x', 0, t.v + 1)"}).run()
    assert report.outcome.plan is not None
    assert (report.outcome.plan.name == "key_lookup") == (part == "'p'")
    assert [row.v for row in DeltaTable.forPath(spark, str(path)).toDF().collect()] == [2]


def test_a_value_of_one_source_row_goes_to_several_target_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(frame(spark, "id INT, v STRING", [(1, "a"), (1, "b"), (2, "c")]), path)
    new = frame(spark, "id INT, v STRING", [(1, "new"), (2, "other")])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdate("soundex(s.v) != 'X'", set={"v": "soundex(s.v)"}).run()
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, "N000"), (1, "N000"), (2, "O360")]
    assert report.outcome.plan is not None
    assert report.outcome.plan.changed_rows.choice == "arrow"


@pytest.mark.parametrize("of", ["target", "source"])
def test_long_strings_do_not_come_to_the_driver(
    of: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are few values, and many bytes."""
    path = str(tmp_path / "t")
    monkeypatch.setattr("deltamerge.merge.preparation.LIMITS", Limits(collected_bytes=0))
    monkeypatch.setattr("deltamerge.merge.executors.pair_values.collected", pytest.fail)
    monkeypatch.setattr("deltamerge.merge.executors.source_in_place.collected", pytest.fail)
    write_delta(frame(spark, "id INT, v STRING, n INT", [(1, "a", 1), (2, "b", 2), (3, "c", 3)]), path)
    frame(spark, "id INT, v STRING", [(1, "x"), (3, "z")]).write.parquet(str(tmp_path / "s"))
    source = spark.read.parquet(str(tmp_path / "s")).alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    value = "translate(t.v, 'a', s.v)" if of == "target" else "soundex(s.v)"
    report = merge.whenMatchedUpdate(set={"v": value}).run()
    assert report.outcome.executor == "key_lookup"
    first, third = ("x", "c") if of == "target" else ("X000", "Z000")
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, first, 1), (2, "b", 2), (3, third, 3)]


def test_computed_values_are_computed_for_each_row(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(frame(spark, "id INT, v STRING", [(1, "a"), (1, "b"), (2, "c")]), path)
    new = frame(spark, "id INT", [(1,), (2,)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    assert merge.whenMatchedUpdate(set={"v": "uuid()"}).run().metrics["numTargetRowsUpdated"] == 3
    assert len({row.v for row in DeltaTable.forPath(spark, path).toDF().collect()}) == 3


def test_defaults_are_computed_for_each_row(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    allowed = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    sql(spark, f"CREATE TABLE delta.`{path}` (id INT, v STRING DEFAULT uuid()) USING delta {allowed}")
    write_delta(frame(spark, "id INT, v STRING", [(1, "a"), (1, "b"), (2, "c")]), path, mode="append")
    frame(spark, "id INT", [(1,), (2,)]).createOrReplaceTempView("revoked")
    merge = f"MERGE INTO delta.`{path}` t USING revoked s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = DEFAULT"
    merge_sql(spark, merge)
    found = {row.v for row in DeltaTable.forPath(spark, path).toDF().collect()}
    assert len(found) == 3
    assert all(len(value) == 36 for value in found)


def test_files_of_delta_rs(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    old = {"id": pa.array([1, 2], pa.int64()), "v": pa.array(["a", "b"], pa.large_string()), "x": [0.5, None]}
    write_deltalake(path, pa.table(old))
    new = frame(spark, "id BIGINT, v STRING, x DOUBLE", [(2, "new", 2.5), (9, None, 9.5)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    some = merge.whenMatchedUpdate(set={"v": "s.v"}).run()
    both = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert [report.outcome.executor for report in (some, both)] == ["key_lookup", "key_lookup"]
    expected = [(1, "a", 0.5), (2, "new", 2.5), (9, None, 9.5)]
    assert rows(DeltaTable.forPath(spark, path).toDF()) == expected
    assert sorted(map(tuple, (row.values() for row in DeltaRs(path).to_pyarrow_table().to_pylist()))) == expected


def test_texts_are_compared_byte_by_byte(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    keys = ["", "a", "A", "é", "e\u0301", "漢", "\uffff", "\U0001f600", "a ", None]
    write_delta(frame(spark, "k STRING, v INT", [(key, 0) for key in keys]), path)
    new = frame(spark, "k STRING, v INT", [(key, 1) for key in ("\U0001f600", "\uffff", "", "é", "a ", None)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.k = s.k")
    report = merge.whenMatchedUpdateAll().run()
    assert report.outcome.executor == "key_lookup"
    assert report.metrics["numTargetRowsUpdated"] == 5


def test_files_put_together_have_no_more_rows_than_one_may(spark: SparkSession, tmp_path: Path) -> None:
    path = table(spark, tmp_path / "t", {})
    spark.conf.set("spark.sql.files.maxRecordsPerFile", "60")
    new = spark.sql("SELECT explode(array(1L, 60L, 200L)) AS id, 'new' AS name")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdate(set={"name": "s.name"})
    report = merge.whenNotMatchedInsert(values={"id": "s.id", "name": "s.name"}).run()
    assert report.outcome.executor == "key_lookup"
    written = [pq.read_metadata(Path(path, add["path"])).num_rows for add in actions(path, 2, "add")]
    assert sum(written) == 101
    assert max(written) <= 60
