"""Who makes new and updated rows of a key lookup: PyArrow, or Spark and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from deltamerge.merge.planning.changed_rows import reached, takes_all
from deltamerge.merge.planning.context import SessionFacts

from .merges import (
    BY_KEY,
    COMPUTE,
    COUNT,
    DELETE,
    INSERT,
    PEOPLE,
    PLAIN,
    UPSERT,
    VECTORS,
    Columns,
    File,
    Table,
    choices,
    context_of,
    declined_of,
    plan_of,
)

ARROW = ("changed_rows", "arrow")
LOOKUP = ("match", "key_lookup")
BY_ARROW = "clauses write values of the source's rows, or what PyArrow computes of the rows"
OF_PAIRS = "Spark evaluates the clauses over only the rows that they may change; PyArrow writes what comes of it"
WIDER: Columns = {**PEOPLE, "extra": LongType()}


@pytest.mark.parametrize(
    "clauses",
    [
        UPSERT,
        DELETE,
        INSERT,
        "WHEN MATCHED THEN UPDATE SET n = s.n",
        "WHEN MATCHED THEN UPDATE SET n = s.id",
        "WHEN MATCHED THEN UPDATE SET n = s.n * 2, name = upper(s.name)",
        "WHEN MATCHED THEN UPDATE SET n = 7, name = DEFAULT",
        "WHEN MATCHED THEN UPDATE SET n = NULL",
        "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, s.n + 1)",
        "WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED THEN INSERT *",
        "WHEN MATCHED AND s.n % 2 = 0 THEN DELETE WHEN MATCHED AND my_function(s.n) THEN UPDATE SET n = s.n + 1",
        "WHEN MATCHED AND t.n < s.n THEN UPDATE SET *",
        "WHEN MATCHED AND t.name IS NULL THEN DELETE WHEN MATCHED AND s.n > t.n THEN UPDATE SET n = s.n",
        "WHEN MATCHED AND t.n = 1 AND s.name = 'a' OR t.day < s.day THEN DELETE",
        "WHEN MATCHED AND t.n = 1 THEN DO NOTHING WHEN MATCHED THEN DELETE",
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND my_function(s.n) THEN INSERT *",
    ],
)
def test_values_that_arrow_takes(tmp_path: Path, clauses: str) -> None:
    plan = plan_of(tmp_path, clauses)
    assert plan.match.choice == "key_lookup"
    assert (plan.changed_rows.choice, plan.changed_rows.reason) == ("arrow", BY_ARROW)
    assert plan.changed_rows.declined == ()


TARGET_ROW = "Spark computes a value that an UPDATE sets from the target's row"
COMPUTED = "a MATCHED condition on the target's row is more than plain comparisons"
PAIRS = "MATCHED conditions depend on the target's row, and Spark computes a value that an UPDATE sets"


@pytest.mark.parametrize(
    ("clauses", "reason"),
    [
        (COMPUTE, TARGET_ROW),
        ("WHEN MATCHED THEN UPDATE SET n = n + 1", TARGET_ROW),
        ("WHEN MATCHED THEN UPDATE SET name = concat(t.name, s.name)", TARGET_ROW),
        ("WHEN MATCHED THEN UPDATE SET n = (SELECT max(x) FROM u)", TARGET_ROW),
        ("WHEN MATCHED AND s.n = 1 THEN UPDATE SET n = t.n WHEN MATCHED THEN DELETE", TARGET_ROW),
        ("WHEN MATCHED AND t.n + 1 < s.n THEN UPDATE SET *", COMPUTED),
        ("WHEN MATCHED AND my_function(t.n) THEN DELETE", COMPUTED),
        ("WHEN MATCHED AND upper(t.name) = s.name THEN DELETE", COMPUTED),
        ("WHEN MATCHED AND t.n = '1' THEN DELETE", COMPUTED),
        ("WHEN MATCHED AND n = 1 THEN DELETE", COMPUTED),
        ("WHEN MATCHED AND t.n < s.n THEN UPDATE SET n = s.n + 1", PAIRS),
        ("WHEN MATCHED AND t.n < s.n THEN UPDATE SET n = 7", PAIRS),
        ("WHEN MATCHED AND t.n < s.n THEN UPDATE SET n = s.id", PAIRS),
        ("WHEN MATCHED AND t.n = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET name = upper(s.name)", PAIRS),
    ],
)
@pytest.mark.parametrize("table", [PLAIN, VECTORS], ids=["patch", "deletion_vector"])
def test_values_and_conditions_for_spark(tmp_path: Path, table: Table, clauses: str, reason: str) -> None:
    plan = plan_of(tmp_path, clauses, table=table)
    unchanged = "patch" if table is PLAIN else "deletion_vector"
    assert choices(plan) == ("key_lookup", "in_place", "pair_values", unchanged)
    assert plan.changed_rows.reason == OF_PAIRS
    assert declined_of(plan)[ARROW] == reason


@pytest.mark.parametrize(
    ("clauses", "types"),
    [
        (COUNT, [IntegerType()]),
        ("WHEN MATCHED THEN UPDATE SET n = t.n, name = t.name || '-' || s.name", [IntegerType(), StringType()]),
        ("WHEN MATCHED AND t.n < s.n THEN UPDATE SET n = 7, name = DEFAULT", [IntegerType()]),
        ("WHEN MATCHED AND t.n < s.n THEN UPDATE SET n = s.id", [LongType()]),
        ("WHEN MATCHED AND t.n < 3 THEN UPDATE SET n = CASE WHEN t.n > s.n THEN t.n ELSE s.n END", [IntegerType()]),
        (f"{UPSERT} WHEN NOT MATCHED BY SOURCE THEN UPDATE SET n = t.n + 1, day = NULL", [IntegerType(), NullType()]),
    ],
)
@pytest.mark.parametrize("table", [PLAIN, VECTORS], ids=["patch", "deletion_vector"])
def test_values_that_arrow_computes(tmp_path: Path, table: Table, clauses: str, types: list[DataType]) -> None:
    plan = plan_of(tmp_path, clauses, table=table, types=types)
    unchanged = "patch" if table is PLAIN else "deletion_vector"
    assert choices(plan) == ("key_lookup", "in_place", "arrow", unchanged)


def test_a_value_of_another_type_than_spark_gives_it_is_sparks(tmp_path: Path) -> None:
    """A Column's literals print alike: ``1`` may be of type BIGINT."""
    plan = plan_of(tmp_path, "WHEN MATCHED THEN UPDATE SET n = t.n + 1", types=[LongType()])
    assert declined_of(plan)[ARROW] == TARGET_ROW


