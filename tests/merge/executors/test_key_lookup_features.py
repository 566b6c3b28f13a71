"""Tables with features by key lookup: the rows are those of the classic route, and files have what they must have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from combinations import combinations
from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.api.table_builder import IdentityGenerator
from deltamerge.exceptions import InvariantViolationException
from deltamerge.merge.plan import MergePlan
from merge.tables import EXECUTOR, actions, latest_version, made_once, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
COUNT = "WHEN MATCHED THEN UPDATE SET n = t.n + s.n WHEN NOT MATCHED THEN INSERT *"
CHANGES = (
    "WHEN MATCHED AND s.n % 2 = 0 AND s.n + 1 > t.n THEN UPDATE SET n = s.n, v = concat(t.v, '-', s.v) "
    "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
)

# Rows 10 to 39 in steps of 3 match: some stay in their partition p, some go to another, some to a new one.
MOVES = (
    "WHEN MATCHED AND s.id % 5 = 0 THEN DELETE WHEN MATCHED AND s.id % 2 = 0 THEN UPDATE SET p = s.n % 3, v = s.v "
    "WHEN MATCHED THEN UPDATE SET p = t.p + t.n % 2, n = s.n WHEN NOT MATCHED THEN INSERT *"
)
MOVES_OF_SOURCE = (
    "WHEN MATCHED AND s.id % 5 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET n = s.n, p = if(s.id = 31, null, s.n % 3) "
    "WHEN NOT MATCHED AND s.id % 2 = 0 THEN INSERT * WHEN NOT MATCHED THEN INSERT (id, p) VALUES (s.id, s.id % 4)"
)


def merge(spark: SparkSession, path: str, clauses: str, on: str, executor: str, evolution: str = "") -> MergePlan:
    """Merges a view, and returns the plan as it was carried out."""
    spark.conf.set(EXECUTOR, executor)
    report = merge_sql(spark, f"MERGE {evolution} INTO delta.`{path}` t USING features s ON {on} {clauses}")
    assert report.outcome.plan is not None
    return report.outcome.plan


def added(path: str) -> list[pq.ParquetFile]:
    files = actions(path, latest_version(path), "add")
    return [pq.ParquetFile(Path(path) / unquote(file["path"])) for file in files]


# Over Connect one merge shows a feature: the same workers handle it.
CLAUSES = [
    pytest.param(UPSERT, id="upsert"),
    pytest.param(COUNT, id="count", marks=pytest.mark.sessions),
    pytest.param(CHANGES, id="changes"),
]
MOVING = [pytest.param(MOVES, id="moves"), pytest.param(MOVES_OF_SOURCE, id="moves of source")]
PROPERTIES: dict[str, dict[str, str]] = {
    "mapped by name": {"delta.columnMapping.mode": "name"},
    "mapped by id, tracked": {"delta.columnMapping.mode": "id", "delta.enableRowTracking": "true"},
    "tracked": {"delta.enableRowTracking": "true"},
    "with a feed": {"delta.enableChangeDataFeed": "true"},
    "vectors, mapped, with a feed": {
        "delta.enableDeletionVectors": "true",
        "delta.columnMapping.mode": "name",
        "delta.enableChangeDataFeed": "true",
    },
    "vectors, mapped, tracked": {
        "delta.enableDeletionVectors": "true",
        "delta.columnMapping.mode": "name",
        "delta.enableRowTracking": "true",
    },
}


@pytest.mark.parametrize(("name", "clauses"), combinations(PROPERTIES, [*CLAUSES, *MOVING]))
def test_tables_with_features(spark: SparkSession, tmp_path: Path, name: str, clauses: str) -> None:
    properties = PROPERTIES[name]

    def make(folder: str) -> None:
        numbers = spark.range(0, 40).selectExpr("id", "id % 7 AS n", "concat('v', id) AS v", "id % 2 AS p")
        write_delta(numbers.where("id < 20").coalesce(1), folder, partition_by="p", properties=properties)
        write_delta(numbers.where("id >= 20").coalesce(1), folder, mode="append")

    found = {}
    changed = spark.range(10, 60, 3).selectExpr("id", "id AS n", "concat('s', id) AS v", "id % 2 AS p")
    changed.createOrReplaceTempView("features")
    for executor in ("classic", "key_lookup"):
        path = made_once(tmp_path / executor, f"with features {properties}", make)
        plan = merge(spark, path, clauses, "t.id = s.id AND t.p = s.p", executor)
        table = DeltaTable.forPath(spark, path)
        found[executor] = rows(table.toDF())
        if "delta.enableRowTracking" in properties:
            old = "id < 40 OR _metadata.row_commit_version < 2"
            ids = table.with_row_ids().where(old).selectExpr("id", "_metadata.row_id", "_metadata.row_commit_version")
            found[executor] = [*found[executor], *rows(ids)]
        if "delta.enableChangeDataFeed" in properties:
            found[executor] = [*found[executor], *rows(table.changes(2).drop("_commit_timestamp"))]
    assert plan.changed_rows.choice == ("arrow" if clauses in (UPSERT, COUNT, MOVES_OF_SOURCE) else "pair_values")
    assert found["key_lookup"] == found["classic"]
    if "delta.columnMapping.mode" in properties:
        metadata = [field.metadata for field in DeltaTable.forPath(spark, path).table.snapshot().schema.fields]
        of_columns = {m["delta.columnMapping.physicalName"]: m["delta.columnMapping.id"] for m in metadata}
        for file in added(path):
            in_file = {f.name: int(f.metadata[b"PARQUET:field_id"]) for f in file.schema_arrow if f.name in of_columns}
            assert len(in_file) == 3
            assert in_file.items() <= of_columns.items()


CHECKED = {
    "upsert": (UPSERT, "(1, 1)", "(2, 10)", "(-1, 1)"),
    "count": (COUNT, "(1, 1)", "(9, 1)", "(-99, 1)"),
    "insert": ("WHEN NOT MATCHED THEN INSERT *", "(1, -9)", "(5, 7)", "(-5, 8)"),
    "not looked at": ("WHEN MATCHED THEN DELETE", "(-1, 1)", "(0, 2)", None),
}


@pytest.mark.sessions
@pytest.mark.parametrize(("name", "vectors"), combinations(CHECKED, ["true", "false"]))
def test_constraints(spark: SparkSession, tmp_path: Path, name: str, vectors: str) -> None:
    """Rows that violate one are named as by the classic route; rows that nobody writes are not looked at."""
    clauses, *good, bad = CHECKED[name]

    def make(folder: str) -> None:
        numbers = spark.range(4).selectExpr("id", "cast(id AS DECIMAL(15, 2)) AS n").coalesce(1)
        constraint = {"delta.constraints.positive": "n >= 0 AND id IS NOT NULL"}
        write_delta(numbers, folder, properties={**constraint, "delta.enableDeletionVectors": vectors})

    path = made_once(tmp_path / "t", f"checked {vectors}", make)
    for number, given in enumerate([*good, bad]):
        if given is None:
            continue
        source = spark.sql(
            f"SELECT cast(n AS DECIMAL(15, 2)) AS n, cast(id AS BIGINT) AS id FROM VALUES {given} v(n, id)"
        )
        source.createOrReplaceTempView("features")
        if number < len(good):
            plan = merge(spark, path, clauses, "t.id = s.id", "key_lookup")
            assert plan.changed_rows.choice != "spark"
            continue
        before = rows(DeltaTable.forPath(spark, path).toDF())
        said = []
        for executor in ("classic", "auto"):
            with pytest.raises(InvariantViolationException) as caught:
                merge(spark, path, clauses, "t.id = s.id", executor)
            said.append((str(caught.value), caught.value.parameters))
        assert said[0] == said[1]
        assert "positive" in said[0][0]
        assert rows(DeltaTable.forPath(spark, path).toDF()) == before


@pytest.mark.parametrize(("clauses", "given"), combinations(CLAUSES, [False, True]))
def test_generated_columns_and_constraints(spark: SparkSession, tmp_path: Path, given: bool, clauses: str) -> None:
    """What Spark computes of rows that change: generated columns, and constraints that PyArrow does not evaluate."""

    def make(folder: str) -> None:
        builder = DeltaTable.create(spark).location(folder).property("delta.constraints.short", "length(v) < n + 90")
        builder = builder.addColumn("id", "BIGINT").addColumn("n", "BIGINT").addColumn("v", "STRING")
        builder.addColumn("g", "STRING", generatedAlwaysAs="concat(v, '/', n % 3)").execute()
        rows_before = spark.range(0, 40).selectExpr("id", "id % 7 AS n", "concat('v', id) AS v")
        write_delta(rows_before.coalesce(1), folder, mode="append")

    found = {}
    extra = ["concat('s', id, '/', id % 3) AS g"] if given else []
    changed = spark.range(10, 60, 3).selectExpr("id", "id AS n", "concat('s', id) AS v", *extra)
    changed.createOrReplaceTempView("features")
    choice = "arrow" if clauses == UPSERT else "pair_values"
    stars = "* EXCEPT (g)" if not given else "*"
    clauses, upsert = (
        given_to.replace("SET *", f"SET {stars}").replace("INSERT *", f"INSERT {stars}")
        for given_to in (clauses, UPSERT)
    )
    if given:
        clauses = clauses.replace("v = concat(t.v, '-', s.v)", "v = s.v, g = s.g")
        clauses = clauses.replace("t.n + s.n", "s.n + t.n * 0, v = s.v, g = s.g")
    for executor in ("classic", "key_lookup"):
        path = made_once(tmp_path / executor, "generated and checked", make)
        plan = merge(spark, path, clauses, "t.id = s.id", executor)
        found[executor] = rows(DeltaTable.forPath(spark, path).toDF())
    assert plan.changed_rows.choice == choice
    assert found["key_lookup"] == found["classic"]
    said = []
    for executor in ("classic", "auto"):
        wrong = changed.selectExpr("id + 1 AS id", "n", "repeat('x', 200) AS v", *(["g"] if given else []))
        wrong.createOrReplaceTempView("features")
        with pytest.raises(InvariantViolationException) as caught:
            merge(spark, path, upsert, "t.id = s.id", executor)
        said.append(caught.value.parameters["constraintName"])
    assert said[0] == said[1]


@pytest.mark.sessions
def test_counters_where_nothing_matches(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(3).selectExpr("id", "id AS n").coalesce(1), path)
    spark.range(7, 9).selectExpr("id", "id AS n").createOrReplaceTempView("features")
    assert merge(spark, path, COUNT, "t.id = s.id", "key_lookup").changed_rows.choice == "arrow"
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(0, 0), (1, 1), (2, 2), (7, 7), (8, 8)]


@pytest.mark.sessions
def test_patched_files_of_a_widened_table(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    properties = {"delta.enableTypeWidening": "true"}
    narrow = "id", "CAST(id AS int) AS n", "CAST(id AS float) AS x"
    write_delta(spark.range(10).selectExpr(*narrow).coalesce(1), path, properties=properties)
    spark.range(20, 22).selectExpr("id", "id AS n", "CAST(id AS double) AS x").createOrReplaceTempView("features")
    merge(spark, path, UPSERT, "t.id = s.id", "key_lookup", "WITH SCHEMA EVOLUTION")
    assert [str(kind) for kind in added(path)[0].schema_arrow.types] == ["int64", "int64", "double"]
    spark.range(5, 6).selectExpr("id", "id AS n", "CAST(0.5 AS double) AS x").createOrReplaceTempView("features")
    plan = merge(spark, path, "WHEN MATCHED THEN UPDATE SET x = s.x", "t.n = s.n", "key_lookup")
    assert (plan.changed_rows.choice, plan.unchanged_rows.choice) == ("arrow", "patch")
    (patched,) = added(path)
    assert [str(kind) for kind in patched.schema_arrow.types] == ["int64", "int64", "double"]
    assert set(rows(DeltaTable.forPath(spark, path).toDF())) == {
        *((i, i, 0.5 if i == 5 else float(i)) for i in range(10)),
        (20, 20, 20.0),
        (21, 21, 21.0),
    }


@pytest.mark.sessions
@pytest.mark.parametrize(
    ("partition", "properties"),
    combinations(
        [(), ("small",)], [{}, {"delta.enableDeletionVectors": "true"}, {"delta.enableChangeDataFeed": "true"}]
    ),
)
def test_narrower_columns_of_a_source_are_read_in_place(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str], partition: tuple[str, ...]
) -> None:
    path, given = str(tmp_path / "t"), str(tmp_path / "s")
    wide = "id", "id % 2 AS small", "id AS n", "CAST(id AS decimal(12,4)) / 8 AS price", "CAST(id AS double) AS x"
    narrow = (
        *("id", "CAST(id % 2 AS tinyint) AS small", "CAST(id * 10 AS int) AS n"),
        *("CAST(id AS decimal(5,2)) / 4 AS price", "CAST(id AS float) / 3 AS x"),
    )
    target = spark.range(6).selectExpr(*wide).selectExpr("id", "small", "n", "CAST(price AS decimal(12,4)) price", "x")
    write_delta(target.coalesce(1), path, properties=properties, partition_by=list(partition))
    source = (
        spark.range(4, 9).selectExpr(*narrow).selectExpr("id", "small", "n", "CAST(price AS decimal(5,2)) price", "x")
    )
    source.coalesce(1).write.parquet(given)
    spark.read.parquet(given).createOrReplaceTempView("features")
    on = "t.id = s.id AND t.small = s.small" if partition else "t.id = s.id"
    plan = merge(spark, path, UPSERT, on, "key_lookup")
    assert (plan.source.choice, plan.changed_rows.choice) == ("in_place", "arrow")
    merged = DeltaTable.forPath(spark, path).toDF()
    assert merged.schema.simpleString() == target.schema.simpleString()
    expected = target.where("id < 4").unionAll(
        source.selectExpr(*(f"CAST({f.name} AS {f.dataType.simpleString()})" for f in target.schema))
    )
    assert rows(merged) == rows(expected)


@pytest.mark.sessions
@pytest.mark.parametrize(
    ("value", "choice"), [("s.n", "arrow"), ("t.n + s.n - t.id", "arrow"), ("abs(t.n - s.n)", "pair_values")]
)
def test_new_columns_are_in_patched_files(spark: SparkSession, tmp_path: Path, value: str, choice: str) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(10).selectExpr("id", "id AS n").coalesce(1), path)
    new = spark.sql("SELECT * FROM VALUES (1L, 5L, 'a'), (70L, 7L, 'b') AS x(id, n, extra)")
    new.createOrReplaceTempView("features")
    clauses = f"WHEN MATCHED THEN UPDATE SET n = {value} WHEN NOT MATCHED THEN INSERT *"
    plan = merge(spark, path, clauses, "t.id = s.id", "key_lookup", "WITH SCHEMA EVOLUTION")
    assert (plan.changed_rows.choice, plan.unchanged_rows.choice) == (choice, "patch")
    found = set(rows(DeltaTable.forPath(spark, path).toDF()))
    value_of_1 = 4 if choice == "pair_values" else 5
    assert found == {*((i, value_of_1 if i == 1 else i, None) for i in range(10)), (70, 7, "b")}
    assert all("extra" in file.schema_arrow.names for file in added(path))


@pytest.mark.sessions
def test_identity_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path).addColumn("id", "BIGINT").addColumn("n", "BIGINT")
    builder.addColumn("i", "BIGINT", generatedAlwaysAs=IdentityGenerator(start=10, step=5)).execute()
    write_delta(spark.range(3).selectExpr("id", "id AS n"), path, mode="append")
    spark.range(2, 6).selectExpr("id", "id * 10 AS n").createOrReplaceTempView("features")
    plan = merge(
        spark,
        path,
        "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, s.n)",
        "t.id = s.id",
        "key_lookup",
    )
    assert plan.changed_rows.choice == "arrow"
    found: list[Any] = rows(DeltaTable.forPath(spark, path).toDF().select("id", "n", "i"))
    assert [row[:2] for row in found] == [(0, 0), (1, 1), (2, 20), (3, 30), (4, 40), (5, 50)]
    numbers = [row[2] for row in found]
    assert len(set(numbers)) == 6
    assert all(number % 5 == 0 for number in numbers)


KEYS = {
    "decimal(10,2)": ("CAST(id AS decimal(10,2)) / 4", "CAST(id AS decimal(8,3)) / 4"),
    "timestamp": ("timestamp_micros(id * 1000001)", "timestamp_micros(id * 1000001)"),
    "timestamp_ntz": ("CAST(timestamp_micros(id) AS timestamp_ntz)",) * 2,
    "binary": ("CAST(concat('b', id) AS binary)",) * 2,
    "boolean": ("id = 3", "id = 3"),
    "int": ("CAST(id AS int)", "id"),
    "bigint": ("id", "CAST(id AS smallint)"),
}


@pytest.mark.sessions
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_many_types(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    of_target, of_source = KEYS[kind]
    on = "t.k <=> s.k AND t.id < 15 AND s.id <> 4"
    null = "if(id % 8 = 7, null, {})"
    given = spark.range(3, 4) if kind == "boolean" else spark.range(2, 30, 5)
    given.selectExpr("id", f"{null.format(of_source)} AS k", "'s' AS v").createOrReplaceTempView("features")
    found = {}
    for executor in ("classic", "key_lookup"):
        path = str(tmp_path / executor)
        wide = f"CAST({null.format(of_target)} AS {kind}) AS k"
        write_delta(spark.range(20).selectExpr("id", wide, "'t' AS v").coalesce(1), path)
        clauses = "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"
        merge(spark, path, clauses, on, executor)
        found[executor] = rows(DeltaTable.forPath(spark, path).toDF().selectExpr("id", "CAST(k AS string)", "v"))
    assert found["key_lookup"] == found["classic"]


@pytest.mark.sessions
def test_columns_that_identifier_names(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(3).selectExpr("id", "id AS n", "id % 2 AS p").coalesce(1), path, partition_by="p")
    table = DeltaTable.forPath(spark, path)
    table.delete("IDENTIFIER('n') IS NULL")
    table.delete("IDENTIFIER('n') > 1")
    assert rows(table.toDF()) == [(0, 0, 0), (1, 1, 1)]
    for value in ("t.n + IDENTIFIER('s.b')", "IDENTIFIER('t.n') + IDENTIFIER('s.b')"):
        merge_sql(
            spark,
            f"MERGE INTO delta.`{path}` t USING (SELECT 1L AS id, 10L AS b) s ON t.id = s.id "
            f"WHEN MATCHED THEN UPDATE SET n = {value}",
        )
    assert rows(table.toDF()) == [(0, 0, 0), (1, 21, 1)]
