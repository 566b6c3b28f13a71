"""The first request to an object store: whether it answers is known within seconds, and if it does not, why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from obstore.exceptions import BaseError

from deltamerge.exceptions import DeltaTableException
from deltamerge.workers.first_contact import impatient
from deltamerge.workers.obstore_client import open_bucket, reason_of

_Answer = TypeVar("_Answer")

_ADVICE = {
    "s3": "spark.hadoop.fs.s3a.endpoint, .endpoint.region, .access.key and .secret.key (of one bucket: "
    "spark.hadoop.fs.s3a.bucket.<bucket>.…), or the options endpoint, region, access_key_id and secret_access_key",
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
        arguments: Those of obstore's store. They may be secret.
    """

    def __init__(self, root: str, kind: str, url: str, arguments: Mapping[str, Any]) -> None:
        self._root = root
        self._kind = kind
        client = arguments.get("client_options", {})
        self._options = sorted([*client, *arguments.get("config", {}), *(arguments.keys() & {"credential_provider"})])
        self._store: Any = open_bucket(url, impatient(arguments, retries=2, seconds=3))

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
                parameters={"path": self._root},
            ) from None
