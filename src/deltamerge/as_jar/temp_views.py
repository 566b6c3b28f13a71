"""Temporary views that follow their tables.

Spark keeps the plan that a view was made of, and with it the files of its tables' versions. With delta-spark's JAR a
view reads the newest ones; here a view is made again before a statement names it, where its tables have newer versions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from deltamerge.api.statements.creation import run_create_view
from deltamerge.api.statements.tables import Tables
from deltamerge.as_jar.recorded import Original
from deltamerge.as_jar.served import is_served
from deltamerge.scan.newest_reads import NewestRead
from deltamerge.scan.read_again import has_newer_versions, read_newest
from deltamerge.scan.table_reads import newest_reads
from deltamerge.spark.session import session_identity
from deltamerge.sql.names import parse_name, quote, quote_name
from deltamerge.sql.statements.ast import CreateTempView
from deltamerge.sql.statements.parser import parse_statement

_CHANGES_VIEW = re.compile(r"\s*(?:CREATE|REPLACE|ALTER|DROP)\b.{0,80}?\bVIEW\b", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class _View:
    """A view of a frame.

    Args:
        statement: By which it was made in SQL; over Connect the frame of a query does not tell what it is made of.
    """

    name: tuple[str, ...]
    frame: DataFrame
    reads: tuple[NewestRead, ...]
    statement: CreateTempView | None = None

    def make_again(self) -> None:
        spark = self.frame.sparkSession
        if self.statement is not None:
            run_create_view(Tables(spark), replace(self.statement, replaces=True), "")
            return
        newest = read_newest(self.frame, self.reads)
        make = newest.createOrReplaceTempView if len(self.name) == 1 else newest.createOrReplaceGlobalTempView
        make(quote(self.name[-1]))


# By session, and by the last part of the name in lower case.
VIEWS: dict[str, dict[str, _View]] = {}


def create(is_global: bool, original: Original, self: DataFrame, /, name: str) -> None:
    original(self, name)
    spark, plain = self.sparkSession, parse_name(name)[-1]
    _forget(spark, [plain.lower()])
    reads = newest_reads(self) if is_served(spark) else ()
    if reads:
        parts = ("global_temp", plain) if is_global else (plain,)
        VIEWS.setdefault(session_identity(spark), {})[plain.lower()] = _View(parts, self, reads)


def drop(original: Original, self: Any, /, viewName: str) -> Any:  # noqa: ANN401
    _forget(self._sparkSession, [parse_name(viewName)[-1].lower()])
    return original(self, viewName)


def bring_up_to_date(spark: SparkSession, text: str) -> None:
    """Make the views again that a statement or a name may read, as far as their tables have newer versions."""
    known = VIEWS.get(session_identity(spark)) if VIEWS else None
    if not known:
        return
    lower = text.lower()
    named = [name for name in known if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", lower)]
    if _CHANGES_VIEW.match(text):
        # What the statement makes is noted as it does.
        _forget(spark, named)
        return
    for name in named:
        view = known[name]
        if has_newer_versions(spark, view.reads) and _is_there(spark, view):
            view.make_again()
            known[name] = replace(known[name], statement=view.statement)


def note_statement(spark: SparkSession, text: str) -> None:
    """Note the statement that has made a view."""
    if not _CHANGES_VIEW.match(text):
        return
    statement = parse_statement(text)
    if isinstance(statement, CreateTempView):
        known, name = VIEWS.get(session_identity(spark), {}), statement.name.lower()
        if name in known:
            known[name] = replace(known[name], statement=statement)


def _is_there(spark: SparkSession, view: _View) -> bool:
    """Return whether a view is the session's still, and not cached, as which it keeps its rows."""
    name = quote_name(view.name)
    return spark.catalog.tableExists(name) and not spark.catalog.isCached(name)


def _forget(spark: SparkSession, names: Any) -> None:  # noqa: ANN401
    known = VIEWS.get(session_identity(spark), {}) if VIEWS else {}
    for name in names:
        known.pop(name, None)
