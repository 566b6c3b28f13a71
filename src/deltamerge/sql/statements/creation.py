"""Parses CREATE TABLE, REPLACE TABLE, clones, temporary views and DROP TABLE."""

from __future__ import annotations

from dataclasses import replace

from deltamerge.sql.cursor import Cursor
from deltamerge.sql.statements import ast
from deltamerge.sql.statements.columns import KEYS, no_keys, read_definition
from deltamerge.sql.statements.parts import (
    not_allowed,
    read_end,
    read_options,
    read_properties,
    read_rest,
    read_string,
    read_table,
    read_time_travel,
)
from deltamerge.sql.tokens import parse_error

_WHERE = "CREATE TABLE"
_QUERIES = ("SELECT", "WITH", "VALUES", "TABLE", "FROM")


def read_create(cursor: Cursor) -> ast.Statement | None:
    """Read a statement that makes a Delta table or a temporary view; None for any other."""
    mode = _read_mode(cursor)
    if mode is None:
        return _read_view(cursor)
    table = read_table(cursor, _WHERE)
    if cursor.peek() in ("SHALLOW", "DEEP") and cursor.peek(1) == "CLONE":
        return _read_clone(cursor, table, mode)
    if cursor.peek() == "LIKE":
        return _read_like(cursor, table, mode)
    source = _source(cursor)
    if source is None and table.path is None:
        return ast.CreateOfDefaultSource(table)
    return _read_definition(cursor, ast.CreateTable(table, mode)) if source in (None, "delta") else None


def read_as_delta(sql: str) -> ast.CreateTable:
    """Read a statement that names no source as one that makes a Delta table."""
    cursor = Cursor(sql)
    mode = _read_mode(cursor)
    assert mode is not None
    return _read_definition(cursor, ast.CreateTable(read_table(cursor, _WHERE), mode))


def _read_mode(cursor: Cursor) -> ast.CreateMode | None:
    if cursor.accept("CREATE", "OR", "REPLACE", "TABLE"):
        return "create_or_replace"
    if cursor.accept("REPLACE", "TABLE"):
        return "replace"
    if not (cursor.accept("CREATE", "TABLE") or cursor.accept("CREATE", "EXTERNAL", "TABLE")):
        return None
    return "create_if_not_exists" if cursor.accept("IF", "NOT", "EXISTS") else "create"


def _source(cursor: Cursor) -> str | None:
    """Return the source that is named before a query begins, ``hive`` where its formats are; None where none is."""
    base = cursor.tokens[cursor.index].depth if cursor.token is not None else 0
    for ahead, token in enumerate(cursor.tokens[cursor.index :]):
        if token.depth != base:
            continue
        if token.upper in ("AS", *_QUERIES):
            return None
        if token.upper == "USING":
            return cursor.peek(ahead + 1).strip("`").lower()
        if token.upper in ("STORED", "ROW"):
            return "hive"
    return None


def _read_definition(cursor: Cursor, table: ast.CreateTable) -> ast.CreateTable:
    if cursor.peek() == "(":
        table = _read_columns(cursor, table)
    while (changed := _read_clause(cursor, table)) is not None:
        table = changed
    if cursor.accept("AS") or cursor.peek() in (*_QUERIES, "("):
        table = replace(table, query=read_rest(cursor, f"{_WHERE} AS"))
    if cursor.tokens[1].upper == "EXTERNAL" and table.location is None and table.table.path is None:
        hint = "Give one, or leave EXTERNAL out for a table in the warehouse."
        raise not_allowed(cursor, "an EXTERNAL table needs a LOCATION", hint, cursor.tokens[1].span)
    read_end(cursor, _WHERE)
    return table


def _read_columns(cursor: Cursor, table: ast.CreateTable) -> ast.CreateTable:
    columns: list[ast.ColumnDefinition] = []
    checks: dict[str, str] = {}
    cursor.expect(_WHERE, "(")
    while cursor.peek() != ")":
        if cursor.peek() == "CONSTRAINT" and cursor.peek(2) in ("CHECK", *KEYS):
            name, expression = read_check(cursor, _WHERE)
            checks[name] = expression
        else:
            _refuse_unnamed(cursor)
            columns.append(read_definition(cursor, _WHERE))
        if not cursor.accept(","):
            break
    if cursor.peek() != ")":
        cursor.fail(_WHERE, [",", ")"])
    cursor.index += 1
    return replace(table, columns=tuple(columns), checks=checks)


def _refuse_unnamed(cursor: Cursor) -> None:
    """Refuse a constraint without a name, where a column of one of these names has a type."""
    words = cursor.peek(), cursor.peek(1)
    if words in (("PRIMARY", "KEY"), ("FOREIGN", "KEY"), ("UNIQUE", "(")):
        raise no_keys(cursor)
    if words == ("CHECK", "("):
        cursor.fail(_WHERE, ["a column"], "A CHECK constraint has a name: CONSTRAINT name CHECK (…).")


def read_check(cursor: Cursor, where: str) -> tuple[str, str]:
    """Read ``CONSTRAINT name CHECK (expression)``."""
    cursor.expect(where, "CONSTRAINT")
    name = cursor.identifier(f"{where} CONSTRAINT", "a name")
    if cursor.peek() in KEYS:
        raise no_keys(cursor)
    cursor.expect(f"{where} CONSTRAINT", "CHECK")
    if cursor.peek() != "(":
        cursor.fail(f"{where} CONSTRAINT CHECK", ["(expression)"])
    start = cursor.index
    cursor.skip_brackets()
    return name, cursor.sql_since(start)[1:-1].strip()


