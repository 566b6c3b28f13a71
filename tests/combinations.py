"""Which combinations of parameters a test runs: a few that have each value, or all of them.

``DELTAMERGE_TEST_COMBINATIONS=all`` runs all, as `make test-all` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import cycle, islice, product
from typing import Any

ALL = os.environ.get("DELTAMERGE_TEST_COMBINATIONS") == "all"


def combinations(*values: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Returns the combinations of several lists' values that are run.

    Of the few, each value of each list is in at least one; the lists turn together, the longest once.
    """
    lists = [list(of_one) for of_one in values]
    if ALL:
        return list(product(*lists))
    longest = max(map(len, lists))
    # Lists of one length would always meet in the same pairs if a shorter one began anew at the same value.
    turning = [_shifted(of_one, longest) for of_one in lists]
    return list(zip(*turning, strict=True))


def _shifted(values: list[Any], count: int) -> list[Any]:
    rounds = [values[turn % len(values) :] + values[: turn % len(values)] for turn in range(count // len(values) + 1)]
    return list(islice(cycle(value for of_round in rounds for value in of_round), count))


def some(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Returns the first values of a list, or all of them: for tests that take long and differ little."""
    found = list(values)
    return found if ALL else found[:count]
