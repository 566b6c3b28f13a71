"""Which recorded MERGE runs by which entry, on which kind of session.

Each runs by SQL on classic Spark and by the builder over Spark Connect, every sixth the other way round, too: what
depends on the entry ends where the statement is frozen, and what depends on the session is not in the entries.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from .builder_entry import TELL_THEIR_OWN_TIME, only_in_sql
from .cases import Case

CONNECT = os.environ.get("DELTAMERGE_TEST_MODE") == "connect"
BY_BOTH_EVERY = 6


def said_by_builder(case: Case) -> bool:
    """Tells whether the builder has words for a case."""
    return only_in_sql(case.name) is None and case.name not in TELL_THEIR_OWN_TIME


def run_by_sql(cases: Sequence[Case]) -> list[Case]:
    """Chooses the cases that run by SQL in this run of the tests."""
    both = cases[::BY_BOTH_EVERY]
    return [case for case in cases if not CONNECT or case in both or not said_by_builder(case)]


def run_by_builder(cases: Sequence[Case]) -> list[Case]:
    """Chooses the cases that run by the builder in this run of the tests."""
    both = cases[::BY_BOTH_EVERY]
    return [case for case in cases if said_by_builder(case) and (CONNECT or case in both)]
