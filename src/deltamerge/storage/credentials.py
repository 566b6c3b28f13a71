"""Credentials that a callable provides, as obstore's stores take one; it is asked again before they expire."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any, TypeAlias

from deltamerge.exceptions import DeltaTableException
from deltamerge.storage.task_files import NotOpened, store_kind
from deltamerge.workers.files import Files
from deltamerge.workers.request_counter import RequestCounter

CredentialProvider: TypeAlias = "Callable[[], Any]"
"""Returns credentials as obstore's stores take them, with ``expires_at``; or a coroutine that does."""
StoreOptions: TypeAlias = "Mapping[str, str | CredentialProvider]"
"""The options of a store: strings, and perhaps a provider of credentials under the name `PROVIDER`."""

PROVIDER = "credential_provider"
_OPTION = f"The option {PROVIDER}"
# A job that begins now has this long until what it was sent expires.
_MARGIN = timedelta(minutes=5)
_EXPIRES_AT = "expires_at"
# What a provider returns for each kind of store, and the option of the same meaning.
_OPTIONS = {
    "s3": {"access_key_id": "access_key_id", "secret_access_key": "secret_access_key", "token": "session_token"},
    "az": {"access_key": "account_key", "sas_token": "sas_key", "token": "token"},
    "gs": {"token": "bearer_token"},
}


class ProvidedCredentials:
    """What a provider returned last; it is asked again less than five minutes before that expires.

    Args:
        kind: ``s3``, ``az`` or ``gs``.
        source: What errors call it.
    """

    def __init__(self, provider: CredentialProvider, kind: str, source: str = _OPTION) -> None:
        self._provider = provider
        self._source = source
        self._names = _OPTIONS[kind]
        self._lock = threading.Lock()
        self._known: dict[str, Any] | None = None

    def __call__(self) -> dict[str, Any]:
        """Return credentials as obstore takes them: the same object as long as they are valid."""
        with self._lock:
            if self._known is None or self._expires_soon(self._known):
                self._known = self._checked(self._asked())
            return self._known

    def options(self) -> dict[str, str]:
        return self.options_of(self())

    def options_of(self, found: Mapping[str, Any]) -> dict[str, str]:
        return {option: str(found[name]) for name, option in self._names.items() if found.get(name) is not None}

    def _asked(self) -> Any:  # noqa: ANN401
        try:
            found = self._provider()
            if inspect.iscoroutine(found):
                # This thread may have an event loop that runs, as in a notebook.
                with ThreadPoolExecutor(1) as pool:
                    found = pool.submit(asyncio.run, found).result()
        except Exception as error:
            # Whatever the user's function raises: its words may be secret, and are only in the cause.
            raise _refused(f"it raised {type(error).__name__}", self._source) from error
        return found

    def _checked(self, found: object) -> dict[str, Any]:
        names = f"{', '.join(self._names)} and {_EXPIRES_AT}"
        if not isinstance(found, Mapping):
            raise _refused(f"it returned a {type(found).__name__}, not a dict of {names}")
        unknown = sorted(map(str, found.keys() - self._names.keys() - {_EXPIRES_AT}))
        if unknown or not any(found.get(name) for name in self._names):
            raise _refused(f"it returned a dict of {', '.join(map(str, found)) or 'nothing'}; known are {names}")
        expires = found.get(_EXPIRES_AT)
        if expires is not None and (not isinstance(expires, datetime) or expires.tzinfo is None):
            raise _refused(f"its {_EXPIRES_AT} must be a datetime with a time zone, or None")
        return {**found, _EXPIRES_AT: expires}

    def _expires_soon(self, known: Mapping[str, Any]) -> bool:
        expires = known[_EXPIRES_AT]
        return expires is not None and expires - datetime.now(timezone.utc) < _MARGIN


@dataclass(frozen=True)
class ProvidedFiles(Files):
    """Files whose credentials are asked for again: tasks get those of the time when their work is sent.

    Args:
        current: Returns the files with credentials that are valid now.
    """

    current: Callable[[], Files] = field(default=Files, repr=False, compare=False)

    def for_tasks(self) -> Files:
        return self.current()

    def counted_by(self, requests: RequestCounter) -> Files:
        made: list[tuple[Files, Files]] = []

        def current() -> Files:
            known = self.current()
            if not made or made[-1][0] is not known:
                made[:] = [(known, known.counted_by(requests))]
            return made[-1][1]

        return replace(self, current=current, _connected={}, _opened={})

    @property
    def _system(self) -> Any:  # noqa: ANN401
        return self.current()._system

    def _client_of(self, url: str) -> Any:  # noqa: ANN401
        return self.current()._client_of(url)


def provided_files(
    credentials: ProvidedCredentials, make: Callable[[Mapping[str, str]], Files | NotOpened], known: Mapping[str, str]
) -> Files | NotOpened:
    """Return how tasks open the files of a store with provided credentials.

    Args:
        make: Returns how they are opened, with credentials as options.
        known: Credentials that show whether they are opened at all.
    """
    made: list[tuple[dict[str, Any], Files | NotOpened]] = []

    def current() -> Files:
        known = credentials()
        if not made or made[-1][0] is not known:
            made[:] = [(known, make(credentials.options_of(known)))]
        files = made[-1][1]
        if isinstance(files, NotOpened):
            raise _refused(files.reason)
        return files

    files = make(known)
    return files if isinstance(files, NotOpened) else ProvidedFiles(files.kind, files.options, current=current)


def split_provider(options: Mapping[str, Any], path: str) -> tuple[dict[str, str], CredentialProvider | None]:
    provider = options.get(PROVIDER)
    if provider is not None and not callable(provider):
        raise _refused(f"the option of '{path}' is a {type(provider).__name__}, not a callable")
    return {key: value for key, value in options.items() if key != PROVIDER}, provider


def current_options(options: StoreOptions, path: str, scheme: str) -> Callable[[], dict[str, str]]:
    """Return a function that returns options as strings, with credentials that are valid now."""
    strings, provider = split_provider(options, path)
    if provider is None or not scheme:
        return lambda: strings
    credentials = provided(provider, scheme, path)
    return lambda: {**strings, **credentials.options()}


def provided(provider: CredentialProvider, scheme: str, path: str) -> ProvidedCredentials:
    kind = store_kind(scheme)
    if kind not in _OPTIONS:
        raise _refused(f"'{path}' takes none; S3, Google Cloud Storage and Azure do")
    return ProvidedCredentials(provider, kind)


def _refused(reason: str, source: str = _OPTION) -> DeltaTableException:
    return DeltaTableException("DELTAMERGE_CREDENTIAL_PROVIDER", f"{source} gives no credentials: {reason}.")
