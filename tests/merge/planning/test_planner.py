"""The planner: forced plans, operators that declined while they ran, and what is known of the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.merge.limits import LIMITS, Limits
from deltamerge.merge.plan import Alternative, DecisionName, Declined
from deltamerge.merge.source.key_summary import SourceSummary
from deltamerge.skipping.predicates import ALWAYS, NEVER, ColumnRef, InRanges, Predicate

from .merges import (
    BY_EXPRESSION,
    BY_KEY,
    COMPUTE,
    DELETE,
    INSERT,
    MIB,
    PLAIN,
    UPSERT,
    VECTORS,
    Choices,
    File,
    Table,
    choices,
    context_of,
    declined_of,
    plan_of,
)

NOT_OPTIMIZED = "spark.databricks.delta.merge.optimizeInsertOnlyMerge.enabled is false"


# Forced plans


@pytest.mark.parametrize(
    ("executor", "clauses", "on", "expected"),
    [
        ("key_lookup", UPSERT, BY_KEY, ("key_lookup", "in_place", "arrow", "patch")),
        ("key_lookup", COMPUTE, BY_KEY, ("key_lookup", "in_place", "pair_values", "patch")),
        ("key_lookup", INSERT, BY_KEY, ("key_lookup", "in_place", "arrow", "none")),
        ("insert_only", INSERT, BY_KEY, ("anti_join", "checkpoint", "spark", "none")),
        ("low_shuffle", UPSERT, BY_KEY, ("join", "checkpoint", "spark", "patch")),
        ("low_shuffle", INSERT, BY_KEY, ("join", "checkpoint", "spark", "none")),
        ("classic", UPSERT, BY_KEY, ("join_files", "checkpoint", "spark", "rewrite")),
        ("classic", INSERT, BY_KEY, ("join_files", "checkpoint", "spark", "none")),
    ],
)
def test_forced_plans_that_fit(tmp_path: Path, executor: str, clauses: str, on: str, expected: Choices) -> None:
    plan = plan_of(tmp_path, clauses, on, conf={"executor": executor})
    assert choices(plan) == expected
    assert plan.name == executor
    assert plan.match.reason == "spark.deltamerge.merge.executor asks for it"
    assert plan.match.declined == ()


@pytest.mark.parametrize(
    ("executor", "clauses", "on", "table", "conf", "reason"),
    [
        (
            "key_lookup",
            UPSERT,
            BY_EXPRESSION,
            PLAIN,
            {},
            "ON compares id with an expression, which may fail for source rows that ON rules out",
        ),
        ("key_lookup", INSERT, BY_KEY, PLAIN, {"optimize_insert_only_merge": False}, NOT_OPTIMIZED),
        (
            "key_lookup",
            UPSERT,
            BY_KEY,
            PLAIN,
            {"materialize_source": "none"},
            "spark.databricks.delta.merge.materializeSource is none, and a key lookup keeps the source's rows",
        ),
        ("insert_only", UPSERT, BY_KEY, PLAIN, {}, "there are clauses that update or delete"),
        ("insert_only", DELETE, BY_EXPRESSION, VECTORS, {}, "there are clauses that update or delete"),
        (
            "low_shuffle",
            UPSERT,
            BY_KEY,
            PLAIN,
            {"materialize_source": "none"},
            "the source is not kept, and may return other rows each time that it is read",
        ),
    ],
)
def test_forced_plans_that_do_not_fit(
    tmp_path: Path,
    executor: str,
    clauses: str,
    on: str,
    table: Table,
    conf: Mapping[str, Any],
    reason: str,
) -> None:
    with pytest.raises(DeltaAnalysisException) as caught:
        plan_of(tmp_path, clauses, on, table, conf={**conf, "executor": executor})
    check_not_available(caught.value, executor, reason)


def check_not_available(error: DeltaAnalysisException, executor: str, reason: str) -> None:
    assert error.getErrorClass() == "DELTAMERGE_EXECUTOR_NOT_AVAILABLE"
    assert error.getSqlState() == "0A000"
    message = (
        f"spark.deltamerge.merge.executor is {executor}, but this merge cannot run so: {reason}. Set it to auto, "
        "which chooses a plan that fits."
    )
    assert message in str(error)


@pytest.mark.parametrize("executor", ["key_lookup", "insert_only", "low_shuffle", "classic"])
def test_forced_plans_that_declined(tmp_path: Path, executor: str) -> None:
    match = {
        "key_lookup": "key_lookup",
        "insert_only": "anti_join",
        "low_shuffle": "join",
        "classic": "join_files",
    }
    declined = [Alternative("match", match[executor], "the workers have no PyArrow")]
    with pytest.raises(DeltaAnalysisException) as caught:
        plan_of(tmp_path, INSERT, conf={"executor": executor}, declined=declined)
    check_not_available(caught.value, executor, "the workers have no PyArrow")


def test_forced_plan_without_a_way_to_treat_unchanged_rows(tmp_path: Path) -> None:
    declined = [Alternative("unchanged_rows", "patch", "a file has no footer")]
    with pytest.raises(DeltaAnalysisException) as caught:
        plan_of(tmp_path, UPSERT, conf={"executor": "key_lookup"}, declined=declined)
    check_not_available(caught.value, "key_lookup", "a file has no footer")


def test_forced_anti_join_needs_no_optimization(tmp_path: Path) -> None:
    conf = {"optimize_insert_only_merge": False, "executor": "insert_only"}
    assert plan_of(tmp_path, INSERT, conf=conf).match.choice == "anti_join"


# Operators that declined while they ran


LOOKUP = Alternative("match", "key_lookup", "there are more pairs than the driver holds")
IN_PLACE = Alternative("source", "in_place", "the source is a query")
STAGED = Alternative("source", "staged", "the disk is full")
ARROW = Alternative("changed_rows", "arrow", "a file has other types")
PAIR_VALUES = Alternative("changed_rows", "pair_values", "there are more values than the driver takes")
PATCH = Alternative("unchanged_rows", "patch", "a file is encrypted")
JOIN = Alternative("match", "join", "the workers have no PyArrow")


@pytest.mark.parametrize(
    ("declined", "expected"),
    [
        ([], ("key_lookup", "in_place", "arrow", "patch")),
        ([IN_PLACE], ("key_lookup", "staged", "arrow", "patch")),
        ([ARROW], ("key_lookup", "in_place", "pair_values", "patch")),
        ([ARROW, PAIR_VALUES], ("join", "checkpoint", "spark", "patch")),
        ([IN_PLACE, ARROW], ("key_lookup", "staged", "pair_values", "patch")),
        ([IN_PLACE, STAGED], ("join", "checkpoint", "spark", "patch")),
        ([LOOKUP], ("join", "checkpoint", "spark", "patch")),
        ([PATCH], ("join", "checkpoint", "spark", "rewrite")),
        ([LOOKUP, JOIN], ("join_files", "checkpoint", "spark", "rewrite")),
    ],
)
def test_operators_that_declined_are_not_chosen_again(
    tmp_path: Path, declined: list[Alternative], expected: Choices
) -> None:
    plan = plan_of(tmp_path, UPSERT, declined=declined)
    assert choices(plan) == expected


@pytest.mark.parametrize("alternative", [IN_PLACE, ARROW, LOOKUP, PATCH])
def test_what_declined_is_in_the_plan(tmp_path: Path, alternative: Alternative) -> None:
    plan = plan_of(tmp_path, UPSERT, declined=[alternative])
    assert alternative in plan.decisions[alternative.decision].declined


def test_a_lookup_without_any_source_has_the_last_reason(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, UPSERT, declined=[IN_PLACE, STAGED])
    assert declined_of(plan)["match", "key_lookup"] == STAGED.reason


def test_what_declined_does_not_rule_out_another_decision(tmp_path: Path) -> None:
    assert choices(plan_of(tmp_path, INSERT, declined=[PATCH])) == ("key_lookup", "in_place", "arrow", "none")


def test_all_that_declined_before_is_in_the_reasons(tmp_path: Path) -> None:
    found = declined_of(plan_of(tmp_path, UPSERT, declined=[LOOKUP, JOIN]))
    assert found["match", "key_lookup"] == LOOKUP.reason
    assert found["match", "anti_join"] == "there are clauses that update or delete"
    assert found["match", "join"] == JOIN.reason


def test_what_an_operator_raises() -> None:
    decision: DecisionName = "source"
    declined = Declined(decision, "in_place", "the source is a query")
    assert declined.alternative == IN_PLACE
    assert str(declined) == IN_PLACE.reason


# What is known of the source


def summary(rows: int = 100, predicate: Predicate = ALWAYS) -> SourceSummary:
    return SourceSummary(row_count=rows, predicate=predicate, key_bytes=8 * rows, partitions=4)


def ids(*ranges: tuple[int, int]) -> Predicate:
    return InRanges(ColumnRef(("id",)), ranges, or_null=False, type_name="bigint")


def test_small_files_are_rewritten_whatever_the_source_holds(tmp_path: Path) -> None:
    table = replace(PLAIN, files=(File((0, 9), size=1_000),))
    for folder, known in ((tmp_path / "t", None), (tmp_path / "u", summary())):
        plan = plan_of(folder, UPSERT, BY_EXPRESSION, table, summary=known)
        assert choices(plan) == ("join_files", "checkpoint", "spark", "rewrite")
        assert declined_of(plan)["match", "join"] == (
            "the files that may match are small (1,000 bytes), so that one join that writes them again costs less"
        )


def test_only_files_that_the_source_can_match_count(tmp_path: Path) -> None:
    table = replace(PLAIN, files=(File((0, 999), size=MIB), File((1_000, 1_999), size=100 * MIB)))
    for number, (predicate, expected) in enumerate(
        [
            (ALWAYS, "join"),
            (ids((5, 9)), "join_files"),
            (ids((1_500, 1_600)), "join"),
            (ids((5, 9), (1_999, 2_500)), "join"),
            (ids((5_000, 6_000)), "join_files"),
            (NEVER, "join_files"),
        ]
    ):
        plan = plan_of(tmp_path / str(number), UPSERT, BY_EXPRESSION, table, summary=summary(predicate=predicate))
        assert plan.match.choice == expected, predicate


def test_by_source_clauses_read_files_that_the_source_does_not_match(tmp_path: Path) -> None:
    table = replace(PLAIN, files=(File((0, 999), size=MIB), File((1_000, 1_999), size=100 * MIB)))
    known = summary(predicate=ids((5, 9)))
    by_source = "WHEN NOT MATCHED BY SOURCE AND t.id > 1500 + t.n THEN UPDATE SET n = 0"
    plan = plan_of(tmp_path, f"{UPSERT} {by_source}", table=table, summary=known)
    assert plan.match.choice == "join"


def test_more_rows_than_the_driver_takes_positions_of(tmp_path: Path) -> None:
    for number, (most, expected) in enumerate([(2_100, "join"), (2_099, "join_files")]):
        limits = Limits(positions=most)
        plan = plan_of(tmp_path / str(number), UPSERT, BY_EXPRESSION, limits=limits, summary=summary())
        assert plan.match.choice == expected
    assert declined_of(plan)["match", "join"] == (
        "source and files that may match have more rows than the driver takes positions of (2,099)"
    )


def test_rows_of_files_without_statistics_are_as_many_as_bytes(tmp_path: Path) -> None:
    table = replace(PLAIN, files=(File((0, 9), rows=None, size=10 * MIB),))
    for number, (most, expected) in enumerate([(10 * MIB + 100, "join"), (10 * MIB + 99, "join_files")]):
        plan = plan_of(
            tmp_path / str(number),
            UPSERT,
            BY_EXPRESSION,
            table,
            limits=Limits(positions=most),
            summary=summary(),
        )
        assert plan.match.choice == expected


def test_bytes_of_small_files(tmp_path: Path) -> None:
    for number, (most, expected) in enumerate([(20 * MIB, "join_files"), (20 * MIB - 1, "join")]):
        limits = Limits(rewritten_bytes=most)
        plan = plan_of(tmp_path / str(number), UPSERT, BY_EXPRESSION, limits=limits, summary=summary())
        assert plan.match.choice == expected


def test_forced_joins_take_small_files_and_no_more_rows(tmp_path: Path) -> None:
    table, forced = replace(PLAIN, files=(File((0, 9), size=1_000),)), {"executor": "low_shuffle"}
    plan = plan_of(tmp_path / "t", UPSERT, table=table, conf=forced, summary=summary())
    assert plan.match.choice == "join"
    with pytest.raises(DeltaAnalysisException, match="more rows than the driver takes positions of"):
        plan_of(tmp_path / "u", UPSERT, table=table, conf=forced, limits=Limits(positions=10), summary=summary())


def test_anti_joins_stay_when_the_source_is_known(tmp_path: Path) -> None:
    for number, known in enumerate((None, summary())):
        plan = plan_of(tmp_path / str(number), INSERT, BY_EXPRESSION, summary=known)
        assert choices(plan) == ("anti_join", "checkpoint", "spark", "none")


def test_limits_of_the_package_are_the_default(tmp_path: Path) -> None:
    context = context_of(tmp_path, UPSERT)
    assert context.limits == LIMITS
    assert LIMITS.rewritten_bytes < LIMITS.broadcast_target_bytes < LIMITS.broadcast_key_bytes


# What is not known


@pytest.mark.parametrize(
    "clauses",
    [
        "WHEN MATCHED AND my_function(t.n, s.n) THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "WHEN MATCHED AND t.n = (SELECT max(n) FROM u) THEN DELETE",
        "WHEN NOT MATCHED AND my_function(s.n) THEN INSERT *",
        "WHEN NOT MATCHED BY SOURCE AND exists(t.tags, x -> x > t.n) THEN DELETE",
        "WHEN MATCHED AND t.missing = 1 THEN DELETE",
    ],
)
@pytest.mark.parametrize("on", [BY_KEY, "my_function(t.id) = s.id", "t.missing = s.id"])
def test_conditions_that_are_not_read_are_planned(tmp_path: Path, clauses: str, on: str) -> None:
    context = context_of(tmp_path / "context", clauses, on)
    assert context.files.num_files == 2
    plan = plan_of(tmp_path / "plan", clauses, on)
    assert plan.changed_rows.choice in ("spark", "pair_values", "arrow")


def test_table_without_files(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "t", UPSERT, table=replace(PLAIN, files=()))
    assert choices(plan) == ("key_lookup", "in_place", "arrow", "patch")
    empty = replace(PLAIN, files=())
    assert plan_of(tmp_path / "u", INSERT, BY_EXPRESSION, empty).source.choice == "read_once"
