"""Parses the skeleton of a MERGE statement; the SQL between its keywords stays verbatim."""

from __future__ import annotations

from typing import Literal

from deltamerge.sql.cursor import Cursor, like
from deltamerge.sql.merge_clause_parser import read_clauses
from deltamerge.sql.operands import skip_value, starts_subquery
from deltamerge.sql.statements.ast import ParsedMerge, ParsedSource, TableName
from deltamerge.sql.statements.parts import read_name, read_table, read_time_travel
from deltamerge.sql.tokens import Kind, parse_error

_FORMATS = frozenset({"delta", "parquet", "orc", "json", "csv", "avro", "text", "binaryfile", "xml"})
_NO_ALIAS = frozenset({"USING", "ON", "WHEN", "AS"})
_SOURCES = "a table's name, format.`path` or a query in parentheses"


def parse_merge(sql: str) -> ParsedMerge:
    """Parse a MERGE statement, with or without EXPLAIN or EXPLAIN ANALYZE before it (SqlBaseParser.g4: mergeIntoTable).

    Args:
        sql: The statement; a semicolon at its end is allowed.

    Returns:
        Its parts, with every expression verbatim.

    Raises:
        DeltaParseException: PARSE_SYNTAX_ERROR, or the class of Spark's own parser for what it checks:
            MERGE_WITHOUT_WHEN, NON_LAST_…_CLAUSE_OMIT_CONDITION, COLUMN_ALIASES_NOT_ALLOWED,
            MERGE_INSERT_VALUE_COUNT_MISMATCH. The message shows the place in the statement.
    """
    cursor = Cursor(sql)
    explain = _read_explain(cursor)
    ctes = _read_ctes(cursor)
    if not cursor.accept("MERGE"):
        cursor.fail("MERGE statement", ["MERGE"] if explain or ctes else ["MERGE", "EXPLAIN"])
    evolution = cursor.accept("WITH")
    if evolution:
        cursor.expect("MERGE WITH SCHEMA EVOLUTION", "SCHEMA", "EVOLUTION")
    cursor.expect("MERGE INTO", "INTO")
    target = _read_target(cursor)
    target_alias = _read_alias(cursor, "MERGE INTO", "USING")
    cursor.expect("after the target", "USING")
    source = _read_source(cursor)
    cursor.expect("after the source", "ON")
    condition = cursor.expression("ON", "a condition", "THEN")
    clauses = read_clauses(cursor)
    return ParsedMerge(sql, explain, ctes, evolution, target, target_alias, source, condition, clauses)


def _read_explain(cursor: Cursor) -> Literal["plan", "analyze"] | None:
    if not cursor.accept("EXPLAIN"):
        return None
    if cursor.accept("ANALYZE"):
        return "analyze"
    if cursor.peek() not in ("MERGE", "WITH"):
        modes = ("EXTENDED", "FORMATTED", "CODEGEN", "COST", "LOGICAL")
        hint = "Of a MERGE there are EXPLAIN and EXPLAIN ANALYZE." if cursor.peek() in modes else ""
        cursor.fail("EXPLAIN", ["MERGE", "ANALYZE"], hint)
    return "plan"


def _read_ctes(cursor: Cursor) -> str | None:
    start = cursor.index
    if not cursor.accept("WITH"):
        return None
    cursor.accept("RECURSIVE")
    while True:
        cursor.name("WITH", "the name of a CTE")
        if cursor.peek() == "(" and cursor.behind_brackets() in ("AS", "(", "MAX"):
            cursor.skip_brackets()
        if cursor.accept("MAX", "RECURSION", "LEVEL"):
            cursor.index += 1
        cursor.accept("AS")
        if cursor.peek() != "(":
            cursor.fail("WITH", ["AS (", "("])
        cursor.skip_brackets()
        if not cursor.accept(","):
            return cursor.sql_since(start)


def _read_target(cursor: Cursor) -> TableName:
    where = "MERGE INTO"
    table = read_table(cursor, where)
    if cursor.peek() in ("VERSION", "TIMESTAMP", "FOR") and cursor.peek(1) in ("AS", "VERSION", "TIMESTAMP"):
        raise parse_error(
            cursor.sql,
            cursor.span(),
            f"{where}: a target cannot be read at an older version",
            hint="Leave it out.",
        )
    return table


def _read_alias(cursor: Cursor, where: str, following: str, *, names_columns: bool = False) -> str | None:
    """Read ``[AS] alias``, which `following` has to come after."""
    explicit = cursor.accept("AS")
    token = cursor.token
    if token is None or not token.is_identifier or (not explicit and token.upper in _NO_ALIAS):
        if explicit:
            cursor.fail(where, ["an alias after AS"])
        return None
    at = cursor.index
    cursor.index += 1
    if names_columns:
        return token.name
    if cursor.peek() == "(" and not starts_subquery(cursor.tokens, cursor.index):
        start = cursor.index
        cursor.skip_brackets()
        raise parse_error(
            cursor.sql,
            cursor.since(start),
            "column aliases are not allowed in MERGE",
            error_class="COLUMN_ALIASES_NOT_ALLOWED",
            hint="Name the columns in a query: USING (SELECT … AS name) alias.",
        )
    if cursor.peek() != following and not explicit and like(token.upper, [following]):
        cursor.fail(where, ["an alias", following], at=at)
    return token.name


def _read_source(cursor: Cursor) -> ParsedSource:
    start = cursor.index
    token = cursor.token
    if token is not None and token.text == "(":
        cursor.skip_brackets()
        if cursor.index == start + 2:
            cursor.fail("USING", ["a query"], at=start + 1)
        query = cursor.sql_since(start)
        return ParsedSource(query, _read_alias(cursor, "USING", "ON"))
    if token is not None and token.kind is Kind.STRING:
        cursor.fail("USING", [_SOURCES])
    if cursor.peek() == "VALUES" and cursor.peek(1) not in ("ON", "AS", "."):
        return _read_values(cursor)
    name = read_name(cursor, "USING", _SOURCES)
    if cursor.peek() == "(":
        cursor.skip_brackets()
        return _read_relation(cursor, start)
    format_name: str | None = None
    path: str | None = None
    if len(name) == 2 and cursor.tokens[cursor.index - 1].kind is Kind.QUOTED:
        first = name[0].lower()
        if first in _FORMATS or "/" in name[1]:
            format_name, path = first, name[1]
    at = read_time_travel(cursor, "USING")
    sql = cursor.sql_since(start)
    alias = _read_alias(cursor, "USING", "ON")
    return ParsedSource(sql, alias, name, format_name, path, at)


def _read_values(cursor: Cursor) -> ParsedSource:
    """Read an inline table: ``VALUES (1, 'a'), (2, 'b')``."""
    start = cursor.index
    cursor.index += 1
    while True:
        end = skip_value(cursor.tokens, cursor.index)
        if end == cursor.index:
            cursor.fail("USING VALUES", ["a row"])
        cursor.index = end
        if not cursor.accept(","):
            return _read_relation(cursor, start)


def _read_relation(cursor: Cursor, start: int) -> ParsedSource:
    """Finish an inline table or a function, the columns of which only an alias can name."""
    sql = cursor.sql_since(start)
    alias = _read_alias(cursor, "USING", "ON", names_columns=True)
    if alias is not None and cursor.peek() == "(":
        cursor.names_in_brackets("USING")
        sql = cursor.sql_since(start)
    return ParsedSource(sql, alias)