@pytest.mark.parametrize(
    "clauses", ["WHEN MATCHED THEN UPDATE SET n = t.p + s.n", "WHEN MATCHED THEN UPDATE SET p = t.n"]
)
def test_partition_columns_are_not_computed_in_arrow(tmp_path: Path, clauses: str) -> None:
    table = partitioned("p", columns={**PEOPLE, "p": IntegerType()})
    plan = plan_of(tmp_path, clauses, table=table, types=[IntegerType()])
    assert choices(plan) == ("key_lookup", "in_place", "pair_values", "patch")


def generated(sql: str) -> Table:
    year = StructField("year", IntegerType(), True, {"delta.generationExpression": sql})
    return replace(PLAIN, columns={**PEOPLE, "year": year}, features=("generatedColumns",))


@pytest.mark.parametrize(("sql", "is_arrows"), [("year(day)", True), ("weekofyear(day)", False)])
def test_generated_columns(tmp_path: Path, sql: str, is_arrows: bool) -> None:
    clauses = "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (id, day) VALUES (s.id, s.day)"
    plan = plan_of(tmp_path, clauses, table=generated(sql), source=PEOPLE)
    reason = None if is_arrows else "Spark evaluates a generated column or a constraint over the target's row"
    assert declined_of(plan).get(ARROW) == reason


INVARIANT = StructField("n", IntegerType(), True, {"delta.invariants": '{"expression": {"expression": "n > 0"}}'})


POSITIVE = replace(PLAIN, properties={"delta.constraints.positive": "n > 0"}, features=("checkConstraints",))
SHORT = replace(PLAIN, properties={"delta.constraints.short": "length(name) < 9"}, features=("checkConstraints",))
FEED = replace(PLAIN, properties={"delta.enableChangeDataFeed": "true"}, features=("changeDataFeed",))


@pytest.mark.parametrize("clauses", [UPSERT, COMPUTE])
@pytest.mark.parametrize("table", [POSITIVE, FEED, replace(PLAIN, columns={**PEOPLE, "n": INVARIANT})])
def test_what_pyarrow_checks_and_records(tmp_path: Path, table: Table, clauses: str) -> None:
    plan = plan_of(tmp_path, clauses, table=table)
    assert choices(plan)[2:] == ("arrow" if clauses == UPSERT else "pair_values", "patch")


