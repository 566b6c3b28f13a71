"""Requests to the table's store that fail; the first one of a process shows whether the store answers at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

_CLIENT = {"connect_timeout": "2s", "timeout": "4s"}
# obstore does not look for these where it is given any options of its client.
_OF_ENVIRONMENT = {"allow_http": "AWS_ALLOW_HTTP", "proxy_url": "AWS_PROXY_URL"}


class StoreNotOpened(OSError):
    """This process does not open the table's store: it has not answered a single request."""


class StoreFailed(OSError):
    """The store did not do what it was asked for, after all attempts."""


def impatient(arguments: Mapping[str, Any], retries: int = 5, seconds: int = 15) -> dict[str, Any]:
    """Return the arguments of obstore's store with which one that does not answer fails soon.

    Args:
        retries: How often a request is made again.
        seconds: How long it may take until it is made again for the last time.
    """
    retry = {"max_retries": retries, "retry_timeout": timedelta(seconds=seconds)}
    known = {option: os.environ[name] for option, name in _OF_ENVIRONMENT.items() if name in os.environ}
    client = {**known, **_CLIENT, **arguments.get("client_options", {})}
    return {**arguments, "client_options": client, "retry_config": retry}


@contextmanager
def opening(*, is_first: bool) -> Iterator[None]:
    """Open a file.

    Args:
        is_first: Whether the store has answered nothing so far.

    Raises:
        FileNotFoundError: The store has answered that there is no such file.
        StoreNotOpened: It does not answer, or refuses.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, RuntimeError) as error:
        # hdfs-native raises a RuntimeError where it does not reach a name node.
        if not is_first:
            raise
        raise StoreNotOpened(str(error).strip().partition("\n")[0]) from error
