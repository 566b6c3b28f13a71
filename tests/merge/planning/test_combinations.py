"""Every plan that the operators' tables allow is the plan of some merge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import VariantType

from deltamerge.merge.plan import PLAN_NAMES
from deltamerge.merge.planning import changed_rows, matching, sources, unchanged_rows
from deltamerge.merge.planning.context import SessionFacts

from .merges import (
    BY_EXPRESSION,
    BY_KEY,
    COMPUTE,
    INSERT,
    PEOPLE,
    PLAIN,
    UPSERT,
    VECTORS,
    Choices,
    File,
    Table,
    choices,
    plan_of,
)

KEEP_ALL = {"materialize_source": "all"}
KEEP_NONE = {"materialize_source": "none"}
NOT_OPTIMIZED = {"optimize_insert_only_merge": False}
VARIANTS = Table(columns={**PEOPLE, "v": VariantType()}, features=("variantType",))
SMALL = Table(files=(File((0, 9), size=1_000),))
SMALL_VECTORS = replace(VECTORS, files=SMALL.files)
NOTHING = "WHEN MATCHED AND my_function(t.n) THEN DO NOTHING WHEN NOT MATCHED THEN INSERT *"
ONLY_NEW = "WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED THEN INSERT *"


@dataclass(frozen=True)
class Case:
    """A merge that has a plan."""

    clauses: str
    on: str = BY_KEY
    table: Table = PLAIN
    conf: Mapping[str, Any] = field(default_factory=dict)
    session: SessionFacts = field(default_factory=SessionFacts)


CASES: dict[Choices, Case] = {
    ("key_lookup", "in_place", "arrow", "none"): Case(INSERT),
    ("key_lookup", "in_place", "arrow", "deletion_vector"): Case(UPSERT, table=VECTORS),
    ("key_lookup", "in_place", "arrow", "patch"): Case(UPSERT),
    ("key_lookup", "in_place", "pair_values", "none"): Case(NOTHING),
    ("key_lookup", "in_place", "pair_values", "deletion_vector"): Case(COMPUTE, table=VECTORS),
    ("key_lookup", "in_place", "pair_values", "patch"): Case(COMPUTE),
    ("key_lookup", "staged", "arrow", "none"): Case(INSERT, conf=KEEP_ALL),
    ("key_lookup", "staged", "arrow", "deletion_vector"): Case(UPSERT, table=VECTORS, conf=KEEP_ALL),
    ("key_lookup", "staged", "arrow", "patch"): Case(UPSERT, conf=KEEP_ALL),
    ("key_lookup", "staged", "pair_values", "none"): Case(NOTHING, conf=KEEP_ALL),
    ("key_lookup", "staged", "pair_values", "deletion_vector"): Case(COMPUTE, table=VECTORS, conf=KEEP_ALL),
    ("key_lookup", "staged", "pair_values", "patch"): Case(COMPUTE, conf=KEEP_ALL),
    ("anti_join", "read_once", "spark", "none"): Case(INSERT, BY_EXPRESSION, SMALL),
    ("anti_join", "checkpoint", "spark", "none"): Case(INSERT, BY_EXPRESSION),
    ("join", "checkpoint", "spark", "none"): Case(ONLY_NEW, BY_EXPRESSION),
    ("join", "checkpoint", "spark", "deletion_vector"): Case(UPSERT, BY_EXPRESSION, VECTORS),
    ("join", "checkpoint", "spark", "patch"): Case(UPSERT, BY_EXPRESSION),
    ("join", "checkpoint", "spark", "rewrite"): Case(UPSERT, BY_EXPRESSION, VARIANTS),
    ("join_files", "checkpoint", "spark", "none"): Case(INSERT, conf=NOT_OPTIMIZED),
    ("join_files", "checkpoint", "spark", "deletion_vector"): Case(UPSERT, BY_EXPRESSION, SMALL_VECTORS),
    ("join_files", "checkpoint", "spark", "rewrite"): Case(UPSERT, BY_EXPRESSION, SMALL),
    ("join_files", "recomputed", "spark", "none"): Case(INSERT, conf={**NOT_OPTIMIZED, **KEEP_NONE}),
    ("join_files", "recomputed", "spark", "deletion_vector"): Case(UPSERT, table=VECTORS, conf=KEEP_NONE),
    ("join_files", "recomputed", "spark", "rewrite"): Case(UPSERT, conf=KEEP_NONE),
}


def allowed() -> Iterator[Choices]:
    for match, _ in matching.OPERATORS:
        tables = (sources.OPERATORS, changed_rows.OPERATORS, unchanged_rows.OPERATORS)
        for source, changed, unchanged in product(*([name for name, _ in table[match]] for table in tables)):
            yield match, source, changed, unchanged


@pytest.mark.parametrize("expected", allowed(), ids=" ".join)
def test_every_combination_is_some_plan(tmp_path: Path, expected: Choices) -> None:
    case = CASES[expected]
    plan = plan_of(tmp_path, case.clauses, case.on, case.table, conf=case.conf, session=case.session)
    assert choices(plan) == expected
    assert plan.name == PLAN_NAMES[expected[0]]


@pytest.mark.parametrize("expected", allowed(), ids=" ".join)
def test_every_decision_has_its_reason(tmp_path: Path, expected: Choices) -> None:
    case = CASES[expected]
    plan = plan_of(tmp_path, case.clauses, case.on, case.table, conf=case.conf, session=case.session)
    for name, decision in plan.decisions.items():
        assert decision.reason
        assert decision.done == {}
        for alternative in decision.declined:
            assert alternative.decision == name
            assert alternative.choice != decision.choice
            assert alternative.reason


def test_no_case_is_left_over() -> None:
    assert CASES.keys() == set(allowed())


def test_every_way_to_find_matches_has_operators_and_a_name() -> None:
    names = {name for name, _ in (*matching.OPERATORS, *matching.WITHOUT_SOURCE)}
    for table in (sources.OPERATORS, changed_rows.OPERATORS, unchanged_rows.OPERATORS, PLAN_NAMES):
        assert set(table) == names
