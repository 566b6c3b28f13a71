"""Things put together into groups of a size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def packed(sized: Iterable[tuple[T, int]], most: int) -> Iterator[list[T]]:
    """Yield things in their order, in groups that are not larger than some size unless one thing is.

    Args:
        sized: The things, each with its size.
        most: In the same unit.
    """
    group: list[T] = []
    filled = 0
    for thing, size in sized:
        if group and filled + size > most:
            yield group
            group, filled = [], 0
        group.append(thing)
        filled += size
    if group:
        yield group
