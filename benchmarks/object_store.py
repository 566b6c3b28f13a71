"""Tables in an S3 server on this machine, behind a proxy that is as slow as the way to a real one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.fs as pafs

from merge_checksum import Checksum, table_checksum
from spark_cluster import free_port

BUCKET = "lineitem"
_KEYS = ("access-key-id", "secret-access-key")
_REGION = "us-east-1"
HADOOP_AWS = "3.5.0"
"""The version of Hadoop that PySpark 4.2 and 4.3 bring."""
_S3PROXY = "4.1.0"
_ANNOTATIONS = "jackson-annotations:2.22"
"""S3Proxy asks for an older version than the Jackson that it brings needs."""


@dataclass(frozen=True)
class ObjectStore:
    """An S3 server that is running.

    Args:
        server: Its address, for what is not measured.
        proxy: The slow one's, for the engines.
        counter: The proxy's process.
    """

    server: str
    proxy: str
    counter: subprocess.Popen[str]

    @property
    def files(self) -> Any:
        """The server as a file system of PyArrow's."""
        return pafs.S3FileSystem(
            access_key=_KEYS[0], secret_key=_KEYS[1], region=_REGION, scheme="http", endpoint_override=self.server
        )

    def upload(self, folder: Path, key: str) -> None:
        """Copy a folder's files into the bucket."""
        self.files.delete_dir_contents(f"{BUCKET}/{key}", missing_dir_ok=True)
        pafs.copy_files(str(folder), f"{BUCKET}/{key}", pafs.LocalFileSystem(), self.files)

    def copy(self, source: str, target: str) -> None:
        """Copy a table inside the bucket; what was there is deleted."""
        files = self.files
        files.delete_dir_contents(f"{BUCKET}/{target}", missing_dir_ok=True)
        for info in files.get_file_info(pafs.FileSelector(f"{BUCKET}/{source}", recursive=True)):
            if info.type == pafs.FileType.File:
                files.copy_file(info.path, info.path.replace(f"/{source}/", f"/{target}/", 1))

    def checksum(self, key: str, known: dict[str, Checksum]) -> Checksum:
        """Sum up a table; see `table_checksum`."""
        options = {**self.options(), "endpoint": f"http://{self.server}"}
        return table_checksum(self.url(key, "s3"), known, self.files, options)

    def url(self, key: str, scheme: str = "s3a") -> str:
        """Return a URL in the bucket."""
        return f"{scheme}://{BUCKET}/{key}"

    def spark_settings(self, jars: Path) -> dict[str, str | None]:
        """Return the settings by which Spark reaches it through the proxy."""
        settings = {
            "endpoint": f"http://{self.proxy}",
            "endpoint.region": _REGION,
            "access.key": _KEYS[0],
            "secret.key": _KEYS[1],
            "path.style.access": "true",
        }
        return {
            **{f"spark.hadoop.fs.s3a.{key}": value for key, value in settings.items()},
            "spark.driver.extraClassPath": f"{jars}/*",
            "spark.executor.extraClassPath": f"{jars}/*",
        }

    def options(self) -> dict[str, str]:
        """Return delta-rs's options for it, through the proxy."""
        return {
            "endpoint": f"http://{self.proxy}",
            "region": _REGION,
            "access_key_id": _KEYS[0],
            "secret_access_key": _KEYS[1],
            "allow_http": "true",
            "conditional_put": "etag",
        }

    def count(self) -> dict[str, Any]:
        """Return the requests and bytes through the proxy since the last call."""
        assert self.counter.stdin is not None and self.counter.stdout is not None
        self.counter.stdin.write("\n")
        self.counter.stdin.flush()
        found: dict[str, Any] = json.loads(self.counter.stdout.readline())
        return found


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """Start a server with an empty bucket, whose objects are files below a folder."""
    server, proxy = free_port(), free_port()
    with (
        TemporaryDirectory(prefix="s3-", dir=folder) as objects,
        (folder / "s3.log").open("w") as output,
        subprocess.Popen(_s3proxy(folder, Path(objects), server), stdout=output, stderr=output) as running,
        subprocess.Popen(
            [sys.executable, Path(__file__).with_name("slow_proxy.py"), str(proxy), str(server)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as counter,
    ):
        try:
            _make_bucket(f"http://127.0.0.1:{server}/{BUCKET}")
            assert counter.stdout is not None
            counter.stdout.readline()
            yield ObjectStore(f"127.0.0.1:{server}", f"127.0.0.1:{proxy}", counter)
        finally:
            running.kill()
            counter.kill()


def hadoop_aws(folder: Path) -> Path:
    """Return the folder of the JARs with which Spark reads S3, by Maven where they are not there."""
    return _jars(folder / "hadoop-aws", f"org.apache.hadoop:hadoop-aws:{HADOOP_AWS}")


def _s3proxy(folder: Path, objects: Path, port: int) -> list[str]:
    """Return the command that starts S3Proxy."""
    jars = _jars(folder / "s3proxy", f"org.gaul:s3proxy:{_S3PROXY}", f"com.fasterxml.jackson.core:{_ANNOTATIONS}")
    (objects / "data").mkdir()
    settings = {
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "s3proxy.authorization": "none",
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(objects / "data"),
    }
    (objects / "s3.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    (objects / "logback.xml").write_text('<configuration><root level="WARN"/></configuration>')
    logging = f"-Dlogback.configurationFile={objects / 'logback.xml'}"
    main = ["-cp", f"{jars}/*", "org.gaul.s3proxy.Main", "--properties", str(objects / "s3.conf")]
    return ["java", "-Xmx512m", logging, *main]


def _jars(folder: Path, *artifacts: str) -> Path:
    """Return the folder of artifacts (`group:name:version`) and what they need, by Maven where they are not there."""
    if not any(folder.glob("*.jar")):
        folder.mkdir(parents=True, exist_ok=True)
        parts = ("groupId", "artifactId", "version")
        needed = "".join(
            "<dependency>"
            + "".join(f"<{part}>{value}</{part}>" for part, value in zip(parts, artifact.split(":"), strict=True))
            + "</dependency>"
            for artifact in artifacts
        )
        pom = folder / "pom.xml"
        pom.write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>deltamerge</groupId><artifactId>bench</artifactId><version>1</version>"
            f"<dependencies>{needed}</dependencies></project>"
        )
        command = ["mvn", "-q", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        subprocess.run([*command, f"-DoutputDirectory={folder}"], check=True)
    return folder


def _make_bucket(url: str) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
