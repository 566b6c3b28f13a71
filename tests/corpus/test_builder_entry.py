"""The builder gives what the same statement in SQL gives: the recorded MERGEs once more, by the builder's calls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from . import entries
from .builder_entry import (
    ONLY_IN_SQL,
    BuilderEntry,
    NotInBuilder,
    builder_calls,
    only_in_sql,
)
from .cases import Case, load_cases
from .deltamerge_engine import Deltamerge
from .entries import run_by_builder, run_by_sql
from .expected_failures import reason
from .outcome import differences
from .runner import run_case, table_folder
from .sql import fill, path_relation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions

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
    assert all(any(only_in_sql(case.name) == why for case in CASES) for why in ONLY_IN_SQL)


def parameters() -> list[object]:
    def marks(case: Case) -> list[pytest.MarkDecorator]:
        missing = reason(case.name)
        return [pytest.mark.xfail(reason=missing, strict=True)] if missing else []

    return [pytest.param(case, id=f"{case.topic}-{case.id}", marks=marks(case)) for case in run_by_builder(CASES)]


def test_every_case_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two kinds of session together leave nothing out."""
    ran = []
    for connect in (False, True):
        monkeypatch.setattr(entries, "CONNECT", connect)
        ran += [*run_by_sql(CASES), *run_by_builder(CASES)]
    assert {case.name for case in ran} == {case.name for case in CASES}
    assert len(ran) < 1.5 * len(CASES) or entries.BY_BOTH_EVERY == 1


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Deltamerge:
    return BuilderEntry(tmp_path_factory.mktemp("tables"))


@pytest.mark.parametrize("case", parameters())
def test_merge_by_the_builder(case: Case, engine: Deltamerge, spark: SparkSession, tmp_path: Path) -> None:
    engine.make_table(spark, case.target, table_folder(case, str(tmp_path)))
    found = differences(case, run_case(engine, spark, case, str(tmp_path)))
    assert not found, f"{case.name}: {case.values['about']}\n{case.merge}\n" + "\n".join(found)
