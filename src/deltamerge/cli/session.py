"""The Spark session of a command."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO

from pyspark.sql import SparkSession
from rich.console import Console

from deltamerge.cli.failures import CommandError
from deltamerge.render.progress import TerminalProgress

_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A failed merge is said in a sentence; Spark's own log would say it a hundred lines long.
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
}


def read_settings(texts: Iterable[str]) -> dict[str, str]:
    """Reads ``--conf KEY=VALUE``.

    Args:
        texts: What was given.

    Returns:
        Values by key.

    Raises:
        CommandError: One has no ``=``.
    """
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"--conf {text}: write it as KEY=VALUE.")
        settings[key.strip()] = value
    return settings


@contextmanager
def spark_session(remote: str | None, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Starts a local session, or connects to a server, for as long as the command runs.

    A session that the process has already is used and goes on.

    Args:
        remote: A Spark Connect server such as ``sc://host:15002``, or None for a local session.
        settings: Spark settings by key, over the command's own.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        for key, value in settings.items():
            running.conf.set(key, value)
        yield running
        return
    session = _started(remote, settings)
    try:
        yield session
    finally:
        session.stop()


def _started(remote: str | None, settings: Mapping[str, str]) -> SparkSession:
    # PySpark logs every error that it raises, stack trace and all; the command says it in a sentence.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    builder = SparkSession.builder.appName("deltamerge")
    if remote is not None:
        builder = builder.remote(remote)
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.master("local[*]")
    for key, value in {**({} if remote else _LOCAL), **settings}.items():
        builder = builder.config(key, value)
    with _standard_error_kept() as (terminal, kept), TerminalProgress(console=terminal) as progress:
        progress.step("start", f"connecting to {remote}" if remote else "starting Spark")
        try:
            return builder.getOrCreate()
        except Exception:
            kept.seek(0)
            terminal.print(kept.read().decode(errors="replace"), markup=False, highlight=False)
            raise


@contextmanager
def _standard_error_kept() -> Iterator[tuple[Console, IO[bytes]]]:
    """Keeps what Spark's start prints on standard error, which it does however well it goes.

    Spark's process inherits the file, so that what it prints later goes there too.

    Yields:
        A console on the real standard error, and the file.
    """
    real = os.dup(2)
    with tempfile.TemporaryFile() as kept, os.fdopen(real, "w", encoding="utf-8") as stream:
        os.dup2(kept.fileno(), 2)
        try:
            yield Console(file=stream, highlight=False), kept
        finally:
            os.dup2(real, 2)
