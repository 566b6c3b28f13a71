"""Finds the parser of a statement by its first word."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.cursor import Cursor
from deltamerge.sql.merge_parser import parse_merge
from deltamerge.sql.relations import behind_ctes
from deltamerge.sql.statements import maintenance
from deltamerge.sql.statements.alterations import read_alter, read_comment
from deltamerge.sql.statements.ast import ParsedMerge, Statement
from deltamerge.sql.statements.changes import read_delete, read_insert, read_truncate, read_update
from deltamerge.sql.statements.creation import read_create, read_drop


def parse_statement(sql: str) -> Statement | None:
    """Parse a statement, with a semicolon at its end or none; None where it is Spark's alone."""
    try:
        cursor = Cursor(sql)
    except DeltaParseException:
        # Spark's parser knows more than SQL's tokens: ADD JAR and SET take any string.
        return None
    read = _READERS.get(cursor.peek())
    return None if read is None else read(cursor)


def _read_merge(cursor: Cursor) -> ParsedMerge:
    return parse_merge(cursor.sql)


_EXPLAINED = ("ANALYZE", "EXTENDED", "FORMATTED", "COST", "CODEGEN")


def _read_explain(cursor: Cursor) -> ParsedMerge | None:
    cursor.index += 2 if cursor.peek(1) in _EXPLAINED else 1
    cursor.index += behind_ctes(cursor.tokens[cursor.index :])
    return _read_merge(cursor) if cursor.peek() == "MERGE" else None


def _read_with(cursor: Cursor) -> Statement | None:
    """Read a MERGE or an INSERT after WITH; a query is Spark's."""
    cursor.index = behind_ctes(cursor.tokens)
    if cursor.peek() == "MERGE":
        return _read_merge(cursor)
    if cursor.index == 0 or cursor.peek() != "INSERT":
        return None
    ctes = cursor.sql_since(0)
    insert = read_insert(cursor)
    return replace(insert, query=f"{ctes} ({insert.query})")


_READERS: Mapping[str, Callable[[Cursor], Statement | None]] = {
    "MERGE": _read_merge,
    "EXPLAIN": _read_explain,
    "WITH": _read_with,
    "DELETE": read_delete,
    "UPDATE": read_update,
    "INSERT": read_insert,
    "TRUNCATE": read_truncate,
    "OPTIMIZE": maintenance.read_optimize,
    "REORG": maintenance.read_reorg,
    "VACUUM": maintenance.read_vacuum,
    "RESTORE": maintenance.read_restore,
    "DESCRIBE": maintenance.read_describe,
    "DESC": maintenance.read_describe,
    "SHOW": maintenance.read_show,
    "REFRESH": maintenance.read_refresh,
    "CONVERT": maintenance.read_convert,
    "GENERATE": maintenance.read_generate,
    "CREATE": read_create,
    "REPLACE": read_create,
    "DROP": read_drop,
    "ALTER": read_alter,
    "COMMENT": read_comment,
}
