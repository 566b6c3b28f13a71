"""Columns of nested types by key lookup: the rows are those of the classic route, and files have the same form."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from combinations import combinations, some
from corpus.canonical import canonical_lines
from corpus.delta_rs import frame_read_by_delta_rs, is_read_by_delta_rs
from deltamerge import DeltaTable, merge_sql, sql, write_delta
from deltamerge.exceptions import DeltaRuntimeException, InvariantViolationException
from merge.executors.test_key_lookup_features import PROPERTIES, UPSERT, added, merge
from merge.tables import EXECUTOR, VECTORS, actions, latest_version, made_once
from storage.s3 import with_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# At each depth there are NULLs, and NULL structs beside structs of NULLs.
STRUCT = (
    "named_struct('x', if(id % 5 = 1, NULL, CAST(id AS INT)), 'y', if(id % 5 = 1, NULL, concat('{0}', id)), 'more', "
    "if(id % 5 < 3, NULL, named_struct('f', CAST(id AS DOUBLE) / 4, 'd', date_add(DATE'2020-01-01', CAST(id AS INT)))))"
)
ELEMENT = "named_struct('k', concat('{0}', i), 'v', if(i = 2, NULL, CAST(id * i AS DECIMAL(12, 2))))"
VALUE = "if(id % 6 = 1, NULL, array(CAST(id AS INT), NULL))"
NESTED = (
    f"if(id % 5 = 0, NULL, {STRUCT}) AS s",
    f"if(id % 7 = 0, NULL, transform(sequence(1, CAST(id % 4 AS INT)), i -> if(i = 3, NULL, {ELEMENT}))) AS a",
    f"if(id % 6 = 0, NULL, map(concat('k', id % 3), {VALUE}, 'z', array(7))) AS m",
    "array(timestamp_micros(id * 1000001), NULL) AS t",
)
COUNT = (
    "WHEN MATCHED THEN UPDATE SET n = t.n + s.n, t.s.x = t.s.x + s.s.x, a = concat(t.a, s.a) "
    "WHEN NOT MATCHED THEN INSERT *"
)
CLAUSES = {
    "upsert": UPSERT,
    "count": COUNT,
    "values": (
        "WHEN MATCHED AND t.s.x % 2 = 0 THEN UPDATE SET s = named_struct('y', t.s.y, 'more', s.s.more, 'x', 5L), "
        "m = s.m "
        "WHEN MATCHED AND size(t.a) > 2 THEN DELETE WHEN NOT MATCHED AND s.s IS NOT NULL THEN INSERT *"
    ),
    "moved": "WHEN MATCHED THEN UPDATE SET p = 1 - t.p, t.s.x = s.n, m = s.m WHEN NOT MATCHED THEN INSERT *",
}
ON = "t.id = s.id AND t.p = s.p"


def nested(spark: SparkSession, first: int, end: int, step: int = 1, word: str = "v") -> DataFrame:
    plain = "id", "id % 7 AS n", *(column.format(word) for column in NESTED), "id % 2 AS p"
    return spark.range(first, end, step).coalesce(1).selectExpr(*plain)


def lines(frame: DataFrame) -> list[str]:
    return list(canonical_lines(frame))


def read_alike(spark: SparkSession, path: str, folder: Path) -> list[str]:
    """Gives a table's rows, which delta-rs reads as well."""
    found = lines(DeltaTable.forPath(spark, path).toDF())
    if is_read_by_delta_rs(path):
        assert list(canonical_lines(frame_read_by_delta_rs(spark, path, folder / "delta_rs.parquet"))) == found
    return found


