"""Columns that are taken from a frame, such as ``updates["id"]``, in conditions and values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from combinations import combinations
from deltamerge import DeltaTable, write_delta
from deltamerge.exceptions import DeltaAnalysisException

from .tables import CONNECT, EXECUTOR, frame, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.sessions

SCHEMA = "id INT, v INT, st STRUCT<a: INT>"
SOURCE: list[Any] = [(1, 7, (70,)), (3, 8, (80,))]


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    write_delta(spark.createDataFrame([(1, 5, (50,)), (2, 6, (60,))], SCHEMA), path)
    return path


@pytest.mark.parametrize(("plan", "alias"), combinations(["auto", "classic", "low_shuffle"], [None, "s"]))
def test_every_clause(spark: SparkSession, path: str, plan: str, alias: str | None) -> None:
    spark.conf.set(EXECUTOR, plan)
    table, updates = DeltaTable.forPath(spark, path), frame(spark, SCHEMA, SOURCE)
    target, source = table.toDF(), updates if alias is None else updates.alias(alias)
    value = F.when(updates["v"] > 0, updates.v + target["v"]).otherwise(F.lit(0))
    merge = table.merge(source, (target["id"] == updates["id"]) & (updates.st.a > F.lit(0)))
    merge = merge.whenMatchedUpdate(updates["st.a"] > target.st["a"], set={"v": value, "st": updates.st})
    merge = merge.whenNotMatchedInsert(source["v"].isNotNull(), {"id": updates.id, "v": source["v"].cast("int")})
    merge.whenNotMatchedBySourceUpdate(target.v == 6, {"v": target["v"] + 1}).execute()
    assert rows(table.toDF()) == [(1, 12, (70,)), (2, 7, (60,)), (3, 8, None)]


def test_a_target_that_has_an_alias(spark: SparkSession, path: str) -> None:
    table = DeltaTable.forPath(spark, path)
    updates = frame(spark, SCHEMA, SOURCE)
    aliased = table.alias("t")
    aliased.merge(updates, aliased.toDF()["id"] == updates["id"]).whenMatchedUpdate(
        F.col("t.v") < updates["v"], {"v": table.toDF()["v"] + updates["v"]}
    ).execute()
    assert rows(table.toDF().select("id", "v")) == [(1, 12), (2, 6)]


def test_a_source_whose_frames_have_aliases(spark: SparkSession, path: str) -> None:
    left, right = frame(spark, "id INT, x INT", [(1, 10)]), frame(spark, "key INT, y INT", [(1, 20)])
    source = left.alias("l").join(right.alias("r"), left["id"] == right["key"])
    table = DeltaTable.forPath(spark, path).alias("t")
    table.merge(source, F.col("t.id") == right["key"]).whenMatchedUpdate(set={"v": left["x"] + right["y"]}).execute()
    assert rows(table.toDF().select("id", "v")) == [(1, 30), (2, 6)]


def test_inserts_by_the_names_of_a_sources_frames(spark: SparkSession, path: str) -> None:
    updates = frame(spark, SCHEMA, SOURCE).alias("u").withColumn("twice", F.expr("u.v * 2"))
    table = DeltaTable.forPath(spark, path).alias("t")
    merge = table.merge(updates, "t.id = u.id").whenMatchedUpdate("u.st.a > 0", {"v": "u.v + t.v"})
    merge.whenNotMatchedInsert("U.v > 0", {"id": "u.id", "v": "twice", "st": F.col("u.st")}).execute()
    assert rows(table.toDF()) == [(1, 12, (50,)), (2, 6, (60,)), (3, 16, (80,))]
    left, right = frame(spark, "id INT, x INT", [(4, 10)]), frame(spark, "key INT, y INT", [(4, 20)])
    source = left.alias("l").join(right.alias("r"), F.expr("l.id = r.key"))
    merge = table.merge(source, "t.id = l.id and r.y > 0").whenMatchedUpdate(set={"v": "r.y"})
    merge.whenNotMatchedInsert("r.y > 0", {"id": F.col("l.id"), "v": "x + `r`.`y`"}).execute()
    assert rows(table.toDF().where("id = 4").select("id", "v")) == [(4, 30)]


NAMED_BELOW: list[tuple[str, Any]] = [
    ("a column more", lambda u: u.withColumn("twice", F.expr("u.v * 2"))),
    ("a projection", lambda u: u.select("id", "v", "st")),
    ("a view", lambda u: (u.createOrReplaceTempView("u"), u.sparkSession.table("u").select("v", "id", "st"))[1]),
    ("a join", lambda u: u.join(frame(u.sparkSession, "key INT", [(1,), (3,)]).alias("d"), F.expr("u.id = d.key"))),
]
if not CONNECT:
    # Over Connect a query does not show the names within, and INSERT clauses do not know them.
    IN_QUERY = "SELECT u.id, u.v, u.st FROM q u"
    NAMED_BELOW.append(("a query", lambda u: (u.createOrReplaceTempView("q"), u.sparkSession.sql(IN_QUERY))[1]))


@pytest.mark.parametrize(("made", "columns"), combinations([made for _, made in NAMED_BELOW], [False, True]))
def test_keys_by_the_names_of_a_sources_frames(spark: SparkSession, path: str, made: Any, columns: bool) -> None:
    """Names that only the source's own frame knows are keys like others."""
    on: Any = F.col("t.id") == F.col("u.id") if columns else "t.id = u.id"
    table = DeltaTable.forPath(spark, path).alias("t")
    merge = table.merge(made(frame(spark, SCHEMA, SOURCE).alias("u")), on)
    merge = merge.whenMatchedUpdate("U.v > t.v", {"v": "u.v + t.v"}).whenNotMatchedBySourceDelete("t.v > 100")
    report = merge.whenNotMatchedInsert("u.v > 0", {"id": F.col("u.id"), "v": "u.v", "st": "u.st"}).run()
    assert rows(table.toDF()) == [(1, 12, (50,)), (2, 6, (60,)), (3, 8, (80,))]
    assert report.outcome.plan is not None
    assert report.outcome.plan.name == "key_lookup"
    (commit,) = table.history(1).collect()
    assert columns or commit.operationParameters["predicate"] == '["t.id = u.id"]'


