"""Keys, tokens and passwords stand nowhere: not in what is printed, logged, raised, reported, planned or committed."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest

from deltamerge.exceptions import DeltaTableException
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.object_store import ObjectStore
from deltamerge.storage.store import open_store
from deltamerge.workers.files import Files, Output

from .s3 import KEY_ID, SECRET

TOKEN = "tokenTOKEN0123456789"
SIGNATURE = "sigSIG0123456789%3D"
SECRETS = (KEY_ID, SECRET, TOKEN, SIGNATURE, SIGNATURE.removesuffix("%3D"))
METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE")


@contextmanager
def refusing(*methods: str) -> Iterator[str]:
    """Starts a store that refuses requests of some methods as S3 does: its answer repeats the key and the headers."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            headers = " ".join(f"{key.lower()}:{value}" for key, value in self.headers.items())
            content = (
                "<Error><Code>SignatureDoesNotMatch</Code><Message>Check your key.</Message>"
                f"<AWSAccessKeyId>{KEY_ID}</AWSAccessKeyId><CanonicalRequest>{headers}</CanonicalRequest></Error>"
            ).encode()
            self.send_response(403 if self.command in methods else 200)
            self.send_header("Content-Length", str(len(content)))
            for name in ("Last-Modified", "x-ms-creation-time"):
                self.send_header(name, "Mon, 01 Jan 2024 00:00:00 GMT")
            for name, value in {"ETag": '"1"', "x-ms-blob-type": "BlockBlob", "x-ms-server-encrypted": "true"}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    for method in METHODS:
        setattr(Handler, f"do_{method}", Handler.answer)
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}"
    finally:
        running.shutdown()
        running.server_close()
        thread.join()


def write(files: Files, url: str) -> None:
    with Output(files, url) as output:
        output.stream.write(b"x")
        output.keep()


def of_s3(endpoint: str) -> tuple[str, dict[str, str]]:
    known = {"region": "us-east-1", "access_key_id": KEY_ID, "secret_access_key": SECRET, "token": TOKEN}
    return "s3://tables/t", {"endpoint": endpoint, "allow_http": "true", **known}


def of_azure(endpoint: str) -> tuple[str, dict[str, str]]:
    token = f"sv=2022-11-02&sig={SIGNATURE}&sp=r"
    return "abfss://c@account.dfs.core.windows.net/t", {"endpoint": endpoint, "allow_http": "true", "sas_key": token}


@pytest.mark.parametrize("place", [of_s3, of_azure])
def test_answers_that_repeat_the_request(place: Callable[[str], tuple[str, dict[str, str]]]) -> None:
    """Whatever is asked of a store that refuses: the traceback has its code, and no key."""
    with refusing(*METHODS) as endpoint:
        root, options = place(endpoint)
        store = open_store(root, options)
        assert isinstance(store, ObjectStore) and isinstance(store.files, Files)
        files, url = store.files, f"{root}/x.parquet"
        by_arrow = Files(files.kind, files.options)
        calls: dict[str, Callable[[], object]] = {
            "snapshot": lambda: load_snapshot(store),
            "get": lambda: store.get("x"),
            "put": lambda: store.put("x", b"1"),
            "put_if_absent": lambda: store.put_if_absent("x", b"1"),
            "delete": lambda: store.delete(["x"]),
            "rename": lambda: store.rename("x", "y"),
            "list": lambda: store.list("x"),
            "exists": lambda: store.exists("x"),
            "open_input": lambda: store.open_input("x").read(),
            "parquet": lambda: files.parquet(url),
            "write": lambda: write(files, url),
            "names": lambda: files.names(f"{root}/x"),
            "parquet by PyArrow": lambda: by_arrow.parquet(url),
            "write by PyArrow": lambda: write(by_arrow, url),
            "rows by PyArrow": lambda: by_arrow.write_row_groups(url, [pa.table({"a": [1]})]),
            "arrow": lambda: by_arrow.arrow(url),
            "remove": lambda: by_arrow._remove(url),
        }
        for name, call in calls.items():
            try:
                call()
            except Exception as error:
                shown = "".join(traceback.format_exception(error)) + repr(error)
                assert [secret for secret in SECRETS if secret in shown] == [], f"{name}: {shown}"
                assert "403" in shown or "SIGNATURE" in shown or "ACCESS_DENIED" in shown, f"{name}: {shown}"
            else:
                raise AssertionError(f"{name}: no error")
        assert not any(secret in f"{store!r}{files!r}{store.root}" for secret in SECRETS)


def test_files_that_were_opened() -> None:
    """What Azure refuses after it has told a file's size."""
    with refusing("GET") as endpoint:
        root, options = of_azure(endpoint)
        files = open_store(root, options).files
        assert isinstance(files, Files)
        system = Files(files.kind, files.options)._system
        with system.open_input_file("c/t/x") as file:
            for read in (lambda: file.read_at(1, 0), file.read_buffer):
                with pytest.raises(OSError, match="403") as caught:
                    read()
                shown = "".join(traceback.format_exception(caught.value))
                assert not any(secret in shown for secret in SECRETS), shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"s3a://{KEY_ID}:{SECRET}@tables/t", "s3a://…@tables/t"),
        (f"s3://{KEY_ID}:with/{SECRET}@tables/t", "s3://…@tables/t"),
        (f"hdfs://somebody:{SECRET}@host:8020/t", "hdfs://…@host:8020/t"),
        (f"abfss://c@a.dfs.core.windows.net/t?sv=1&sig={SECRET}", "abfss://c@a.dfs.core.windows.net/t?…"),
        (f"s3://tables/t?X-Amz-Security-Token={TOKEN}&x=1", "s3://tables/t?…"),
        (f"gs://tables/t?access_token={TOKEN}", "gs://tables/t?…"),
    ],
)
def test_urls_with_secrets_are_refused(url: str, shown: str) -> None:
    with pytest.raises(DeltaTableException, match="has a key or a token") as caught:
        open_store(url)
    printed = "".join(traceback.format_exception(caught.value.with_traceback(None))) + str(caught.value.parameters)
    assert shown in printed
    assert not any(secret in printed for secret in SECRETS)


@pytest.mark.parametrize(
    "url", ["s3a://tables/x:y/z@w", "abfss://c@a.dfs.core.windows.net/t", "s3://tables/what?/x=1", "s3://t/a?b=sig"]
)
def test_urls_that_only_look_like_it(url: str) -> None:
    assert open_store(url).root == url
