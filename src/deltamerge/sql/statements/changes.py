"""Parses DELETE, UPDATE and INSERT, and finds DEFAULT in the rows of an INSERT."""

from __future__ import annotations

from collections.abc import Sequence

from deltamerge.sql.caret import Span
from deltamerge.sql.cursor import Cursor
from deltamerge.sql.merge_ast import NameParts
from deltamerge.sql.merge_clause_parser import read_assignments
from deltamerge.sql.relations import replace_references
from deltamerge.sql.statements.ast import DeleteRows, InsertRows, TruncateTable, UpdateRows
from deltamerge.sql.statements.parts import (
    not_allowed,
    read_alias,
    read_end,
    read_options,
    read_partition,
    read_rest,
    read_table,
    read_where,
)
from deltamerge.sql.tokens import Token, closing, tokenize

_QUERIES = ("SELECT", "VALUES", "TABLE", "FROM", "WITH", "MAP", "REDUCE")


def read_delete(cursor: Cursor) -> DeleteRows:
    cursor.expect("DELETE", "DELETE")
    cursor.accept("FROM")
    table = read_table(cursor, "DELETE FROM")
    alias = read_alias(cursor, "WHERE")
    condition = read_where(cursor, "DELETE")
    read_end(cursor, "DELETE")
    return DeleteRows(table, alias, condition)


def read_update(cursor: Cursor) -> UpdateRows:
    cursor.expect("UPDATE", "UPDATE")
    table = read_table(cursor, "UPDATE")
    alias = read_alias(cursor, "SET", "WHERE")
    cursor.expect("UPDATE", "SET")
    assignments = read_assignments(cursor, "UPDATE", "WHERE")
    condition = read_where(cursor, "UPDATE")
    read_end(cursor, "UPDATE")
    return UpdateRows(table, alias, assignments, condition)


def read_truncate(cursor: Cursor) -> TruncateTable:
    cursor.expect("TRUNCATE", "TRUNCATE", "TABLE")
    table = read_table(cursor, "TRUNCATE TABLE")
    of_partition = cursor.peek() == "PARTITION"
    if of_partition:
        read_partition(cursor, "TRUNCATE TABLE")
    read_end(cursor, "TRUNCATE TABLE")
    return TruncateTable(table, of_partition)


def read_insert(cursor: Cursor) -> InsertRows:
    cursor.expect("INSERT", "INSERT")
    evolves = cursor.accept("WITH")
    if evolves:
        cursor.expect("INSERT WITH SCHEMA EVOLUTION", "SCHEMA", "EVOLUTION")
    overwrites = cursor.expect_one("INSERT", "INTO", "OVERWRITE") == "OVERWRITE"
    where = "INSERT OVERWRITE" if overwrites else "INSERT INTO"
    if cursor.peek() == "TABLE" and cursor.peek(1) not in (".", *_QUERIES, "("):
        cursor.index += 1
    table = read_table(cursor, where)
    if cursor.peek() == "WITH" and cursor.peek(1) == "(":
        evolves |= _merges_schema(cursor, where)
    partition = read_partition(cursor, where) if cursor.peek() == "PARTITION" else ()
    if_not_exists = cursor.accept("IF")
    if if_not_exists:
        cursor.expect(where, "NOT", "EXISTS")
    columns: tuple[NameParts, ...] = ()
    by_name = False
    if cursor.peek() == "(" and cursor.behind_brackets() in (*_QUERIES, "("):
        columns = cursor.names_in_brackets(where)
    elif cursor.accept("BY"):
        cursor.expect(where, "NAME")
        by_name = True
    replace_where = None
    if cursor.peek() == "REPLACE" and cursor.peek(1) == "WHERE":
        cursor.index += 2
        replace_where = cursor.expression(f"{where} REPLACE WHERE", "a condition", *_QUERIES)
    query = read_rest(cursor, where)
    return InsertRows(
        table, overwrites, query, columns, by_name, partition, replace_where, evolves, if_not_exists=if_not_exists
    )


def _merges_schema(cursor: Cursor, where: str) -> bool:
    """Read the options after a table's name, of which there is one for SQL."""
    cursor.index += 1
    start = cursor.index
    options = {key.lower(): value.lower() for key, value in read_options(cursor, f"{where} … WITH").items()}
    if options.keys() != {"mergeschema"} or options["mergeschema"] not in ("true", "false"):
        problem = "the only option of an INSERT is 'mergeSchema' = 'true' or 'false'"
        raise not_allowed(cursor, problem, "Others are options of df.write.", cursor.since(start))
    return options["mergeschema"] == "true"


def with_defaults(query: str, defaults: Sequence[str | None]) -> str:
    """Replace DEFAULT by the SQL of a column's default, in rows of VALUES or a SELECT without FROM, also in brackets.

    Args:
        defaults: By column, in the order of the values; None for NULL.
    """
    tokens = tokenize(query)
    if tokens and tokens[0].text == "(" and closing(tokens, 0) == len(tokens) - 1:
        first, last = tokens[0].span.end, tokens[-1].span.start
        return query[:first] + with_defaults(query[first:last], defaults) + query[last:]
    replaced: dict[Span, str] = {}
    if tokens and tokens[0].upper == "SELECT" and not any(t.upper == "FROM" and t.depth == 0 for t in tokens):
        replaced = _selected(tokens, defaults)
    row = 1 if tokens and tokens[0].upper == "VALUES" else len(tokens)
    while row < len(tokens) and tokens[row].text == "(":
        end = closing(tokens, row)
        column = 0
        for index in range(row + 1, end):
            token = tokens[index]
            if token.text == "," and token.depth == tokens[row].depth + 1:
                column += 1
            alone = tokens[index - 1].text in ("(", ",") and tokens[index + 1].text in (")", ",")
            if token.upper == "DEFAULT" and token.depth == tokens[row].depth + 1 and alone and column < len(defaults):
                replaced[token.span] = _default(defaults[column])
        row = end + 2 if end + 1 < len(tokens) and tokens[end + 1].text == "," else len(tokens)
    return replace_references(query, replaced)


def with_defaults_for_names(query: str, defaults: Sequence[str | None]) -> str:
    """Replace DEFAULT among what a query selects, where FROM has no column of that name; else as `with_defaults`."""
    tokens = tokenize(query)
    is_select = bool(tokens) and tokens[0].upper == "SELECT"
    return replace_references(query, _selected(tokens, defaults)) if is_select else query


def _selected(tokens: Sequence[Token], defaults: Sequence[str | None]) -> dict[Span, str]:
    """Return what replaces DEFAULT in the list of the first SELECT, up to a star, which is many."""
    replaced, column, before = dict[Span, str](), 0, "SELECT"
    ends = ("FROM", "UNION", "EXCEPT", "INTERSECT", "MINUS")
    for index, token in enumerate(tokens[1:], 1):
        if token.depth != tokens[0].depth:
            continue
        following = tokens[index + 1].upper if index + 1 < len(tokens) else ";"
        is_value = before in ("SELECT", "DISTINCT", "ALL", ",") and following in (",", ";", "WHERE", "LIMIT", *ends)
        if token.upper == "DEFAULT" and is_value and column < len(defaults):
            replaced[token.span] = _default(defaults[column])
        if token.upper in ends or (token.text == "*" and before in ("SELECT", "DISTINCT", "ALL", ",", ".")):
            break
        column += token.text == ","
        before = token.upper
    return replaced


def _default(sql: str | None) -> str:
    return "NULL" if sql is None else f"({sql})"
