"""A bucket or container by obstore, where a process has it: executors may lack it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# A query may have a signature.
_QUERY = re.compile(r"\?\S*")


class ObstoreClient:
    """What is asked of a bucket or container; its errors are Python's own, without what may be secret.

    Args:
        url: The bucket's or container's.
        options: The arguments of obstore's store.

    Raises:
        ImportError: This process has no obstore.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        import obstore  # noqa: PLC0415
        from obstore.exceptions import BaseError, PreconditionError  # noqa: PLC0415
        from obstore.store import from_url  # noqa: PLC0415

        self._obstore: Any = obstore
        self._errors, self._changed = BaseError, PreconditionError
        self._store = from_url(url, **options)

    def head(self, key: str) -> Any:  # noqa: ANN401
        """Return what is known of a file, as obstore has it."""
        try:
            return self._obstore.head(self._store, key)
        except self._errors as error:
            raise OSError(f"{key} cannot be read: {reason_of(error)}") from None

    def get(self, key: str, options: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return what is known of a file, and the bytes that are asked for.

        Raises:
            ValueError: The file is not the version that is asked for.
        """
        try:
            answer = self._obstore.get(self._store, key, options=options)
            meta = answer.meta
            return meta, answer.bytes()
        except self._changed:
            raise ValueError(f"{key} was changed meanwhile") from None
        except self._errors as error:
            raise OSError(f"{key} cannot be read: {reason_of(error)}") from None

    def put(self, key: str, content: bytes) -> None:
        """Write a file with one request."""
        try:
            self._obstore.put(self._store, key, content, use_multipart=False)
        except self._errors as error:
            raise OSError(f"{key} cannot be written: {reason_of(error)}") from None


def obstore_client(url: str, options: Mapping[str, Any]) -> ObstoreClient | None:
    """Return a bucket or container; None where this process has no obstore."""
    try:
        return ObstoreClient(url, options)
    except ImportError:
        return None


def reason_of(error: Exception) -> str:
    """Return what an error of obstore's says, without what may be secret."""
    return _QUERY.sub("", str(error).strip().splitlines()[0])
