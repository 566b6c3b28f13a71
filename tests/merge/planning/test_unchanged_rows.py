"""What becomes of the rows of touched files that no clause changes, and how the source is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType, VariantType

from deltamerge.merge.limits import Limits
from deltamerge.merge.planning.context import SessionFacts

from .merges import (
    BY_EXPRESSION,
    COMPUTE,
    CONVERTED,
    DELETE,
    INSERT,
    MIB,
    PEOPLE,
    PLAIN,
    UPSERT,
    VECTORS,
    Columns,
    File,
    Table,
    choices,
    declined_of,
    plan_of,
)

PATCH = ("unchanged_rows", "patch")
VECTOR = ("unchanged_rows", "deletion_vector")
NO_VECTORS = "the table does not write deletion vectors (delta.enableDeletionVectors)"
WIDER: Columns = {**PEOPLE, "extra": LongType()}
WIDENED = StructField("n", LongType(), True, {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]})
NEW_PARTS = "the table gets new parts of column extra, which some readers require in every file"


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (
            replace(PLAIN, features=("deletionVectors",), files=(File((0, 9), vector=True),)),
            "files of the table have deletion vectors",
        ),
        (
            replace(PLAIN, columns={**PEOPLE, "v": VariantType()}, features=("variantType",)),
            "the table has VARIANT columns",
        ),
        (
            replace(
                PLAIN,
                columns={**PEOPLE, "n": CONVERTED},
                properties={"delta.columnMapping.mode": "id"},
                features=("columnMapping",),
            ),
            "files may name columns otherwise than the table does (column mapping by id)",
        ),
    ],
)
def test_files_that_are_not_patched(tmp_path: Path, table: Table, reason: str) -> None:
    plan = plan_of(tmp_path, UPSERT, table=table)
    assert choices(plan) == ("join", "checkpoint", "spark", "rewrite")
    assert plan.unchanged_rows.reason == "Spark copies the rows that do not change, without a join"
    found = declined_of(plan)
    assert (found[PATCH], found[VECTOR]) == (reason, NO_VECTORS)


def test_patched_files(tmp_path: Path) -> None:
    places = "PyArrow copies touched files with the changed rows in their places"
    left_out = "PyArrow copies touched files without the rows that change"
    rest = "; their other rows are not decoded into Spark's"
    assert plan_of(tmp_path / "t", UPSERT).unchanged_rows.reason == places + rest
    assert plan_of(tmp_path / "u", COMPUTE).unchanged_rows.reason == places + rest
    assert plan_of(tmp_path / "v", UPSERT, BY_EXPRESSION).unchanged_rows.reason == left_out + rest
    widened = replace(PLAIN, columns={**PEOPLE, "s": StructType([WIDENED])}, features=("typeWidening",))
    assert plan_of(tmp_path / "x", UPSERT, table=widened).unchanged_rows.reason == places + rest
    mapped = replace(PLAIN, properties={"delta.columnMapping.mode": "id"}, features=("columnMapping",))
    assert plan_of(tmp_path / "w", UPSERT, table=mapped).unchanged_rows.reason == places + rest


def test_new_columns(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "t", UPSERT, source=WIDER, evolution=True)
    assert choices(plan) == ("key_lookup", "in_place", "arrow", "patch")
    nested: Columns = {**PEOPLE, "extra": StructType([StructField("x", LongType())])}
    plan = plan_of(tmp_path / "v", UPSERT, source=nested, evolution=True)
    assert choices(plan) == ("key_lookup", "in_place", "arrow", "patch")
    variant: Columns = {**PEOPLE, "extra": StructType([StructField("x", VariantType())])}
    plan = plan_of(tmp_path / "u", UPSERT, source=variant, evolution=True)
    assert choices(plan) == ("join", "checkpoint", "spark", "rewrite")
    assert declined_of(plan)["match", "key_lookup"] == "column extra is of type struct<x:variant>"
    assert declined_of(plan)[PATCH] == NEW_PARTS


@pytest.mark.parametrize("on", ["t.id = s.id", BY_EXPRESSION])
def test_deletion_vectors(tmp_path: Path, on: str) -> None:
    plan = plan_of(tmp_path / "t", UPSERT, on, VECTORS)
    assert plan.unchanged_rows.choice == "deletion_vector"
    assert plan.unchanged_rows.reason == "the table writes deletion vectors, so touched files stay as they are"
    off = {"deletion_vectors_persistent": False}
    plan = plan_of(tmp_path / "u", UPSERT, on, VECTORS, conf=off)
    assert (plan.unchanged_rows.choice, declined_of(plan)[VECTOR]) == ("patch", NO_VECTORS)
    unsupported = replace(VECTORS, features=())
    assert plan_of(tmp_path / "v", UPSERT, on, unsupported).unchanged_rows.choice == "patch"


def test_merges_that_touch_no_file(tmp_path: Path) -> None:
    for number, on in enumerate(("t.id = s.id", BY_EXPRESSION)):
        plan = plan_of(tmp_path / str(number), INSERT, on, VECTORS)
        assert plan.unchanged_rows.choice == "none"
        assert plan.unchanged_rows.reason == "no clause updates or deletes, so no file is touched"
    plan = plan_of(tmp_path / "touched", DELETE)
    assert declined_of(plan)["unchanged_rows", "none"] == "there are clauses that update or delete"


IDENTITY = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": False}
NUMBERED = replace(
    PLAIN,
    columns={**PEOPLE, "number": StructField("number", LongType(), True, IDENTITY)},
    features=("identityColumns",),
)
INSERT_UNNUMBERED = "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, s.n)"
SMALL = replace(PLAIN, files=(File((0, 999), size=MIB), File((1_000, 1_999), size=MIB)))


def test_source_in_place_or_staged(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "auto", UPSERT)
    assert plan.source.choice == "in_place"
    assert plan.source.reason == "the source is nothing but Parquet files, which PyArrow reads"
    plan = plan_of(tmp_path / "all", UPSERT, conf={"materialize_source": "all"})
    assert plan.source.choice == "staged"
    assert plan.source.reason == "Spark computes the source once; its rows are staged in Arrow files for the lookup"
    assert declined_of(plan)["source", "in_place"] == "spark.databricks.delta.merge.materializeSource is all"


@pytest.mark.parametrize(
    ("table", "kept", "expected", "reason"),
    [
        (SMALL, "auto", "read_once", "the target is small enough to be sent to every executor"),
        (SMALL, "none", "read_once", "spark.databricks.delta.merge.materializeSource is none"),
        (SMALL, "all", "checkpoint", "the source is read more than once, so Spark keeps its rows"),
        (PLAIN, "auto", "checkpoint", "the source is read more than once, so Spark keeps its rows"),
        (PLAIN, "none", "read_once", "spark.databricks.delta.merge.materializeSource is none"),
    ],
)
def test_source_of_an_anti_join(tmp_path: Path, table: Table, kept: str, expected: str, reason: str) -> None:
    plan = plan_of(tmp_path, INSERT, BY_EXPRESSION, table, conf={"materialize_source": kept})
    assert (plan.match.choice, plan.source.choice) == ("anti_join", expected)
    assert plan.source.reason.startswith(reason)
    if expected == "checkpoint":
        assert declined_of(plan)["source", "read_once"] == (
            "spark.databricks.delta.merge.materializeSource is all"
            if kept == "all"
            else "the target is not small, and the source's keys say which of its files are read"
        )


@pytest.mark.parametrize("kept", ["auto", "none"])
def test_source_that_identity_columns_number(tmp_path: Path, kept: str) -> None:
    table, conf = (
        replace(SMALL, columns=NUMBERED.columns, features=NUMBERED.features),
        {"materialize_source": kept},
    )
    plan = plan_of(tmp_path / "t", INSERT_UNNUMBERED, BY_EXPRESSION, table, conf=conf)
    assert choices(plan) == ("anti_join", "checkpoint", "spark", "none")
    assert declined_of(plan)["source", "read_once"] == (
        "identity columns take their values from the source's rows, which must be the same at each read"
    )
    plan = plan_of(tmp_path / "u", f"{DELETE} {INSERT_UNNUMBERED}", BY_EXPRESSION, table, conf=conf)
    assert choices(plan) == ("join_files", "checkpoint", "spark", "rewrite")


@pytest.mark.parametrize("kept", ["auto", "all", "none"])
def test_source_of_a_join(tmp_path: Path, kept: str) -> None:
    plan = plan_of(tmp_path, UPSERT, BY_EXPRESSION, conf={"materialize_source": kept})
    expected = {"none": ("join_files", "recomputed")}.get(kept, ("join", "checkpoint"))
    assert (plan.match.choice, plan.source.choice) == expected
    if kept == "none":
        assert plan.source.reason == "spark.databricks.delta.merge.materializeSource is none"


def test_bytes_of_a_small_target(tmp_path: Path) -> None:
    for number, (most, expected) in enumerate(((2 * MIB, "read_once"), (2 * MIB - 1, "checkpoint"))):
        limits = Limits(broadcast_target_bytes=most)
        plan = plan_of(tmp_path / str(number), INSERT, BY_EXPRESSION, SMALL, limits=limits)
        assert plan.source.choice == expected


def test_only_files_that_may_match_make_a_target_large(tmp_path: Path) -> None:
    table = replace(PLAIN, files=(File((0, 999), size=MIB), File((1_000, 1_999), size=100 * MIB)))
    plan = plan_of(tmp_path, INSERT, "t.id = s.id + 1 AND t.id < 500", table)
    assert (plan.match.choice, plan.source.choice) == ("anti_join", "read_once")


def test_patched_files_are_opened_by_tasks(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, DELETE, BY_EXPRESSION, session=SessionFacts(not_opened="it is elsewhere"))
    assert plan.unchanged_rows.choice == "rewrite"
