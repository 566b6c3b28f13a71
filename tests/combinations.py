"""Which combinations of parameters a test runs: a few that have each value, or all of them.

``DELTAMERGE_TEST_COMBINATIONS=all`` runs all, as `make test-all` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import cycle, islice, product
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

ALL = os.environ.get("DELTAMERGE_TEST_COMBINATIONS") == "all"


def combinations(*values: Iterable[Any]) -> list[ParameterSet]:
    """Returns the combinations of several lists' values that are run, with the marks of values that are parameters.

    Of the few, each value of each list is in at least one; the lists turn together, the longest once.
    """
    lists = [list(of_one) for of_one in values]
    if ALL:
        return [_parameters(each) for each in product(*lists)]
    longest = max(map(len, lists))
    # Lists of one length would always meet in the same pairs if a shorter one began anew at the same value.
    turning = [_shifted(of_one, longest) for of_one in lists]
    return [_parameters(each) for each in zip(*turning, strict=True)]


def _parameters(values: tuple[Any, ...]) -> ParameterSet:
    known = [value for value in values if isinstance(value, ParameterSet)]
    plain = [value.values[0] if isinstance(value, ParameterSet) else value for value in values]
    ids = "-".join(str(value.id) for value in known)
    return pytest.param(*plain, marks=[mark for value in known for mark in value.marks], id=ids or None)


def _shifted(values: list[Any], count: int) -> list[Any]:
    rounds = [values[turn % len(values) :] + values[: turn % len(values)] for turn in range(count // len(values) + 1)]
    return list(islice(cycle(value for of_round in rounds for value in of_round), count))


def some(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Returns the first values of a list, or all of them: for tests that take long and differ little."""
    found = list(values)
    return found if ALL else found[:count]
