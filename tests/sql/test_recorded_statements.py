"""Every recorded MERGE parses, but for those that Spark's parser refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from corpus.cases import load_cases
from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.merge_parser import parse_merge

PARSER_ERRORS = {
    "PARSE_SYNTAX_ERROR",
    "MERGE_WITHOUT_WHEN",
    "COLUMN_ALIASES_NOT_ALLOWED",
    "NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION",
    "NON_LAST_NOT_MATCHED_BY_TARGET_CLAUSE_OMIT_CONDITION",
    "NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION",
}


def statements() -> Iterator[Any]:
    for case in load_cases():
        source = case.source or {}
        relation = "src"
        if "sql" in source:
            relation = "(" + source["sql"] + ")"
        elif "format" in source:
            relation = source["format"] + ".`/p`"
        for key in ("merge", "oracle_merge"):
            if key in case.values:
                sql = case.values[key].replace("{source}", relation).replace("{target}", "delta.`/some/path`")
                yield pytest.param(sql, case.expect, id=f"{case.topic}:{case.id}:{key}")


def test_there_are_recorded_cases() -> None:
    assert len(list(statements())) > 300


@pytest.mark.parametrize(("sql", "expect"), statements())
def test_recorded_statements(sql: str, expect: dict[str, Any]) -> None:
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
