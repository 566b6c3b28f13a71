from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deltamerge.cli.app import app

from .tables import UPSERT, make_source, make_table, rows_of

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.sessions]


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return make_table(tmp_path / "t")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "s.parquet", [3, 4])


def test_a_plan(table: Path, source: Path) -> None:
    code, out, err = run("--target", table, "--source", source, "--sql", UPSERT)
    assert code == 0, err
    assert out.startswith("Plan of a merge into ")
    assert "Nothing was written; version 0 was read." in out
    assert "Plan: key_lookup" in out
    assert "would change" not in out
    assert rows_of(table) == {1: "a", 2: "b", 3: "c"}


def test_a_forecast(table: Path, source: Path) -> None:
    code, out, err = run("--target", table, "--source", source, "--sql", UPSERT, "--analyze")
    assert code == 0, err
    assert "2 rows would change. Nothing was written; version 0 was read." in out
    assert "1 row  WHEN NOT MATCHED THEN INSERT *" in out
    assert rows_of(table) == {1: "a", 2: "b", 3: "c"}


def test_json(table: Path, source: Path) -> None:
    code, out, err = run("--target", table, "--source", source, "--sql", UPSERT, "--analyze", "--json")
    assert code == 0, err
    explanation = json.loads(out)
    assert explanation["plan"]["name"] == "key_lookup"
    assert [clause["rows"] for clause in explanation["forecast"]["clauses"]] == [1, 1]


def test_a_page(table: Path, source: Path, tmp_path: Path) -> None:
    statement = ("--target", table, "--source", source, "--sql", UPSERT)
    code, out, err = run(*statement, "--html", tmp_path / "plan.html")
    assert code == 0, err
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "Nothing was written; version 0 was read." in out
    assert "Nothing was written; version 0 was read." in page
    code, out, err = run(*statement, "--html", tmp_path / "nowhere" / "plan.html")
    assert (code, out) == (2, "")
    assert f"there is no folder {tmp_path / 'nowhere'}" in err.replace("\n", "")


def test_a_merge_that_would_fail_ends_with_its_exit_code(table: Path, source: Path) -> None:
    statement = UPSERT.replace("t.id = s.id", "t.p <> s.p")
    code, out, _ = run("--target", table, "--source", source, "--sql", statement, "--analyze")
    assert code == 4
    assert "This merge would fail." in out
    assert "Plan: " in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "give the statement once"),
        (("--sql", UPSERT.replace("s.id", "s.idd")), 2, "DELTA_MERGE_UNRESOLVED_EXPRESSION"),
        (("--sql", UPSERT, "--target", "none"), 3, "none"),
        (
            ("--sql", UPSERT, "--conf", "spark.deltamerge.merge.executor=insert_only"),
            2,
            "there are clauses that update or delete",
        ),
    ],
)
def test_a_wrong_command(arguments: tuple[str, ...], code: int, message: str, table: Path, source: Path) -> None:
    found, out, err = run("--target", table, "--source", source, *arguments)
    assert (found, out) == (code, "")
    assert message in err
    assert "Traceback" not in err
