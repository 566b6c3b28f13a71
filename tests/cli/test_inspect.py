from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deltamerge.cli.app import app
from deltamerge.cli.inspect import sql_type, what_it_did
from deltamerge.log.schema import parse_schema

from .tables import make_table


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_table(tmp_path_factory.mktemp("cli") / "a table")


def run(*arguments: str | Path) -> tuple[int, str, str]:
    # Wide enough for the longest path of a temporary folder.
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


def test_version() -> None:
    code, out, _ = run("--version")
    assert (code, out) == (0, "deltamerge 0.2.0\n")


def test_detail(table: Path) -> None:
    code, out, _ = run("detail", table)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == f"Table           {table}"
    assert "Partitioned by  p" in lines
    assert "Properties      delta.logRetentionDuration = interval 30 days" in lines
    assert lines[-3:] == ["id  BIGINT", "v   STRING", "p   BIGINT"]


def test_detail_as_json(table: Path) -> None:
    code, out, _ = run("detail", table, "--json")
    assert code == 0
    values = json.loads(out)
    assert (values["version"], values["num_files"], values["partition_columns"]) == (0, 2, ["p"])
    assert values["columns"][0] == {"name": "id", "type": "BIGINT", "nullable": True}


def test_history(table: Path) -> None:
    code, out, _ = run("history", table)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["version", "time", "(UTC)", "operation", "what", "it", "did"]
    assert lines[1].split()[0] == "0"


def test_history_as_json(table: Path) -> None:
    code, out, _ = run("history", table, "--json", "--limit", "1")
    assert code == 0
    assert [commit["version"] for commit in json.loads(out)] == [0]


@pytest.mark.parametrize("command", ["history", "detail"])
def test_no_table(command: str, tmp_path: Path) -> None:
    code, out, err = run(command, tmp_path / "none")
    assert (code, out) == (3, "")
    assert err.startswith("Error: ")
    assert str(tmp_path / "none") in err
    assert "Traceback" not in err


def test_types() -> None:
    schema = parse_schema(
        '{"type":"struct","fields":[{"name":"s","nullable":true,"metadata":{},"type":{"type":"struct","fields":'
        '[{"name":"a","type":"decimal(10,2)","nullable":true,"metadata":{}},{"name":"m","nullable":true,'
        '"metadata":{},"type":{"type":"map","keyType":"string","valueType":{"type":"array","elementType":"byte",'
        '"containsNull":true},"valueContainsNull":true}}]}}]}'
    )
    assert sql_type(schema.fields[0].data_type) == "STRUCT<a: DECIMAL(10,2), m: MAP<STRING, ARRAY<TINYINT>>>"


@pytest.mark.parametrize(
    ("metrics", "text"),
    [
        (None, ""),
        ({"numTargetRowsInserted": "1", "numTargetRowsUpdated": "0"}, "1 row inserted"),
        ({"numTargetRowsInserted": "0", "numTargetRowsDeleted": "0"}, "no row changed"),
        ({"numFiles": "2", "numOutputRows": "1000"}, "1,000 rows written; 2 files added"),
        (
            {
                "numTargetRowsUpdated": "20",
                "numTargetRowsDeleted": "3",
                "numTargetFilesAdded": "1",
                "numTargetFilesRemoved": "1",
                "executionTimeMs": "1250",
            },
            "20 rows updated, 3 rows deleted; 1 file added, 1 file removed; 1.2 s",
        ),
        ({"executionTimeMs": "not a number"}, ""),
        ({"executionTimeMs": "²", "numTargetRowsInserted": None, "numFiles": "9" * 5000}, ""),
        ({"numDeletedRows": "3", "numCopiedRows": "2", "numRemovedFiles": "1"}, "3 rows deleted; 1 file removed"),
        ({"numUpdatedRows": "1", "numAddedFiles": "1"}, "1 row updated; 1 file added"),
    ],
)
def test_what_a_commit_did(metrics: dict[str, str | None] | None, text: str) -> None:
    assert what_it_did({"operationMetrics": metrics}) == text


@pytest.mark.parametrize("command", ["detail", "history"])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_odd_values_of_the_table(tmp_path: Path, command: str, options: list[str]) -> None:
    table = make_table(tmp_path / "t")
    for file in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            if "metaData" in action:
                action["metaData"]["createdTime"] = 10**18
            if "commitInfo" in action:
                action["commitInfo"] |= {"operation": 5, "operationMetrics": ["x"], "inCommitTimestamp": 10**18}
        file.write_text("\n".join(map(json.dumps, actions)))
    code, out, _ = run(command, table, *options)
    assert (code, "Traceback" in out) == (0, False)


@pytest.mark.parametrize("command", ["detail", "history"])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_strings_of_the_table_control_no_terminal(tmp_path: Path, command: str, options: list[str]) -> None:
    table = make_table(tmp_path / "t")
    evil = "\x1b[2J\x1b]0;owned\x07\x9b\u202e"
    for file in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            if "metaData" in action:
                action["metaData"] |= {"name": evil, "description": evil, "configuration": {evil: evil}}
            if "commitInfo" in action:
                action["commitInfo"]["operation"] = evil
        file.write_text("\n".join(map(json.dumps, actions)))
    code, out, _ = run(command, table, *options)
    assert code == 0
    assert not set(out) & set(evil[:1] + evil[-3:])
    assert ("owned" in out) == (command == "detail" or not options or "operation" in out)
    code, _, err = run(command, tmp_path / f"no{evil}")
    assert code == 3
    assert not set(err) & set(evil[:1] + evil[-3:])


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_half_of_a_surrogate_pair_is_shown(tmp_path: Path, options: list[str]) -> None:
    """Other writers cut strings between the two."""
    table = make_table(tmp_path / "t")
    file = table / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["operation"] = "WRITE \ud83d"
    file.write_text("\n".join(map(json.dumps, actions)))
    code, out, err = run("history", table, *options)
    assert (code, err) == (0, "")
    assert (json.loads(out)[0]["operation"] == "WRITE \ud83d") if options else ("WRITE \ufffd" in out)
