"""Column types: those that Delta has not, CHAR and VARCHAR at any depth, old timestamps, VARIANT."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRs
from pyspark.sql import types
from pyspark.sql.types import CalendarIntervalType, DataType, StringType

from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.exceptions import DeltaAnalysisException, DeltaRuntimeException

from .tables import files_below, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNSUPPORTED = "DELTA_UNSUPPORTED_DATA_TYPES"
# Spark has it since 4.1.
TIME = [(types.TimeType(), "[x: TIME(6)]")] if hasattr(types, "TimeType") else []


@pytest.mark.quick
@pytest.mark.parametrize(
    ("data_type", "said"),
    [
        ("INTERVAL DAY TO SECOND", "[x: INTERVAL DAY TO SECOND]"),
        ("INTERVAL YEAR TO MONTH", "[x: INTERVAL YEAR TO MONTH]"),
        (CalendarIntervalType(), "[x: INTERVAL]"),
        *TIME,
        (StringType("UTF8_LCASE"), "[x: STRING COLLATE UTF8_LCASE]"),
        ("STRUCT<a: ARRAY<INTERVAL YEAR>>", "[x.a[]: INTERVAL YEAR]"),
        (
            "MAP<STRING COLLATE UTF8_LCASE, INTERVAL DAY>",
            "[x[key]: STRING COLLATE UTF8_LCASE, x[value]: INTERVAL DAY]",
        ),
    ],
    ids=str,
)
def test_a_table_is_not_made_with_a_type_that_delta_has_not(
    data_type: str | DataType, said: str, spark: SparkSession, tmp_path: Path
) -> None:
    made = DeltaTable.create(spark).location(str(tmp_path / "t")).addColumn("id", "INT")
    with pytest.raises(DeltaAnalysisException) as raised:
        made.addColumn("x", data_type).execute()
    assert (raised.value.getCondition(), raised.value.getSqlState()) == (UNSUPPORTED, "0AKDC")
    assert raised.value.getMessageParameters()["dataTypeList"] == said
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "value", ["INTERVAL '1' MONTH", "array(INTERVAL '1' DAY)", "named_struct('a', 'a' COLLATE UTF8_LCASE)"]
)
def test_a_type_that_delta_has_not_comes_in_by_no_frame(value: str, spark: SparkSession, tmp_path: Path) -> None:
    path, frame = str(tmp_path / "t"), spark.sql(f"SELECT 1 AS id, {value} AS x")
    with pytest.raises(DeltaAnalysisException, match=UNSUPPORTED):
        write_delta(frame, path)
    assert not (tmp_path / "t").exists()
    write_delta(spark.sql("SELECT 1 AS id"), path)
    before = files_below(path)
    with pytest.raises(DeltaAnalysisException, match=UNSUPPORTED):
        write_delta(frame, path, mode="overwrite", overwrite_schema=True)
    evolving = f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{path}` t USING (SELECT 1 AS id, {value} AS x) s"
    with pytest.raises(DeltaAnalysisException, match=UNSUPPORTED):
        merge_sql(spark, f"{evolving} ON t.id = s.id WHEN MATCHED THEN UPDATE SET *")
    assert files_below(path) == before


LIMITED = {
    "v": "VARCHAR(3)",
    "c": "CHAR(3)",
    "s": "STRUCT<`the text`: VARCHAR(3), c: CHAR(3)>",
    "a": "ARRAY<STRUCT<v: VARCHAR(3), n: INT>>",
    "m": "MAP<VARCHAR(3), ARRAY<CHAR(3)>>",
}


def limited(spark: SparkSession, path: Path) -> str:
    """Makes a table with the columns of LIMITED and one row that has a key alone."""
    made = DeltaTable.create(spark).location(str(path)).addColumn("id", "INT")
    made = made.property("delta.columnMapping.mode", "name")
    for name, data_type in LIMITED.items():
        made = made.addColumn(name, data_type)
    made.execute()
    write_delta(spark.sql("SELECT 1 AS id"), str(path), mode="append")
    return str(path)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("v", "'abcd'", "VARCHAR(3) of column v"),
        # delta-spark, other than Spark's own tables, drops no blanks.
        ("v", "'abc '", "VARCHAR(3) of column v"),
        ("c", "'abc '", "CHAR(3) of column c"),
        ("s", "named_struct('the text', 'abcd', 'c', 'a')", "VARCHAR(3) of column s.the text"),
        ("s", "named_struct('the text', NULL, 'c', 'abc ')", "CHAR(3) of column s.c"),
        ("a", "array(NULL, named_struct('v', 'abcd', 'n', 1))", "VARCHAR(3) of column a.element.v"),
        ("m", "map('abcd', array('a'))", "VARCHAR(3) of column m.key"),
        ("m", "map('a', array('a', 'abcd'))", "CHAR(3) of column m.value.element"),
    ],
)
def test_text_that_is_too_long_is_refused_at_any_depth(
    column: str, value: str, said: str, spark: SparkSession, tmp_path: Path
) -> None:
    path = limited(spark, tmp_path / "t")
    before = files_below(path)
    merge = f"MERGE INTO delta.`{path}` t USING (SELECT {{}} AS id, {value} AS x) s ON t.id = s.id "
    for write in (
        lambda: merge_sql(spark, merge.format(1) + f"WHEN MATCHED THEN UPDATE SET {column} = s.x"),
        lambda: merge_sql(spark, merge.format(2) + f"WHEN NOT MATCHED THEN INSERT (id, {column}) VALUES (s.id, s.x)"),
        lambda: write_delta(spark.sql(f"SELECT 2 AS id, {value} AS {column}"), path, mode="append"),
        lambda: write_delta(spark.sql(f"SELECT 2 AS id, {value} AS {column}"), path, mode="overwrite"),
    ):
        with pytest.raises(DeltaRuntimeException, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT") as raised:
            write()
        assert said in str(raised.value)
        assert files_below(path) == before


def test_char_is_padded_at_any_depth_and_nulls_stay(spark: SparkSession, tmp_path: Path) -> None:
    path = limited(spark, tmp_path / "t")
    values = (
        "'a ' AS v, 'a' AS c, named_struct('the text', 'a', 'c', 'a') AS s, "
        "array(NULL, named_struct('v', NULL, 'n', 1)) AS a, map('a', array('a', NULL), 'b', NULL) AS m"
    )
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT 2 AS id, {values}) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    )
    written = "a ", "a  ", ("a", "a  "), [None, (None, 1)], {"a": ["a  ", None], "b": None}
    assert rows(DeltaTable.forPath(spark, path).toDF()) == [(1, None, None, None, None, None), (2, *written)]
    below = spark.read.parquet(*(str(file) for file in Path(path).rglob("*.parquet")))
    assert (2, *written) in rows(below)


def test_a_struct_with_limits_gets_another_field(spark: SparkSession, tmp_path: Path) -> None:
    path = limited(spark, tmp_path / "t")
    merge = (
        f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{path}` t USING (SELECT 2 AS id, "
        "named_struct('c', 'a', 'n', 'longer', 'the text', '{}') AS s) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    )
    with pytest.raises(DeltaRuntimeException, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT"):
        merge_sql(spark, merge.format("abcd"))
    merge_sql(spark, merge.format("abc"))
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING range(3) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 'z'",
    )
    assert rows(DeltaTable.forPath(spark, path).toDF().where("id = 2").select("s.*")) == [("abc", "a  ", "longer")]


# The Julian calendar had the first day; ten were left out before 1582-10-15; many zones had odd offsets until 1900.
OLD_TIMES = (
    "0001-01-01 00:00:00",
    "1500-03-01 12:34:56.789012",
    "1582-10-10 00:00:00",
    "1582-10-15 00:00:00",
    "1899-12-31 23:59:59.999999",
)


@pytest.mark.parametrize(
    ("executor", "zone"), [("classic", "UTC"), ("classic", "Europe/Amsterdam"), ("low_shuffle", "UTC")]
)
def test_timestamps_before_1582_and_1900(executor: str, zone: str, spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.deltamerge.merge.executor", executor)
    path = str(tmp_path / "t")
    kept, added = (
        [f"(TIMESTAMP'{t}Z', TIMESTAMP'{t}Z', {v})" for t in times]
        for times, v in ((OLD_TIMES[:4], "NULL"), (OLD_TIMES, "1"))
    )
    columns = "t AS k, p, if(x IS NULL, t, t + INTERVAL '1' DAY) AS v"
    write_delta(
        spark.sql(f"SELECT {columns} FROM VALUES {', '.join(kept)} AS r(t, p, x)").coalesce(1),
        path,
        partition_by=["p"],
    )
    report = merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT {columns} FROM VALUES {', '.join(added[1:])} AS r(t, p, x)) s "
        "ON t.k = s.k AND t.p = s.p WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *",
    )
    assert (report.metrics["numTargetRowsUpdated"], report.metrics["numTargetRowsInserted"]) == (3, 1)
    micros = spark.sql(f"SELECT unix_micros(t) FROM VALUES {', '.join(added)} AS r(t, p, x) ORDER BY t").collect()
    day = 24 * 60 * 60 * 1_000_000
    wanted = [(t, t, t + (day if i else 0)) for i, (t,) in enumerate(micros)]
    table = DeltaTable.forPath(spark, path).toDF()
    assert sorted(rows(table.selectExpr("unix_micros(k)", "unix_micros(p)", "unix_micros(v)"))) == wanted
    with_rs = DeltaRs(path)
    read = pa.table(with_rs.to_pyarrow_table()).select(["k", "p", "v"])
    assert sorted(zip(*(c.cast(pa.int64()).to_pylist() for c in read.columns), strict=True)) == wanted
    files = spark.read.parquet(*with_rs.file_uris()).selectExpr("unix_micros(k)", "unix_micros(v)")
    assert sorted(rows(files)) == [(k, v) for k, _, v in wanted]


@pytest.mark.parametrize("executor", ["classic", "low_shuffle"])
def test_variants_are_updated_and_inserted(executor: str, spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.deltamerge.merge.executor", executor)
    path = str(tmp_path / "t")
    write_delta(spark.sql("SELECT id, parse_json('{\"a\": 1}') AS v FROM range(3)").coalesce(1), path)
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT id, parse_json('[1, \"x\"]') AS w FROM range(1, 4)) s "
        "ON t.id = s.id WHEN MATCHED AND t.id = 1 THEN UPDATE SET v = s.w "
        "WHEN MATCHED THEN UPDATE SET v = parse_json('null') WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.w)",
    )
    found = rows(DeltaTable.forPath(spark, path).toDF().selectExpr("id", "to_json(v)"))
    assert found == [(0, '{"a":1}'), (1, '[1,"x"]'), (2, "null"), (3, '[1,"x"]')]


def test_timestamps_as_partitions_just_before_midnight(spark: SparkSession, tmp_path: Path) -> None:
    """Their microseconds since 1970 are more than a DOUBLE tells apart."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    path = str(tmp_path / "t")
    times = ("0001-01-01 23:59:59.999999", "1969-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999")
    values = ", ".join(f"({n}L, TIMESTAMP'{time}')" for n, time in enumerate(times))
    write_delta(spark.sql(f"SELECT * FROM VALUES {values} AS x(id, t)"), path, partition_by=["t"])
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT id + 10 AS id, t FROM VALUES {values} AS x(id, t)) s "
        "ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    )
    found = DeltaTable.forPath(spark, path).toDF().selectExpr("id", "CAST(t AS STRING)")
    assert dict(rows(found)) == {n + more: time for more in (0, 10) for n, time in enumerate(times)}
