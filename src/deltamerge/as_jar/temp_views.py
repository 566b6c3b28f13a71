"""Temporary views that follow their tables.

Spark keeps the plan that a view was made of, and with it the files of its tables' versions. With delta-spark's JAR a
view reads the newest ones; here a view is made again before a statement reads it, where its tables have newer versions.
Over Spark Connect only the plans of frames that were not made by SQL tell what they have read.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from deltamerge.as_jar.recorded import Original
from deltamerge.as_jar.served import is_served
from deltamerge.exceptions import DeltaError, DeltaParseException
from deltamerge.scan.newest_reads import NewestRead
from deltamerge.scan.read_again import read_newest
from deltamerge.scan.table_reads import newest_reads
from deltamerge.spark.own_calls import own_calls
from deltamerge.spark.session import session_identity
from deltamerge.sql.names import parse_name, quote, quote_name
from deltamerge.sql.relations import relation_names
from deltamerge.sql.tokens import tokenize

logger = logging.getLogger("deltamerge.as_jar.temp_views")

_GLOBAL = "global_temp"
_CHANGES_VIEW = re.compile(
    r"\s*(?:CREATE|REPLACE|ALTER|DROP)\s+(?:OR\s+REPLACE\s+)?(?:GLOBAL\s+)?(?:TEMP(?:ORARY)?\s+)?VIEW\s+"
    r"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?(?P<name>(?:`[^`]*`|[\w.])+)",
    re.IGNORECASE,
)
# The views by which PySpark's formatter hands frames to SQL.
_OF_FORMATTER = "_pyspark_"


@dataclass(frozen=True)
class _View:
    """A view of a frame that has read tables' newest versions."""

    name: tuple[str, ...]
    frame: DataFrame
    reads: tuple[NewestRead, ...]

    def make_again(self) -> None:
        newest = read_newest(self.frame, self.reads)
        if newest is self.frame or not _is_there(self.frame.sparkSession, self.name):
            return
        make = newest.createOrReplaceTempView if len(self.name) == 1 else newest.createOrReplaceGlobalTempView
        make(quote(self.name[-1]))


_lock = threading.Lock()
# By session, and by name in lower case.
VIEWS: dict[str, dict[tuple[str, ...], _View]] = {}


def create(is_global: bool, original: Original, self: DataFrame, /, name: str) -> None:
    original(self, name)
    if name.startswith(_OF_FORMATTER):
        return
    spark, plain = self.sparkSession, parse_name(name)[-1]
    parts = (_GLOBAL, plain) if is_global else (plain,)
    reads = tuple(read for read in newest_reads(self) if read.columns) if is_served(spark) else ()
    _note(spark, parts, _View(parts, self, reads) if reads else None)


def drop(original: Original, self: Any, /, viewName: str) -> Any:  # noqa: ANN401
    _note(self._sparkSession, (viewName,), None)
    return original(self, viewName)


def drop_global(original: Original, self: Any, /, viewName: str) -> Any:  # noqa: ANN401
    _note(self._sparkSession, (_GLOBAL, viewName), None)
    return original(self, viewName)


def _note(spark: SparkSession, parts: tuple[str, ...], view: _View | None) -> None:
    if view is None and not VIEWS:
        return
    with _lock:
        known, name = VIEWS.setdefault(session_identity(spark), {}), tuple(part.lower() for part in parts)
        known.pop(name, None)
        if view is not None:
            known[name] = view


def update_for_statement(spark: SparkSession, text: str) -> None:
    """Make the views again that a statement reads, as far as their tables have newer versions."""
    if not VIEWS:
        return
    # Spark's parser knows more than SQL's tokens, and has its own errors.
    with suppress(DeltaParseException):
        words = tokenize(text)
        used = [(words[i + 1].name.lower(),) for i, word in enumerate(words[:-1]) if word.upper == "USING"]
        update_views(spark, [*relation_names(text), *used])
    changed = _CHANGES_VIEW.match(text)
    if changed is not None:
        # One that the statement makes is noted as it does.
        name = parse_name(changed["name"])[-1]
        _note(spark, (name,), None)
        _note(spark, (_GLOBAL, name), None)


def update_views(spark: SparkSession, names: Iterable[tuple[str, ...]]) -> None:
    """Make views again whose tables have newer versions; one whose table cannot be looked at stays as it is."""
    if not VIEWS:
        return
    with _lock:
        known = dict(VIEWS.get(session_identity(spark), {}))
    for name in names:
        view = known.get(tuple(part.lower() for part in name))
        if view is None:
            continue
        try:
            view.make_again()
        except (DeltaError, OSError) as error:
            logger.info("the temporary view %s keeps the rows that it has: %s", quote_name(view.name), error)


def _is_there(spark: SparkSession, name: tuple[str, ...]) -> bool:
    """Return whether a view is still there, and not cached, as which it keeps its rows."""
    quoted = quote_name(name)
    with own_calls():
        return spark.catalog.tableExists(quoted) and not spark.catalog.isCached(quoted)
