"""A standalone Spark cluster of two workers with one core each on this machine, for one engine."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

WORKERS = 2
EXECUTOR_MEMORY = "2g"


@contextmanager
def spark_cluster(python: Path, folder: Path) -> Iterator[dict[str, str | None]]:
    """Start a cluster and yield the settings of a session that runs on it.

    Args:
        python: The interpreter whose PySpark the cluster is of.
        folder: For logs and the workers' files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    home = subprocess.run(
        [python, "-c", "import os, pyspark; print(os.path.dirname(pyspark.__file__))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    environment = {**os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python)}
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        start = _Starter(stack, Path(home) / "bin" / "spark-class", environment, folder)
        start("master.Master", "master", "--port", str(port), "--webui-port", str(free_port()))
        _wait_for(port)
        for number in range(WORKERS):
            work = ["--cores", "1", "--memory", "3g", "--work-dir", str(folder / f"work-{number}")]
            start("worker.Worker", f"worker-{number}", "--webui-port", str(free_port()), *work, master)
        yield {
            "spark.master": master,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": EXECUTOR_MEMORY,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        }


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


class _Starter:
    def __init__(self, stack: ExitStack, command: Path, environment: Mapping[str, str], folder: Path) -> None:
        self._stack, self._command, self._environment, self._folder = stack, command, environment, folder

    def __call__(self, daemon: str, name: str, *arguments: str) -> None:
        log = self._stack.enter_context((self._folder / f"{name}.log").open("w"))
        process = subprocess.Popen(
            [self._command, f"org.apache.spark.deploy.{daemon}", "--host", "127.0.0.1", *arguments],
            env=self._environment,
            stdout=log,
            stderr=log,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)


def _wait_for(port: int) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except ConnectionError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            return
