"""A long-lived process that answers JSON lines, as its user sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from .environment import OracleEnvironment

SERVER = Path(__file__).with_name("server.py")


class LineProcess:
    """A process that reads one JSON object a line and answers with one.

    Its standard error goes to a file, whose end is shown when it dies.

    Args:
        command: What to run.
        environment: Variables on top of this process's own.
        log: Where its standard error goes; a temporary file by default.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        self._log: IO[bytes] = log.open("wb+") if log else tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **(environment or {})},
            text=True,
            encoding="utf-8",
        )

    def ask(self, operation: str, **values: Any) -> Any:
        """Sends a request and waits for its answer.

        Raises:
            ProcessDied: There is no answer.
            RequestFailed: The process could not do it.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"op": operation, **values}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise ProcessDied(f"no answer to {operation!r}; its last words:\n{self._last_words()}")
        answer = json.loads(line)
        if "failure" in answer:
            raise RequestFailed(answer["failure"])
        return answer["answer"]

    def close(self) -> None:
        """Ends the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def _last_words(self) -> str:
        self._process.wait()
        self._log.seek(0)
        return self._log.read()[-4000:].decode(errors="replace")

    def __enter__(self) -> LineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ProcessDied(RuntimeError):
    """The process ended without an answer."""


class RequestFailed(RuntimeError):
    """The process could not do what it was asked; the message is its traceback."""


def start_oracle(
    environment: OracleEnvironment, conf: Mapping[str, str | None] | None = None, log: Path | None = None
) -> LineProcess:
    """Starts delta-spark.

    Args:
        environment: Its Python and JARs.
        conf: Spark settings on top of those that its server has; None leaves a setting at Spark's default.
        log: Where Spark's log goes.
    """
    settings = {"spark.jars": ",".join(str(jar) for jar in environment.jars), **(conf or {})}
    variables = {"PYSPARK_PYTHON": str(environment.python), "PYTHONWARNINGS": "ignore", "PYTHONPATH": ""}
    if environment.python.resolve() == Path(sys.executable).resolve():
        variables.pop("PYTHONPATH")
    return LineProcess([environment.python, SERVER, json.dumps(settings)], variables, log)
