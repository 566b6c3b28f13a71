"""Credentials that a callable provides: asked again before they expire, and sent to tasks as values."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from pyspark import cloudpickle

from deltamerge.exceptions import DeltaTableException
from deltamerge.storage.credentials import PROVIDER
from deltamerge.storage.store import open_store
from deltamerge.workers.files import Files
from deltamerge.workers.obstore_client import obstore_client


def minutes(left: float) -> datetime:
    return datetime.now(timezone.utc) + timedelta(minutes=left)


class Counting:
    """A provider whose answers are numbered."""

    def __init__(self, left: float | None) -> None:
        self.left, self.calls = left, 0

    def __call__(self) -> dict[str, Any]:
        self.calls += 1
        expires = None if self.left is None else minutes(self.left)
        return {"access_key_id": f"id{self.calls}", "secret_access_key": "secret!", "token": "t", "expires_at": expires}


def in_tasks(url: str, provider: Callable[[], Any]) -> Callable[[], Files]:
    files = open_store(url, {PROVIDER: provider}).files
    return lambda: pickle.loads(cloudpickle.dumps(files))  # type: ignore[no-untyped-call]


def test_tasks_get_values_that_are_valid() -> None:
    provider = Counting(left=60)
    send = in_tasks("s3://bucket/t", provider)
    sent = [send(), send()]
    assert [type(files) for files in sent] == [Files, Files]
    assert [files.options["access_key"] for files in sent] == ["id1", "id1"]
    assert [(files.ranged or {})["config"]["session_token"] for files in sent] == ["t", "t"]
    assert provider.calls == 1


def test_the_provider_is_asked_before_they_expire() -> None:
    provider = Counting(left=4)
    send = in_tasks("s3://bucket/t", provider)
    before = provider.calls
    assert [send().options["access_key"] for _ in range(2)] == [f"id{before + 1}", f"id{before + 2}"]


async def token() -> dict[str, Any]:
    return {"token": "bearer", "expires_at": None}


def test_a_coroutine_for_google() -> None:
    assert in_tasks("gs://bucket/t", token)().options["access_token"] == "bearer"


def test_what_tasks_do_not_take_for_azure() -> None:
    files = open_store("abfss://c@account.dfs.core.windows.net/t", {PROVIDER: token}).files
    assert not isinstance(files, Files)
    sas = {"sas_token": "sv=1&sig=x", "expires_at": minutes(60)}
    assert in_tasks("abfss://c@account.dfs.core.windows.net/t", lambda: sas)().options["sas_token"] == "?sv=1&sig=x"


def failing() -> Any:
    raise RuntimeError("password!")


@pytest.mark.parametrize(
    ("provider", "reason"),
    [
        (failing, "RuntimeError"),
        (lambda: "secret!", "a str"),
        (lambda: {"key": "secret!"}, "a dict of key; known are access_key_id"),
        (lambda: {"access_key_id": "secret!", "expires_at": datetime(2030, 1, 1)}, "time zone"),
        ("secret!", "not a callable"),
    ],
)
def test_what_gives_no_credentials_is_refused_without_showing_it(provider: Any, reason: str) -> None:
    with pytest.raises(DeltaTableException, match=reason) as error:
        open_store("s3://bucket/t", {PROVIDER: provider})
    assert "!" not in str(error.value)


class Tokens(BaseHTTPRequestHandler):
    """Notes which tokens requests have; there are no files."""

    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("x-amz-security-token"))
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Tokens)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Tokens.asked.clear()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


KEY = {"access_key_id": "id", "secret_access_key": "s"}


@pytest.mark.parametrize(
    ("options", "defaults", "token"),
    [
        (KEY, {}, None),
        ({}, {"fs.s3a.access.key": "id", "fs.s3a.secret.key": "s"}, None),
        ({**KEY, "aws_token": "own"}, {}, "own"),
        ({PROVIDER: lambda: {**KEY, "token": None, "expires_at": None}}, {}, None),
        ({}, {}, "environment"),
    ],
)
def test_the_environments_token_goes_with_its_own_key(
    options: dict[str, Any],
    defaults: dict[str, str],
    token: str | None,
    endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.setenv(f"AWS_{name}", "environment")
    store = open_store(
        "s3://bucket/t", {"endpoint": endpoint, "region": "r", "allow_http": "true", **options}, defaults
    )
    assert isinstance(store.files, Files)
    client = obstore_client("s3://bucket", store.files.for_tasks().ranged or {})
    assert client is not None
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            store.get("x")
        with pytest.raises(FileNotFoundError):
            client.get("x", {})
    assert Tokens.asked == [token] * 4


@pytest.mark.parametrize("url", ["hdfs://host/t", "https://host/t"])
def test_stores_that_take_none(url: str) -> None:
    with pytest.raises(DeltaTableException, match=PROVIDER):
        open_store(url, {PROVIDER: Counting(None)})
