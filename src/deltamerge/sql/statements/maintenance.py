"""Parses OPTIMIZE, REORG, VACUUM, RESTORE, DESCRIBE, SHOW, CONVERT and GENERATE (DeltaSqlBase.g4)."""

from __future__ import annotations

from typing import Literal

from deltamerge.sql.cursor import Cursor
from deltamerge.sql.merge_ast import NameParts
from deltamerge.sql.relations import folded
from deltamerge.sql.statements import ast
from deltamerge.sql.statements.parts import (
    not_allowed,
    read_end,
    read_integer,
    read_key,
    read_name,
    read_partition,
    read_string,
    read_table,
    read_time_travel,
    read_where,
)
from deltamerge.sql.tokens import Kind


def read_optimize(cursor: Cursor) -> ast.Optimize:
    cursor.expect("OPTIMIZE", "OPTIMIZE")
    table = read_table(cursor, "OPTIMIZE")
    is_full = cursor.accept("FULL")
    where = read_where(cursor, "OPTIMIZE", "ZORDER")
    order_by: tuple[NameParts, ...] = ()
    if cursor.accept("ZORDER"):
        cursor.expect("OPTIMIZE ZORDER", "BY")
        in_brackets = cursor.accept("(")
        order_by = cursor.listed(lambda: cursor.name("OPTIMIZE ZORDER BY", "a column"))
        if in_brackets:
            cursor.expect("OPTIMIZE ZORDER BY", ")")
    read_end(cursor, "OPTIMIZE")
    return ast.Optimize(table, None if where is None else where.text, order_by, is_full)


def read_reorg(cursor: Cursor) -> ast.Reorganize:
    cursor.expect("REORG", "REORG", "TABLE")
    table = read_table(cursor, "REORG TABLE")
    where = read_where(cursor, "REORG", "APPLY")
    cursor.expect("REORG", "APPLY", "(")
    if cursor.peek() == "UPGRADE":
        raise not_allowed(cursor, "the Iceberg metadata of UniForm is not written")
    cursor.expect("REORG", "PURGE", ")")
    read_end(cursor, "REORG")
    return ast.Reorganize(table, None if where is None else where.text)


def read_vacuum(cursor: Cursor) -> ast.Vacuum:
    cursor.expect("VACUUM", "VACUUM")
    table = read_table(cursor, "VACUUM")
    found: dict[str, float | bool] = {}
    kind: Literal["FULL", "LITE"] | None = None
    while cursor.token is not None and cursor.peek() != ";":
        if cursor.peek() == "USING":
            problem = "inventories are not read: VACUUM lists the table's folder itself"
            raise not_allowed(cursor, problem, "Leave USING INVENTORY out.")
        word = cursor.expect_one("VACUUM", "LITE", "FULL", "RETAIN", "DRY")
        is_kind = word in ("LITE", "FULL")
        if kind is not None if is_kind else word in found:
            cursor.fail("VACUUM", ["each option once"], at=cursor.index - 1)
        if word == "RETAIN":
            found[word] = _read_number(cursor)
            cursor.expect("VACUUM RETAIN", "HOURS")
        elif word == "DRY":
            cursor.expect("VACUUM DRY", "RUN")
            found[word] = True
        else:
            kind = "LITE" if word == "LITE" else "FULL"
    read_end(cursor, "VACUUM")
    hours = found.get("RETAIN")
    return ast.Vacuum(table, kind, None if hours is None else float(hours), "DRY" in found)


def _read_number(cursor: Cursor) -> float:
    sign = -1 if cursor.accept("-") else 1
    token = cursor.token
    if token is None or token.kind is not Kind.NUMBER:
        cursor.fail("VACUUM RETAIN", ["a number of hours"])
    cursor.index += 1
    return sign * float(token.text.rstrip("lLdDfFsSyYbB"))


def read_restore(cursor: Cursor) -> ast.Restore:
    cursor.expect("RESTORE", "RESTORE")
    if cursor.peek() == "TABLE" and cursor.peek(1) not in (".", "TO"):
        cursor.index += 1
    table = read_table(cursor, "RESTORE TABLE")
    cursor.accept("TO")
    to = read_time_travel(cursor, "RESTORE TABLE")
    if to is None:
        cursor.fail("RESTORE TABLE", ["TO VERSION AS OF", "TO TIMESTAMP AS OF"])
    read_end(cursor, "RESTORE TABLE")
    return ast.Restore(table, to)


