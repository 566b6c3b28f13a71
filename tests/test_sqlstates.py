"""Every error class has one SQLSTATE, and the table has no class that nothing raises."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pyspark.errors import PySparkException

from deltamerge import exceptions
from deltamerge.exceptions import DeltaTableException
from deltamerge.sqlstates import _TABLE, SQLSTATES

SOURCE = Path(__file__).parents[1] / "src" / "deltamerge"


@cache
def modules() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py") if path.name != "sqlstates.py"}


def raised() -> Iterator[tuple[str, str]]:
    """The patterns of the error classes that are given to an exception of the package, with their places."""
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                kind = ast.unparse(node.func)
                named = [keyword.value for keyword in node.keywords if keyword.arg == "error_class"]
                first = [*named, *(node.args[:1] if kind in exceptions.__all__ else [])]
                for value in first:
                    for choice in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
                        if isinstance(choice, ast.Constant | ast.JoinedStr):
                            yield pattern(choice), f"{path.name}:{node.lineno}"


def pattern(value: ast.expr) -> str:
    if isinstance(value, ast.JoinedStr):
        return "".join(pattern(part) if isinstance(part, ast.Constant) else "[A-Z_]+" for part in value.values)
    return re.escape(str(value.value)) if isinstance(value, ast.Constant) else "[A-Z_]+"


def test_every_raised_class_has_an_sqlstate() -> None:
    wrong = [f"{place} {wanted}" for wanted, place in raised() if not any(re.fullmatch(wanted, c) for c in SQLSTATES)]
    assert wrong == []


def test_every_class_is_named_once() -> None:
    names = [name for line in _TABLE.strip().splitlines() for name in line.split()[1:]]
    assert sorted(names) == sorted(set(names))


def test_every_class_of_the_table_is_used() -> None:
    nodes = [node for tree in modules().values() for node in ast.walk(tree)]
    whole = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    built = {pattern(node) for node in nodes if isinstance(node, ast.JoinedStr)} - {"[A-Z_]+"}
    unused = [c for c in SQLSTATES if c not in whole and not any(re.fullmatch(one, c) for one in built)]
    assert unused == []


def test_an_error_looks_its_sqlstate_up_unless_spark_reported_one() -> None:
    assert DeltaTableException("DELTA_TABLE_NOT_FOUND", "No table.").getSqlState() == "42P01"
    assert DeltaTableException("OF_SPARK", "Spark's.", sqlstate="42000").getSqlState() == "42000"


def test_an_error_answers_all_that_pyspark_exceptions_are_asked() -> None:
    error = DeltaTableException("DELTA_TABLE_NOT_FOUND", "No table.", parameters={"tableName": "t"})
    names = [name for name in dir(PySparkException) if name.startswith("get")]
    with warnings.catch_warnings():
        # PySpark warns of its older name.
        warnings.simplefilter("error")
        answers = {name: getattr(error, name)() for name in names}
    answers.pop("getBreakingChangeInfo", None)
    assert error.getBreakingChangeInfo() is None
    assert answers == {
        "getCondition": "DELTA_TABLE_NOT_FOUND",
        "getErrorClass": "DELTA_TABLE_NOT_FOUND",
        "getMessage": "[DELTA_TABLE_NOT_FOUND] No table. SQLSTATE: 42P01",
        "getMessageParameters": {"tableName": "t"},
        "getQueryContext": [],
        "getSqlState": "42P01",
    }
