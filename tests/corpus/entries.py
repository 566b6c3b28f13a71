"""Which recorded MERGE runs by which entry, on which kind of session.

Each runs once: two of three by SQL on classic Spark, the third by the builder over Spark Connect; every twelfth by both
on both. What depends on the entry ends where the statement is frozen, and what depends on the session is not in the
entries. With ``DELTAMERGE_TEST_CASES=all`` (`make corpus`) each runs by both on both.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from .builder_entry import TELL_THEIR_OWN_TIME, only_in_sql
from .cases import Case

CONNECT = os.environ.get("DELTAMERGE_TEST_MODE") == "connect"
BY_BOTH_EVERY = 1 if os.environ.get("DELTAMERGE_TEST_CASES") == "all" else 24


def said_by_builder(case: Case) -> bool:
    """Tells whether the builder has words for a case."""
    return only_in_sql(case.name) is None and case.name not in TELL_THEIR_OWN_TIME


def run_by_sql(cases: Sequence[Case]) -> list[Case]:
    """Chooses the cases that run by SQL in this run of the tests."""
    both, built = cases[::BY_BOTH_EVERY], _over_connect(cases)
    return [case for case in cases if case in both or (not CONNECT and case not in built)]


def run_by_builder(cases: Sequence[Case]) -> list[Case]:
    """Chooses the cases that run by the builder in this run of the tests."""
    both, built = cases[::BY_BOTH_EVERY], _over_connect(cases)
    return [case for case in cases if said_by_builder(case) and (case in both or (CONNECT and case in built))]


def _over_connect(cases: Sequence[Case]) -> list[Case]:
    return [case for case in cases if said_by_builder(case)][2::3]