def read_describe(cursor: Cursor) -> ast.Statement | None:
    """Read DESCRIBE of a table; what else can be described is Spark's."""
    cursor.index += 1
    if cursor.peek() == "DETAIL" and cursor.peek(1) not in ("", ";", "."):
        cursor.index += 1
        described = ast.DescribeDetail(read_table(cursor, "DESCRIBE DETAIL"))
        read_end(cursor, "DESCRIBE DETAIL")
        return described
    if cursor.peek() == "HISTORY" and cursor.peek(1) not in ("", ";", "."):
        cursor.index += 1
        table = read_table(cursor, "DESCRIBE HISTORY")
        limit = read_integer(cursor, "DESCRIBE HISTORY LIMIT", "a number") if cursor.accept("LIMIT") else None
        read_end(cursor, "DESCRIBE HISTORY")
        return ast.DescribeHistory(table, limit)
    if cursor.peek() in ("FUNCTION", "DATABASE", "SCHEMA", "NAMESPACE", "CATALOG", "QUERY", "SELECT", "WITH", "("):
        return None
    cursor.accept("TABLE")
    extended = cursor.peek() in ("EXTENDED", "FORMATTED") and cursor.peek(1) not in ("", ";")
    if extended:
        cursor.index += 1
    token = cursor.token
    if token is None or not (token.is_identifier or token.kind is Kind.STRING):
        return None
    table = read_table(cursor, "DESCRIBE TABLE")
    is_over = cursor.peek() in ("", ";")
    return ast.DescribeTable(table, extended) if is_over else None


def read_show(cursor: Cursor) -> ast.Statement | None:
    cursor.index += 1
    if cursor.accept("TBLPROPERTIES"):
        table = read_table(cursor, "SHOW TBLPROPERTIES")
        key = None
        if cursor.accept("("):
            key = read_key(cursor, "SHOW TBLPROPERTIES")
            cursor.expect("SHOW TBLPROPERTIES", ")")
        return ast.ShowProperties(table, key)
    if cursor.accept("COLUMNS") and cursor.peek() in ("IN", "FROM"):
        cursor.index += 1
        table = read_table(cursor, "SHOW COLUMNS")
        if (cursor.accept("IN") or cursor.accept("FROM")) and table.path is None:
            database = cursor.name("SHOW COLUMNS", "a database")
            if len(table.parts) > 1 and folded(table.parts[:-1]) != folded(database):
                return None
            table = ast.TableName((*database, table.parts[-1]))
        return ast.ShowColumns(table) if cursor.peek() in ("", ";") else None
    if cursor.accept("PARTITIONS"):
        table = read_table(cursor, "SHOW PARTITIONS")
        spec = read_partition(cursor, "SHOW PARTITIONS") if cursor.peek() == "PARTITION" else ()
        wanted = tuple((name, value) for name, value in spec if value is not None)
        return ast.ShowPartitions(table, wanted) if cursor.peek() in ("", ";") else None
    return None


def read_refresh(cursor: Cursor) -> ast.RefreshTable | None:
    cursor.index += 1
    if not cursor.accept("TABLE"):
        return None
    table = read_table(cursor, "REFRESH TABLE")
    return ast.RefreshTable(table) if cursor.peek() in ("", ";") else None


def read_convert(cursor: Cursor) -> ast.Convert:
    cursor.expect("CONVERT", "CONVERT", "TO", "DELTA")
    parts = read_name(cursor, "CONVERT TO DELTA", "parquet.`path`")
    if cursor.accept("NO"):
        cursor.expect("CONVERT TO DELTA NO", "STATISTICS")
    columns = None
    if cursor.accept("PARTITIONED"):
        cursor.expect("CONVERT TO DELTA PARTITIONED", "BY")
        start = cursor.index
        cursor.expect("CONVERT TO DELTA PARTITIONED BY", "(")
        cursor.index = start
        cursor.skip_brackets()
        columns = cursor.sql_since(start)[1:-1]
    read_end(cursor, "CONVERT TO DELTA")
    return ast.Convert(parts, columns)


def read_generate(cursor: Cursor) -> ast.Generate:
    cursor.expect("GENERATE", "GENERATE")
    token = cursor.token
    if token is not None and token.kind is Kind.STRING:
        mode = read_string(cursor, "GENERATE", "a mode")
    else:
        mode = ".".join(cursor.name("GENERATE", "a mode"))
    cursor.expect("GENERATE", "FOR", "TABLE")
    table = read_table(cursor, "GENERATE FOR TABLE")
    read_end(cursor, "GENERATE")
    return ast.Generate(mode, table)
