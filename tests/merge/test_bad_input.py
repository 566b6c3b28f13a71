"""Bad input gives a clear error and leaves the table as it was: version, files, folders."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, NumberFormatException, PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F

from deltamerge import DeltaTable, merge_sql, sql, write_delta
from deltamerge.api.merge_builder import DeltaMergeBuilder
from deltamerge.exceptions import (
    DeltaAnalysisException,
    DeltaLogCorruptException,
    DeltaParseException,
    DeltaTableNotFoundException,
    DeltaUnsupportedFeatureException,
    InvariantViolationException,
    MultipleSourceRowsException,
    UnfitValueException,
)

from .tables import files_below, folders_below, frame, latest_version, people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions


@contextmanager
def unchanged(path: str) -> Iterator[None]:
    """Checks that a block leaves nothing behind in a table's folder."""
    version, files, folders = latest_version(path), files_below(path), folders_below(path)
    yield
    assert latest_version(path) == version
    assert files_below(path) == files
    assert folders_below(path) == folders


def upsert(
    spark: SparkSession, path: str, source: list[tuple[object, ...]], on: str | Column = "t.id = s.id"
) -> DeltaMergeBuilder:
    changes = frame(spark, "id INT, name STRING, age INT", source).alias("s")
    return DeltaTable.forPath(spark, path).alias("t").merge(changes, on)


def test_a_path_that_is_no_table(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DeltaTableNotFoundException) as caught:
        DeltaTable.forPath(spark, str(tmp_path / "nothing"))
    assert "nothing" in str(caught.value)
    assert isinstance(caught.value, AnalysisException)
    assert not (tmp_path / "nothing").exists()


def test_a_folder_of_other_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no table")
    with pytest.raises(DeltaTableNotFoundException):
        merge_sql(spark, f"MERGE INTO delta.`{tmp_path}` t USING x s ON t.id = s.id WHEN MATCHED THEN DELETE")
    assert files_below(tmp_path) == {"notes.txt"}


