"""An HDFS for tests and benchmarks: a name node and a data node in a JVM of their own; the JARs come by Maven."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hdfs_native

HADOOP = "3.5.0"
FOLDER = Path(__file__).parents[2] / ".venvs" / "hdfs"
START_SECONDS = 90

_NEEDED = (
    ("org.apache.hadoop", "hadoop-client-minicluster", HADOOP),
    ("org.junit.jupiter", "junit-jupiter-api", "5.10.2"),
    ("org.mockito", "mockito-core", "4.11.0"),
    ("junit", "junit", "4.13.2"),
    ("org.slf4j", "slf4j-simple", "2.0.16"),
)
_DEPENDENCIES = "".join(
    f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
    for group, name, version in _NEEDED
)
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>deltamerge</groupId>
  <artifactId>hdfs</artifactId>
  <version>1</version>
  <dependencies>{_DEPENDENCIES}</dependencies>
</project>
"""


@dataclass(frozen=True)
class Hdfs:
    """A cluster that is running.

    Args:
        url: The name node's.
        process: Its JVM.
    """

    url: str
    process: subprocess.Popen[bytes]
    _clients: list[Any] = field(default_factory=list)

    @property
    def client(self) -> Any:
        """A client without a JVM."""
        if not self._clients:
            self._clients.append(hdfs_native.Client(self.url, {}))
        return self._clients[0]

    def files(self, folder: str) -> set[str]:
        """Lists the files below a folder, by their names in it."""
        found = self.client.list_status(folder, True)
        return {status.path.removeprefix(f"{folder}/") for status in found if not status.isdir}

    def upload(self, source: Path, folder: str) -> None:
        """Copies a folder of this machine; what was there is deleted."""
        if folder.strip("/") in {each.path.strip("/") for each in self.client.list_status("/", True)}:
            self.client.delete(folder, True)
        for path in sorted(each for each in source.rglob("*") if each.is_file()):
            with self.client.create(f"{folder}/{path.relative_to(source)}") as file:
                file.write(path.read_bytes())

    def download(self, folder: str, target: Path) -> None:
        """Copies a folder onto this machine; what was there is deleted."""
        shutil.rmtree(target, ignore_errors=True)
        for name in self.files(folder):
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.client.read(f"{folder}/{name}").read())


@contextmanager
def cluster(folder: Path) -> Iterator[Hdfs]:
    """Starts a cluster that keeps its blocks in a folder."""
    jars = _jars()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    command = ["java", "-Xmx1g", "-cp", f"{jars}/*", f"-Dtest.build.data={folder}"]
    command += ["org.apache.hadoop.mapreduce.MiniHadoopClusterManager", "-nomr", "-format"]
    command += ["-nnport", str(port), "-datanodes", "1"]
    with (folder / "hdfs.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log, cwd=folder) as java:
        try:
            running = Hdfs(f"hdfs://localhost:{port}", java)
            _wait(running)
            yield running
        finally:
            java.kill()


def _wait(running: Hdfs) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            # A name node that has no data node yet refuses to write.
            client = hdfs_native.Client(running.url, {"dfs.client.failover.max.attempts": "1"})
            with client.create("/started", hdfs_native.WriteOptions(overwrite=True)) as file:
                file.write(b"x")
            return
        except (OSError, RuntimeError):
            if time.monotonic() > until or running.process.poll() is not None:
                raise
            time.sleep(0.5)


def _jars() -> Path:
    jars = FOLDER / "jars"
    if not (FOLDER / "complete").exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / "pom.xml").write_text(_POM)
        goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}")
        subprocess.run(["mvn", "--quiet", "--batch-mode", "--file", str(FOLDER / "pom.xml"), *goal], check=True)
        (FOLDER / "complete").touch()
    return jars
