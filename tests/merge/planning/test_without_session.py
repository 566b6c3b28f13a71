"""Planning builds no Column, for which classic Spark needs a session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql.types import LongType, StructField

from deltamerge.merge.limits import Limits

from .merges import DELETE, PEOPLE, PLAIN, UPSERT, choices, declined_of, plan_of

GENERATED = StructField("twice", LongType(), True, {"delta.generationExpression": "id * 2"})
TABLE = replace(PLAIN, columns={**PEOPLE, "twice": GENERATED}, features=("generatedColumns",))


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)


def test_merges_with_generated_columns(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "t", UPSERT, table=TABLE)
    assert choices(plan) == ("key_lookup", "in_place", "arrow", "patch")
    assert plan_of(tmp_path / "u", DELETE, table=TABLE).match.choice == "key_lookup"


def test_by_source_conditions_of_large_tables(tmp_path: Path) -> None:
    clauses = f"{UPSERT} WHEN NOT MATCHED BY SOURCE AND t.n = 1 THEN DELETE"
    plan = plan_of(tmp_path / "t", clauses, limits=Limits(unmatched_rows=10))
    assert plan.match.choice == "key_lookup"
    clauses = f"{clauses} WHEN NOT MATCHED BY SOURCE THEN DELETE"
    plan = plan_of(tmp_path / "u", clauses, limits=Limits(unmatched_rows=10))
    assert declined_of(plan)["match", "key_lookup"] == (
        "a NOT MATCHED BY SOURCE clause may change more rows than a key lookup holds positions of"
    )
