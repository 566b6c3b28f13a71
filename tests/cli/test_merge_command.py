from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deltamerge.api.report import MergeReport
from deltamerge.cli import app as cli
from deltamerge.cli.app import app

from .tables import UPSERT, make_source, make_table, rows_of

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.sessions]


def run(*arguments: str | Path, text: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["merge", *map(str, arguments)], input=text)
    return result.exit_code, result.stdout, result.stderr


def test_a_page_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no error of a merge that is done, after which a script would run it again."""
    table, source = make_table(tmp_path / "t"), make_source(tmp_path / "s.csv", [3])
    statement = ("--target", table, "--source", source, "--sql", UPSERT, "--html", tmp_path / "page.html")

    def no_space(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(MergeReport, "save_html", no_space)
    code, out, err = run(*statement)
    assert (code, "1 row changed" in out) == (0, True)
    assert "was not written: No space left on device" in " ".join(err.split())
    monkeypatch.setattr(os, "access", lambda *_: False)
    code, _, err = run(*statement)
    assert (code, "cannot be written" in err) == (2, True)
    assert rows_of(table) == {1: "a", 2: "b", 3: "new 3"}


def test_a_report_that_cannot_be_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, source = make_table(tmp_path / "t"), make_source(tmp_path / "s.csv", [3])
    statement = ("merge", "--target", str(table), "--source", str(source), "--sql", UPSERT)
    result = CliRunner(charset="ascii").invoke(app, statement)
    assert (result.exit_code, "1 row changed." in result.stdout) == (0, True)

    def no_space(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(cli, "_show", no_space)
    result = CliRunner().invoke(app, statement)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "the report was not printed: No space left on device" in " ".join(result.stderr.split())


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".json"])
def test_a_file_is_merged(suffix: str, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    source = make_source(tmp_path / f"s{suffix}", [3, 4])
    code, out, err = run("--target", table, "--source", source, "--sql", UPSERT)
    assert code == 0, err
    assert "Version 0 → 1: 2 rows changed." in out
    assert "1 of 2 files was not read" in out
    assert "committing" in err
    assert rows_of(table) == {1: "a", 2: "b", 3: "new 3", 4: "new 4"}


def test_a_delta_table_is_merged_by_a_statement_from_a_file(tmp_path: Path) -> None:
    table, source = make_table(tmp_path / "t"), make_table(tmp_path / "s")
    statement = tmp_path / "delete.sql"
    statement.write_text("MERGE INTO t USING s ON t.id = s.id AND s.id > 1 WHEN MATCHED THEN DELETE")
    code, out, err = run("--target", f"t={table}", "--source", f"s=delta:{source}", "--file", statement, "--json")
    assert code == 0, err
    report = json.loads(out)
    assert (report["version"], report["metrics"]["numTargetRowsDeleted"]) == (1, 2)
    assert rows_of(table) == {1: "a"}


@pytest.mark.parametrize("is_file", [True, False])
def test_a_statement_behind_a_byte_order_mark(tmp_path: Path, is_file: bool) -> None:
    table, source = make_table(tmp_path / "t"), make_source(tmp_path / "s.csv", [3])
    statement = tmp_path / "upsert.sql"
    statement.write_text(UPSERT, encoding="utf-8-sig")
    given = {} if is_file else {"text": statement.read_text(encoding="utf-8")}
    code, _, err = run("--target", table, "--source", source, "--file", statement if is_file else "-", **given)
    assert code == 0, err
    assert rows_of(table)[3] == "new 3"


def test_the_latest_of_several_source_rows(tmp_path: Path) -> None:
    table, source = make_table(tmp_path / "t"), tmp_path / "s.csv"
    source.write_text("id,v,p,at\n1,old,1,1\n1,new,1,2\n")
    code, _, err = run("--target", table, "--source", source, "--sql", UPSERT, "--dedupe-by", "at", "--dedupe-by", "v")
    assert code == 0, err
    assert rows_of(table)[1] == "new"


def test_a_merge_that_is_done_once(tmp_path: Path) -> None:
    table, source = make_table(tmp_path / "t"), make_source(tmp_path / "s.parquet", [3])
    options = ("--target", table, "--source", source, "--sql", UPSERT, "--user-metadata", "nightly run", "--json")
    for number, version in ((7, 1), (7, None), (8, 2)):
        code, out, err = run(*options, "--txn-app-id", "nightly", "--txn-version", str(number))
        assert code == 0, err
        assert json.loads(out)["version"] == version
    commit = [json.loads(line) for line in (tmp_path / "t/_delta_log" / f"{1:020d}.json").read_text().splitlines()]
    assert [a["commitInfo"]["userMetadata"] for a in commit if "commitInfo" in a] == ["nightly run"]
    code, _, err = run(*options, "--txn-app-id", "nightly")
    assert (code, "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS" in err) == (2, True)


def test_a_statement_from_standard_input_that_names_paths(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    source = make_source(tmp_path / "s.parquet", [1])
    statement = f"MERGE INTO delta.`{table}` t USING parquet.`{source}` s ON t.id = s.id WHEN MATCHED THEN DELETE"
    code, _, err = run("--file", "-", text=statement)
    assert code == 0, err
    assert rows_of(table) == {2: "b", 3: "c"}


def test_nothing_changes(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    source = make_source(tmp_path / "s.parquet", [9])
    statement = "MERGE INTO target t USING source s ON t.id = s.id WHEN MATCHED THEN DELETE"
    code, out, err = run("--target", table, "--source", source, "--sql", statement)
    assert code == 0, err
    assert "Nothing changed: no new version, the table stays at version 0." in out


@pytest.mark.parametrize(
    ("statement", "code", "message"),
    [
        (UPSERT.replace("s.id", "s.idd"), 2, "DELTA_MERGE_UNRESOLVED_EXPRESSION"),
        (UPSERT.replace("UPDATE", "UPSERT", 1), 2, "PARSE_SYNTAX_ERROR"),
        (UPSERT.replace("t.id = s.id", "t.p <> s.p"), 4, "DELTA_MULTIPLE_SOURCE_ROW_MATCHING"),
    ],
)
def test_what_is_wrong_is_said(statement: str, code: int, message: str, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    source = make_source(tmp_path / "s.parquet", [3, 4])
    found, out, err = run("--target", table, "--source", source, "--sql", statement)
    assert (found, out) == (code, "")
    assert "Error: " in err
    assert message in err
    assert "Traceback" not in err
    assert rows_of(table) == {1: "a", 2: "b", 3: "c"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give the statement once"),
        (("--sql", "x", "--file", "y"), "give the statement once"),
        (("--sql", "x", "--conf", "y"), "KEY=VALUE"),
        (("--sql", "x", "--source", "y"), "what kind of file"),
        (("--sql", UPSERT, "--source", "none.parquet"), "none.parquet"),
        (("--file", "none.sql"), "none.sql"),
        (("--file", "/"), "--file / cannot be read"),
        (("--sql", UPSERT, "--source", "a.csv", "--source", "b.csv"), "a name of its own: 'source' is given 2 times"),
        (("--sql", UPSERT, "--source", "x=a.csv", "--source", "X=delta:b"), "'X' is given 2 times"),
        (("--sql", UPSERT, "--source", "t=a.csv", "--target", "T=b"), "'t' is given 2 times"),
    ],
)
def test_a_wrong_command_line(arguments: tuple[str, ...], message: str) -> None:
    code, _, err = run(*arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
