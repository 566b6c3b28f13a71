"""The API that delta-spark's users know: same names, same argument forms, same results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.exceptions import DeltaAnalysisException, DeltaTableNotFoundException
from merge.tables import commit_info, frame, latest_version, people, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions


def test_text_and_columns_mean_the_same(spark: SparkSession, tmp_path: Path) -> None:
    source = frame(spark, "id INT, name STRING, age INT", [(1, "ANN", 31), (3, "CY", 0), (7, "gil", 60)])
    results = []
    for form in ("text", "column"):
        path = people(spark, tmp_path / form)
        target = DeltaTable.forPath(spark, path).alias("t")
        if form == "text":
            merge = (
                target.merge(source.alias("s"), "t.id = s.id")
                .whenMatchedDelete("s.age = 0")
                .whenMatchedUpdate(set={"name": "s.name", "age": "t.age + 1"})
                .whenNotMatchedInsert("s.age > 50", {"id": "s.id", "name": "upper(s.name)"})
                .whenNotMatchedBySourceUpdate("t.age >= 40", {"name": "'gone'"})
            )
        else:
            merge = (
                target.merge(source.alias("s"), F.col("t.id") == F.col("s.id"))
                .whenMatchedDelete(F.col("s.age") == 0)
                .whenMatchedUpdate(set={"name": F.col("s.name"), "age": F.col("t.age") + 1})
                .whenNotMatchedInsert(F.col("s.age") > 50, {"id": F.col("s.id"), "name": F.upper("s.name")})
                .whenNotMatchedBySourceUpdate(F.col("t.age") >= 40, {"name": F.lit("gone")})
            )
        counts = merge.execute()
        assert counts.columns == [
            "num_affected_rows",
            "num_updated_rows",
            "num_deleted_rows",
            "num_inserted_rows",
        ]
        assert tuple(counts.collect()[0]) == (4, 2, 1, 1)
        results.append(rows(DeltaTable.forPath(spark, path).toDF()))
    assert results[0] == results[1] == [(1, "ANN", 31), (2, "gone", 40), (7, "GIL", None)]


def test_a_builder_can_be_used_again(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    source = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    deleting, updating = merge.whenMatchedDelete(), merge.whenMatchedUpdateAll()
    assert updating.run().metrics["numTargetRowsUpdated"] == 1
    assert deleting.run().metrics["numTargetRowsDeleted"] == 1


def test_stars_with_exceptions_and_clauses_that_do_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    new = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1), (2, "y", 2), (8, "z", 8), (9, "w", 9)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(new.alias("s"), "t.id = s.id")
    report = (
        merge.whenMatchedDoNothing("s.id = 2")
        .whenMatchedUpdateAll(None, except_cols=["t.age"])
        .whenNotMatchedDoNothing(F.col("s.id") == 8)
        .whenNotMatchedInsertAll(except_cols=["NAME"])
        .whenNotMatchedBySourceDoNothing("t.id = 3")
        .whenNotMatchedBySourceDelete()
        .run()
    )
    expected = [(1, "x", 30), (2, "bob", 40), (3, "cy", 50), (9, None, 9)]
    assert rows(DeltaTable.forPath(spark, path).toDF()) == expected
    assert [clause.text for clause in report.clauses][1] == "WHEN MATCHED THEN UPDATE SET * EXCEPT (t.age)"
    with pytest.raises(DeltaAnalysisException, match="nmae"):
        merge.whenMatchedUpdateAll(except_cols=["nmae"]).execute()
    for wrong in ("name", [F.col("name")]):
        with pytest.raises(TypeError, match="except_cols"):
            merge.whenNotMatchedInsertAll(except_cols=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("mistake", [{"set": None}, {"set": [("a", "b")]}, {"set": {"name": 5}}])
def test_wrong_arguments(spark: SparkSession, tmp_path: Path, mistake: dict[str, Any]) -> None:
    path = people(spark, tmp_path / "t")
    merge = DeltaTable.forPath(spark, path).merge(frame(spark, "id INT", [(1,)]), "1 = 1")
    with pytest.raises((TypeError, ValueError)):
        merge.whenMatchedUpdate(**mistake)


@pytest.mark.sessions
def test_create_builders(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    made = (
        DeltaTable.create(spark)
        .location(path)
        .comment("people")
        .addColumn("id", IntegerType(), nullable=False, comment="key")
        .addColumn("p", "STRING")
        .addColumns(StructType([StructField("v", StringType())]))
        .partitionedBy("p")
        .property("delta.enableChangeDataFeed", "true")
        .execute()
    )
    assert made.toDF().schema.simpleString() == "struct<id:int,p:string,v:string>"
    detail = made.detail().collect()[0]
    assert (detail["format"], detail["description"], detail["partitionColumns"]) == ("delta", "people", ["p"])
    assert detail["properties"] == {"delta.enableChangeDataFeed": "true"}
    assert detail["numFiles"] == 0
    with pytest.raises(DeltaAnalysisException) as caught:
        DeltaTable.create(spark).location(path).addColumn("x", "INT").execute()
    assert caught.value.getCondition() == "DELTA_TABLE_ALREADY_EXISTS"
    kept = DeltaTable.createIfNotExists(spark).location(path).addColumn("x", "INT").execute()
    assert kept.toDF().columns == ["id", "p", "v"]
    replaced = DeltaTable.createOrReplace(spark).location(path).addColumn("x", "INT").execute()
    assert replaced.toDF().columns == ["x"]
    assert latest_version(path) == 1
    with pytest.raises(DeltaAnalysisException):
        DeltaTable.replace(spark).location(str(tmp_path / "none")).addColumn("x", "INT").execute()


@pytest.mark.sessions
def test_write_delta_modes(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    assert write_delta(spark.range(3), path, partition_by=None) == 0
    assert write_delta(spark.range(3, 5), path, mode="append") == 1
    with pytest.raises(DeltaAnalysisException):
        write_delta(spark.range(3), path)
    assert sorted(r[0] for r in DeltaTable.forPath(spark, path).toDF().collect()) == [0, 1, 2, 3, 4]
    overwritten = spark.range(2).selectExpr("id AS k", "id % 2 AS p")
    assert write_delta(overwritten, path, mode="overwrite", partition_by="p", overwrite_schema=True) == 2
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(0, 0), (1, 1)]
    assert rows(DeltaTable.forPath(spark, path).at(version=1)) == [(0,), (1,), (2,), (3,), (4,)]
    with pytest.raises(ValueError, match="mode"):
        write_delta(spark.range(3), path, mode="upsert")


def test_is_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    assert DeltaTable.isDeltaTable(spark, people(spark, tmp_path / "t"))
    assert not DeltaTable.isDeltaTable(spark, str(tmp_path / "other"))
    write_delta(spark.range(4).selectExpr("id", "id % 2 AS p"), str(tmp_path / "parts"), partition_by="p")
    within = {"p=0": True, "p=0/": True, "p=7/x": True, "_delta_log": False, "_delta_log/x": False}
    assert {name: DeltaTable.isDeltaTable(spark, f"{tmp_path}/parts/{name}") for name in within} == within
    assert not DeltaTable.isDeltaTable(spark, str(tmp_path))
    with pytest.raises(DeltaTableNotFoundException):
        DeltaTable.forPath(spark, f"{tmp_path}/parts/p=0")


def test_for_name(spark: SparkSession, tmp_path: Path) -> None:
    made = DeltaTable.createOrReplace(spark).tableName("deltamerge_people").addColumn("id", "INT").execute()
    write_delta(frame(spark, "id INT", [(1,), (2,)]), made.detail().collect()[0]["location"], mode="append")
    spark.sql("SELECT 2 AS id").createOrReplaceTempView("leavers")
    merge_sql(
        spark,
        "MERGE INTO default.deltamerge_people USING leavers ON default.deltamerge_people.id = leavers.id "
        "WHEN MATCHED THEN DELETE",
    )
    assert rows(DeltaTable.forName(spark, "deltamerge_people").toDF()) == [(1,)]
    with pytest.raises(DeltaTableNotFoundException):
        DeltaTable.forName(spark, "deltamerge_nobody")


def test_history_tells_what_was_done(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", "night run")
    source = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1), (9, "y", 2)])
    report = (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(source.alias("s"), "t.id = s.id")
        .whenMatchedUpdateAll("s.age > 0")
        .whenNotMatchedInsertAll()
        .run()
    )
    newest = DeltaTable.forPath(spark, path).history(1).collect()
    assert len(newest) == 1
    row = newest[0]
    assert (row["version"], row["operation"], row["readVersion"]) == (
        report.version,
        "MERGE",
        report.read_version,
    )
    assert row["userMetadata"] == "night run"
    assert row["isBlindAppend"] is False
    assert row["isolationLevel"] == "Serializable"
    assert row["operationMetrics"]["numTargetRowsUpdated"] == "1"
    assert row["operationParameters"]["predicate"] == '["t.id = s.id"]'
    assert row["operationParameters"]["matchedPredicates"] == '[{"predicate":"s.age > 0","actionType":"update"}]'
    assert row["operationParameters"]["notMatchedPredicates"] == '[{"actionType":"insert"}]'
    assert row["operationParameters"]["notMatchedBySourcePredicates"] == "[]"
    info = commit_info(path, report.version)
    assert info["engineInfo"].startswith("deltamerge/")
    assert info["txnId"]
    assert {k: int(v) for k, v in info["operationMetrics"].items() if not k.endswith("Ms")} == {
        k: v for k, v in report.metrics.items() if not k.endswith("Ms")
    }
    assert len(DeltaTable.forPath(spark, path).history().collect()) == 3


def test_tables_by_a_given_name(spark: SparkSession, tmp_path: Path) -> None:
    target, other = people(spark, tmp_path / "a"), people(spark, tmp_path / "b")
    report = merge_sql(
        spark,
        "MERGE INTO people t USING (SELECT o.id, max(o.age) AS age FROM others AS o GROUP BY o.id) s ON t.id = s.id "
        "WHEN MATCHED AND t.id = 1 THEN UPDATE SET age = s.age * 2",
        tables={"people": target, "others": DeltaTable.forPath(spark, other)},
    )
    assert report.metrics["numTargetRowsUpdated"] == 1
    assert rows(DeltaTable.forPath(spark, target).toDF())[0] == (1, "ann", 60)


def test_a_source_at_an_earlier_version(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    DeltaTable.forPath(spark, path).merge(frame(spark, "k INT", [(1,)]), "id = k").whenMatchedDelete().execute()
    report = merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT * FROM delta.`{path}` VERSION AS OF 1) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT *",
    )
    assert report.metrics["numTargetRowsInserted"] == 1
    assert rows(DeltaTable.forPath(spark, path).toDF())[0] == (1, "ann", 30)


@pytest.mark.parametrize("condition", ["true", "id < 100"])
def test_a_source_by_the_name_of_its_view(spark: SparkSession, tmp_path: Path, condition: str) -> None:
    path = people(spark, tmp_path / "t")
    frame(spark, "id INT, name STRING, age INT", [(1, "x", 1), (9, "y", 9)]).createOrReplaceTempView("arrivals")
    source = spark.table("arrivals").where(condition)
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = arrivals.id")
    merge.whenMatchedDelete().whenNotMatchedInsert(values={"id": "arrivals.id", "name": "name"}).execute()
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(2, "bob", 40), (3, "cy", 50), (9, "y", None)]


@pytest.mark.parametrize("value", ["to_json(struct(*))", "hash(s.* except (age))", "concat_ws('|', *)"])
def test_a_star_inside_a_value_is_refused(spark: SparkSession, tmp_path: Path, value: str) -> None:
    path = people(spark, tmp_path / "t")
    source = frame(spark, "id INT, name STRING, age INT", [(1, "x", 1)]).alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    with pytest.raises(DeltaAnalysisException, match="star"):
        merge.whenMatchedUpdate(set={"name": value}).execute()
    assert merge.whenMatchedUpdate(set={"age": "t.age * s.age"}).run().metrics["numTargetRowsUpdated"] == 1


def test_an_overwrite_keeps_the_protocol(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t", properties={"delta.enableChangeDataFeed": "true"})
    write_delta(spark.range(2), path, mode="overwrite")
    detail = DeltaTable.forPath(spark, path).detail().collect()[0]
    assert detail["minWriterVersion"] == 7
    assert "changeDataFeed" in detail["tableFeatures"]


def test_evolution_into_a_type_that_needs_a_feature(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    source = spark.sql("SELECT 1 AS id, 'x' AS name, 1 AS age, TIMESTAMP_NTZ'2020-01-01 00:00:00' AS at").alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id").withSchemaEvolution()
    with pytest.raises(DeltaAnalysisException, match="timestampNtz"):
        merge.whenMatchedUpdateAll().execute()
    assert latest_version(path) == 1


def test_a_builder_holds_what_it_was_told(spark: SparkSession, tmp_path: Path) -> None:
    builder = DeltaTable.create(spark)
    builder.location(str(tmp_path / "t"))
    builder.addColumn(colName="id", dataType="INT")
    builder.addColumns(StructType([StructField("p", StringType())]))
    builder.partitionedBy("p")
    builder.property("delta.appendOnly", "true")
    detail = builder.execute().detail().collect()[0]
    assert (detail["partitionColumns"], detail["properties"]) == (["p"], {"delta.appendOnly": "true"})


def test_the_target_may_be_named_in_any_case(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    text = "MERGE INTO People USING (SELECT 1 AS id) s ON People.id = s.id WHEN MATCHED THEN DELETE"
    assert merge_sql(spark, text, tables={"people": path}).metrics["numTargetRowsDeleted"] == 1


@pytest.mark.quick
def test_an_update_that_sets_nothing_is_no_clause(spark: SparkSession, tmp_path: Path) -> None:
    path = people(spark, tmp_path / "t")
    known = rows(DeltaTable.forPath(spark, path).toDF())
    source = frame(spark, "id INT, name STRING, age INT", [(1, "ANN", 31)])
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source.alias("s"), "t.id = s.id")
    alone = (merge.whenMatchedUpdate(set={}), merge.withSchemaEvolution().whenNotMatchedBySourceUpdate(set={}))
    for builder in alone:
        with pytest.raises(DeltaAnalysisException, match="DELTA_MERGE_MISSING_WHEN"):
            builder.execute()
    counts = merge.whenMatchedUpdate(set={}).whenNotMatchedInsertAll().execute()
    assert rows(counts) == [(0, 0, 0, 0)]
    counts = merge.whenMatchedUpdate("t.id > 1", {}).whenMatchedDelete().execute()
    assert rows(counts) == [(1, 0, 1, 0)]
    counts = merge.whenNotMatchedBySourceUpdate(set={}).whenNotMatchedBySourceDelete("t.id = 2").execute()
    assert rows(counts) == [(1, 0, 1, 0)]
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [row for row in known if row[0] > 2]
