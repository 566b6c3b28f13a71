"""Conditions that Arrow evaluates: Spark says the same of every row, also of those with NULLs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField

from deltamerge.merge.analysis.arrow_conditions import Columns, arrow_condition
from deltamerge.spark.column_trees import read_classic_column
from deltamerge.sql.condition_reader import read_condition
from deltamerge.sql.expression import Name, Node
from deltamerge.workers.conditions import ClauseChoice, Condition, evaluate
from merge.tables import CONNECT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ATOMS = (
    "s.n % 3 = 0",
    "s.n % 3 = -1",
    "(s.n % 4) <> s.small",
    "s.n > s.small",
    "s.n <= -2147483648",
    "s.n >= 9223372036854775807",
    "7 > s.small",
    "s.n BETWEEN s.small AND 5",
    "s.n NOT BETWEEN -3 AND 3",
    "s.n IN (1, 3, -9223372036854775808, s.small)",
    "s.name IN ('a', 'é')",
    "s.name NOT IN ('a')",
    "s.name = 'delete'",
    "s.name < 'é'",
    "s.name >= s.other",
    "s.name <=> s.other",
    "s.name IS DISTINCT FROM 'a'",
    "s.name IS NULL",
    "s.x IS NOT NULL",
    "s.day = DATE'2024-02-29'",
    "s.day > DATE'1970-01-01'",
    "s.at > s.later",
    "s.at <=> s.later",
    "s.at BETWEEN s.later AND s.at",
    "s.at IN (s.later)",
    "s.local <= s.later_local",
    "s.local <> s.later_local",
    "s.price > 1",
    "s.price <= s.cost",
    "s.price IN (0, s.cost, 7)",
    "s.cost BETWEEN s.price AND s.n",
    "s.small <=> s.price",
    "s.n % 3 < s.price",
    "s.n = 1.5",
    "2.50 < s.n",
    "s.n IN (3, 4.0)",
    "s.price > 1.5",
    "s.price BETWEEN 0.25 AND 0.750",
    "s.day = '2024-02-29'",
    "'2024-02-29' < s.day",
    "s.day IN ('2024-02-29', DATE'0001-01-01')",
    "s.day BETWEEN '1969-12-31' AND '2024-02-28'",
    "s.x > 0",
    "s.x >= 1",
    "0.5 < s.x",
    "1 >= s.x",
    "s.x < 1e0",
    "s.x <= 0",
    "s.x = 0.0",
    "s.x <> 1",
    "s.x IN (0, 1.0D)",
    "s.x NOT BETWEEN 0 AND 0.5",
    "s.at > TIMESTAMP'1970-01-01 00:00:00.000001'",
    "s.at <= '1970-01-01 00:00:00'",
    "s.later = TIMESTAMP_LTZ'1970-01-01T00:00:00.000003Z'",
    "s.local > '1970-01-01'",
    "s.local <= TIMESTAMP_NTZ'1970-01-01 00:16:40.000001'",
    "year(s.day) = 2024",
    "year(s.local) < 1970",
    "QUARTER(s.day) IN (1, 4)",
    "year(s.at) = 1970",
    "month(s.day) BETWEEN s.small AND 12",
    "day(s.day) > 28",
    "dayofmonth(s.local) <=> s.small",
    "s.name LIKE 'a%'",
    "s.name LIKE '%l%'",
    "s.name NOT LIKE 'é'",
    "s.name LIKE '%é'",
    "s.other LIKE ''",
    "s.other LIKE '%'",
    "startswith(s.name, 'a')",
    "s.flag",
    "s.flag IS TRUE",
    "s.flag <=> (s.n = 3)",
    "s.flag = false",
    "true",
    "1 = 2",
)
LEFT_TO_SPARK = (
    "s.n = '3'",
    "s.n = NULL",
    "s.n IN (1, NULL)",
    "mod(s.n, 2) = 1",
    "s.n % 0 = 0",
    "s.name = '${a}'",
    "s.n % s.small = 0",
    "s.n % -1 = 0",
    "s.n % 2 + 1 = 1",
    "-s.n % 2 = 1",
    "s.n + 1 = 2",
    "s.price = '1'",
    "s.large > 1",
    "s.price % 2 = 0",
    "s.price > s.x",
    "s.at = s.local",
    "s.at > s.day",
    "s.x = s.x",
    "s.x <=> 1",
    "s.x > 9007199254740993",
    "s.x > '1'",
    "s.day = '2024-2-29'",
    "s.day > 'x'",
    "s.at > s.local AND true",
    "s.price > 1.0000000000000000001",
    "s.flag < true",
    "s.name LIKE s.other",
    "s.name NOT LIKE '_'",
    "s.name LIKE 'd%e'",
    "s.name LIKE 'a\\\\%'",
    "s.folded LIKE 'A%'",
    "year(s.name) = 2024",
    "year(s.n) = 2024",
    "year(DATE'2024-01-01') = s.n",
    "year(s.day) + 1 = 2024",
    "dayofweek(s.day) = 1",
    "upper(s.name) = 'A'",
    "s.padded = 'a'",
    "s.folded = 'A'",
    "s.n = t.n",
    "s.missing = 1",
    "s.n",
    "'true'",
    "rand() > 1",
)
COLUMNS = (
    *("n", "small", "name", "other", "day", "flag", "x", "padded", "folded"),
    *("at", "later", "local", "later_local", "price", "cost", "large"),
)


def rows(spark: SparkSession) -> DataFrame:
    made = spark.sql(
        """SELECT n, small, name, other, day, flag, x, name AS padded, name COLLATE UTF8_LCASE AS folded,
        timestamp_micros(small) AS at, timestamp_micros(n % 5) AS later,
        CAST(timestamp_micros(small * 1000000001L) AS TIMESTAMP_NTZ) AS local,
        CAST(timestamp_micros(n % 5 * 1000000001L) AS TIMESTAMP_NTZ) AS later_local,
        CAST(small AS DECIMAL(15, 2)) / 4 AS price, CAST(n AS DECIMAL(38, 18)) AS cost,
        CAST(n AS DECIMAL(38, 2)) AS large FROM VALUES
        (-9223372036854775808, cast(1 AS smallint), 'a', 'b', DATE'2024-02-29', true, double('NaN')),
        (9223372036854775807, cast(-1 AS smallint), 'é', 'é', DATE'0001-01-01', false, 1.0),
        (-7, cast(NULL AS smallint), 'delete', NULL, DATE'1969-12-31', NULL, NULL),
        (-4, cast(3 AS smallint), 'z', '😀', NULL, true, 0.0),
        (NULL, cast(3 AS smallint), '', ' ', DATE'9999-12-31', true, 0.0),
        (3, cast(3 AS smallint), NULL, NULL, DATE'2024-02-29', NULL, NULL),
        (0, cast(0 AS smallint), 'ﬀ', '𐀀', DATE'2024-02-28', false, 1.0),
        (5, cast(-4 AS smallint), 'A', 'a', DATE'2024-03-01', false, -0.0)
        AS v(n, small, name, other, day, flag, x)"""
    )
    return made.withMetadata("padded", {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"})


def read(node: Node, source: DataFrame) -> Condition | None:
    def column(name: Name) -> int | None:
        known = name.parts[0] == "s" and name.parts[-1] in COLUMNS
        return COLUMNS.index(name.parts[-1]) if known else None

    return arrow_condition(node, Columns(column, source.schema.fields, "UTC"))


def in_arrow(condition: Condition, table: pa.Table) -> list[bool | None]:
    value = evaluate(condition, table.rename_columns([str(index) for index in range(table.num_columns)]))
    if isinstance(value, pa.Scalar):
        return [value.as_py()] * len(table)
    found: list[bool | None] = value.to_pylist()
    return found


def random_condition(random_: random.Random, depth: int) -> str:
    if not depth:
        return random_.choice(ATOMS)
    parts = [random_condition(random_, depth - 1) for _ in range(random_.choice((1, 2, 3)))]
    if len(parts) == 1:
        return f"NOT ({parts[0]})"
    return random_.choice((" AND ", " OR ")).join(f"({part})" for part in parts)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_spark_says_the_same_of_every_row(spark: SparkSession, ansi: str) -> None:
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    random_ = random.Random(7)
    conditions = [*ATOMS, *(random_condition(random_, random_.choice((1, 2))) for _ in range(60))]
    source = rows(spark)
    table = source.toArrow()
    told = source.alias("s").selectExpr(*(f"({text}) AS c{i}" for i, text in enumerate(conditions))).toArrow()
    for index, text in enumerate(conditions):
        condition = read(read_condition(text), source)
        assert condition is not None, text
        assert in_arrow(condition, table) == told.column(index).to_pylist(), text


def test_strings_that_are_not_utf8(spark: SparkSession) -> None:
    conditions = ["s.name LIKE 'a%'", "s.name LIKE '%b'", "s.name LIKE '%é%'", "s.name LIKE '%'", "s.name LIKE 'a'"]
    source = spark.sql(
        "SELECT CAST(b AS STRING) AS name FROM VALUES (X'61FF62'), (X'61C362'), (X'FF'), (X'C3C3A9FF'), (X'61') AS v(b)"
    )
    bytes_read = [bytes(row.b) for row in source.selectExpr("CAST(name AS BINARY) AS b").collect()]
    table = pa.table({"name": pa.array(bytes_read, pa.binary()).view(pa.string())})
    told = source.alias("s").selectExpr(*(f"({text}) AS c{i}" for i, text in enumerate(conditions))).collect()
    for index, text in enumerate(conditions):
        like = read_condition(text.replace("s.name", "s.n"))
        condition = arrow_condition(like, Columns(lambda _: 0, source.schema.fields, "UTC"))
        assert condition is not None, text
        assert in_arrow(condition, table) == [row[index] for row in told], text


def test_these_are_left_to_spark(spark: SparkSession) -> None:
    source = rows(spark)
    assert [text for text in LEFT_TO_SPARK if read(read_condition(text), source) is not None] == []


if not CONNECT:

    def test_columns_are_read_as_they_print(spark: SparkSession) -> None:
        n, name = F.col("s.n"), F.col("s.name")
        columns = (
            n % 3 == 0,
            (n > 2) & ~name.isNull() | (F.col("s.flag")),
            name.isin("a", "é") & n.between(-5, 5),
            name.eqNullSafe(F.col("s.other")),
        )
        source = rows(spark)
        table = source.toArrow()
        told = source.alias("s").select(*(c.alias(f"c{i}") for i, c in enumerate(columns))).toArrow()
        for index, column in enumerate(columns):
            condition = read(read_classic_column(str(column)), source)
            assert condition is not None, column
            assert in_arrow(condition, table) == told.column(index).to_pylist()
        for left in (n == 1.5, name == "it's", n + 1 == 2, n == "1"):
            assert read(read_classic_column(str(left)), source) is None, left


def test_condition_without_columns(spark: SparkSession) -> None:
    condition = read(read_condition("1 = 1"), rows(spark))
    assert condition is not None
    choice = ClauseChoice(((0, condition), (1, None)), frozenset({0, 1}))
    assert choice.columns == frozenset()
    assert choice.of(pa.table({"0": [None, 1]}), 2).to_pylist() == [0, 0]


def test_long_chains_of_columns() -> None:
    """A Column's operators have two operands each: ``(((a = 1) OR (a = 2)) OR …)``."""
    fields = [StructField("a", LongType())]
    columns = Columns(lambda name: 0, fields)
    printed = "(a = 0)"
    for number in range(1, 100):
        printed = f"({printed} OR (a = {number}))"
    found = arrow_condition(read_classic_column(printed), columns)
    assert found is not None
    assert evaluate(found, pa.table({"0": [3, 99, 100, None]})).to_pylist() == [True, True, False, None]
