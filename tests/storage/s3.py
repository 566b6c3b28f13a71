"""An S3 server for tests, in a process of its own."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs
from pyspark.sql import SparkSession

BUCKET = "tables"
# Nothing that is shown or written may have these.
KEY_ID, SECRET = "KEYID0123456789", "secretKEY0123456789"
_REQUEST = re.compile(r'"(?:\x1b\[[0-9;]*m)*([A-Z]+) /(\S*)')


@dataclass(frozen=True)
class S3:
    """A server that is running, and its log."""

    port: int
    log: Path

    @property
    def options(self) -> dict[str, str]:
        """The options under obstore's names, which delta-rs takes as well."""
        return {
            "endpoint": f"http://127.0.0.1:{self.port}",
            "access_key_id": KEY_ID,
            "secret_access_key": SECRET,
            "region": "us-east-1",
            "allow_http": "true",
        }

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Spark's own access."""
        return {
            "fs.s3a.endpoint": f"http://127.0.0.1:{self.port}",
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.access.key": KEY_ID,
            "fs.s3a.secret.key": SECRET,
            "fs.s3a.path.style.access": "true",
        }

    @property
    def files(self) -> pafs.S3FileSystem:
        """The server as PyArrow opens it."""
        return pafs.S3FileSystem(
            access_key=KEY_ID,
            secret_key=SECRET,
            region="us-east-1",
            scheme="http",
            endpoint_override=f"127.0.0.1:{self.port}",
        )

    def objects(self, folder: str) -> set[str]:
        """Lists the objects below a folder of the bucket, by their names in it."""
        found = self.files.get_file_info(pafs.FileSelector(f"{BUCKET}/{folder}", recursive=True))
        return {info.path.removeprefix(f"{BUCKET}/{folder}/") for info in found if info.type == pafs.FileType.File}

    def requests(self) -> list[str]:
        """Lists the requests so far, each a method and a path."""
        return [f"{method} {path}" for method, path in _REQUEST.findall(self.log.read_text())]

    def uploads(self) -> str:
        """Returns the server's list of unfinished uploads."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{BUCKET}?uploads", timeout=10) as answer:
            return str(answer.read().decode())


@contextmanager
def server(folder: Path) -> Iterator[S3]:
    """Starts a server with an empty bucket."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    log = folder / "s3.log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            _make_bucket(f"http://127.0.0.1:{port}/{BUCKET}")
            yield S3(port, log)
        finally:
            process.kill()


def _make_bucket(url: str) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=10):
                return
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Holds settings of a session."""
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            spark.conf.unset(key)