def test_constraint_that_spark_evaluates(tmp_path: Path) -> None:
    """Over the source's rows where these have all that it reads, else over the matched rows."""
    assert choices(plan_of(tmp_path / "t", UPSERT, table=SHORT))[2] == "arrow"
    plan = plan_of(tmp_path / "u", COMPUTE, table=SHORT)
    assert choices(plan)[2] == "pair_values"
    plan = plan_of(tmp_path / "v", "WHEN MATCHED THEN UPDATE SET n = s.n", table=SHORT)
    assert choices(plan)[2] == "pair_values"
    assert declined_of(plan)[ARROW] == "Spark evaluates a generated column or a constraint over the target's row"


NESTED: Columns = {
    "s": StructType([StructField("x", LongType(), False), StructField("y", ArrayType(DateType()))]),
    "a": ArrayType(StructType([StructField("x", DecimalType(9, 2))]), False),
    "m": MapType(StringType(), ArrayType(TimestampType())),
}


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_columns_of_nested_types(tmp_path: Path, name: str, mode: str) -> None:
    properties = {"delta.columnMapping.mode": mode}
    table = replace(PLAIN, columns={**PEOPLE, name: NESTED[name]}, properties=properties, features=("columnMapping",))
    assert choices(plan_of(tmp_path / "t", UPSERT, table=table)) == ("key_lookup", "in_place", "arrow", "patch")
    assert choices(plan_of(tmp_path / "u", COMPUTE, table=table)) == ("key_lookup", "in_place", "pair_values", "patch")
    of_evolution = plan_of(tmp_path / "v", UPSERT, table=table, evolution=True)
    assert of_evolution.changed_rows.choice == "arrow"


def test_fields_that_only_the_target_has(tmp_path: Path) -> None:
    """An UPDATE with schema evolution keeps them, which takes the target's row."""
    table = replace(PLAIN, columns={**PEOPLE, "s": NESTED["s"]})
    source = {**PEOPLE, "s": StructType([StructField("x", LongType(), False)])}
    plan = plan_of(tmp_path, UPSERT, table=table, source=source, evolution=True)
    assert choices(plan) == ("key_lookup", "in_place", "pair_values", "patch")
    assert declined_of(plan)[ARROW] == TARGET_ROW


@pytest.mark.parametrize("kind", ["char(3)", "varchar(3)"])
def test_columns_with_a_length(tmp_path: Path, kind: str) -> None:
    name = StructField("name", StringType(), True, {"__CHAR_VARCHAR_TYPE_STRING": kind})
    table = replace(PLAIN, columns={**PEOPLE, "name": name})
    assert choices(plan_of(tmp_path / "t", UPSERT, table=table)) == ("key_lookup", "in_place", "arrow", "patch")
    in_partitions = replace(table, partitions=("name",), files=(File((0, 9), values={"name": "a"}),))
    plan = plan_of(tmp_path / "u", UPSERT, table=in_partitions)
    assert declined_of(plan)["match", "key_lookup"] == f"the partition column name is of type {kind}"


def test_columns_that_are_not_null(tmp_path: Path) -> None:
    table = replace(PLAIN, columns={**PEOPLE, "n": StructField("n", IntegerType(), False)})
    assert choices(plan_of(tmp_path, UPSERT, table=table)) == ("key_lookup", "in_place", "arrow", "patch")


def test_new_columns(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "t", UPSERT, table=VECTORS, source=WIDER, evolution=True)
    assert choices(plan) == ("key_lookup", "in_place", "arrow", "deletion_vector")
    plan = plan_of(tmp_path / "u", INSERT, source=WIDER, evolution=True)
    assert choices(plan) == ("key_lookup", "in_place", "arrow", "none")
    plan = plan_of(tmp_path / "v", UPSERT, source=WIDER, evolution=False)
    assert plan.changed_rows.choice == "arrow"