KEYS_IN_STRUCTS = "t.k.id = s.k.id AND t.k.of.day <=> s.day"


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_keys_that_are_fields(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """The rows are those of a join, also of files from before a field was added, and files are skipped by fields."""
    found = {}
    for executor in ("key_lookup", "low_shuffle"):
        path = str(tmp_path / executor)
        properties = f"'delta.columnMapping.mode' = '{mode}', 'delta.enableTypeWidening' = 'true'"
        sql(
            spark, f"CREATE TABLE delta.`{path}` (k STRUCT<id: INT>, v STRING) USING delta TBLPROPERTIES ({properties})"
        )
        write_delta(spark.sql("SELECT named_struct('id', 1) AS k, 'old' AS v"), path, mode="append")
        sql(spark, f"ALTER TABLE delta.`{path}` ADD COLUMN k.of STRUCT<day: DATE>")
        sql(spark, f"ALTER TABLE delta.`{path}` ALTER COLUMN k.id TYPE BIGINT")
        if mode != "none":
            sql(spark, f"ALTER TABLE delta.`{path}` RENAME COLUMN k.of TO at")
            sql(spark, f"ALTER TABLE delta.`{path}` RENAME COLUMN k.at TO of")
        new = "named_struct('id', id, 'of', if(id % 2 = 0, NULL, named_struct('day', DATE'2024-01-01')))"
        for first in (0, 10, 1000):
            rows = spark.range(first, first + 10).coalesce(1).selectExpr(f"if(id = 7, NULL, {new}) AS k", "'x' AS v")
            write_delta(rows, path, mode="append")
        given = f"{new} AS k", "if(id % 3 = 0, NULL, DATE'2024-01-01') AS day", "concat('new', id) AS v"
        spark.range(1, 14).selectExpr(*given).createOrReplaceTempView("source_of_fields")
        statement = (
            f"MERGE INTO delta.`{path}` t USING source_of_fields s ON {KEYS_IN_STRUCTS} WHEN MATCHED AND s.k.id = 2 "
            "THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)"
        )
        with with_settings(spark, {EXECUTOR: executor}):
            report = merge_sql(spark, statement)
        assert report.outcome.executor == executor
        found[executor] = lines(DeltaTable.forPath(spark, path).toDF()), report.metrics["numTargetRowsUpdated"]
        if executor == "key_lookup":
            assert report.metrics["numTargetFilesAfterSkipping"] == 3
    assert found["key_lookup"] == found["low_shuffle"]
    assert found["key_lookup"][1] > 3


def form(file: pq.ParquetFile) -> list[str]:
    """Gives a file's columns as Parquet has them, without redundant annotations.

    Spark requires values where it knows of a query that none is NULL.
    """
    redundant = re.compile(r" \(Int\(bitWidth=(32|64), isSigned=true\)\)")
    wanted = [redundant.sub("", line).replace("required", "optional") for line in str(file.schema).splitlines()[2:]]
    return [line for line in wanted if "_row-" not in line]


@pytest.mark.parametrize(
    ("clauses", "name", "source"), combinations(CLAUSES, ["plain", *PROPERTIES], ["staged", "in_place"])
)
def test_nested_columns(spark: SparkSession, tmp_path: Path, name: str, clauses: str, source: str) -> None:
    properties = PROPERTIES.get(name, {})

    def make(folder: str) -> None:
        write_delta(nested(spark, 0, 20), folder, partition_by="p", properties=properties)
        write_delta(nested(spark, 20, 40), folder, mode="append")

    changed = nested(spark, 10, 60, 3, "s")
    if source == "in_place":
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        changed.write.parquet(str(tmp_path / "s"))
        changed = spark.read.parquet(str(tmp_path / "s"))
    changed.createOrReplaceTempView("features")
    found, forms = {}, {}
    for executor in ("classic", "key_lookup"):
        path = made_once(tmp_path / executor, f"nested {properties}", make)
        plan = merge(spark, path, CLAUSES[clauses], ON, executor)
        table = DeltaTable.forPath(spark, path)
        found[executor] = [*read_alike(spark, path, tmp_path)]
        # Spark writes change data and rows of the table at once, so that both have the column of the former.
        forms[executor] = {tuple(line for line in form(file) if "_change_type" not in line) for file in added(path)}
        if "delta.enableRowTracking" in properties:
            ids = table.with_row_ids().where("id < 40 OR _metadata.row_commit_version < 2")
            found[executor] += lines(ids.selectExpr("id", "_metadata.row_id", "_metadata.row_commit_version"))
        if "delta.enableChangeDataFeed" in properties:
            found[executor] += lines(table.changes(2).drop("_commit_timestamp"))
    choice = "arrow" if clauses == "upsert" else "pair_values"
    assert (plan.source.choice, plan.changed_rows.choice) == (source, choice)
    assert found["key_lookup"] == found["classic"]
    # One form, as Spark writes it.
    assert len(forms["classic"] | forms["key_lookup"]) == 1


def test_statistics_of_fields(spark: SparkSession, tmp_path: Path) -> None:
    """They are those of a file that Spark writes of the same rows."""
    merged, written = str(tmp_path / "merged"), str(tmp_path / "written")
    write_delta(nested(spark, 0, 1), merged)
    write_delta(nested(spark, 1, 30), written)
    nested(spark, 1, 30).createOrReplaceTempView("features")
    plan = merge(spark, merged, "WHEN NOT MATCHED THEN INSERT *", "t.id = s.id", "key_lookup")
    assert plan.changed_rows.choice == "arrow"
    stats, expected = (json.loads(actions(path, latest_version(path), "add")[0]["stats"]) for path in (merged, written))
    assert stats == expected
    assert stats["minValues"]["s"] == {"x": 2, "y": "v12", "more": {"f": 0.75, "d": "2020-01-04"}}
    assert stats["nullCount"]["s"]["x"] == 11
    assert stats["nullCount"]["a"] == 4


@pytest.mark.parametrize(
    ("properties", "of_source"),
    combinations(
        [{}, VECTORS, {"delta.columnMapping.mode": "name"}],
        [
            ("named_struct('y', concat('s', id), 'x', id)", "pair_values"),
            ("named_struct('x', CAST(id AS INT))", "pair_values"),
            ("named_struct('y', concat('s', id), 'new', named_struct('z', id))", "pair_values"),
            ("named_struct('x', CAST(id AS INT), 'y', concat('s', id), 'new', array(id))", "arrow"),
        ],
    ),
)
def test_structs_of_a_source_with_other_fields(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str], of_source: tuple[str, str]
) -> None:
    """Structs are matched by name; new fields enter the table, and are in every file that is written."""
    struct, choice = of_source

    def make(folder: str) -> None:
        columns = "named_struct('x', CAST(id AS INT), 'y', concat('t', id))"
        values = f"if(id % 3 = 0, NULL, {columns})"
        frame = spark.range(20).selectExpr("id", f"{values} AS s", f"array({values}) AS a", f"map(id, {values}) AS m")
        write_delta(frame.coalesce(1), folder, properties=properties)

    value = f"if(id % 4 = 0, NULL, {struct})"
    changed = spark.range(10, 30).selectExpr("id", f"{value} AS s", f"array({value}) AS a", f"map(id, {value}) AS m")
    changed.createOrReplaceTempView("features")

    def read(path: str) -> list[str]:
        # Behind deletion vectors older files stay, whose maps delta-rs does not read with new fields.
        is_rewritten = properties != VECTORS
        return read_alike(spark, path, tmp_path) if is_rewritten else lines(DeltaTable.forPath(spark, path).toDF())

    found = {}
    for executor in ("classic", "key_lookup"):
        path = made_once(tmp_path / executor, f"other fields {properties}", make)
        plan = merge(spark, path, UPSERT, "t.id = s.id", executor, "WITH SCHEMA EVOLUTION")
        found[executor] = read(path)
    assert plan.changed_rows.choice == choice
    assert plan.unchanged_rows.choice == ("deletion_vector" if properties == VECTORS else "patch")
    assert found["key_lookup"] == found["classic"]
    # Files that were written before have no such fields, and are read and written again as well.
    for executor in ("classic", "key_lookup"):
        path = str(tmp_path / executor)
        again = spark.range(0, 12).selectExpr("id", "named_struct('x', 1, 'y', 'again') AS s")
        again.createOrReplaceTempView("features")
        by_field = (
            "WHEN MATCHED AND t.id % 2 = 0 THEN UPDATE SET t.s.y = s.s.y WHEN MATCHED THEN UPDATE SET t.s.x = s.s.x"
        )
        merge(spark, path, by_field, "t.id = s.id", executor)
        found[executor] = read(path)
    assert found["key_lookup"] == found["classic"]


