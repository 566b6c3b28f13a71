"""Functions for tasks run where this package is not installed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BooleanType, DateType, LongType, StringType, StructField

from deltamerge.merge.analysis.arrow_conditions import arrow_condition
from deltamerge.sql.condition_reader import read_condition
from deltamerge.workers.arrow_rows import NewRows, writing
from deltamerge.workers.conditions import ClauseChoice
from deltamerge.workers.key_lookup import PairChoice, TargetChoice, pairing
from deltamerge.workers.matched_rows import pairing_rows, reading_staged
from deltamerge.workers.staged_rows import KeptFile, KeptRows, StagedRows, staging


def of_pairs() -> PairChoice:
    return PairChoice({}, {}, by_source().choice)


def by_source() -> TargetChoice:
    sql = "n % 3 = 1 AND name IN ('a', 'b') AND (day BETWEEN DATE'2024-01-01' AND DATE'2024-01-09' OR b)"
    types = {"n": LongType(), "name": StringType(), "day": DateType(), "b": BooleanType()}
    fields = [StructField(name, data_type) for name, data_type in types.items()]
    condition = arrow_condition(read_condition(sql), lambda name: list(types).index(name.parts[0]), fields)
    assert condition is not None
    return TargetChoice({}, ClauseChoice(((0, condition),), frozenset({0})))


@pytest.mark.parametrize(
    "function",
    [
        writing(
            NewRows(KeptRows((KeptFile("a", 1, 2),)), {0: {"a": "b"}}, {}, None, {}, frozenset(), {}, (), {})
        ),
        pairing(KeptRows((KeptFile("a", 1, 2),)), ("a",), "c", ("b",), None, "/x", unique=True),
        pairing(KeptRows((KeptFile("a", 1, 2),)), ("a",), 0, ("b",), by_source(), "/x", unique=True),
        pairing(KeptRows((KeptFile("a", 1, 2),)), ("a",), of_pairs(), ("b",), None, "/x", unique=True),
        pairing_rows(KeptRows((KeptFile("a", 1, 2),)), ("a",), {}, ("f", "r", "n"), changing=True),
        reading_staged(KeptRows((KeptFile("a", 1, 2),)), ("a",), "n"),
        staging(StagedRows("/x", ("k",), 1, 1)),
    ],
)
def test_executors_need_not_have_the_package(function: Any) -> None:
    without = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'deltamerge':\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, No())\n"
        "from pyspark import cloudpickle\n"
        "function = cloudpickle.loads(sys.stdin.buffer.read())\n"
        "assert list(function(iter([]))) == []\n"
    )
    pickled = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    subprocess.run([sys.executable, "-c", without], input=pickled, check=True)