def test_an_unreadable_log(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    log = Path(path, "_delta_log", "00000000000000000001.json")
    log.write_text(log.read_text()[:100])
    before = files_below(path)
    with pytest.raises(DeltaLogCorruptException) as caught:
        DeltaTable.forPath(spark, path)
    assert "00000000000000000001.json" in str(caught.value)
    assert files_below(path) == before


@pytest.mark.quick
def test_a_column_that_does_not_exist(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    with unchanged(path), pytest.raises(DeltaAnalysisException) as caught:
        upsert(spark, path, [(1, "x", 1)]).whenMatchedUpdate(set={"nmae": "s.name"}).execute()
    assert caught.value.getCondition() == "DELTA_MERGE_UNRESOLVED_EXPRESSION"
    assert "nmae" in str(caught.value)
    assert "Did you mean `name`" in str(caught.value)


@pytest.mark.quick
@pytest.mark.parametrize(("before", "line"), [("", 3), ("\n\n  ", 5)])
def test_an_unknown_name_in_a_statement_is_pointed_at(
    spark: SparkSession, tmp_path: Path, before: str, line: int
) -> None:
    path = people(spark, tmp_path / "t")
    frame(spark, "id INT, name STRING", [(1, "x")]).createOrReplaceTempView("changes_to_people")
    text = (
        f"{before}MERGE INTO delta.`{path}` t\nUSING changes_to_people s ON t.id = s.id\n"
        "WHEN MATCHED THEN UPDATE SET name = s.nam"
    )
    with unchanged(path), pytest.raises(DeltaAnalysisException) as caught:
        merge_sql(spark, text)
    lines = caught.value.message.splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip().startswith("WHEN MATCHED"))
    pointed = lines[at + 1].index("^")
    assert lines[at][pointed:].startswith("nam")
    assert f"line {line}," in caught.value.message


@pytest.mark.quick
def test_a_field_of_a_struct_has_no_default(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made = DeltaTable.create(spark).location(path).addColumn("id", "INT")
    made.addColumn("s", "STRUCT<a: INT, b: INT>").execute()
    write_delta(spark.sql("SELECT 1 AS id, named_struct('a', 1, 'b', 2) AS s"), path, mode="append")
    text = f"MERGE INTO delta.`{path}` t USING (SELECT 1 AS id) u ON t.id = u.id WHEN MATCHED THEN UPDATE SET"
    merge = DeltaTable.forPath(spark, path).alias("t").merge(frame(spark, "id INT", [(1,)]).alias("u"), "t.id = u.id")
    for name in ("t.s.b", "s.b"):
        with unchanged(path), pytest.raises(DeltaAnalysisException) as caught:
            merge_sql(spark, f"{text} {name} = DEFAULT")
        assert caught.value.getCondition() == "DELTA_MERGE_UNRESOLVED_EXPRESSION"
        assert "`s`.`b`" in str(caught.value)
        with unchanged(path), pytest.raises(DeltaAnalysisException):
            merge.whenMatchedUpdate(set={name: "DEFAULT"}).execute()
    assert DeltaTable.forPath(spark, path).toDF().collect() == [(1, (1, 2))]


def test_a_wrong_type(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    with unchanged(path), pytest.raises(DeltaAnalysisException) as caught:
        upsert(spark, path, [(1, "x", 1)]).whenMatchedUpdate(set={"age": "array(1)"}).execute()
    assert "array(1)" in str(caught.value)


def test_a_condition_of_wrong_types_is_told_after_a_column_that_cannot_evolve(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(spark).location(path).addColumn("id", "INT").addColumn("q", "BOOLEAN").execute()
    source = frame(spark, "id INT, q DECIMAL(10,2)", [])

    def wrong(condition: str) -> str:
        table = DeltaTable.forPath(spark, path).alias("t")
        merge = table.merge(source.alias("s"), condition).withSchemaEvolution().whenNotMatchedInsertAll()
        with unchanged(path), pytest.raises(DeltaAnalysisException) as caught:
            merge.whenMatchedDelete("t.id = s.id").execute()
        return caught.value.getCondition() or ""

    assert wrong("t.q = s.q") == "DELTA_FAILED_TO_MERGE_FIELDS"
    assert wrong("t.q = s.nothing") == "DELTA_MERGE_UNRESOLVED_EXPRESSION"


def test_not_null_is_checked_before_what_a_generated_column_must_be(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made = DeltaTable.create(spark).location(path).addColumn("id", "INT").addColumn("v", "INT", nullable=False)
    made.addColumn("g", "INT", generatedAlwaysAs="id + 1").execute()
    source = frame(spark, "id INT, g INT", [(1, 7)]).alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    with unchanged(path), pytest.raises(InvariantViolationException) as caught:
        merge.whenNotMatchedInsert(values={"id": "s.id", "v": "NULL", "g": "s.g"}).execute()
    assert caught.value.getCondition() == "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"


def test_a_name_of_both_sides(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    with unchanged(path), pytest.raises(DeltaAnalysisException) as caught:
        upsert(spark, path, [(1, "x", 1)], on="id = s.id").whenMatchedDelete().execute()
    assert caught.value.getCondition() == "AMBIGUOUS_REFERENCE"
    assert "Reference `id` is ambiguous in ON: it could be" in str(caught.value)
    assert "Write which side's column it is, such as `" in str(caught.value)


def test_names_that_only_the_package_gives_are_not_shown(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    table, source = DeltaTable.forPath(spark, path), frame(spark, "id INT, name STRING, age INT", [])
    wrong = {
        "Give the target and the source aliases": table.merge(source, "id = id").whenMatchedDelete(),
        "Did you mean one of: `id`, ": table.merge(source, "t.id = s.id").whenMatchedDelete(),
        "`s`.`id`": upsert(spark, path, []).whenNotMatchedInsert("t.id = 1", {"id": "s.id"}),
        "`t`.`id`": upsert(spark, path, []).whenNotMatchedBySourceDelete("s.id = 1"),
    }
    for remedy, merge in wrong.items():
        with unchanged(path), pytest.raises(DeltaAnalysisException) as caught:
            merge.execute()
        assert remedy in str(caught.value)
        assert "__dm" not in str(caught.value) + str(caught.value.getMessageParameters())


def test_replacing_rows_by_a_column_that_does_not_exist(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    with unchanged(path), pytest.raises(AnalysisException, match="`idd` cannot be resolved") as caught:
        sql(spark, f"INSERT INTO delta.`{path}` REPLACE WHERE idd = 1 SELECT 1, 'x', 1")
    assert "In: replaceWhere = idd = 1" in str(caught.value)
    assert "__dm" not in str(caught.value)


def test_text_that_is_no_number(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    with unchanged(path), pytest.raises(UnfitValueException) as caught:
        upsert(spark, path, [(2, "7", 1), (1, "x", 1)]).whenMatchedUpdate(set={"age": "s.name"}).execute()
    assert isinstance(caught.value, NumberFormatException)
    assert caught.value.getCondition() == "CAST_INVALID_INPUT"
    where = "The STRING value 'x' of the source's s.name in the source row with the key"
    assert f'{where} {{"id":"1"}} cannot be cast to INT' in str(caught.value)


@pytest.mark.sessions
@pytest.mark.parametrize("column", ["id", "day"])
def test_a_value_of_a_star_that_cannot_be_cast(spark: SparkSession, tmp_path: Path, column: str) -> None:
    """Also of a key, which Spark casts to compare it; where the source is literals, Spark fails as it plans."""
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT 1L AS id, DATE'2024-01-01' AS day"), path)
    bad = {"id": "'1'", "day": "'2024-01-01'", column: "'soon'"}
    for rows in ("", " FROM range(1)"):
        source = spark.sql(f"SELECT {bad['id']} AS id, {bad['day']} AS day{rows}").alias("s")
        merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
        with unchanged(path), pytest.raises(UnfitValueException) as caught:
            merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
        assert "The STRING value 'soon' of the source's" in str(caught.value)
        assert f"column `{column}`" in str(caught.value) or f"key `{column}`" in str(caught.value)
        explained = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().plan(analyze=True)
        assert "The STRING value 'soon'" in str(explained)


def test_null_for_a_not_null_column(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(spark).location(path).addColumn("id", "INT", nullable=False).addColumn("v", "INT").execute()
    merge = (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(frame(spark, "id INT, v INT", [(None, 1)]).alias("s"), "t.id = s.id")
    )
    with unchanged(path), pytest.raises(InvariantViolationException) as caught:
        merge.whenNotMatchedInsertAll().execute()
    assert caught.value.getCondition() == "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"
    assert caught.value.getSqlState() == "23502"
    assert "id" in caught.value.message


def test_an_insert_that_omits_a_not_null_column(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(spark).location(path).addColumn("id", "INT", nullable=False).addColumn("v", "INT").execute()
    source = frame(spark, "id INT, v INT", [(5, 1)]).alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    with unchanged(path), pytest.raises(InvariantViolationException):
        merge.whenNotMatchedInsert(values={"v": "s.v"}).execute()


@pytest.mark.sessions
def test_a_check_shows_the_values_at_fault(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t", properties={"delta.constraints.adult": "age >= 18"})
    with unchanged(path), pytest.raises(InvariantViolationException) as caught:
        upsert(spark, path, [(1, "ann", 7)]).whenMatchedUpdateAll().execute()
    assert caught.value.getCondition() == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
    assert "adult" in caught.value.message
    assert "age : 7" in caught.value.message
    assert 'The key of the row is {"id":1}. Nothing was written to table' in caught.value.message
    assert "`quarantine`" in caught.value.message


def test_a_violation_names_the_row_by_its_keys(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made = DeltaTable.create(spark).location(path).addColumn("a.b", "DECIMAL(38,10)").addColumn("at", "TIMESTAMP")
    made.addColumn("v", "INT", nullable=False).execute()
    row = spark.sql("SELECT 1234567890123456789012345678.5BD AS `a.b`, TIMESTAMP '2024-05-06' AS at, NULL AS v")
    on = "t.`a.b` <=> s.`a.b` AND t.at = s.at AND t.v IS NULL"
    merge = DeltaTable.forPath(spark, path).alias("t").merge(row.alias("s"), on).whenNotMatchedInsertAll()
    with unchanged(path), pytest.raises(InvariantViolationException) as caught:
        merge.execute()
    key = r'\{"a.b":1234567890123456789012345678.5000000000,"at":"2024-05-06T00:00:00.000[^"]*"\}'
    assert re.search(f"column: v. The row with the key {key} for table .* has NULL there", caught.value.message)
    with pytest.raises(InvariantViolationException, match="A row for table") as caught:
        write_delta(row, path, mode="append")
    assert "quarantine" not in caught.value.message


@pytest.mark.parametrize("name", ['}:{"name": "', '}\n{"values": "{}"}', '\\"}}'])
def test_a_violation_shows_values_as_they_are(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = people(spark, tmp_path / "t", properties={"delta.constraints.plain": "name NOT LIKE '%}%'"})
    with unchanged(path), pytest.raises(InvariantViolationException) as caught:
        upsert(spark, path, [(1, name, 7)]).whenMatchedUpdateAll().execute()
    assert f" - name : {json.dumps(name)}" in caught.value.message


OF_MANY_ROWS = [
    "max({v})",
    "named_struct('a', max({v})).a",
    "row_number() OVER (ORDER BY {v})",
    "1 + sum({v}) OVER ()",
    "explode(array({v}))",
    "inline(array(struct({v})))",
]


@pytest.mark.parametrize("sql", OF_MANY_ROWS)
def test_expressions_that_are_not_of_one_row(sql: str, spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    of_source, of_target = sql.format(v="s.age"), sql.format(v="t.age")
    values = [
        f"WHEN MATCHED THEN UPDATE SET age = {of_source}",
        f"WHEN MATCHED AND t.age > 1 THEN UPDATE SET age = {of_target}, name = 'x' WHEN MATCHED THEN DELETE",
        f"WHEN NOT MATCHED THEN INSERT (id, age) VALUES (s.id, {of_source})",
        f"WHEN NOT MATCHED BY SOURCE THEN UPDATE SET age = {of_target}",
    ]
    conditions = [
        f"WHEN MATCHED AND {of_source} > 1 THEN DELETE",
        f"WHEN NOT MATCHED AND {of_source} > 1 THEN INSERT *",
        f"WHEN NOT MATCHED BY SOURCE AND {of_target} > 1 THEN DELETE",
    ]
    clauses = [(f"ON t.id = s.id {c}", False) for c in values] + [(f"ON t.id = s.id {c}", True) for c in conditions]
    clauses.append((f"ON t.id = s.id AND {of_source} > 1 WHEN MATCHED THEN DELETE", True))
    merge = f"MERGE INTO delta.`{path}` t USING (SELECT 1 AS id, 'n' AS name, 2 AS age) s "
    of_conditions = "DELTA_AGGREGATION_NOT_SUPPORTED" if sql in OF_MANY_ROWS[:2] else "UNSUPPORTED_EXPR_FOR_OPERATOR"
    with unchanged(path):
        for rest, is_condition in clauses:
            with pytest.raises(DeltaAnalysisException) as raised:
                merge_sql(spark, merge + rest)
            wanted = of_conditions if is_condition else "UNSUPPORTED_EXPR_FOR_OPERATOR"
            assert raised.value.getCondition() == wanted, rest


def test_values_that_are_not_deterministic(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT 1 AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET name = uuid(), age = (SELECT 5) + rand() * 0",
    )
    (changed,) = DeltaTable.forPath(spark, path).toDF().where("id = 1").collect()
    assert (len(changed.name), changed.age) == (36, 5)


def test_a_violation_shows_one_error(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    source = spark.sql("SELECT 1 AS id, 5 AS v")
    write_delta(source, path, properties={"delta.constraints.low": "v < 10"})
    high = spark.sql("SELECT 1 AS id, 50 AS v")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(high.alias("s"), "t.id = s.id").whenMatchedUpdateAll()
    for write in (merge.execute, lambda: write_delta(high, path, mode="append")):
        with pytest.raises(InvariantViolationException, match="50") as raised:
            write()
        shown = "".join(traceback.format_exception(raised.value))
        assert "deltamerge-row-error:" not in shown
        assert "direct cause" not in shown
        assert "During handling" not in shown


def test_a_row_that_is_not_written_violates_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t", properties={"delta.constraints.adult": "age >= 18"})
    merge = upsert(spark, path, [(1, "ann", 7), (9, "zoe", 3)])
    report = merge.whenMatchedDelete().whenNotMatchedInsertAll("s.age > 18").run()
    assert (report.metrics["numTargetRowsDeleted"], report.metrics["numTargetRowsInserted"]) == (1, 0)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("MERGE INTO {t} t USING s ON t.id = s.id WEN MATCHED THEN DELETE", "WHEN"),
        ("MERGE INTO {t} t USING s ON t.id = s.id WHEN MATCHED THEN REMOVE", "DELETE"),
        ("MERGE {t} t USING s ON t.id = s.id WHEN MATCHED THEN DELETE", "INTO"),
        ("MERGE INTO {t} t USING s ON t.id = s.id", "WHEN"),
        ("MERGE INTO {t} t USING (SELECT 1 AS id s ON t.id = s.id WHEN MATCHED THEN DELETE", "("),
    ],
)
def test_a_bad_merge_text(spark: SparkSession, tmp_path: Path, text: str, said: str) -> None:
    path = people(spark, tmp_path / "t")
    with unchanged(path), pytest.raises(DeltaParseException) as caught:
        merge_sql(spark, text.format(t=f"delta.`{path}`"))
    assert said in caught.value.message


def test_a_source_that_fails_half_way(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    source = spark.range(0, 100, 1, 4).select(
        F.when(F.col("id") < 90, F.col("id")).otherwise(F.raise_error(F.lit("the feed broke"))).cast("int").alias("id"),
        F.lit("x").alias("name"),
        F.lit(1).alias("age"),
    )
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    with unchanged(path), pytest.raises(PySparkException, match="the feed broke"):
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    with unchanged(path), pytest.raises(PySparkException, match="the feed broke"):
        merge.whenNotMatchedInsertAll().execute()


def test_a_value_that_fails_while_files_are_written(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    merge = upsert(spark, path, [(1, "x", 1), (2, "y", 0), (8, "z", 3)])
    failing = merge.whenMatchedUpdate(set={"age": "100 / s.age"}).whenNotMatchedInsertAll()
    with unchanged(path), pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        failing.execute()


@pytest.mark.parametrize("where", ["ON", "INSERT"])
def test_a_condition_that_fails_while_rows_are_inserted(spark: SparkSession, tmp_path: Path, where: str) -> None:
    path = people(spark, tmp_path / "t")
    fails = "1 / s.age > 0"
    source = frame(spark, "id INT, name STRING, age INT", [(1, "x", 0), (8, "y", 0)]).alias("s")
    on = f"t.id = s.id AND {fails}" if where == "ON" else "t.id = s.id"
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, on)
    merge = merge.whenNotMatchedInsertAll(fails if where == "INSERT" else None)
    with unchanged(path), pytest.raises(PySparkException) as caught:
        merge.execute()
    assert caught.value.getCondition() == "DIVIDE_BY_ZERO"


def test_an_error_is_not_logged_besides(spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = people(spark, tmp_path / "t")
    with pytest.raises(DeltaAnalysisException):
        upsert(spark, path, [(1, "x", 1)]).whenMatchedUpdate(set={"age": "s.agee"}).execute()
    assert capfd.readouterr().err == ""


def test_a_check_on_a_first_column_that_the_insert_omits(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t", properties={"delta.constraints.known": "id IS NOT NULL"})
    with unchanged(path), pytest.raises(InvariantViolationException, match="known"):
        upsert(spark, path, [(9, "x", 1)]).whenNotMatchedInsert(values={"name": "s.name"}).execute()


@pytest.mark.sessions
def test_several_source_rows_for_one_target_row(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    with unchanged(path), pytest.raises(MultipleSourceRowsException) as caught:
        upsert(spark, path, [(1, "x", 1), (1, "y", 2), (2, "z", 3)]).whenMatchedUpdateAll().execute()
    assert caught.value.getCondition() == "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"
    assert '"id":1' in caught.value.message
    assert '"name":"x"' in caught.value.message
    assert '"name":"y"' in caught.value.message
    assert '"id":2' not in caught.value.message
    assert "`dedupe_by`" in caught.value.message


def test_an_append_only_table(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t", properties={"delta.appendOnly": "true"})
    with unchanged(path), pytest.raises(DeltaAnalysisException) as caught:
        upsert(spark, path, [(1, "x", 1)]).whenMatchedDelete().execute()
    assert caught.value.getCondition() == "DELTA_CANNOT_MODIFY_APPEND_ONLY"
    report = upsert(spark, path, [(9, "x", 1)]).whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert report.metrics["numTargetRowsInserted"] == 1


def test_a_feature_that_is_not_implemented_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    log = Path(path, "_delta_log")
    log.joinpath("00000000000000000002.json").write_text(
        '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["teleport"],'
        '"writerFeatures":["teleport"]}}\n'
    )
    with unchanged(path), pytest.raises(DeltaUnsupportedFeatureException, match="teleport"):
        DeltaTable.forPath(spark, path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.deltamerge.merge.executor", "fastest"),
        ("spark.databricks.delta.merge.materializeSource", "sometimes"),
    ],
)
def test_a_setting_that_does_not_exist(spark: SparkSession, tmp_path: Path, key: str, value: str) -> None:
    path = people(spark, tmp_path / "t")
    spark.conf.set(key, value)
    with unchanged(path), pytest.raises(IllegalArgumentException, match=value) as caught:
        upsert(spark, path, [(1, "x", 1)]).whenMatchedUpdateAll().execute()
    assert key in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.quick
def test_clauses_that_hide_others(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    with unchanged(path), pytest.raises(DeltaAnalysisException) as caught:
        upsert(spark, path, [(1, "x", 1)]).whenMatchedDelete().whenMatchedUpdateAll().execute()
    assert caught.value.getCondition() == "DELTA_NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION"
    with unchanged(path), pytest.raises(DeltaAnalysisException) as caught:
        upsert(spark, path, [(1, "x", 1)]).execute()
    assert caught.value.getCondition() == "DELTA_MERGE_MISSING_WHEN"


def test_subqueries_in_conditions_that_are_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    most = spark.range(3).agg(F.max("id").cast("int")).scalar()
    on_it = upsert(spark, path, [(1, "x", 1)], (F.col("t.id") == F.col("s.id")) & (F.col("t.id") < most))
    in_clause = upsert(spark, path, [(1, "x", 1)]).whenMatchedDelete(F.col("t.id") == most)
    as_text = upsert(spark, path, [(1, "x", 1)]).whenMatchedDelete(F.expr("t.id IN (SELECT 1)"))
    for builder in (on_it.whenMatchedDelete(), in_clause, as_text):
        with unchanged(path), pytest.raises(DeltaAnalysisException) as caught:
            builder.execute()
        assert caught.value.getCondition() == "DELTA_UNSUPPORTED_SUBQUERY"
    # A text that only looks like one is none.
    upsert(spark, path, [(1, "SubqueryExpression", 1)]).whenMatchedDelete("s.name = '(SELECT 1)'").execute()
    assert latest_version(path) == 1


class Watcher:
    """Watches a merge's progress, and fails at some steps."""

    def __init__(self, error: BaseException, *steps: str) -> None:
        self._error = error
        self._steps = steps

    def step(self, name: str, description: str) -> None:
        if name in self._steps:
            raise self._error


def test_a_watcher_that_fails_does_not_fail_the_merge(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    watcher = Watcher(BrokenPipeError("nobody looks"), "find_touched_files", "commit", "refresh")
    assert upsert(spark, path, [(1, "ANN", 1)]).whenMatchedUpdateAll().run(watcher).version == 2


def test_an_interrupted_merge_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t", properties={"delta.enableDeletionVectors": "true"})
    merge = upsert(spark, path, [(1, "ANN", 1)]).whenMatchedUpdateAll()
    with unchanged(path), pytest.raises(KeyboardInterrupt):
        merge.run(Watcher(KeyboardInterrupt(), "write_deletion_vectors"))


@pytest.mark.parametrize("value", ["NULL", "named_struct('m', NULL)", "named_struct('m', named_struct('z', NULL))"])
def test_null_for_a_not_null_field_or_a_struct_around_it(value: str, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    struct = "STRUCT<m: STRUCT<z: INT NOT NULL>>"
    DeltaTable.create(spark).location(path).addColumn("id", "INT").addColumn("s", struct).execute()
    write_delta(spark.sql("SELECT 1 AS id, named_struct('m', named_struct('z', 1)) AS s"), path, mode="append")
    source = spark.sql(f"SELECT 2 AS id, CAST({value} AS STRUCT<m: STRUCT<z: INT>>) AS s").alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    with unchanged(path), pytest.raises(InvariantViolationException) as caught:
        merge.whenNotMatchedInsertAll().execute()
    assert caught.value.getCondition() == "DELTA_NOT_NULL_CONSTRAINT_VIOLATED"
    assert "s.m.z" in caught.value.message


def test_an_invariant_on_a_field_of_a_struct(spark: SparkSession, tmp_path: Path) -> None:
    path, version = str(tmp_path), Path(str(tmp_path), "_delta_log", f"{0:020d}.json")
    write_delta(spark.sql("SELECT 1 AS id, named_struct('a', 5L, 'b', named_struct('c', 1)) AS s"), path)
    actions = [json.loads(line) for line in version.read_text().splitlines()]
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    schema = json.loads(metadata["schemaString"])
    fields = schema["fields"][1]["type"]["fields"]
    fields[0]["metadata"] = {"delta.invariants": json.dumps({"expression": {"expression": "s.a > 3"}})}
    fields[1]["type"]["fields"][0]["metadata"] = {
        "delta.invariants": json.dumps({"expression": {"expression": "s.b.c > 0"}})
    }
    metadata["schemaString"] = json.dumps(schema)
    version.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    version.with_suffix(".crc").unlink(missing_ok=True)
    table = DeltaTable.forPath(spark, path).alias("t")
    for a, c, violated in ((3, 1, "EXPRESSION(s.a)"), (4, 0, "EXPRESSION(s.b.c)")):
        new = spark.sql(f"SELECT 2 AS id, named_struct('a', {a}L, 'b', named_struct('c', {c})) AS s").alias("s")
        merge = table.merge(new, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll()
        for write in (merge.execute, lambda new=new: write_delta(new, path, mode="append")):
            with unchanged(path), pytest.raises(InvariantViolationException) as caught:
                write()
            assert caught.value.parameters["constraintName"] == violated
