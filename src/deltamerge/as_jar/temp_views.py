"""Temporary views that follow their tables.

Spark keeps the plan that a view was made of, and with it the files of its tables' versions. With delta-spark's JAR a
view reads the newest ones; here a view is made again before a statement reads it, where its tables have newer versions.
Of a view that Spark keeps as text the views are made again that its text names.
Over Spark Connect only the plans of frames that were not made by SQL tell what they have read.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from deltamerge.as_jar.recorded import Original
from deltamerge.as_jar.served import is_served
from deltamerge.exceptions import DeltaError, DeltaParseException
from deltamerge.scan.newest_reads import NewestRead
from deltamerge.scan.read_again import read_newest
from deltamerge.scan.table_reads import newest_reads
from deltamerge.spark.catalog import catalog_entry
from deltamerge.spark.own_calls import own_calls
from deltamerge.spark.session import SPARK_ERRORS, conf_value, has_ended, session_identity
from deltamerge.spark.variables import substituted
from deltamerge.sql.names import parse_table_name, quote, quote_name
from deltamerge.sql.relations import (
    GLOBAL_DATABASE,
    changed_temporary_view,
    folded,
    relation_names,
    with_plain_names,
)

logger = logging.getLogger("deltamerge.as_jar.temp_views")

# The views by which PySpark's formatter hands frames to SQL.
_OF_FORMATTER = "_pyspark_"


@dataclass(frozen=True)
class _View:
    """A view of a frame that has read tables' newest versions."""

    name: tuple[str, ...]
    frame: DataFrame
    reads: tuple[NewestRead, ...]

    @property
    def spark(self) -> SparkSession:
        return self.frame.sparkSession

    def make_again(self) -> None:
        newest = read_newest(self.frame, self.reads)
        if newest is self.frame or not _is_there(self.spark, self.name):
            return
        make = newest.createOrReplaceTempView if len(self.name) == 1 else newest.createOrReplaceGlobalTempView
        make(quote(self.name[-1]))


@dataclass(frozen=True)
class _TextView:
    """A view whose text Spark analyzes on each use.

    Args:
        relations: The tables and views that it names, in lower case.
    """

    name: tuple[str, ...]
    spark: SparkSession
    relations: tuple[tuple[str, ...], ...]


_lock = threading.Lock()
# By the session, or for global views by Spark's application, which has several; and by name in lower case.
VIEWS: dict[tuple[str | None, tuple[str, ...]], _View | _TextView] = {}
# Only such a statement is looked at where no view is known.
_MAKES_VIEW = re.compile(r"\b(create|alter)\b.*\bview\b", re.IGNORECASE | re.DOTALL)


def create(is_global: bool, original: Original, self: DataFrame, /, name: str) -> None:
    original(self, name)
    if name.startswith(_OF_FORMATTER):
        return
    spark, plain = self.sparkSession, parse_table_name(name)[-1]
    parts = (GLOBAL_DATABASE, plain) if is_global else (plain,)
    reads = tuple(read for read in newest_reads(self) if read.columns) if is_served(spark) else ()
    _note(spark, parts, _View(parts, self, reads) if reads else None)


def drop(original: Original, self: Any, /, viewName: str) -> Any:  # noqa: ANN401
    _note(self._sparkSession, (viewName,), None)
    return original(self, viewName)


def drop_global(original: Original, self: Any, /, viewName: str) -> Any:  # noqa: ANN401
    _note(self._sparkSession, (GLOBAL_DATABASE, viewName), None)
    return original(self, viewName)


def _note(spark: SparkSession, parts: tuple[str, ...], view: _View | _TextView | None) -> None:
    """Remember a view, or forget one."""
    if view is None and not VIEWS:
        return
    key = _key(spark, parts)
    with _lock:
        VIEWS.pop(key, None)
        if view is not None:
            for ended in [known for known, each in VIEWS.items() if has_ended(each.spark)]:
                del VIEWS[ended]
            VIEWS[key] = view


def _key(spark: SparkSession, parts: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    name = folded(parts)
    is_global = len(name) == 2 and name[0] == GLOBAL_DATABASE
    return conf_value(spark, "spark.app.id") if is_global else session_identity(spark), name


@contextmanager
def updated_for_statement(spark: SparkSession, text: str, args: object) -> Iterator[None]:
    """Make the views again that a statement reads; note or forget the one that it makes or drops, unless it fails."""
    read: tuple[tuple[str, ...], ...] = ()
    changed = None
    # Spark's parser knows more than SQL's tokens, and has its own errors.
    with suppress(DeltaParseException):
        if VIEWS or _MAKES_VIEW.search(text):
            text = with_plain_names(substituted(spark, text), args)
            read, changed = relation_names(text), changed_temporary_view(text)
    update_views(spark, read)
    key = None if changed is None else _key(spark, changed)
    before = None if key is None else VIEWS.get(key)
    yield
    # One that the statement made of frames is noted anew by now. DROP VIEW reads nothing.
    if changed is not None and key is not None and VIEWS.get(key) is before:
        _note(spark, changed, _TextView(changed, spark, read) if read else None)


def update_views(spark: SparkSession, names: Iterable[tuple[str, ...]]) -> None:
    """Make views again whose tables have newer versions; one whose table cannot be looked at stays as it is."""
    if not VIEWS:
        return
    pending, seen = [*names], set()
    while pending:
        key = _key(spark, pending.pop())
        view = None if key in seen else VIEWS.get(key)
        seen.add(key)
        if isinstance(view, _TextView):
            pending += view.relations
        elif view is not None and not has_ended(view.spark):
            try:
                view.make_again()
            except (DeltaError, OSError, *SPARK_ERRORS) as error:
                logger.info("the temporary view %s keeps the rows that it has: %s", quote_name(view.name), error)


def _is_there(spark: SparkSession, name: tuple[str, ...]) -> bool:
    """Return whether a view is still there, and not cached, as which it keeps its rows."""
    entry = catalog_entry(spark, name)
    # A table of the catalog may have the name of a view that is gone.
    if entry is None or not entry.is_temporary:
        return False
    with own_calls():
        return not spark.catalog.isCached(quote_name(name))
