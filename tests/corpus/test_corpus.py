"""Each recorded MERGE gives the rows, the schema, the metrics, the changes or the error that was recorded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from . import cases
from .cases import Case, load_cases, topic_file, topics, write_topic
from .delta_rs import is_read_by_delta_rs, rows_read_by_delta_rs
from .deltamerge_engine import Deltamerge
from .entries import run_by_sql
from .expected_failures import EXPECTED_FAILURES, reason
from .outcome import differences
from .runner import run_case, table_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions

CASES = list(load_cases())
QUICK_EVERY = 40
"""Of so many recorded merges one is in the quick suite; they stand in the order of their topics."""
READ_BY_DELTA_RS = CASES if os.environ.get("DELTAMERGE_TEST_CASES") == "all" else CASES[::3]
"""The merges whose tables delta-rs reads, too."""


def parameters() -> list[object]:
    def marks(case: Case) -> list[pytest.MarkDecorator]:
        missing = reason(case.name)
        quick = [pytest.mark.quick] if case in CASES[::QUICK_EVERY] else []
        return [*quick, *([pytest.mark.xfail(reason=missing, strict=True)] if missing else [])]

    return [pytest.param(case, id=f"{case.topic}-{case.id}", marks=marks(case)) for case in run_by_sql(CASES)]


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Deltamerge:
    return Deltamerge(tmp_path_factory.mktemp("tables"))


def test_cases_are_there() -> None:
    assert CASES


def test_a_written_topic_is_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {topic: topic_file(topic).read_text(encoding="utf-8") for topic in topics()}
    monkeypatch.setattr(cases, "FOLDER", tmp_path)
    for topic, content in before.items():
        write_topic(topic, [case.values for case in CASES if case.topic == topic])
        assert topic_file(topic).read_text(encoding="utf-8") == content


def test_expected_failures_name_cases() -> None:
    known = {case.name for case in CASES if reason(case.name)}
    plain = {p for patterns in EXPECTED_FAILURES.values() for p in patterns if "*" not in p}
    assert plain <= known


@pytest.mark.parametrize("case", parameters())
def test_merge(case: Case, engine: Deltamerge, spark: SparkSession, tmp_path: Path) -> None:
    engine.make_table(spark, case.target, table_folder(case, str(tmp_path)))
    outcome = run_case(engine, spark, case, str(tmp_path))
    found = differences(case, outcome)
    assert not found, f"{case.name}: {case.values['about']}\n{case.merge}\n" + "\n".join(found)
    path = table_folder(case, str(tmp_path))
    if case in READ_BY_DELTA_RS and outcome.rows and case.read == ["*"] and is_read_by_delta_rs(path):
        read = rows_read_by_delta_rs(spark, path, tmp_path / "read.parquet")
        assert read == outcome.rows
