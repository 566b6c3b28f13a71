"""Calls of PySpark that are this library's own, also where the user's calls are answered by it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_thread = threading.local()


@contextmanager
def own_calls() -> Iterator[bool]:
    """Mark what this thread calls meanwhile as the library's own; yield whether it was already."""
    was = getattr(_thread, "are_own", False)
    _thread.are_own = True
    try:
        yield was
    finally:
        _thread.are_own = was
