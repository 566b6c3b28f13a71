"""The first request to an object store: whether it answers is known within seconds, and if it does not, why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from obstore.exceptions import BaseError
from obstore.store import from_url

from deltamerge.exceptions import DeltaTableException
from deltamerge.workers.obstore_client import reason_of

_Answer = TypeVar("_Answer")

# What is asked again must end within five seconds.
_RETRIES: dict[str, Any] = {"max_retries": 2, "retry_timeout": timedelta(seconds=3)}
_CLIENT = {"connect_timeout": "2s", "timeout": "4s"}
_ADVICE = {
    "s3": "spark.hadoop.fs.s3a.endpoint, .access.key and .secret.key (of one bucket: "
    "spark.hadoop.fs.s3a.bucket.<bucket>.…), or the options endpoint, access_key_id and secret_access_key",
    "az": "spark.hadoop.fs.azure.account.key.<account>.dfs.core.windows.net or .fs.azure.sas.fixed.token.…, "
    "or the option account_key or sas_key",
    "gs": "spark.hadoop.fs.gs.auth.service.account.json.keyfile, or the option service_account",
}


class FirstContact:
    """A store that has not answered yet.

    Args:
        root: The table's URL.
        kind: The kind of store; see `store_kind`.
        url: The bucket's or container's.
        client: The options of obstore's client, which may be given by the user.
        config: The store's own options. They may be secret.
    """

    def __init__(self, root: str, kind: str, url: str, client: Mapping[str, str], config: Mapping[str, str]) -> None:
        self._root = root
        self._kind = kind
        self._options = sorted([*client, *config])
        options: dict[str, Any] = {"client_options": {**_CLIENT, **client}, "retry_config": _RETRIES}
        if config:
            options["config"] = dict(config)
        self._store = from_url(url, **options)

    def ask(self, request: Callable[[Any], _Answer]) -> _Answer:
        """Make a request.

        Raises:
            FileNotFoundError: It has answered that there is no such file.
            DeltaTableException: The store does not answer, or refuses.
        """
        try:
            return request(self._store)
        except FileNotFoundError:
            raise
        except BaseError as error:
            reason = reason_of(error)
            given = f"with {', '.join(self._options)}" if self._options else "without options"
            advice = _ADVICE.get(self._kind, "the store's options")
            raise DeltaTableException(
                "FAILED_READ_FILE.STORE_NOT_REACHED",
                f"The store of '{self._root}' was not reached: {reason}. It was asked {given}; what is not given comes "
                f"from the environment and the machine's role. Set {advice}.",
                sqlstate="KD001",
                parameters={"path": self._root},
            ) from None