def _read_clause(cursor: Cursor, table: ast.CreateTable) -> ast.CreateTable | None:
    if cursor.accept("USING"):
        cursor.name(f"{_WHERE} USING", "DELTA")
        return table
    if cursor.accept("COMMENT"):
        return replace(table, comment=read_string(cursor, f"{_WHERE} COMMENT", "a comment"))
    if cursor.accept("LOCATION"):
        return replace(table, location=read_string(cursor, f"{_WHERE} LOCATION", "a path"))
    if cursor.accept("TBLPROPERTIES"):
        return replace(table, properties={**table.properties, **read_properties(cursor, f"{_WHERE} TBLPROPERTIES")})
    if cursor.accept("OPTIONS"):
        options = read_options(cursor, f"{_WHERE} OPTIONS")
        lowered = {key.lower(): value for key, value in options.items()}
        of_delta = {key: value for key, value in options.items() if key.lower().startswith("delta.")}
        properties = {**of_delta, **table.properties}
        return replace(table, location=table.location or lowered.get("path"), properties=properties)
    if cursor.accept("PARTITIONED", "BY"):
        where = f"{_WHERE} PARTITIONED BY"
        return replace(table, partitioned_by=cursor.in_brackets(where, lambda: _read_partition(cursor, where)))
    if cursor.accept("CLUSTER", "BY"):
        return replace(table, clustered_by=cursor.names_in_brackets(f"{_WHERE} CLUSTER BY"))
    if cursor.peek() == "DEFAULT":
        hint = "Leave it out: strings are compared by their bytes."
        raise not_allowed(cursor, "Delta tables have no default collation here", hint)
    if cursor.peek() == "CLUSTERED":
        raise not_allowed(cursor, "Delta tables have no buckets", "Use CLUSTER BY (…) or PARTITIONED BY (…).")
    return None


def _read_partition(cursor: Cursor, where: str) -> ast.ColumnDefinition | str:
    """Read the name of a column, or the definition of one that comes after the others."""
    start = cursor.index
    name = cursor.name(where, "a column")
    if cursor.peek() == "(":
        hint = "Use a generated column in the place of a transform."
        raise not_allowed(cursor, "Delta tables are partitioned by columns", hint, cursor.since(start))
    if cursor.peek() in (",", ")"):
        return ".".join(name)
    cursor.index = start
    return read_definition(cursor, where)


def _read_clone(cursor: Cursor, table: ast.TableName, mode: ast.CreateMode) -> ast.CloneTable:
    where = "SHALLOW CLONE"
    if not cursor.accept("SHALLOW", "CLONE"):
        raise parse_error(
            cursor.sql, cursor.span(), "only shallow clones are supported", hint="Or copy the rows: CREATE TABLE … AS."
        )
    source = read_table(cursor, where)
    at = read_time_travel(cursor, where)
    properties = read_properties(cursor, f"{where} TBLPROPERTIES") if cursor.accept("TBLPROPERTIES") else {}
    location = read_string(cursor, f"{where} LOCATION", "a path") if cursor.accept("LOCATION") else None
    read_end(cursor, where)
    return ast.CloneTable(table, mode, source, at, properties, location)


def _read_like(cursor: Cursor, table: ast.TableName, mode: ast.CreateMode) -> ast.CreateTableLike | None:
    """Read a table that is like another; None where it has another format, or where Spark's parser refuses it."""
    where = f"{_WHERE} LIKE"
    cursor.expect(where, "LIKE")
    like = ast.CreateTableLike(table, mode, read_table(cursor, where))
    while cursor.token is not None and cursor.peek() != ";":
        if cursor.accept("USING", "DELTA") or cursor.accept("USING", "`DELTA`"):
            like = replace(like, uses_delta=True)
        elif cursor.accept("TBLPROPERTIES"):
            like = replace(like, properties=read_properties(cursor, f"{where} TBLPROPERTIES"))
        elif cursor.accept("LOCATION"):
            like = replace(like, location=read_string(cursor, f"{where} LOCATION", "a path"))
        else:
            return None
    read_end(cursor, where)
    return like if mode in ("create", "create_if_not_exists") else None


def _read_view(cursor: Cursor) -> ast.CreateTempView | None:
    cursor.accept("CREATE")
    replaces = cursor.accept("OR", "REPLACE")
    is_global = cursor.accept("GLOBAL")
    if not (cursor.accept("TEMP") or cursor.accept("TEMPORARY")) or not cursor.accept("VIEW"):
        return None
    where = "CREATE TEMPORARY VIEW"
    name = cursor.name(where, "a name")
    columns = cursor.in_brackets(where, lambda: _read_view_column(cursor, where)) if cursor.peek() == "(" else ()
    if cursor.accept("COMMENT"):
        # Spark shows that of a temporary view nowhere.
        read_string(cursor, where, "a comment")
    if len(name) > 1 or not cursor.accept("AS"):
        return None
    return ast.CreateTempView(name[0], replaces, read_rest(cursor, where), is_global, columns)


def _read_view_column(cursor: Cursor, where: str) -> tuple[str, str | None]:
    name = cursor.identifier(where, "a column")
    return name, read_string(cursor, where, "a comment") if cursor.accept("COMMENT") else None


def read_drop(cursor: Cursor) -> ast.DropTable | None:
    if not cursor.accept("DROP", "TABLE"):
        return None
    cursor.accept("IF", "EXISTS")
    table = read_table(cursor, "DROP TABLE")
    cursor.accept("PURGE")
    read_end(cursor, "DROP TABLE")
    return ast.DropTable(table)
