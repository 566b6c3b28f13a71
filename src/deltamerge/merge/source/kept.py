"""The source's rows, kept from one run of a merge to the next: a commit that was lost does not cost them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar, cast

_T = TypeVar("_T")
logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")


class KeptSource:
    """At most one source that was computed; a ``with`` block at whose end it is released."""

    def __init__(self) -> None:
        self._key: object = None
        self._value: object = None
        self._release: Callable[[], None] | None = None

    def once(self, key: object, make: Callable[[], _T], release: Callable[[_T], None]) -> _T:
        """Return what was kept under an equal key, or make it and keep it in the place of another.

        Args:
            key: All that decides what is made, besides the statement.
            release: Is called once nobody needs the value any more.
        """
        if self._release is not None and self._key == key:
            return cast("_T", self._value)
        self.forget()
        value = make()
        self._key, self._value, self._release = key, value, lambda: release(value)
        return value

    def __enter__(self) -> KeptSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.forget()

    def forget(self) -> None:
        """Release what is kept, such as rows that were lost with an executor."""
        release, self._key, self._value, self._release = self._release, None, None, None
        if release is None:
            return
        try:
            release()
        except Exception:
            # It may be committed by now: a failure to tidy up must not look like the merge's.
            logger.warning("the rows that were kept of the source were not removed", exc_info=True)
