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
from rich.text import Text

from deltamerge.cli.failures import CommandError
from deltamerge.render.printable import printable
from deltamerge.render.progress import TerminalProgress
from deltamerge.spark.session import SPARK_ERRORS

_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A failed merge is reported in a sentence; Spark's own log would add a hundred lines.
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
}


def read_settings(name: str, options: Iterable[str]) -> dict[str, str]:
    """Return the settings of an option such as ``--conf KEY=VALUE``."""
    settings = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"{name} {option.partition('=')[0]}: write it as KEY=VALUE.")
        settings[key.strip()] = value
    return settings


@contextmanager
def spark_session(remote: str | None, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Use the process's session, or start a local one or connect to a server for as long as the command runs."""
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
        try:
            session.stop()
        except (*SPARK_ERRORS, OSError) as error:
            # A merge may be done, and a script that sees an error would run it again.
            warning = f"Warning: Spark did not end in order: {error}"
            Console(stderr=True, highlight=False).print(Text(printable(warning), "yellow"))


def _started(remote: str | None, settings: Mapping[str, str]) -> SparkSession:
    # PySpark logs every error that it raises, stack trace and all; the command reports it in a sentence.
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
            # Why Spark did not start is often only in what it printed.
            kept.seek(0)
            terminal.print(kept.read().decode(errors="replace"), markup=False, highlight=False)
            raise


@contextmanager
def _standard_error_kept() -> Iterator[tuple[Console, IO[bytes]]]:
    """Keep what Spark prints on standard error when it starts, which it does however well it goes.

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
