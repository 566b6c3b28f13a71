"""Which conditions and values of a MERGE Arrow evaluates."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import DecimalType, LongType, StringType, StructField, StructType

from deltamerge.merge.analysis.arrow_clauses import ArrowClauses
from deltamerge.merge.analysis.column_references import MergeReferences

from ..planning.merges import DELETE, PEOPLE, UPSERT, merge_of

BY_SOURCE = "WHEN NOT MATCHED BY SOURCE"


def arrow(clauses: str = UPSERT, on: str = "t.id = s.id") -> ArrowClauses:
    return ArrowClauses(MergeReferences(merge_of(clauses, on)))


def test_by_source_conditions_do_not_see_the_source() -> None:
    by_source = arrow(f"{DELETE} {BY_SOURCE} AND id < 5 THEN DELETE")
    assert by_source.by_source_choice([0]) is not None
    matched = arrow("WHEN MATCHED AND id < 5 THEN DELETE")
    assert matched.pair_choice([0]) is None


def test_which_clause_takes_a_source_row() -> None:
    found = arrow("WHEN MATCHED AND s.n = 1 THEN DELETE WHEN MATCHED AND s.name = 'a' THEN UPDATE SET *")
    choice = found.source_choice(found.merge.matched, [1])
    assert choice is not None
    assert choice.columns == {1, 2}
    rows = pa.table({"1": pa.array([1, 2, None, 1], pa.int32()), "2": ["a", "a", "a", "b"]})
    assert choice.of(rows, len(rows)).to_pylist() == [None, 1, 1, None]
    both = found.source_choice(found.merge.matched, [0, 1])
    assert both is not None
    assert both.of(rows, len(rows)).to_pylist() == [0, 1, 1, 0]


def test_which_clause_takes_a_pair() -> None:
    found = arrow("WHEN MATCHED AND t.n < s.n THEN UPDATE SET * WHEN MATCHED THEN DELETE")
    choice = found.pair_choice([0, 1])
    assert choice is not None
    assert choice.columns == {1, 5}
    rows = pa.table({"1": pa.array([1, 2, None], pa.int32()), "5": pa.array([2, 1, 1], pa.int32())})
    assert choice.of(rows, len(rows)).to_pylist() == [0, 1, 1]


def test_which_by_source_clause_takes_a_row() -> None:
    found = arrow(f"{BY_SOURCE} AND t.n > 5 THEN DO NOTHING {BY_SOURCE} THEN DELETE")
    choice = found.by_source_choice([1])
    assert choice is not None
    assert choice.columns == {1}
    assert choice.of(pa.table({"1": pa.array([9, 5, None], pa.int32())}), 3).to_pylist() == [None, 1, 1]


@pytest.mark.parametrize(
    "condition",
    [
        "t.n + 1 = s.n",
        "my_function(s.n)",
        "t.n = s.name",
        "n = 1",
        "t.missing = 1",
        "upper(s.name) = 'A'",
        "t.n = 1 AND my_function(s.n)",
    ],
)
def test_conditions_that_spark_evaluates(condition: str) -> None:
    clauses = f"WHEN MATCHED AND s.n = 1 THEN DELETE WHEN MATCHED AND {condition} THEN UPDATE SET *"
    assert arrow(clauses).pair_choice([0, 1]) is None


def test_target_columns_are_not_among_the_sources() -> None:
    found = arrow("WHEN MATCHED AND t.n = 1 THEN DELETE")
    assert found.source_choice(found.merge.matched, [0]) is None
    assert found.pair_choice([0]) is not None


def test_columns_of_one_name_are_left_to_spark() -> None:
    twice = StructType([StructField(name, LongType()) for name in ("id", "n", "n")])
    merge = merge_of("WHEN MATCHED AND s.n = 1 THEN DELETE", source_schema=twice)
    found = ArrowClauses(MergeReferences(merge))
    assert found.source_choice(merge.matched, [0]) is None


@pytest.mark.parametrize(("case_sensitive", "expected"), [(False, True), (True, False)])
def test_case_of_names(case_sensitive: bool, expected: bool) -> None:
    merge = merge_of("WHEN MATCHED AND s.NAME = 'a' THEN DELETE", case_sensitive=case_sensitive)
    found = ArrowClauses(MergeReferences(merge))
    assert (found.source_choice(merge.matched, [0]) is not None) == expected
    assert found.references.of(merge.clauses[0]).condition_from_source == expected


def test_types_that_arrow_compares_in_another_way() -> None:
    columns = {**PEOPLE, "d": DecimalType(38, 2), "folded": StringType("UTF8_LCASE")}
    for condition in ("s.d = s.d", "s.folded = 'a'"):
        merge = merge_of(f"WHEN MATCHED AND {condition} THEN DELETE", target=columns)
        assert ArrowClauses(MergeReferences(merge)).source_choice(merge.matched, [0]) is None