def test_a_query_that_names_its_own_tables(spark: SparkSession, path: str) -> None:
    frame(spark, SCHEMA, SOURCE).createOrReplaceTempView("q")
    table = DeltaTable.forPath(spark, path).alias("t")
    merge = table.merge(spark.sql("SELECT u.id, u.v FROM q u"), "t.id = u.id AND u.v > 0")
    merge.whenMatchedUpdate("u.v > t.v", {"v": "u.v"}).execute()
    assert rows(table.toDF().select("id", "v")) == [(1, 7), (2, 6)]


def test_a_subquery_that_reads_what_the_source_is_called(spark: SparkSession, path: str) -> None:
    frame(spark, SCHEMA, SOURCE).createOrReplaceTempView("news")
    table = DeltaTable.forPath(spark, path).alias("t")
    merge = table.merge(spark.table("news").select("id", "v"), "t.id = news.id")
    merge = merge.whenMatchedUpdate(set={"v": "(SELECT CAST(count(1) AS INT) FROM news WHERE news.v > 7) + news.v"})
    value = "(SELECT CAST(count(1) AS INT) FROM range(9) d WHERE d.id < news.id) + (SELECT min(news.v) FROM news)"
    merge.whenNotMatchedInsert(values={"id": "news.id", "v": value}).execute()
    assert rows(table.toDF().select("id", "v")) == [(1, 8), (2, 6), (3, 10)]


def test_a_field_of_the_target_is_not_a_column_below_the_source(spark: SparkSession, path: str) -> None:
    """A BY SOURCE clause knows only the target."""
    source = frame(spark, "id INT, a INT", [(1, 1)]).alias("st").withColumn("b", F.lit(1))
    table = DeltaTable.forPath(spark, path).alias("t")
    merge = table.merge(source, "t.id = st.id").whenMatchedUpdate("st.a = 1", {"v": "st.a"})
    merge.whenNotMatchedBySourceUpdate("st.a = 60", {"v": "st.a + 1"}).execute()
    assert rows(table.toDF().select("id", "v")) == [(1, 1), (2, 61)]