@pytest.mark.parametrize("field", ["", ", 'z', 1"])
def test_a_struct_that_is_never_null_in_a_file_becomes_null(spark: SparkSession, tmp_path: Path, field: str) -> None:
    path = str(tmp_path / "t")
    write_delta(spark.range(3).selectExpr("id", f"named_struct('x', id{field}) AS s", "array(id) AS a"), path)
    changed = "if(id = 1, named_struct('x', 7L), NULL) AS s", "if(id = 1, array(7L), NULL) AS a"
    spark.range(1, 3).selectExpr("id", *changed).createOrReplaceTempView("features")
    merge(spark, path, "WHEN MATCHED THEN UPDATE SET s.x = s.s.x, a = s.a", "t.id = s.id", "key_lookup")
    assert lines(DeltaTable.forPath(spark, path).toDF().selectExpr("id", "s.x", "a")) == lines(
        spark.sql("SELECT * FROM VALUES (0L, 0L, array(0L)), (1L, 7L, array(7L)), (2L, NULL, NULL) AS v(id, x, a)")
    )
    whole = "WHEN MATCHED THEN UPDATE SET s = s.s" if not field else "WHEN MATCHED THEN UPDATE SET s = NULL"
    merge(spark, path, whole, "t.id = s.id", "key_lookup")
    assert DeltaTable.forPath(spark, path).toDF().where("s IS NULL").count() == (1 if not field else 2)


