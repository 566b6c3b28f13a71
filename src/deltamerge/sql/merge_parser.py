"""Reads the text of a MERGE statement: its skeleton; what lies between the keywords stays the user's text."""

from __future__ import annotations

from typing import Literal

from deltamerge.sql.caret import Span
from deltamerge.sql.clauses import read_clauses
from deltamerge.sql.cursor import Cursor, like
from deltamerge.sql.literals import string_value
from deltamerge.sql.names import parse_name
from deltamerge.sql.operand_names import starts_subquery
from deltamerge.sql.operands import skip_value
from deltamerge.sql.parsed import Fragment, ParsedMerge, ParsedSource, ParsedTarget, WrittenName
from deltamerge.sql.tokens import Kind, parse_error

FORMATS = frozenset({"delta", "parquet", "orc", "json", "csv", "avro", "text", "binaryfile", "xml"})
_NO_ALIAS = frozenset({"USING", "ON", "WHEN", "AS"})


def parse_merge(text: str) -> ParsedMerge:
    """Reads a MERGE statement (MERGE.md: Statement; Spark's SqlBaseParser.g4: mergeIntoTable).

    Args:
        text: The statement; a semicolon at its end is allowed.

    Returns:
        Its parts, with every expression verbatim.

    Raises:
        DeltaParseException: PARSE_SYNTAX_ERROR, or the class of Spark's own parser for what it checks:
            MERGE_WITHOUT_WHEN, NON_LAST_…_CLAUSE_OMIT_CONDITION, COLUMN_ALIASES_NOT_ALLOWED,
            MERGE_INSERT_VALUE_COUNT_MISMATCH. The message shows the place in the text.
    """
    cursor = Cursor(text)
    ctes, cte_names = _read_ctes(cursor)
    cursor.expect("MERGE statement", "MERGE")
    evolution = cursor.accept("WITH")
    if evolution:
        cursor.expect("MERGE WITH SCHEMA EVOLUTION", "SCHEMA", "EVOLUTION")
    cursor.expect("MERGE INTO", "INTO")
    target = _read_target(cursor)
    cursor.expect("after the target", "USING")
    source = _read_source(cursor)
    cursor.expect("after the source", "ON")
    condition = cursor.expression("ON", "a condition", "THEN")
    clauses = read_clauses(cursor)
    return ParsedMerge(
        text=text,
        ctes=ctes,
        cte_names=cte_names,
        with_schema_evolution=evolution,
        target=target,
        source=source,
        condition=condition,
        matched=tuple(clause for clause in clauses if clause.kind == "MATCHED"),
        not_matched=tuple(clause for clause in clauses if clause.kind == "NOT MATCHED"),
        not_matched_by_source=tuple(clause for clause in clauses if clause.kind == "NOT MATCHED BY SOURCE"),
    )


def _read_ctes(cursor: Cursor) -> tuple[Fragment | None, tuple[str, ...]]:
    if not cursor.accept("WITH"):
        return None, ()
    cursor.accept("RECURSIVE")
    names: list[str] = []
    while True:
        names.append(cursor.name("WITH", "the name of a CTE").parts[-1])
        if cursor.peek() == "(" and cursor.behind_brackets() in ("AS", "(", "MAX"):
            cursor.skip_brackets()
        if cursor.accept("MAX", "RECURSION", "LEVEL"):
            cursor.index += 1
        cursor.accept("AS")
        if cursor.peek() != "(":
            cursor.fail("WITH", ["AS (", "("])
        cursor.skip_brackets()
        if not cursor.accept(","):
            break
    span = cursor.since(0)
    return Fragment(span.of(cursor.text), span), tuple(names)


def _read_target(cursor: Cursor) -> ParsedTarget:
    where = "MERGE INTO"
    start = cursor.index
    token = cursor.token
    if token is not None and token.kind is Kind.STRING:
        cursor.index += 1
        parts: tuple[str, ...] = (string_value(token.text),)
        path: str | None = parts[0]
    else:
        parts = _read_table_name(cursor, where, "a table's name or delta.`path`").parts
        path = _path_of(cursor, start, parts)
    span = cursor.since(start)
    if cursor.peek() in ("VERSION", "TIMESTAMP", "FOR") and cursor.peek(1) in ("AS", "VERSION", "TIMESTAMP"):
        raise parse_error(
            cursor.text,
            cursor.span(),
            f"{where}: a target cannot be read at an older version",
            hint="Leave it out.",
        )
    alias = _read_alias(cursor, where, "USING", "MERGE")
    return ParsedTarget(parts, path, alias, span)


def _path_of(cursor: Cursor, start: int, parts: tuple[str, ...]) -> str | None:
    last = cursor.tokens[cursor.index - 1]
    if len(parts) == 2 and parts[0].lower() == "delta" and cursor.tokens[start].kind is Kind.WORD:
        return parts[1]
    if len(parts) == 1 and last.kind is Kind.QUOTED and "/" in parts[0]:
        return parts[0]
    return None


def _read_table_name(cursor: Cursor, where: str, what: str) -> WrittenName:
    """Reads a name, also as ``IDENTIFIER('db.tbl')``."""
    if cursor.peek() == "IDENTIFIER" and cursor.peek(1) == "(":
        start = cursor.index
        cursor.index += 2
        token = cursor.token
        if token is None or token.kind is not Kind.STRING or cursor.peek(1) != ")":
            cursor.fail(where, ["a name in quotes within IDENTIFIER(…)"])
        cursor.index += 2
        return WrittenName(parse_name(string_value(token.text)), cursor.since(start))
    return cursor.name(where, what)