if not CONNECT:
    # Over Connect only Spark knows which of two columns of one name a qualifier means.

    def test_inserts_of_a_source_with_two_columns_of_one_name(spark: SparkSession, path: str) -> None:
        left, right = frame(spark, "id INT, x INT", [(4, 10)]), frame(spark, "id INT, v INT", [(4, 20)])
        source = left.alias("l").join(right.alias("r"), F.expr("l.id = r.id"))
        table = DeltaTable.forPath(spark, path).alias("t")
        for values in ({"id": "l.id", "v": "l.x + r.v"}, {"id": left["id"], "v": right["v"] + left["x"]}):
            merge = table.merge(source, "t.id = r.id and t.v = 0").whenNotMatchedInsert("r.id > 0", values)
            merge.execute()
        assert rows(table.toDF().where("id = 4").select("id", "v")) == [(4, 30), (4, 30)]
        with pytest.raises(DeltaAnalysisException, match=r"l\.nothing"):
            table.merge(source, "t.id = r.id").whenNotMatchedInsert(values={"id": "l.nothing"}).execute()

    @pytest.mark.parametrize("alias", [None, "s"])
    def test_columns_of_joined_frames(spark: SparkSession, path: str, alias: str | None) -> None:
        left, right = frame(spark, "id INT, v INT", [(1, 10), (4, 40)]), frame(spark, "id INT, v INT", [(1, 2), (4, 5)])
        joined = left.join(right, left["id"] == right["id"])
        source = joined if alias is None else joined.alias(alias)
        table = DeltaTable.forPath(spark, path)
        merge = table.merge(source, table.toDF()["id"] == right["id"]).whenMatchedUpdate(set={"v": right["v"]})
        merge.whenNotMatchedInsert(left["v"] > right["v"], {"id": right["id"], "v": left["v"]}).execute()
        assert rows(table.toDF().select("id", "v")) == [(1, 2), (2, 6), (4, 40)]
        with pytest.raises(PySparkException):
            table.merge(source, table.toDF()["id"] == right["id"]).whenMatchedUpdate(set={"v": "id"}).execute()

    def test_a_star_beside_a_column_of_which_there_are_two(spark: SparkSession, path: str) -> None:
        left, right = frame(spark, "id INT, v INT, k INT", [(1, 10, 7)]).alias("l"), frame(spark, "k INT", [(7,)])
        source = left.join(right.alias("r"), F.expr("l.k = r.k")).withColumn("st", F.expr("named_struct('a', 1)"))
        table = DeltaTable.forPath(spark, path)
        merge = table.merge(source, (table.toDF()["id"] == left["id"]) & (left["k"] > 5))
        merge.whenMatchedUpdateAll().execute()
        assert rows(table.toDF()) == [(1, 10, (1,)), (2, 6, (60,))]

    def test_a_column_without_a_qualifier_beside_others_with_one(spark: SparkSession, path: str) -> None:
        left, right = frame(spark, "id INT, v INT", [(1, 10)]), frame(spark, "key INT, w INT", [(1, 3)])
        source = left.join(right.alias("r"), F.expr("id = key"))
        table = DeltaTable.forPath(spark, path)
        table.merge(source, table.toDF()["id"] == left["id"]).whenMatchedUpdate(
            set={"v": left["v"] * right["w"]}
        ).execute()
        assert rows(table.toDF().select("id", "v")) == [(1, 30), (2, 6)]

    @pytest.mark.parametrize("name", ["orders", "t"])
    def test_a_source_whose_columns_have_the_targets_qualifier(spark: SparkSession, path: str, name: str) -> None:
        frame(spark, "id INT, v INT, k INT", [(1, 7, 0), (3, 8, 0)]).createOrReplaceTempView("orders")
        source = spark.table("orders").select("id", "v")
        table = DeltaTable.forPath(spark, path).alias(name)
        merge = table.merge(source, table.toDF()["id"] == source["id"]).whenMatchedUpdate(set={"v": source["v"]})
        report = merge.whenNotMatchedInsert(values={"id": source["id"], "v": source["v"]}).run()
        assert rows(table.toDF().select("id", "v")) == [(1, 7), (2, 6), (3, 8)]
        assert report.outcome.plan is not None
        assert report.outcome.plan.name == "key_lookup"

    def test_stars_beside_columns_without_qualifiers(spark: SparkSession, path: str) -> None:
        frame(spark, "id INT, st STRUCT<a: INT>", [(1, (3,)), (4, (5,))]).createOrReplaceTempView("dim")
        updates = frame(spark, "id INT, v INT", [(1, 7), (4, 8)])
        source = updates.join(spark.table("dim"), "id")
        table = DeltaTable.forPath(spark, path)
        merge = table.merge(source, table.toDF()["id"] == updates["id"])
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        assert rows(table.toDF()) == [(1, 7, (3,)), (2, 6, (60,)), (4, 8, (5,))]

    def test_a_source_that_joins_the_target(spark: SparkSession, path: str) -> None:
        table, updates = DeltaTable.forPath(spark, path), frame(spark, "key INT, w INT", [(1, 3), (2, 4)])
        target = table.toDF()
        known = target.alias("known")
        source = updates.join(known, updates["key"] == known["id"])
        merge = table.merge(source, target["id"] == updates["key"])
        merge.whenMatchedUpdate(set={"v": target["v"] * 100 + known["v"] * updates["w"]}).execute()
        assert rows(table.toDF().select("id", "v")) == [(1, 515), (2, 624)]


