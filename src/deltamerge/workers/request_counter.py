"""Requests to a store that were made in this process: how many, how many of them in sequence, and their bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock


@dataclass(frozen=True)
class RequestCounts:
    """Requests to a store.

    Args:
        in_sequence: The most of them that followed one another, each begun after the one before had ended.
        bytes_read: Bytes of the files' contents; what a listing returns is not counted.
        bytes_written: Likewise.
    """

    requests: int = 0
    in_sequence: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class RequestCounter:
    """Counts the requests of all threads of this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests = 0
        self._in_sequence = 0
        self._read = 0
        self._written = 0
        self._last_end = 0.0

    @contextmanager
    def request(self, number: int = 1) -> Iterator[None]:
        """Make requests, of which each begins as the one before has ended."""
        began = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._requests += number
                # Requests end here in the order of their ends, so that the longest sequence takes the first that fits.
                if began >= self._last_end:
                    self._in_sequence += number
                    self._last_end = time.monotonic()

    def add(self, *, requests: int = 0, read: int = 0, written: int = 0) -> None:
        """Count what a request has shown only afterwards; requests that followed one another."""
        with self._lock:
            self._requests += requests
            self._in_sequence += requests
            self._read += read
            self._written += written

    @property
    def counts(self) -> RequestCounts:
        with self._lock:
            return RequestCounts(self._requests, self._in_sequence, self._read, self._written)