@pytest.mark.parametrize("mode", some(["id", "name"]))
def test_renamed_and_dropped_fields(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    found = {}
    for executor in ("classic", "key_lookup"):
        path = str(tmp_path / executor)
        write_delta(nested(spark, 0, 10), path, properties={"delta.columnMapping.mode": mode})
        table = DeltaTable.forPath(spark, path)
        for change in (
            "RENAME COLUMN s.y TO `é ,`",
            "DROP COLUMNS (s.x, a.element.v)",
            "ADD COLUMNS (s.x STRING, a.element.w DATE)",
        ):
            sql(spark, f"ALTER TABLE delta.`{path}` {change}")
        write_delta(table.toDF().selectExpr("id + 10 AS id", "n", "s", "a", "m", "t", "p"), path, mode="append")
        for clauses in (UPSERT, "WHEN MATCHED THEN UPDATE SET t.s.x = concat(t.s.`é ,`, s.id)"):
            rows = table.toDF().where("id % 3 = 0")
            rows.selectExpr("id + 1 AS id", "n", "s", "a", "m", "t", "p").createOrReplaceTempView("features")
            plan = merge(spark, path, clauses, "t.id = s.id", executor)
            assert executor == "classic" or clauses != UPSERT or plan.changed_rows.choice == "arrow"
        found[executor] = read_alike(spark, path, tmp_path)
    assert found["key_lookup"] == found["classic"]


@pytest.mark.parametrize("clauses", ["upsert", "count"])
def test_widened_fields_and_elements(spark: SparkSession, tmp_path: Path, clauses: str) -> None:
    narrow = "named_struct('x', CAST(id AS INT), 'f', CAST(id AS FLOAT) / 3)", "array(CAST(id AS SMALLINT), NULL)"
    wide = "named_struct('x', id + 5000000000, 'f', CAST(id AS DOUBLE) / 3)", "array(CAST(id AS INT))"
    found = {}
    for executor in ("classic", "key_lookup"):
        path = str(tmp_path / executor)
        before = spark.range(10).coalesce(1).selectExpr("id", "id AS n", f"{narrow[0]} AS s", f"{narrow[1]} AS a")
        write_delta(before, path, properties={"delta.enableTypeWidening": "true"})
        changed = spark.range(8, 12).selectExpr("id", "id AS n", f"{wide[0]} AS s", f"{wide[1]} AS a")
        changed.createOrReplaceTempView("features")
        merge(spark, path, "WHEN NOT MATCHED THEN INSERT *", "t.id = s.id", executor, "WITH SCHEMA EVOLUTION")
        plan = merge(spark, path, CLAUSES[clauses], "t.id = s.id", executor)
        found[executor] = read_alike(spark, path, tmp_path)
    assert (plan.match.choice, plan.unchanged_rows.choice) == ("key_lookup", "patch")
    assert found["key_lookup"] == found["classic"]


@pytest.mark.parametrize("vectors", some([False, True]))
def test_constraints_and_generated_columns_over_fields(spark: SparkSession, tmp_path: Path, vectors: bool) -> None:
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path).property("delta.constraints.small", "s.x < 100 OR s.x IS NULL")
    builder = builder.property("delta.enableDeletionVectors", str(vectors).lower())
    builder = builder.addColumn("id", "BIGINT").addColumn("s", "STRUCT<x: INT, y: STRING>")
    builder.addColumn("g", "STRING", generatedAlwaysAs="concat(s.y, s.x)").execute()
    struct = "named_struct('x', CAST(id AS INT), 'y', concat('y', id)) AS s"
    write_delta(spark.range(10).coalesce(1).selectExpr("id", struct), path, mode="append")
    clauses = UPSERT.replace("*", "* EXCEPT (g)")
    spark.range(5, 20).selectExpr("id", struct).createOrReplaceTempView("features")
    assert merge(spark, path, clauses, "t.id = s.id", "key_lookup").changed_rows.choice == "arrow"
    assert {(row.id, row.g) for row in DeltaTable.forPath(spark, path).toDF().collect()} == {
        (number, f"y{number}{number}") for number in range(20)
    }
    add = "WHEN MATCHED THEN UPDATE SET t.s.x = t.s.x + s.s.x"
    assert merge(spark, path, add, "t.id = s.id", "key_lookup").changed_rows.choice == "pair_values"
    said = []
    for executor in ("classic", "auto"):
        for clause in (add.replace("s.s.x", "s.s.x + 200"), clauses):
            spark.range(19, 21).selectExpr("id", struct.replace("id AS", "id + 200 AS")).createOrReplaceTempView(
                "features"
            )
            with pytest.raises(InvariantViolationException) as caught:
                merge(spark, path, clause, "t.id = s.id", executor)
            said.append(caught.value.parameters["constraintName"])
    assert said == ["small"] * 4


