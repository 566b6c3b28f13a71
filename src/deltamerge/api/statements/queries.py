"""Queries that read Delta tables by path or by name: frames in the place of these references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.load_frame import load_with
from deltamerge.api.statements.tables import Tables, twice_travelled
from deltamerge.exceptions import DeltaParseException
from deltamerge.spark.catalog import whole_name
from deltamerge.spark.parameters import parameter_sql
from deltamerge.spark.session import SPARK_ERRORS
from deltamerge.sql.cursor import Cursor
from deltamerge.sql.names import names_path, parse_table_name, quote, quote_name
from deltamerge.sql.parameters import bind_parameters
from deltamerge.sql.qualifiers import alias_replacements
from deltamerge.sql.relations import (
    TableReference,
    cached_query,
    find_table_references,
    relation_names,
    replace_references,
    travels_by_parameter,
    with_plain_names,
)
from deltamerge.sql.statements.ast import TableName, TimeTravel
from deltamerge.sql.statements.parts import read_options
from deltamerge.sql.tokens import tokenize

NO_FRAMES: Mapping[str, DataFrame] = MappingProxyType({})


def query_frame(tables: Tables, sql: str, args: Any = None, given: Mapping[str, DataFrame] = NO_FRAMES) -> DataFrame:  # noqa: ANN401
    """Run SQL in which ``delta.`path` `` and names of Delta tables may be.

    Args:
        args: The values of parameters, as `SparkSession.sql` takes them.
        given: Frames that the SQL names, by names that are nothing else in it.
    """
    sql = with_plain_names(sql, args)
    if args and travels_by_parameter(sql):
        sql, args = bind_parameters(sql, args, partial(parameter_sql, tables.spark)), None
    named = _named(tables, sql)
    references = find_table_references(sql, named)
    newest: dict[str, DataFrame] = {}
    frames: dict[str, Any] = {
        f"deltamerge_source_{i}": _frame(tables, r, named, newest) for i, r in enumerate(references)
    }
    cached = _cached(sql) if frames else None
    if cached is not None:
        return _cache(tables, cached, args, given)
    if not frames and not given:
        return tables.spark.sql(sql, args) if args is not None else tables.spark.sql(sql)
    # The session's formatter replaces names between braces by frames; the user's own braces are doubled for it.
    marks = {r.span: f"\x00{name}\x01" for r, name in zip(references, frames, strict=True)}
    aliases = alias_replacements(
        sql, references, {name: whole_name(tables.spark, parse_table_name(name)) for name in named}
    )
    marked = replace_references(sql, {**marks, **aliases}).replace("{", "{{").replace("}", "}}")
    for name in given:
        marked = marked.replace(name, f"\x00{name}\x01")
    return tables.spark.sql(marked.replace("\x00", "{").replace("\x01", "}"), args, **frames, **given)


def needs_frames(tables: Tables, sql: str) -> bool:
    """Return whether a query names Delta tables or views that are gone after the statement: Spark cannot keep it."""
    sql = with_plain_names(sql)
    # A function takes a view as TABLE(name), too.
    names = {token.name.lower() for token in tokenize(sql) if token.is_identifier}
    return not tables.passing.isdisjoint(names) or bool(find_table_references(sql, _named(tables, sql)))


@dataclass(frozen=True)
class _Cached:
    """A CACHE TABLE statement with a query: what is before it, the view that it makes, and the query."""

    statement: str
    name: str
    query: str


def _cached(sql: str) -> _Cached | None:
    tokens = tokenize(sql)
    start = cached_query(tokens)
    if start is None:
        return None
    before = start - 1 if tokens[start - 1].upper == "AS" else start
    name = tokens[3 if tokens[1].upper == "LAZY" else 2].name
    return _Cached(sql[: tokens[before].span.start], name, sql[tokens[start].span.start :])


def _cache(tables: Tables, cached: _Cached, args: Any, given: Mapping[str, DataFrame]) -> DataFrame:  # noqa: ANN401
    """Cache a view of a query's frame: of SQL, Spark would keep the text, which names frames that are gone then."""
    query_frame(tables, cached.query, args, given).createTempView(quote(cached.name))
    try:
        return tables.spark.sql(cached.statement)
    except SPARK_ERRORS:
        tables.spark.catalog.dropTempView(quote(cached.name))
        raise


_WITH_QUERIES = frozenset({
    "SELECT", "WITH", "FROM", "TABLE", "VALUES", "(", "INSERT", "CREATE", "EXPLAIN", "CACHE",
    "DESCRIBE", "DESC", "SET", "DECLARE",
})  # fmt: skip


def reads_tables(sql: str) -> bool:
    """Return whether a statement is a query or holds one, so that it may name Delta tables."""
    try:
        tokens = tokenize(sql)
    except DeltaParseException:
        # Spark's parser knows more than SQL's tokens, and its own errors.
        return False
    first, *further = [token.upper for token in tokens[:6]] or [""]
    made = next((word for word in further if word in ("TABLE", "VIEW", "FUNCTION")), None)
    # Of these Spark keeps the text, which must not name frames.
    keeps_text = first == "CREATE" and made in ("VIEW", "FUNCTION")
    is_setting = first == "SET" and further[:1] not in (["VAR"], ["VARIABLE"])
    return first in _WITH_QUERIES and not keeps_text and not is_setting


def _named(tables: Tables, sql: str) -> dict[str, DeltaTable]:
    found = {}
    for parts in relation_names(sql):
        table = None if names_path(parts) else tables.called(parts)
        if table is not None:
            found[quote_name(parts)] = table
    return found


def _frame(
    tables: Tables, reference: TableReference, named: dict[str, DeltaTable], newest: dict[str, DataFrame]
) -> DataFrame:
    """Return what a reference reads.

    Args:
        newest: The frames of tables' newest versions, by location: a query reads one version of each.
    """
    name = reference.path_or_name
    if reference.boundaries is not None:
        table = tables.at(name) if reference.kind == "path" else tables.open(TableName.of(parse_table_name(name)))
        return tables.changes(table, reference.boundaries)
    is_latest = reference.version is None and reference.timestamp is None
    at = None if is_latest else TimeTravel(reference.version, reference.timestamp)
    if reference.kind == "path":
        path, at_end = tables.travelled(name)
        if at_end is not None and at is not None:
            raise twice_travelled(path)
        table, at = tables.at(path), at_end or at
    else:
        table = named[name]
    if reference.options:
        options = read_options(Cursor(reference.options), "WITH")
        return load_with(tables, table, {key.lower(): value for key, value in options.items()}, at)
    if at is not None:
        return tables.version(table, at)
    location = table.table.location
    if location not in newest:
        newest[location] = tables.version(table, None)
    return newest[location]
