"""IDENTIFIER('name') is a column that no reader of tokens sees."""

from __future__ import annotations

import pytest

from deltamerge.sql.operands import opaque_of
from deltamerge.sql.tokens import tokenize


@pytest.mark.parametrize(
    ("sql", "complete"), [("IDENTIFIER('v') + 1", False), ("identifier ('t.v')", False), ("f('v')", True)]
)
def test_columns_of_identifier_clauses_are_not_known(sql: str, complete: bool) -> None:
    assert opaque_of(sql, tuple(tokenize(sql))).complete is complete
