"""Conditions over Arrow columns: NULL where Spark's are, and the first clause that is TRUE takes a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from deltamerge.workers.conditions import (
    ClauseChoice,
    Column,
    Condition,
    Constant,
    Kind,
    Operation,
    columns_of,
    evaluate,
)

A, B = Column(3, "whole"), Column(5, "whole")


def has(column: int) -> Condition:
    return Column(column, "boolean")


def values(condition: Condition, rows: Mapping[str, Sequence[object]]) -> list[Any]:
    found: list[Any] = evaluate(condition, pa.table(dict(rows))).to_pylist()
    return found


def test_first_clause_that_is_true_takes_a_row() -> None:
    rows = pa.table({"3": [True, None, False, None], "5": [True, True, False, None]})
    choice = ClauseChoice(((0, has(3)), (1, has(5)), (2, None)), frozenset({0, 2}))
    assert choice.columns == {3, 5}
    assert choice.of(rows, len(rows)).to_pylist() == [0, None, 2, 2]
    assert choice.of(rows, len(rows)).type == pa.int32()
    assert ClauseChoice(((4, has(3)),), frozenset({4})).of(rows, len(rows)).to_pylist() == [4, None, None, None]


def test_condition_without_columns() -> None:
    condition = Operation("=", (Constant(1, "whole"), Constant(1, "whole")))
    choice = ClauseChoice(((0, condition), (1, None)), frozenset({0, 1}))
    assert choice.columns == frozenset()
    assert choice.of(pa.table({"0": [None, 1]}), 2).to_pylist() == [0, 0]
    assert choice.of(pa.table({}), 2).to_pylist() == [0, 0]
    never = Operation("=", (Constant(1, "whole"), Constant(2, "whole")))
    assert ClauseChoice(((0, never),), frozenset({0})).of(pa.table({"0": [1]}), 1).to_pylist() == [None]


def test_no_clause_takes_no_row() -> None:
    assert ClauseChoice((), frozenset()).of(pa.table({"0": [1, 2]}), 2).to_pylist() == [None, None]


def test_no_rows() -> None:
    rows = pa.table({"3": pa.array([], pa.bool_())})
    assert ClauseChoice(((0, has(3)),), frozenset({0})).of(rows, 0).to_pylist() == []


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("=", [True, False, False, None, None]),
        ("<>", [False, True, True, None, None]),
        ("<", [False, True, False, None, None]),
        ("<=", [True, True, False, None, None]),
        (">", [False, False, True, None, None]),
        (">=", [True, False, True, None, None]),
        ("<=>", [True, False, False, False, True]),
    ],
)
def test_comparisons(op: str, expected: list[bool | None]) -> None:
    rows = {"3": [1, 1, 2, None, None], "5": [1, 2, 1, 1, None]}
    assert values(Operation(op, (A, B)), rows) == expected


def test_logic_has_three_values() -> None:
    rows: dict[str, list[bool | None]] = {"3": [True, False, None], "5": [None, None, None]}
    known, unknown = has(3), Operation("=", (has(5), has(5)))
    assert values(Operation("and", (known, unknown)), rows) == [None, False, None]
    assert values(Operation("or", (known, unknown)), rows) == [True, None, None]
    assert values(Operation("not", (known,)), rows) == [False, True, None]
    assert values(Operation("and", (known, known, known)), rows) == [True, False, None]


def test_in_and_between() -> None:
    rows = {"3": [1, 4, None], "5": [4, None, 1]}
    assert values(Operation("in", (A, Constant(1, "whole"), B)), rows) == [True, None, None]
    assert values(Operation("between", (A, Constant(0, "whole"), B)), rows) == [True, None, None]
    assert values(Operation("between", (A, Constant(2, "whole"), B)), rows) == [False, None, None]


def test_remainder_has_the_sign_of_the_dividend() -> None:
    remainder = Operation("%", (A, Constant(3, "whole")))
    assert values(remainder, {"3": [7, -7, 0, None, -(1 << 63)]}) == [1, -1, 0, None, -2]
    assert remainder.kind == "whole"
    assert Operation("=", (remainder, B)).kind == "boolean"


def test_nulls() -> None:
    rows = {"3": [1, None]}
    assert values(Operation("isnull", (A,)), rows) == [False, True]
    assert values(Operation("isnotnull", (A,)), rows) == [True, False]


def test_columns_of_one_kind_and_several_types_are_compared() -> None:
    rows = {"3": pa.array([1, 2], pa.int8()), "5": pa.array([1, 1 << 40], pa.int64())}
    assert evaluate(Operation("=", (A, B)), pa.table(rows)).to_pylist() == [True, False]
    days = pa.table({"3": pa.array(["a"], pa.large_string())})
    assert evaluate(Operation("=", (Column(3, "string"), Constant("a", "string"))), days).to_pylist() == [True]


def test_columns_of_a_condition() -> None:
    both = Operation("and", (Operation("=", (A, Constant(1, "whole"))), Operation("isnull", (B,))))
    assert columns_of(both) == {3, 5}
    assert columns_of(Constant(True, "boolean")) == frozenset()


def test_in_many_constants() -> None:
    constants = tuple(Constant(2 * number, "whole") for number in range(2_000))
    found = evaluate(Operation("in", (A, *constants)), pa.table({"3": [*range(100_000), None]}))
    assert found.to_pylist() == [number % 2 == 0 and number < 4_000 for number in range(100_000)] + [None]


@pytest.mark.parametrize(
    ("kind", "given", "items", "expected"),
    [
        ("double", [0.0, -0.0, float("nan"), None], [-0.0], [True, True, False, None]),
        ("string", ["a", "é", None], ["é"], [False, True, None]),
        ("boolean", [True, False, None], [True], [True, False, None]),
        ("decimal", [Decimal("1.50"), None], [Decimal("1.5"), Decimal(2)], [True, None]),
    ],
)
def test_in_constants_of_a_kind(kind: Kind, given: list[Any], items: list[Any], expected: list[Any]) -> None:
    condition = Operation("in", (Column(0, kind), *(Constant(item, kind) for item in items)))
    assert values(condition, {"0": given}) == expected
