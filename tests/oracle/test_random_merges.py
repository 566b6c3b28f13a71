"""Random merges do by deltamerge what they do by delta-spark; and what makes, shrinks and explains them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from combinations import ALL
from corpus.outcome import Outcome

from .client import LineProcess, RequestFailed
from .random_merges.explained import DUPLICATES, explain
from .random_merges.generator import random_merge
from .random_merges.harness import BothEngines, Comparison, compare_outcomes
from .random_merges.merge import RandomMerge
from .random_merges.neutral import NEW, identity_columns, neutral, row_ids, wrong_numbers
from .random_merges.shrink import candidates, shrink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MERGES = 60 if ALL else 20
IN_ONE_TEST = 20


@pytest.mark.oracle
@pytest.mark.parametrize("first", range(1, MERGES + 1, IN_ONE_TEST))
def test_random_merges(oracle: LineProcess, spark: SparkSession, tmp_path: Path, first: int) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    both = BothEngines(spark, oracle, tmp_path)
    differing: list[Comparison] = []
    ran = 0
    for seed in range(first, first + IN_ONE_TEST):
        try:
            comparison = both.compare(random_merge(seed))
        except RequestFailed:
            continue
        ran += 1
        if comparison.differences:
            differing.append(comparison)
    said = [
        "\n".join([found.merge.show(), *map(str, found.differences), found.ours.message, found.theirs.message])
        for found in differing
    ]
    assert not said, "make oracle SEED=… MERGES=1 makes each smaller:\n" + "\n\n".join(said)
    assert ran > IN_ONE_TEST * 0.8, "too many tables that delta-spark does not make"


def test_a_seed_is_always_the_same_merge() -> None:
    for seed in range(200):
        merge = random_merge(seed)
        assert merge == random_merge(seed)
        json.dumps(dict(merge.case().values))
        assert all(len(row) == len(merge.source.columns) for row in merge.source.rows)
        assert all(len(row) == len(merge.table.written) for rows in merge.table.writes for row in rows)


def test_shrinking_leaves_what_fails() -> None:
    def has_delete(merge: RandomMerge) -> bool:
        return any(clause.action == "delete" for clause in merge.clauses)

    merge = next(m for m in map(random_merge, range(1000)) if has_delete(m) and len(m.clauses) > 2)
    small = shrink(merge, has_delete, attempts=500)
    assert [clause.action for clause in small.clauses] == ["delete"]
    assert small.clauses[0].condition is None
    assert not small.source.rows
    assert not small.conf
    assert not small.table.properties
    assert all(len(row) == len(small.table.written) for rows in small.table.writes for row in rows)


def test_candidates_are_whole_merges() -> None:
    for seed in range(100):
        for smaller in candidates(random_merge(seed)):
            table = smaller.table
            assert all(len(row) == len(table.written) for rows in table.writes for row in rows)
            assert all(len(row) == len(smaller.source.columns) for row in smaller.source.rows)
            assert smaller.clauses


def test_what_differs_is_found() -> None:
    merge = random_merge(1)
    same = Outcome(rows=("a",), new_version=True, counts={"n": 1}, metrics={"numSourceRows": 1}, changes=None)
    assert compare_outcomes(merge, same, same, {}, {}) == ((), ())
    others: tuple[tuple[str, Any], ...] = (
        ("rows", ("b",)),
        ("counts", {"n": 2}),
        ("metrics", {"numSourceRows": 1, "numTargetRowsUpdated": 1}),
        ("changes", ("c",)),
        ("error", "SOME_ERROR"),
    )
    for field, other in others:
        found, explained = compare_outcomes(merge, same, replace(same, **{field: other}), {}, {})
        assert [d.what for d in found] == [field]
        assert not explained
    found, _ = compare_outcomes(merge, same, same, {"nullable": True}, {"nullable": False})
    assert [d.what for d in found] == ["schema"]


def test_numbers_are_compared_by_what_they_must_be() -> None:
    field: dict[str, Any] = {"name": "i", "metadata": {"delta.identity.start": 10, "delta.identity.step": 5}}
    before = {"fields": [{**field, "metadata": {**field["metadata"], "delta.identity.highWaterMark": 15}}]}
    after = {"fields": [{**field, "metadata": {**field["metadata"], "delta.identity.highWaterMark": 30}}]}
    columns = identity_columns(before)

    def rows(*numbers: int | None) -> Outcome:
        return Outcome(rows=tuple(json.dumps({"i": number}) for number in numbers))

    # New numbers may be any that the step allows; old ones are what they are.
    assert neutral(rows(10, 15, 20), columns) == neutral(rows(10, 15, 30), columns)
    assert neutral(rows(10, 15, 20), columns) != neutral(rows(10, 10, 20), columns)
    assert neutral(rows(10, 15, 20), columns) != neutral(rows(10, 15, 21), columns)
    assert neutral(rows(10, 15, 20), columns) != neutral(rows(10, 15, 5), columns)
    assert not wrong_numbers(rows(10, 15, 20, 30), columns, after)
    for wrong in (rows(10, 10), rows(10, None), rows(10, 35)):
        assert len(wrong_numbers(wrong, columns, after)) == 1
    tracked = [{"metaData": {"configuration": {"delta.enableRowTracking": "true"}}}]
    assert row_ids([{"metaData": {"configuration": {}}}]) == ()
    assert neutral(Outcome(rows=('{"row_id": 7}',)), row_ids(tracked)).rows == (f'{{"row_id": "{NEW}"}}',)


def test_explanations_are_narrow() -> None:
    merge = random_merge(1)
    twice, none = Outcome(error=DUPLICATES), Outcome()
    assert explain(merge, none, twice, "error")
    assert not explain(merge, twice, none, "error")
    assert not explain(merge, Outcome(rows=("a",)), Outcome(rows=("b",), new_version=True), "version")
    assert explain(merge, Outcome(), Outcome(new_version=True, counts={"num_updated_rows": 0}), "version")
    assert not explain(merge, Outcome(), Outcome(new_version=True, counts={"num_updated_rows": 1}), "version")
    counted, twice_counted = ({"numSourceRows": n, "numTargetRowsInserted": 1} for n in (3, 6))
    assert explain(merge, Outcome(metrics=counted), Outcome(metrics=twice_counted), "metrics")
    assert not explain(
        merge, Outcome(metrics=counted), Outcome(metrics={**twice_counted, "numSourceRows": 4}), "metrics"
    )
    append_only, went, came = (
        "DELTA_CANNOT_MODIFY_APPEND_ONLY",
        '{"_change_type":"delete"}',
        '{"_change_type":"insert"}',
    )
    assert explain(merge, Outcome(), Outcome(error=append_only), "error")
    assert not explain(merge, Outcome(counts={"num_deleted_rows": 1}), Outcome(error=append_only), "error")
    assert explain(merge, Outcome(), Outcome(changes=(went, came)), "changes")
    assert not explain(merge, Outcome(), Outcome(changes=(went,)), "changes")