@pytest.mark.parametrize("executor", ["classic", "auto"])
def test_fields_that_are_not_null(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path).addColumn("id", "BIGINT", nullable=False)
    builder.addColumn("s", "STRUCT<x: INT NOT NULL>").execute()
    write_delta(spark.range(2).selectExpr("id", "named_struct('x', 1) AS s"), path, mode="append")
    for given in ("named_struct('x', 2)", "CAST(NULL AS STRUCT<x: INT>)"):
        source = spark.range(1, 3).selectExpr("id", f"if(id = 1, named_struct('x', 3), {given}) AS s")
        source.createOrReplaceTempView("features")
        if given.startswith("named"):
            merge(spark, path, UPSERT, "t.id = s.id", executor)
            continue
        with pytest.raises(Exception, match=r"NOT_NULL|DATATYPE_MISMATCH"):
            merge(spark, path, UPSERT, "t.id = s.id", executor)
    found = [json.loads(line)["s"]["x"] for line in lines(DeltaTable.forPath(spark, path).toDF().orderBy("id"))]
    assert found == [1, 3, 2]


@pytest.mark.parametrize("properties", some([VECTORS, {}]))
def test_char_and_varchar(spark: SparkSession, tmp_path: Path, properties: dict[str, str]) -> None:
    found = {}
    source = spark.sql("SELECT * FROM VALUES (1L, 'b', 'bb', 'w', 9), (5L, 'ccc', 'c', 'long', 8) AS x(id, c, v, w, n)")
    nested_char = "named_struct('c', w) AS s"
    source.selectExpr("id", "c", "v", "n", nested_char).createOrReplaceTempView("features")
    count = "WHEN MATCHED AND t.c LIKE 'a%' THEN UPDATE SET v = concat(t.c, s.v), n = t.n + s.n"
    for executor in ("classic", "key_lookup"):
        path = str(tmp_path / executor)
        builder = DeltaTable.create(spark).location(path).addColumn("id", "BIGINT").addColumn("c", "CHAR(3)")
        builder = builder.addColumn("v", "VARCHAR(5)").addColumn("n", "INT").addColumn("s", "STRUCT<c: CHAR(4)>")
        for key, value in properties.items():
            builder = builder.property(key, value)
        builder.execute()
        rows = "VALUES (0L, 'x', 'xx', 0, named_struct('c', 'y')), (1L, 'a', 'aa', 1, NULL)"
        write_delta(spark.sql(f"SELECT * FROM {rows} AS x(id, c, v, n, s)").coalesce(1), path, mode="append")
        counted = merge(spark, path, count, "t.id = s.id", executor)
        plan = merge(spark, path, UPSERT, "t.id = s.id", executor)
        found[executor] = read_alike(spark, path, tmp_path)
        for wrong in ("'b' AS c, 'far too long' AS v", "'four' AS c, 'v' AS v"):
            spark.sql(
                f"SELECT 1L AS id, {wrong}, 1 AS n, CAST(NULL AS STRUCT<c: STRING>) AS s"
            ).createOrReplaceTempView("too_long")
            for clause in (UPSERT, "WHEN MATCHED THEN UPDATE SET v = concat(t.v, s.v), c = s.c"):
                spark.conf.set(EXECUTOR, "classic" if executor == "classic" else "auto")
                with pytest.raises(DeltaRuntimeException, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT"):
                    merge_sql(spark, f"MERGE INTO delta.`{path}` t USING too_long s ON t.id = s.id {clause}")
        assert read_alike(spark, path, tmp_path) == found[executor]
    assert (counted.changed_rows.choice, plan.changed_rows.choice) == ("pair_values", "arrow")
    assert found["key_lookup"] == found["classic"]