def _read_alias(cursor: Cursor, where: str, following: str, operation: str) -> str | None:
    """Reads ``[AS] alias``, which `following` has to come after."""
    explicit = cursor.accept("AS")
    token = cursor.token
    if token is None or not token.is_identifier or (not explicit and token.upper in _NO_ALIAS):
        if explicit:
            cursor.fail(where, ["an alias after AS"])
        return None
    at = cursor.index
    cursor.index += 1
    if cursor.peek() == "(" and not starts_subquery(cursor.tokens, cursor.index):
        _no_column_aliases(cursor, operation)
    if cursor.peek() != following and not explicit and like(token.upper, [following]):
        cursor.fail(where, ["an alias", following], at=at)
    return token.name


def _no_column_aliases(cursor: Cursor, operation: str) -> None:
    start = cursor.index
    cursor.skip_brackets()
    raise parse_error(
        cursor.text,
        cursor.since(start),
        f"column aliases are not allowed in {operation}",
        error_class="COLUMN_ALIASES_NOT_ALLOWED",
        hint="Name the columns in a query: USING (SELECT … AS name) alias.",
    )


def _read_source(cursor: Cursor) -> ParsedSource:
    start = cursor.index
    token = cursor.token
    if token is not None and token.text == "(":
        return _read_query(cursor)
    if token is not None and token.kind is Kind.STRING:
        cursor.fail("USING", ["a table's name, format.`path` or a query in parentheses"])
    if cursor.peek() == "VALUES" and cursor.peek(1) not in ("ON", "AS", "."):
        return _read_values(cursor)
    name = _read_table_name(cursor, "USING", "a table's name, format.`path` or a query in parentheses")
    if cursor.peek() == "(":
        cursor.skip_brackets()
        return _with_column_aliases(cursor, start)
    kind: Literal["name", "path"] = "name"
    format_name: str | None = None
    path: str | None = None
    last = cursor.tokens[cursor.index - 1]
    if len(name.parts) == 2 and last.kind is Kind.QUOTED:
        first = name.parts[0].lower()
        if first in FORMATS or "/" in name.parts[1]:
            kind, format_name, path = "path", first, name.parts[1]
    version, timestamp = _read_time_travel(cursor)
    span = cursor.since(start)
    alias = _read_alias(cursor, "USING", "ON", "MERGE")
    return ParsedSource(
        kind, span.of(cursor.text), None, name.parts, format_name, path, version, timestamp, alias, span
    )


def _read_query(cursor: Cursor) -> ParsedSource:
    start = cursor.index
    cursor.skip_brackets()
    if cursor.index == start + 2:
        cursor.fail("USING", ["a query"], at=start + 1)
    inner = Span(cursor.tokens[start + 1].span.start, cursor.tokens[cursor.index - 2].span.end)
    span = cursor.since(start)
    query = Fragment(inner.of(cursor.text), inner)
    alias = _read_alias(cursor, "USING", "ON", "MERGE")
    return ParsedSource("query", span.of(cursor.text), query, (), None, None, None, None, alias, span)


def _read_values(cursor: Cursor) -> ParsedSource:
    """Reads an inline table: ``VALUES (1, 'a'), (2, 'b')``."""
    start = cursor.index
    cursor.index += 1
    while True:
        end = skip_value(cursor.tokens, cursor.index)
        if end == cursor.index:
            cursor.fail("USING VALUES", ["a row"])
        cursor.index = end
        if not cursor.accept(","):
            break
    return _with_column_aliases(cursor, start)


def _with_column_aliases(cursor: Cursor, start: int) -> ParsedSource:
    """Finishes an inline table or a function, the columns of which only an alias can name."""
    span = cursor.since(start)
    explicit = cursor.accept("AS")
    token = cursor.token
    alias: str | None = None
    if token is not None and token.is_identifier and (explicit or token.upper not in _NO_ALIAS):
        alias = token.name
        cursor.index += 1
        if cursor.peek() == "(":
            cursor.names_in_brackets("USING")
            span = cursor.since(start)
    elif explicit:
        cursor.fail("USING", ["an alias after AS"])
    return ParsedSource("relation", span.of(cursor.text), None, (), None, None, None, None, alias, span)


def _read_time_travel(cursor: Cursor) -> tuple[str | None, Fragment | None]:
    ahead = 1 if cursor.peek() == "FOR" else 0
    word = cursor.peek(ahead)
    if (
        word not in ("VERSION", "SYSTEM_VERSION", "TIMESTAMP", "SYSTEM_TIME")
        or cursor.peek(ahead + 1) != "AS"
    ):
        return None, None
    if cursor.peek(ahead + 2) != "OF":
        # ``USING src timestamp AS …`` is no alias either: an alias takes no AS after it.
        cursor.index += ahead + 2
        cursor.fail(f"{word} AS OF", ["OF"])
    cursor.index += ahead + 3
    start = cursor.index
    cursor.index = skip_value(cursor.tokens, start)
    if cursor.index == start:
        cursor.fail(f"{word} AS OF", ["a version" if "VERSION" in word else "a timestamp"])
    span = cursor.since(start)
    if "VERSION" not in word:
        return None, Fragment(span.of(cursor.text), span)
    token = cursor.tokens[start]
    if cursor.index != start + 1 or token.kind not in (Kind.NUMBER, Kind.STRING):
        cursor.fail("VERSION AS OF", ["a number"], at=start)
    return (string_value(token.text) if token.kind is Kind.STRING else token.text), None