def test_names_of_the_target_are_not_the_sources(spark: SparkSession, path: str) -> None:
    """A source may know its columns by a name that the target has, too."""
    frame(spark, "id INT, v INT", [(2, 1), (3, 4)]).createOrReplaceTempView("orders")
    source = spark.table("orders").select(F.col("id").alias("oid"), "v")
    table = DeltaTable.forPath(spark, path).alias("orders")
    merge = table.merge(source, "orders.id = oid").whenNotMatchedInsert(values={"id": "oid", "v": "orders.v * 1.5"})
    merge.whenNotMatchedBySourceUpdate("orders.v > 0", {"v": "orders.v - 1"}).execute()
    assert rows(table.toDF().select("id", "v")) == [(1, 4), (2, 6), (3, 6)]
    source = spark.table("orders").select("id", "v", F.lit(1).alias("one"))
    with pytest.raises(PySparkException, match="AMBIGUOUS"):
        merge = table.merge(source, "orders.id = id").whenNotMatchedInsert(values={"id": "orders.id"})
        merge.whenMatchedDelete().execute()
    assert rows(table.toDF().select("id", "v")) == [(1, 4), (2, 6), (3, 6)]


def test_inserts_by_a_tables_name(spark: SparkSession, path: str) -> None:
    frame(spark, SCHEMA, SOURCE).createOrReplaceTempView("updates")
    frame(spark, "id INT, w INT", [(3, 30)]).createOrReplaceTempView("dim")
    updates = spark.table("updates")
    source = updates.join(spark.table("dim"), "id")
    table = DeltaTable.forPath(spark, path).alias("t")
    merge = table.merge(source, table.toDF()["id"] == updates["id"])
    merge.whenNotMatchedInsert(values={"id": updates["id"], "v": updates["v"] + F.col("dim.w")}).execute()
    assert rows(table.toDF().where("id = 3").select("id", "v")) == [(3, 38)]


def test_a_source_that_is_made_of_the_target(spark: SparkSession, path: str) -> None:
    """The sides' aliases tell the columns apart."""
    table = DeltaTable.forPath(spark, path)
    target, source = table.toDF(), table.toDF().where("id = 1").alias("s")
    merge = table.merge(source, target["id"] == source["id"])
    merge.whenMatchedUpdate(set={"v": target["v"] + source["v"]}).execute()
    assert rows(table.toDF().select("id", "v")) == [(1, 10), (2, 6)]
    table = table.alias("t")
    source = table.toDF().where("t.id = 2").alias("s")
    table.merge(source, F.col("t.id") == source["id"]).whenMatchedUpdate(set={"v": source["v"] * 2}).execute()
    assert rows(table.toDF().select("id", "v")) == [(1, 10), (2, 12)]


def test_update_and_delete(spark: SparkSession, path: str) -> None:
    table = DeltaTable.forPath(spark, path)
    table.update(table.toDF()["id"] == 1, {"v": table.toDF()["v"] + 1})
    assert rows(table.toDF().select("id", "v")) == [(1, 6), (2, 6)]
    table.delete(table.toDF().id == 2)
    assert rows(table.toDF().select("id", "v")) == [(1, 6)]


def _of_another_frame(target: DataFrame, source: DataFrame, other: DataFrame) -> Any:
    return target["id"] == other["id"]


def _renamed_meanwhile(target: DataFrame, source: DataFrame, other: DataFrame) -> Any:
    return target["id"] == other["id"], other.withColumnRenamed("id", "key")


def _shadowed(target: DataFrame, source: DataFrame, other: DataFrame) -> Any:
    return target["id"] == other["id"], other.select(other["v"].alias("id"), "v", "st")


def _of_both(target: DataFrame, source: DataFrame, other: DataFrame) -> Any:
    return target["id"] == target["id"], target.where("v = 5")


# Spark 4.0 takes a column of a frame over Connect by its name where the frame has another one of that name.
SHADOWED = [] if CONNECT and pyspark.__version__.startswith("4.0.") else [_shadowed]


@pytest.mark.parametrize("case", [_of_another_frame, _renamed_meanwhile, *SHADOWED, _of_both])
def test_columns_that_no_side_has(spark: SparkSession, path: str, case: Any) -> None:
    table, source, other = (DeltaTable.forPath(spark, path), *(frame(spark, SCHEMA, SOURCE) for _ in range(2)))
    found = case(table.toDF(), source, other)
    condition, source = found if isinstance(found, tuple) else (found, source)
    with pytest.raises(PySparkException) as raised:
        table.merge(source, condition).whenMatchedDelete().execute()
    if case is _of_both:
        assert isinstance(raised.value, DeltaAnalysisException)
        assert "Column id is ambiguous" in str(raised.value)
    else:
        assert "id" in str(raised.value)
    assert rows(DeltaTable.forPath(spark, path).toDF().select("id", "v")) == [(1, 5), (2, 6)]
