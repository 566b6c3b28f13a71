"""What deltamerge does with random merges is what the model in plain Python says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from corpus.deltamerge_engine import is_ci

from .language import Case, Compare, IsNull, Literal, Name, Plus
from .merge_model import Clause, Merge, Merged, SeveralSourceRows, merge_rows
from .running import PLANS, PlanDoesNotFit, Seen, bag, make_table, row_versions, rows_before, run
from .strategies import Example, examples, skipping_examples
from .witness import witness_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FEW = 6
EXAMPLES = int(os.environ.get("DELTAMERGE_MODEL_EXAMPLES", "6"))
# Processes that share out the tests share out the examples too.
PARTS = 3
SMALL = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}


def searching(count: int) -> settings:
    # In CI the examples are always the same. To make a failure smaller takes many merges: only where asked for many.
    return settings(
        max_examples=count,
        derandomize=(is_ci() and PARTS == 1) or count == FEW,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink) if count > 60 // PARTS else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


def expected(example: Example) -> Merged | None:
    """Gives what the model says; None where several source rows want one target row."""
    try:
        return merge_rows(list(example.types), rows_before(example), example.source, example.merge)
    except SeveralSourceRows:
        return None


def check(spark: SparkSession, folder: Path, example: Example) -> None:
    """Runs an example by every plan that fits, and compares each with the model."""
    for key, setting in SMALL.items():
        spark.conf.set(key, setting)
    wanted = expected(example)
    made, merged = str(folder / "made"), str(folder / "t")
    clear(folder)
    witness = witness_of(example.properties)
    make_table(spark, example, witness, made)
    if example.deleted is not None:
        assert bag(witness.rows(spark, made)) == bag(rows_before(example)), "rows before the merge"
    ran: set[tuple[str, ...]] = set()
    for asked in PLANS:
        try:
            got = run(spark, example, witness, made, merged, asked)
        except PlanDoesNotFit:
            assert asked.executor != "auto"
            continue
        assert (got is None) == (wanted is None), f"{asked}: several source rows"
        if got is None or wanted is None:
            continue
        choices = tuple(decision.choice for decision in got.plan.decisions.values())
        if choices in ran:
            continue
        ran.add(choices)
        executor = " + ".join(choices)
        assert bag(got.rows) == bag(wanted.rows), f"{executor}: rows"
        assert {name: got.metrics[name] for name in wanted.metrics} == wanted.metrics, f"{executor}: metrics"
        if got.changes is not None:
            assert bag(got.changes) == bag(wanted.changes), f"{executor}: change data"
        counted = sum(rows for key, rows in got.clause_rows.items() if not key.endswith("do_nothing"))
        changed = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
        assert counted == sum(wanted.metrics[name] for name in changed), f"{executor}: rows of the clauses"
        if "delta.enableRowTracking" in example.properties:
            check_row_ids(row_versions(spark, made), row_versions(spark, merged), got, wanted)


def check_row_ids(before: dict[int, int], after: dict[int, int], got: Seen, wanted: Merged) -> None:
    """Compares the rows' ids and versions before and after a merge with what the model says of its rows."""
    kept = before.keys() & after.keys()
    counts = wanted.metrics
    assert len(before) - len(kept) == counts["numTargetRowsDeleted"], "rows lost their ids"
    assert len(after) - len(kept) == counts["numTargetRowsInserted"], "rows got ids"
    updated = [i for i in kept if after[i] != before[i]]
    assert len(updated) == counts["numTargetRowsUpdated"], "rows got another version"
    assert all(after[i] == got.version for i in [*updated, *(after.keys() - kept)]), "the version of rows"


def clear(folder: Path) -> None:
    import shutil

    for child in folder.iterdir():
        shutil.rmtree(child)


@pytest.mark.sessions
def test_random_merges(spark: SparkSession, tmp_path: Path) -> None:
    @searching(FEW)
    @given(example=examples())
    def holds(example: Example) -> None:
        check(spark, tmp_path, example)

    holds()


