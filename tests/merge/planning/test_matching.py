"""How matches are found: what is for and against a key lookup, an anti join and a join."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from deltamerge.merge.limits import Limits
from deltamerge.merge.planning.context import SessionFacts
from deltamerge.merge.planning.planner import make_plan

from .merges import (
    BY_EXPRESSION,
    BY_KEY,
    CONVERTED,
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

LOOKUP = ("match", "key_lookup")
NOT_OPTIMIZED = "spark.databricks.delta.merge.optimizeInsertOnlyMerge.enabled is false"
IDENTITY = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": True}
CHAR = StructField("name", StringType(), True, {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"})


MAY_FAIL = "which may fail for source rows that ON rules out"
MORE_THAN_KEYS = "ON has conditions besides equal keys that only Spark evaluates, or that compare both sides"


def with_column(name: str, kind: DataType | StructField, **changes: Any) -> Table:
    return replace(PLAIN, columns={**PEOPLE, name: kind}, **changes)


@pytest.mark.parametrize(
    ("on", "reason"),
    [
        ("t.n > s.n", "ON equates no column of the target with one of the source"),
        ("t.id = 5", "ON equates no column of the target with one of the source"),
        ("true", "ON equates no column of the target with one of the source"),
        ("my_function(t.id, s.id)", "ON equates no column of the target with one of the source"),
        ("t.id IN (SELECT id FROM u)", "ON equates no column of the target with one of the source"),
        ("t.id = s.id AND t.n > s.n", MORE_THAN_KEYS),
        ("t.id = s.id AND my_function(t.n)", MORE_THAN_KEYS),
        ("t.id = s.id AND t.n + s.n = 3", MORE_THAN_KEYS),
        ("t.id = s.id + 1 AND s.n > 0", f"ON compares id with an expression, {MAY_FAIL}"),
        ("t.id = s.name", "the key id is bigint in the target and string in the source"),
        ("t.ID = s.id AND t.id = s.id", "ON equates a column of the target twice"),
    ],
)
def test_on_is_more_than_equal_keys(tmp_path: Path, on: str, reason: str) -> None:
    plan = plan_of(tmp_path, UPSERT, on)
    assert choices(plan) == ("join", "checkpoint", "spark", "patch")
    assert declined_of(plan)[LOOKUP] == reason


@pytest.mark.parametrize(
    "on",
    [
        *("t.id = s.id", "s.id = t.id", "(t.id = s.id)", "t.ID = s.Id", "t.id = s.n", "t.id <=> s.id"),
        *("t.id = s.id AND t.n > 5", "t.id = s.id AND s.n > 5 AND t.name <> 'x'"),
    ],
)
def test_on_equates_one_key(tmp_path: Path, on: str) -> None:
    plan = plan_of(tmp_path, UPSERT, on)
    assert choices(plan) == ("key_lookup", "in_place", "arrow", "patch")
    assert plan.match.reason == "ON only equates plain keys, so each file's key columns are looked up in the source's"
    assert plan.match.declined == ()


def test_on_equates_an_expression(tmp_path: Path) -> None:
    context = context_of(tmp_path, UPSERT, "t.id = s.id + 1")
    plan = make_plan(replace(context, key_types={"s.id + 1": LongType()}))
    assert choices(plan) == ("key_lookup", "staged", "arrow", "patch")
    reason = "ON compares a key with an expression, which Spark computes of the source's rows"
    assert declined_of(plan)["source", "in_place"] == reason


def test_on_equates_several_keys(tmp_path: Path) -> None:
    on = "t.id = s.id AND s.name = t.name AND (t.n = s.n AND t.day = s.day)"
    assert plan_of(tmp_path, UPSERT, on).match.choice == "key_lookup"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (DoubleType(), "the key key is of type double, which Arrow does not compare as Spark does"),
        (
            StringType("UTF8_LCASE"),
            "the key key is of type string collate UTF8_LCASE, which Arrow does not compare as Spark does",
        ),
    ],
)
def test_keys_that_arrow_does_not_compare(tmp_path: Path, kind: DataType, reason: str) -> None:
    plan = plan_of(tmp_path, UPSERT, "t.key = s.key", with_column("key", kind))
    assert plan.match.choice == "join"
    assert declined_of(plan)[LOOKUP] == reason


SOME_COLUMNS = "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"


def property_of(name: str, value: str, *features: str, **changes: Any) -> Table:
    return replace(PLAIN, properties={f"delta.{name}": value}, features=features, **changes)


WIDENED = StructField("n", LongType(), True, {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]})


@pytest.mark.parametrize(
    ("table", "match", "reason"),
    [
        (
            property_of("columnMapping.mode", "ID", "columnMapping", columns={**PEOPLE, "n": CONVERTED}),
            "join",
            "files may name columns otherwise than the table does (column mapping by id)",
        ),
        (with_column("v", VariantType(), features=("variantType",)), "join", "column v is of type variant"),
        (
            with_column("s", StructType([StructField("v", ArrayType(VariantType()))]), features=("variantType",)),
            "join",
            "column s is of type struct<v:array<variant>>",
        ),
        (
            replace(PLAIN, features=("deletionVectors",), files=(File((0, 9), vector=True),)),
            "join",
            "the table has deletion vectors and is to get no more of them",
        ),
    ],
)
def test_rows_in_files_are_more_than_values_by_name(tmp_path: Path, table: Table, match: str, reason: str) -> None:
    plan = plan_of(tmp_path, SOME_COLUMNS, table=table)
    assert plan.match.choice == match
    assert declined_of(plan)[LOOKUP] == reason


@pytest.mark.parametrize(
    ("properties", "features"),
    [
        ({"delta.columnMapping.mode": "none"}, ()),
        ({"delta.columnMapping.mode": "name"}, ("columnMapping",)),
        ({"delta.enableRowTracking": "true"}, ("rowTracking", "domainMetadata")),
        ({"delta.enableTypeWidening": "true"}, ("typeWidening",)),
        ({"delta.enableChangeDataFeed": "true"}, ("changeDataFeed",)),
        ({}, ("rowTracking", "domainMetadata", "columnMapping", "typeWidening")),
    ],
)
def test_features_that_are_not_in_use(tmp_path: Path, properties: dict[str, str], features: tuple[str, ...]) -> None:
    table = replace(PLAIN, properties=properties, features=features)
    assert plan_of(tmp_path, UPSERT, table=table).match.choice == "key_lookup"


def test_ids_lead_to_the_names_that_delta_writers_generate(tmp_path: Path) -> None:
    names = {"id": LongType(), "n": IntegerType()}
    mapped = {
        name: StructField(
            name,
            kind,
            True,
            {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"col-00000000-0000-0000-0000-{number:012}",
            },
        )
        for number, (name, kind) in enumerate(names.items(), 1)
    }
    table = property_of("columnMapping.mode", "id", "columnMapping", columns=mapped)
    assert choices(plan_of(tmp_path, UPSERT, table=table)) == ("key_lookup", "in_place", "arrow", "patch")


def test_files_with_deletion_vectors(tmp_path: Path) -> None:
    table = replace(VECTORS, files=(File((0, 9), vector=True),))
    assert choices(plan_of(tmp_path / "on", UPSERT, table=table))[0] == "key_lookup"
    off = {"deletion_vectors_persistent": False}
    plan = plan_of(tmp_path / "off", UPSERT, table=table, conf=off)
    assert declined_of(plan)[LOOKUP] == "the table has deletion vectors and is to get no more of them"


@pytest.mark.parametrize("column", ["day", "at"])
def test_dates_that_are_rebased_as_they_are_read(tmp_path: Path, column: str) -> None:
    table = replace(PLAIN, columns={"id": LongType(), column: PEOPLE["day"] if column == "day" else TimestampType()})
    plan = plan_of(tmp_path / "t", UPSERT, table=table, session=SessionFacts(rebases_dates=True))
    reason = "spark.sql.parquet.datetimeRebaseModeInRead changes dates as they are read"
    assert declined_of(plan)[LOOKUP] == reason
    numbers: Columns = {"id": LongType(), "n": IntegerType()}
    table = replace(PLAIN, columns=numbers)
    plan = plan_of(tmp_path / "u", UPSERT, table=table, session=SessionFacts(rebases_dates=True))
    assert plan.match.choice == "key_lookup"


def test_store_that_tasks_do_not_open(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, UPSERT, session=SessionFacts(not_opened="it is elsewhere"))
    reason = "it is elsewhere"
    assert choices(plan) == ("join", "checkpoint", "spark", "rewrite")
    assert declined_of(plan)[LOOKUP] == reason
    assert declined_of(plan)["unchanged_rows", "patch"] == reason


BY_SOURCE = "WHEN NOT MATCHED BY SOURCE"


@pytest.mark.parametrize(
    ("clauses", "reason"),
    [
        (
            f"{BY_SOURCE} AND t.n + 1 = 2 THEN DELETE",
            "a NOT MATCHED BY SOURCE condition is more than plain comparisons",
        ),
        (
            f"{BY_SOURCE} AND my_function(t.n) THEN DO NOTHING {BY_SOURCE} THEN DELETE",
            "a NOT MATCHED BY SOURCE condition is more than plain comparisons",
        ),
    ],
)
def test_by_source_clauses_for_a_join(tmp_path: Path, clauses: str, reason: str) -> None:
    plan = plan_of(tmp_path, f"{UPSERT} {clauses}")
    assert choices(plan) == ("join", "checkpoint", "spark", "patch")
    assert declined_of(plan)[LOOKUP] == reason


@pytest.mark.parametrize(
    "clauses",
    [
        f"{BY_SOURCE} THEN DELETE",
        f"{BY_SOURCE} AND t.n BETWEEN 1 AND 5 THEN DELETE",
        f"{BY_SOURCE} AND name IS NULL THEN DO NOTHING {BY_SOURCE} THEN DELETE",
        f"{BY_SOURCE} AND my_function(t.n) THEN DO NOTHING",
    ],
)
def test_by_source_clauses_for_a_lookup(tmp_path: Path, clauses: str) -> None:
    plan = plan_of(tmp_path, f"{UPSERT} {clauses}")
    assert choices(plan) == ("key_lookup", "in_place", "arrow", "patch")


@pytest.mark.parametrize("table", [PLAIN, VECTORS])
def test_by_source_clauses_that_update(tmp_path: Path, table: Table) -> None:
    clauses = f"{UPSERT} {BY_SOURCE} AND t.n = 1 THEN DELETE {BY_SOURCE} THEN UPDATE SET n = t.n + 1"
    plan = plan_of(tmp_path, clauses, table=table)
    assert choices(plan) == ("key_lookup", "in_place", "pair_values", "patch" if table is PLAIN else "deletion_vector")


def test_by_source_clause_that_may_change_very_many_rows(tmp_path: Path) -> None:
    clauses, limits = f"{UPSERT} {BY_SOURCE} THEN DELETE", Limits(unmatched_rows=1_999)
    plan = plan_of(tmp_path / "t", clauses, limits=limits)
    reason = "a NOT MATCHED BY SOURCE clause may change more rows than a key lookup holds positions of"
    assert declined_of(plan)[LOOKUP] == reason
    plan = plan_of(tmp_path / "u", clauses, limits=Limits(unmatched_rows=2_000))
    assert plan.match.choice == "key_lookup"


@pytest.mark.parametrize("kept", ["none", "all", "auto"])
def test_key_lookups_keep_the_source(tmp_path: Path, kept: str) -> None:
    plan = plan_of(tmp_path, UPSERT, conf={"materialize_source": kept})
    assert (plan.match.choice == "key_lookup") == (kept != "none")
    if kept == "none":
        assert declined_of(plan) == {
            LOOKUP: (
                "spark.databricks.delta.merge.materializeSource is none, and a key lookup keeps the source's rows"
            ),
            ("match", "anti_join"): "there are clauses that update or delete",
            ("match", "join"): "the source is not kept, and may return other rows each time that it is read",
            ("source", "checkpoint"): "spark.databricks.delta.merge.materializeSource is none",
            ("unchanged_rows", "deletion_vector"): (
                "the table does not write deletion vectors (delta.enableDeletionVectors)"
            ),
            ("unchanged_rows", "none"): "there are clauses that update or delete",
        }


@pytest.mark.parametrize("on", [BY_KEY, BY_EXPRESSION])
def test_insert_only_merges_that_are_not_optimized(tmp_path: Path, on: str) -> None:
    plan = plan_of(tmp_path, INSERT, on, conf={"optimize_insert_only_merge": False})
    assert choices(plan) == ("join_files", "checkpoint", "spark", "none")
    found = declined_of(plan)
    assert found["match", "anti_join"] == NOT_OPTIMIZED
    assert found["match", "join"] == "there are only NOT MATCHED clauses"
    assert (found[LOOKUP] == NOT_OPTIMIZED) == (on == BY_KEY) or on == BY_EXPRESSION


def test_insert_only_merges_without_plain_keys(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, INSERT, BY_EXPRESSION)
    assert plan.name == "insert_only"
    assert plan.match.reason == (
        "there are only NOT MATCHED clauses, so it is enough to know which source rows have no match"
    )


def test_identity_columns(tmp_path: Path) -> None:
    table = with_column("i", StructField("i", LongType(), True, IDENTITY), features=("identityColumns",))
    plan = plan_of(tmp_path / "t", SOME_COLUMNS, table=table)
    assert choices(plan) == ("key_lookup", "in_place", "arrow", "patch")
    assert plan_of(tmp_path / "u", SOME_COLUMNS, BY_EXPRESSION, table).match.choice == "join"
    assert plan_of(tmp_path / "v", INSERT, BY_EXPRESSION, table).match.choice == "anti_join"
    assert plan_of(tmp_path / "w", DELETE, table=table).changed_rows.choice == "arrow"


def test_join_has_its_reason(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, DELETE, BY_EXPRESSION)
    assert plan.match.reason == (
        "only rows that change are computed; the others are neither joined a second time nor shuffled"
    )


def test_conditions_that_are_not_read_do_not_leave_out_files(tmp_path: Path) -> None:
    context = context_of(tmp_path, UPSERT, "my_function(t.id) = s.id AND t.id > my_function(5)")
    assert context.files.num_files == 2
    assert not context.references.is_deterministic


def test_files_that_on_rules_out_are_left_out(tmp_path: Path) -> None:
    assert context_of(tmp_path / "t", UPSERT, "t.id = s.id AND t.id < 500").files.num_files == 1
    clauses = f"{UPSERT} {BY_SOURCE} AND t.id = 1_500 THEN DELETE".replace("1_500", "1500")
    assert context_of(tmp_path / "u", clauses, "t.id = s.id AND t.id < 500").files.num_files == 2
    clauses = f"{UPSERT} {BY_SOURCE} THEN DELETE"
    assert context_of(tmp_path / "v", clauses, "t.id = s.id AND t.id < 500").files.num_files == 2


@pytest.mark.parametrize("kind", [DecimalType(10, 2), TimestampType()])
def test_keys_of_rarer_types(tmp_path: Path, kind: DataType) -> None:
    table = with_column("key", kind)
    assert plan_of(tmp_path / "t", UPSERT, "t.key = s.key", table).match.choice == "key_lookup"
    plan = plan_of(tmp_path / "u", UPSERT, "t.key = s.key", replace(table, partitions=("key",)))
    assert declined_of(plan)[LOOKUP] == f"the partition column key is of type {kind.simpleString()}"
