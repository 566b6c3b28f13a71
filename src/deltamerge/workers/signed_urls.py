"""Messages that show the URL of a request, whose query may be signed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

_QUERY = re.compile(r"""\?[^\s'"]*|\bsig=[^\s'"]*""")


def without_queries(message: str) -> str:
    return _QUERY.sub("", message)


@contextmanager
def errors_without_queries() -> Iterator[None]:
    """Raise PyArrow's errors again, also without the error that they came from: a traceback shows it."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise type(error)(*(without_queries(each) if isinstance(each, str) else each for each in error.args)) from None
