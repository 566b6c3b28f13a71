"""A bucket or container by obstore, where a process has it: executors may lack it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from deltamerge.workers.azure import of_service
from deltamerge.workers.first_contact import StoreFailed, impatient, opening
from deltamerge.workers.request_counter import RequestCounter
from deltamerge.workers.signed_urls import without_queries

_Answer = TypeVar("_Answer")

_PROVIDER = "credential_provider"
# In the body of an answer, which may repeat the request with its keys.
_CODE = re.compile(r"<Code>(\w+)</Code>")

_S3N = "s3n://"
_ACCOUNT = re.compile(r"abfss?://(?P<container>[^/@]+)@(?P<account>[^./]+)\.(?P<domain>[^/]+)", re.IGNORECASE)
_KNOWN_DOMAIN = re.compile(r"(?:dfs|blob)\.(?:core\.windows\.net|fabric\.microsoft\.com)")


class FileChanged(ValueError):
    """A file is no longer the one that was opened."""


class ObstoreClient:
    """What is asked of a bucket or container; its errors are Python's own, without what may be secret.

    Args:
        url: The bucket's or container's.
        options: The arguments of obstore's store.

    Raises:
        ImportError: This process has no obstore.
    """

    def __init__(self, url: str, options: Mapping[str, Any], requests: RequestCounter | None = None) -> None:
        import obstore  # noqa: PLC0415
        from obstore.exceptions import BaseError, PreconditionError  # noqa: PLC0415

        self._obstore: Any = obstore
        self._requests = requests or RequestCounter()
        self._errors, self._changed = BaseError, PreconditionError
        self._store = open_bucket(url, options)
        self._first: Any = open_bucket(url, impatient(options))

    def head(self, key: str) -> Any:  # noqa: ANN401
        return self._asked(f"{key} cannot be read", lambda store: self._obstore.head(store, key))

    def get(self, key: str, options: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return what is known of a file, and the bytes that are asked for.

        Raises:
            ValueError: The file is not the version that is asked for.
        """

        def request(store: Any) -> tuple[Any, Any]:  # noqa: ANN401
            answer = self._obstore.get(store, key, options=options)
            meta = answer.meta
            content = answer.bytes()
            self._requests.add(read=len(content))
            return meta, content

        try:
            return self._asked(f"{key} cannot be read", request)
        except self._changed:
            raise FileChanged(f"{key} was changed meanwhile") from None

    def put(self, key: str, content: bytes) -> None:
        """Write a file with one request."""
        self._asked(
            f"{key} cannot be written", lambda store: self._obstore.put(store, key, content, use_multipart=False)
        )
        self._requests.add(written=len(content))

    def _asked(self, failure: str, request: Callable[[Any], _Answer]) -> _Answer:
        first = self._first
        try:
            with opening(is_first=first is not None):
                answer = self._told(failure, request, self._store if first is None else first)
        except (FileNotFoundError, self._changed):
            self._first = None
            raise
        self._first = None
        return answer

    def _told(self, failure: str, request: Callable[[Any], _Answer], store: Any) -> _Answer:  # noqa: ANN401
        try:
            with self._requests.request():
                return request(store)
        except self._changed:
            raise
        except self._errors as error:
            raise StoreFailed(f"{failure}: {reason_of(error)}") from None


def open_bucket(url: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return obstore's store of a bucket or container.

    What the arguments lack obstore takes from the environment. Of a key of S3 without a token it would take the token
    of the environment's own key; a provider of credentials gives all of them.
    """
    from obstore.store import from_url  # noqa: PLC0415

    url, arguments = _as_known(url, arguments)
    config = arguments.get("config", {})
    key = {name: config.get(name) for name in ("access_key_id", "secret_access_key")}
    if not all(key.values()) or config.get("session_token") or _PROVIDER in arguments:
        return from_url(url, **arguments)
    return from_url(url, **{**arguments, _PROVIDER: lambda: {**key, "token": None, "expires_at": None}})


def _as_known(url: str, arguments: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return a URL and arguments that obstore takes; of Azure's hosts it knows those of the public cloud and Fabric."""
    if url.startswith(_S3N):
        return "s3://" + url.removeprefix(_S3N), arguments
    found = _ACCOUNT.fullmatch(url)
    if found is None or _KNOWN_DOMAIN.fullmatch(found["domain"]):
        return url, arguments
    endpoint = f"https://{found['account']}.{of_service(found['domain'], 'blob')}"
    config = {"endpoint": endpoint, **arguments.get("config", {}), "account_name": found["account"]}
    return f"az://{found['container']}", {**arguments, "config": config}


def obstore_client(
    url: str, options: Mapping[str, Any], requests: RequestCounter | None = None
) -> ObstoreClient | None:
    """Return a bucket or container; None where this process has no obstore."""
    try:
        return ObstoreClient(url, options, requests)
    except ImportError:
        return None


def reason_of(error: Exception) -> str:
    """Return what an error of obstore's says, without what may be secret: of the store's answer only its code."""
    message = str(error).strip()
    first = without_queries(message.partition("\n")[0].partition("<")[0]).strip().rstrip(":")
    code = _CODE.search(message)
    return first if code is None else f"{first}: {code[1]}"