@pytest.mark.parametrize(
    ("codec", "is_arrows"),
    [("snappy", True), ("ZSTD", True), ("none", True), ("lz4_raw", True), ("lz4", False), ("lzo", False)],
)
def test_codecs(tmp_path: Path, codec: str, is_arrows: bool) -> None:
    plan = plan_of(tmp_path, UPSERT, session=SessionFacts(compression=codec))
    assert (plan.changed_rows.choice == "arrow") == is_arrows
    assert declined_of(plan).get(LOOKUP) == (None if is_arrows else f"PyArrow has no codec {codec}")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (DayTimeIntervalType(), "interval day to second"),
        (StructType([StructField("v", VariantType())]), "struct<v:variant>"),
        (ArrayType(VariantType()), "array<variant>"),
        (MapType(StringType(), VariantType()), "map<string,variant>"),
    ],
)
def test_source_columns_that_do_not_pass_through_arrow(tmp_path: Path, kind: DataType, name: str) -> None:
    source = {**PEOPLE, "extra": kind}
    plan = plan_of(tmp_path / "t", COMPUTE, source=source)
    assert choices(plan) == ("join", "checkpoint", "spark", "patch")
    assert declined_of(plan)["match", "key_lookup"] == f"the source's column extra is of type {name}"
    assert plan_of(tmp_path / "u", UPSERT, source=source).changed_rows.choice == "arrow"


@pytest.mark.parametrize(
    "kind",
    [
        StructType([StructField("x", LongType())]),
        ArrayType(TimestampType()),
        MapType(StringType(), DecimalType(30, 5)),
    ],
)
def test_source_columns_that_pass_through_arrow(tmp_path: Path, kind: DataType) -> None:
    plan = plan_of(tmp_path, COMPUTE, source={**PEOPLE, "extra": kind})
    assert choices(plan) == ("key_lookup", "in_place", "pair_values", "patch")


def partitioned(*names: str, columns: Columns = PEOPLE) -> Table:
    values = dict.fromkeys(names, "1")
    return replace(PLAIN, columns=columns, partitions=names, files=(File((0, 9), values=values),))


@pytest.mark.parametrize(
    ("clauses", "on", "table", "reason"),
    [
        (
            INSERT,
            BY_KEY,
            partitioned("at", columns={**PEOPLE, "at": TimestampType()}),
            "the partition column at is of type timestamp",
        ),
    ],
)
def test_partitions_that_arrow_does_not_know(tmp_path: Path, clauses: str, on: str, table: Table, reason: str) -> None:
    plan = plan_of(tmp_path, clauses, on, table)
    assert (plan.match.choice, plan.changed_rows.choice) == ("anti_join", "spark")
    assert reason in declined_of(plan)[LOOKUP]


def test_partitions_that_no_worker_reads(tmp_path: Path) -> None:
    table = partitioned("price", columns={**PEOPLE, "price": DecimalType(10, 2)})
    plan = plan_of(tmp_path, "WHEN MATCHED THEN UPDATE SET n = t.n + s.n", table=table)
    assert plan.match.choice == "join"
    assert declined_of(plan)["match", "key_lookup"] == "the partition column price is of type decimal(10,2)"


@pytest.mark.parametrize(
    ("clauses", "on"),
    [
        (UPSERT, "t.id = s.id AND t.name = s.name"),
        ("WHEN MATCHED THEN UPDATE SET n = s.n", BY_KEY),
        ("WHEN MATCHED THEN UPDATE SET * EXCEPT (name)", BY_KEY),
        ("WHEN MATCHED THEN UPDATE SET name = s.name", "t.id = s.id AND t.name = s.name"),
        (DELETE, BY_KEY),
        (INSERT, BY_KEY),
        ("WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, upper(s.name))", BY_KEY),
        (
            (
                "WHEN NOT MATCHED AND s.n = 1 THEN INSERT * "
                "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"
            ),
            BY_KEY,
        ),
    ],
)
def test_partitions_that_arrow_knows(tmp_path: Path, clauses: str, on: str) -> None:
    plan = plan_of(tmp_path, clauses, on, partitioned("name"))
    assert choices(plan)[:3] == ("key_lookup", "in_place", "arrow")


@pytest.mark.parametrize("kind", [StringType(), DateType(), IntegerType(), LongType()])
def test_types_of_partitions_that_arrow_knows(tmp_path: Path, kind: DataType) -> None:
    table = partitioned("part", columns={**PEOPLE, "part": kind})
    assert plan_of(tmp_path, INSERT, table=table).changed_rows.choice == "arrow"


@pytest.mark.parametrize(
    ("clauses", "numbers", "is_first"),
    [
        (UPSERT, [0], True),
        (INSERT, [], True),
        ("WHEN MATCHED AND s.n = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET *", [0, 1], False),
        ("WHEN MATCHED AND s.n = 1 THEN DELETE", [0], False),
    ],
)
def test_clauses_that_rows_reach(tmp_path: Path, clauses: str, numbers: list[int], is_first: bool) -> None:
    context = context_of(tmp_path, clauses)
    assert [clause.number for clause in reached(context)] == numbers
    assert takes_all(context) == is_first
