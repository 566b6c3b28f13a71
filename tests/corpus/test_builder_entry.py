"""The builder gives what the same statement in SQL gives: each recorded MERGE once more, by the builder's calls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .builder_entry import (
    ONLY_IN_SQL,
    TELL_THEIR_OWN_TIME,
    BuilderEntry,
    NotInBuilder,
    builder_calls,
    only_in_sql,
)
from .cases import Case, load_cases
from .deltamerge_engine import Deltamerge
from .expected_failures import reason
from .outcome import differences
from .runner import run_case, table_folder
from .sql import fill, path_relation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT = os.environ.get("DELTAMERGE_TEST_MODE") == "connect"
CASES = list(load_cases())


def filled(case: Case) -> str:
    source = case.source or {}
    relation = path_relation("/source", source["format"]) if source.get("format") else "src"
    return fill(case.merge, target=path_relation("/target"), source=relation)


def test_only_what_the_builder_cannot_say_is_left_out() -> None:
    for case in CASES:
        try:
            builder_calls(filled(case))
        except NotInBuilder as error:
            assert only_in_sql(case.name) == str(error), case.name
        else:
            assert only_in_sql(case.name) is None, case.name
    assert not CASES or all(any(only_in_sql(case.name) == why for case in CASES) for why in ONLY_IN_SQL)


def parameters() -> list[object]:
    def marks(case: Case) -> list[pytest.MarkDecorator]:
        missing = reason(case.name)
        return [pytest.mark.xfail(reason=missing, strict=True)] if missing else []

    told = [c for c in CASES if only_in_sql(c.name) is None and c.name not in TELL_THEIR_OWN_TIME]
    if CONNECT:
        # Both entries are one code path below; a fifth says whether the builder is one over Connect, too.
        told = told[::5]
    return [pytest.param(case, id=f"{case.topic}-{case.id}", marks=marks(case)) for case in told]


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Deltamerge:
    return BuilderEntry(tmp_path_factory.mktemp("tables"))


@pytest.mark.parametrize("case", parameters())
def test_merge_by_the_builder(case: Case, engine: Deltamerge, spark: SparkSession, tmp_path: Path) -> None:
    engine.make_table(spark, case.target, table_folder(case, str(tmp_path)))
    found = differences(case, run_case(engine, spark, case, str(tmp_path)))
    assert not found, f"{case.name}: {case.values['about']}\n{case.merge}\n" + "\n".join(found)