@pytest.mark.parametrize("part", range(PARTS))
def test_many_random_merges(spark: SparkSession, tmp_path: Path, part: int) -> None:
    # Without a seed of its own each part would have the same examples in CI.
    seeded: Callable[[Callable[[], None]], Callable[[], None]] = seed(part) if is_ci() else lambda test: test

    @seeded
    @searching(EXAMPLES // PARTS)
    @given(example=examples())
    def holds(example: Example) -> None:
        check(spark, tmp_path, example)

    holds()


def test_random_merges_that_skip_unchanged_rows(spark: SparkSession, tmp_path: Path) -> None:
    @searching(EXAMPLES // PARTS)
    @given(example=skipping_examples())
    def holds(example: Example) -> None:
        check(spark, tmp_path, example)

    holds()


# The model itself, by hand.

K_EQUAL = Compare("=", Name("t", ("k",)), Name("s", ("k",)))


def merged(target: list[dict[str, Any]], source: list[dict[str, Any]], *clauses: Clause) -> Merged:
    return merge_rows(["k", "v"], target, source, Merge(K_EQUAL, clauses))


def test_model_upserts() -> None:
    done = merged(
        [{"k": 1, "v": 10}, {"k": 2, "v": 20}, {"k": None, "v": 30}],
        [{"k": 2, "v": 21}, {"k": 3, "v": 31}, {"k": None, "v": 41}],
        Clause("matched", "update"),
        Clause("not_matched", "insert"),
    )
    assert bag(done.rows) == bag(
        [{"k": 1, "v": 10}, {"k": 2, "v": 21}, {"k": 3, "v": 31}, {"k": None, "v": 30}, {"k": None, "v": 41}]
    )
    assert [kind for kind, _ in done.changes] == ["update_preimage", "update_postimage", "insert", "insert"]
    assert done.metrics["numTargetRowsInserted"] == 2
    assert done.metrics["numTargetRowsUpdated"] == 1


def test_model_takes_the_first_clause_that_is_true() -> None:
    null = Literal(None, "BOOLEAN")
    done = merged(
        [{"k": 1, "v": 10}, {"k": 2, "v": 20}],
        [{"k": 1, "v": 11}],
        Clause("matched", "delete", null),
        Clause("matched", "update", None, ((("v",), Plus(Name("t", ("v",)), Name("s", ("v",)))),)),
        Clause("not_matched_by_source", "delete", IsNull(Name("t", ("v",)))),
        Clause("not_matched_by_source", "update", None, ((("v",), Literal(0, "INT")),)),
    )
    assert bag(done.rows) == bag([{"k": 1, "v": 21}, {"k": 2, "v": 0}])
    assert done.metrics["numTargetRowsNotMatchedBySourceUpdated"] == 1


def test_model_knows_several_source_rows() -> None:
    twice = [{"k": 1, "v": 1}, {"k": 1, "v": 2}]
    with pytest.raises(SeveralSourceRows):
        merged([{"k": 1, "v": 0}], twice, Clause("matched", "update"))
    assert merged([{"k": 1, "v": 0}], twice, Clause("matched", "delete")).metrics["numTargetRowsDeleted"] == 1
    only_one = Clause("matched", "update", Compare("=", Name("s", ("v",)), Literal(2, "INT")))
    assert merged([{"k": 1, "v": 0}], twice, only_one).rows == [{"k": 1, "v": 2}]
    assert merged([], twice, Clause("not_matched", "insert")).rows == twice


@pytest.mark.sessions
def test_language_says_what_spark_says(spark: SparkSession) -> None:
    """Each form of the language has the value in Spark that it has in Python."""
    nan, zero, minus = (Literal(v, "DOUBLE") for v in (float("nan"), 0.0, -0.0))
    null, one, two = (Literal(v, "INT") for v in (None, 1, 2))
    conditions = [
        Compare(sign, left, right)
        for sign in ("=", "<=>", "<")
        for left, right in ((nan, nan), (zero, minus), (minus, zero), (nan, zero), (zero, nan))
    ]
    conditions += [Compare(sign, a, b) for sign in ("=", "<=>", "<") for a in (null, one) for b in (null, one, two)]
    expressions = [
        *conditions,
        Case(Literal(None, "BOOLEAN"), one, two),
        Plus(one, null),
        IsNull(Plus(one, null)),
        Literal({"a": None, "b": "it's"}, "STRUCT<a: INT, b: STRING>"),
    ]
    row = spark.sql("SELECT " + ", ".join(f"{e.sql()} AS c{i}" for i, e in enumerate(expressions))).first()
    assert row is not None
    got = [value.asDict() if hasattr(value, "asDict") else value for value in row]
    assert json.dumps(got) == json.dumps([e.value({}) for e in expressions])
