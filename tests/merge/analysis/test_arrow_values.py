"""Values that Arrow computes: Spark says the same of every row, and where Arrow refuses a result, Spark does, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from combinations import some
from deltamerge.merge.analysis.arrow_conditions import Columns
from deltamerge.merge.analysis.arrow_values import arrow_value, assigned_value
from deltamerge.scan.file_types import arrow_of_plain
from deltamerge.spark.column_trees import read_classic_column
from deltamerge.sql.condition_reader import read_condition
from deltamerge.sql.expression import Name, Node
from deltamerge.workers.row_values import RowValue, Value
from merge.tables import CONNECT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUES = (
    "n + 1",
    "n - small",
    "small + small",
    "tiny * tiny",
    "small * 3",
    "n * -1",
    "1 - n - small",
    "(n - 1) * (small + 2)",
    "n % 16",
    "small % 3",
    "x + x",
    "x - 0.5D * x",
    "f + x",
    "f * f",
    "price + price",
    "price - cost",
    "price * cost",
    "price * 1.08",
    "price + 1",
    "price + n",
    "10 * price - small",
    "price - 0.125",
    "name || other",
    "name || '-' || other || ''",
    "concat(name, ' ', name)",
    "coalesce(name, other)",
    "coalesce(name, other, 'none')",
    "coalesce(n, 0) + 1",
    "coalesce(price, 0)",
    "coalesce(small, n)",
    "coalesce(price, cost)",
    "ifnull(day, DATE'2000-01-01')",
    "nvl(at, TIMESTAMP'2000-01-01 00:00:00Z')",
    "coalesce(local, TIMESTAMP_NTZ'2000-01-01 00:00:00')",
    "coalesce(NULL, n)",
    "CASE WHEN n > small THEN n ELSE small END",
    "CASE WHEN n > small THEN n WHEN flag THEN 0 END",
    "CASE WHEN flag THEN name WHEN n IS NULL OR name LIKE 'd%' THEN other ELSE 'else' END",
    "CASE WHEN flag THEN price ELSE cost + 1 END",
    "CASE WHEN flag THEN NULL ELSE x END",
    "CASE WHEN true THEN n WHEN false THEN 3 ELSE 4 END",
    "CASE WHEN flag THEN CASE WHEN small > 0 THEN 'p' ELSE 'n' END ELSE name END",
    "if(flag, day, DATE'1999-12-31')",
    "if(at > later, at, later)",
    "n > small",
    "name = other AND flag",
    "name IS NULL",
    "year(day)",
    "month(at) + 1",
    "day(local) * 100 + quarter(day)",
    "CAST(at AS DATE)",
    "to_date(local)",
    "CAST(day AS DATE)",
    "'x'",
    "1",
    "1L",
    "1.50",
    "true",
    "DATE'2024-02-29'",
    "TIMESTAMP'2024-02-29 01:02:03.000004'",
    "NULL",
    "n",
    "name",
    "day",
)
LEFT_TO_SPARK = (
    "n / 2",
    "n DIV 2",
    "n + name",
    "price + x",
    "n + f",
    "day + 1",
    "day - day",
    "concat(name, n)",
    "name || 1",
    "coalesce(name, n)",
    "coalesce(day, at)",
    "coalesce(x, n)",
    "CASE n WHEN 1 THEN 2 END",
    "CASE WHEN rand() > 1 THEN n END",
    "upper(name)",
    "large * large",
    "large + large",
    "padded || 'x'",
    "padded",
    "folded",
    "folded || 'x'",
    "many",
    "year(at || '')",
    "n & 1",
    "-n",
    "current_date()",
    "INTERVAL '1' DAY + at",
    "'a' 'b'",
    "'a\\n'",
    "X'00'",
)
OVERFLOWS = (
    ("n + 9223372036854775807", "bigint"),
    ("n * 100000000", "bigint"),
    ("small * 20000S", "smallint"),
    ("tiny * 100Y", "tinyint"),
    ("n", "int"),
    ("small", "tinyint"),
    ("price * 1000", "decimal(7,2)"),
    ("price", "decimal(5,4)"),
)
CASTS = (
    ("small", "bigint"),
    ("small", "decimal(9,2)"),
    ("small", "double"),
    ("small + 1", "smallint"),
    ("f", "double"),
    ("price", "decimal(20,1)"),
    ("price", "decimal(20,0)"),
    ("price * 1.08", "decimal(15,2)"),
    ("price - cost", "decimal(20,3)"),
    ("cost", "decimal(30,6)"),
    ("NULL", "date"),
)
COLUMNS = (
    *("n", "small", "tiny", "name", "other", "day", "flag", "x", "f", "at", "later", "local", "price", "cost"),
    *("large", "padded", "folded", "many"),
)


def rows(spark: SparkSession) -> DataFrame:
    made = spark.sql(
        """SELECT n, small, CAST(small % 11 AS TINYINT) AS tiny, name, other, day, flag, x, CAST(x * 1.1 AS FLOAT) AS f,
        timestamp_micros(small * 86400000001L) AS at, timestamp_micros(n % 5) AS later,
        CAST(timestamp_micros(-small * 86400000001L) AS TIMESTAMP_NTZ) AS local,
        CAST(small AS DECIMAL(15, 3)) / 8 AS price, CAST(n AS DECIMAL(20, 4)) / 16 AS cost,
        CAST(n AS DECIMAL(38, 2)) AS large, name AS padded, name COLLATE UTF8_LCASE AS folded, array(n) AS many
        FROM VALUES
        (-1000000007L, cast(1 AS smallint), 'a', 'b', DATE'2024-02-29', true, double('NaN')),
        (123456789012L, cast(-1 AS smallint), 'é', 'é', DATE'0001-01-01', false, 1.0D),
        (-7, cast(NULL AS smallint), 'delete', NULL, DATE'1969-12-31', NULL, NULL),
        (-4, cast(3 AS smallint), 'z', '😀', NULL, true, 0.0D),
        (NULL, cast(1003 AS smallint), '', ' ', DATE'9999-12-31', true, -0.0D),
        (3, cast(-1003 AS smallint), NULL, NULL, DATE'2024-02-29', NULL, 1e300D),
        (0, cast(0 AS smallint), 'ﬀ', '𐀀', DATE'2024-02-28', false, 0.1D)
        AS v(n, small, name, other, day, flag, x)"""
    )
    made = made.withColumns(
        {"price": F.col("price").cast("decimal(15,3)"), "cost": F.col("cost").cast("decimal(20,4)")}
    )
    return made.withMetadata("padded", {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"})


def read(node: Node, source: DataFrame) -> Value | None:
    def place(name: Name) -> int | None:
        return COLUMNS.index(name.parts[-1]) if name.parts[-1] in COLUMNS else None

    return arrow_value(node, Columns(place, source.schema.fields, "UTC"))


def in_arrow(value: Value, table: pa.Table) -> pa.Array:
    names = dict(enumerate(COLUMNS))

    def none(_: object) -> None:
        raise AssertionError

    row = RowValue(value, source=names)
    found: pa.Array = row.of(len(table), none, lambda name: table.column(name).combine_chunks(), none)
    return found


@pytest.mark.parametrize("ansi", some(["true", "false"]))
def test_spark_says_the_same_of_every_row(spark: SparkSession, ansi: str) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    source = rows(spark)
    plain = source.drop("folded", "many").toArrow()
    table = plain.append_column("folded", plain.column("name")).append_column("many", plain.column("n"))
    told = source.selectExpr(*(f"({sql}) AS c{index}" for index, sql in enumerate(VALUES)))
    expected = told.toArrow()
    for index, sql in enumerate(VALUES):
        value = read(read_condition(sql), source)
        assert value is not None, sql
        kind = told.schema[index].dataType
        assert value.type == (arrow_of_plain(kind) or pa.null()), sql
        assert repr(in_arrow(value, table).to_pylist()) == repr(expected.column(index).to_pylist()), sql


def test_these_are_left_to_spark(spark: SparkSession) -> None:
    source = rows(spark)
    assert [sql for sql in LEFT_TO_SPARK if read(read_condition(sql), source) is not None] == []


def test_values_are_assigned_as_spark_casts_them(spark: SparkSession) -> None:
    source = rows(spark)
    table = source.select("small", "tiny", "n", "f", "price", "cost").toArrow()
    for name in set(COLUMNS) - set(table.column_names):
        table = table.append_column(name, pa.nulls(len(table)))
    for sql, kind in CASTS:
        wanted = source.selectExpr(f"CAST({sql} AS {kind}) AS value")
        value = read(read_condition(sql), source)
        assert value is not None
        assigned = assigned_value(value, wanted.schema.fields[0])
        assert assigned is not None and assigned.type == arrow_of_plain(wanted.schema[0].dataType), (sql, kind)
        assert repr(in_arrow(assigned, table).to_pylist()) == repr(wanted.toArrow().column(0).to_pylist()), sql


@pytest.mark.parametrize(("sql", "kind"), some(OVERFLOWS, 2))
def test_a_result_out_of_range_is_refused(spark: SparkSession, sql: str, kind: str) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "true")
    source = rows(spark)
    table = source.select("n", "small", "tiny", "price").toArrow()
    for name in set(COLUMNS) - set(table.column_names):
        table = table.append_column(name, pa.nulls(len(table)))
    value = read(read_condition(sql), source)
    assert value is not None
    assigned = assigned_value(value, source.selectExpr(f"CAST(NULL AS {kind}) AS value").schema.fields[0])
    assert assigned is not None
    with pytest.raises(pa.ArrowInvalid):
        in_arrow(assigned, table)
    with pytest.raises(PySparkException):
        source.selectExpr(f"CAST({sql} AS {kind}) AS value").collect()


if not CONNECT:

    def test_columns_are_read_as_they_print(spark: SparkSession) -> None:
        n, small, name, flag = F.col("n"), F.col("small"), F.col("name"), F.col("flag")
        columns = (
            n + small - 1,
            2 * n,
            F.concat(name, F.lit("x y"), F.col("other")),
            F.coalesce(name, F.lit("name")),
            F.when(n > 2, name).when(flag, "flag").otherwise(F.lit("other")),
            F.when(flag, n),
            F.col("at").cast("date"),
            F.to_date("local"),
        )
        source = rows(spark)
        table = source.drop("folded", "many").toArrow()
        for name_ in ("folded", "many"):
            table = table.append_column(name_, pa.nulls(len(table)))
        told = source.select(*(column.alias(f"c{i}") for i, column in enumerate(columns))).toArrow()
        for index, column in enumerate(columns):
            value = read(read_classic_column(str(column)), source)
            assert value is not None, column
            assert in_arrow(value, table).to_pylist() == told.column(index).to_pylist(), column
