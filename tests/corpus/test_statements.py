"""Each recorded statement commits, returns or refuses what delta-spark does, and leaves the same table."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from . import statements
from .deltamerge_engine import Deltamerge
from .entries import CONNECT
from .statements import (
    StatementCase,
    filled,
    load_statements,
    run_statements,
    statement_differences,
    statement_topics,
    write_statements,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sessions

CASES = list(load_statements())
OVER_CONNECT = CASES[3::8]
"""The cases that run over Spark Connect, the others run on classic Spark; ``DELTAMERGE_TEST_CASES=all`` runs all."""


def chosen() -> list[StatementCase]:
    if os.environ.get("DELTAMERGE_TEST_CASES") == "all":
        return CASES
    return [case for case in CASES if (case in OVER_CONNECT) == CONNECT]


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES) > 100


def test_a_written_topic_is_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {topic: (statements.FOLDER / f"{topic}.json").read_text(encoding="utf-8") for topic in statement_topics()}
    monkeypatch.setattr(statements, "FOLDER", tmp_path)
    for topic, content in before.items():
        write_statements(topic, [case.values for case in CASES if case.topic == topic])
        assert (tmp_path / f"{topic}.json").read_text(encoding="utf-8") == content


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Deltamerge:
    return Deltamerge(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with tables that several cases share, by the statements that made them."""
    return {"": tmp_path_factory.mktemp("made")}


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in chosen()])
def test_statements(
    case: StatementCase, engine: Deltamerge, made: dict[str, Path], spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "case"
    key = json.dumps(case.setup)
    if key not in made:
        fresh = made[""] / str(len(made))
        fresh.mkdir()
        for statement in case.setup:
            engine.sql(spark, filled(statement, str(fresh))).collect()
        made[key] = fresh
    shutil.copytree(made[key], folder)
    found = statement_differences(case, run_statements(engine, spark, case, str(folder)))
    assert not found, f"{case.name}: {case.values['about']}\n" + "\n".join(found)
