"""Every recorded MERGE parses, but for those that Spark's parser refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.merge_parser import parse_merge

CASES = Path(__file__).parents[3] / "shared" / "cases"
PARSER_ERRORS = {
    "PARSE_SYNTAX_ERROR",
    "MERGE_WITHOUT_WHEN",
    "COLUMN_ALIASES_NOT_ALLOWED",
    "NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION",
    "NON_LAST_NOT_MATCHED_BY_TARGET_CLAUSE_OMIT_CONDITION",
    "NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION",
}


def statements() -> Iterator[Any]:
    for file in sorted(CASES.glob("*.json")):
        content = json.loads(file.read_text(encoding="utf-8"))
        for case in content["cases"] if isinstance(content, dict) else content:
            source = case.get("source") or {}
            text = "src"
            if "sql" in source:
                text = "(" + source["sql"] + ")"
            elif "format" in source:
                text = source["format"] + ".`/p`"
            for key in ("merge", "oracle_merge"):
                if key in case:
                    sql = case[key].replace("{source}", text).replace("{target}", "delta.`/some/path`")
                    yield pytest.param(sql, case["expect"], id=f"{file.stem}:{case['id']}:{key}")


def test_there_are_recorded_cases() -> None:
    if not CASES.is_dir():
        if os.environ.get("CI") == "true":
            pytest.fail(f"the recorded cases are missing at {CASES}")
        pytest.skip("the recorded cases are not beside this repository")
    assert len(list(statements())) > 300


@pytest.mark.parametrize(("sql", "expect"), statements())
def test_recorded_statements(sql: Any, expect: Any) -> None:
    error = expect.get("error")
    if error not in PARSER_ERRORS:
        merge = parse_merge(sql)
        assert merge.target.path == "/some/path"
        assert merge.clauses
        return
    with pytest.raises(DeltaParseException) as caught:
        parse_merge(sql)
    assert caught.value.error_class == error
    assert caught.value.sqlstate == expect["sqlstate"]
