"""Parses ALTER TABLE and COMMENT ON TABLE."""

from __future__ import annotations

from dataclasses import replace

from deltamerge.sql.cursor import Cursor
from deltamerge.sql.merge_ast import NameParts
from deltamerge.sql.statements import ast
from deltamerge.sql.statements.ast import TableName
from deltamerge.sql.statements.columns import read_default, read_definition, read_position, read_type
from deltamerge.sql.statements.creation import read_check
from deltamerge.sql.statements.parts import (
    read_end,
    read_key,
    read_keys,
    read_properties,
    read_string,
    read_table,
)

_WHERE = "ALTER TABLE"


def read_alter(cursor: Cursor) -> ast.AlterTable | None:
    """Read what changes a table's definition; None for what only the catalog knows, such as RENAME TO."""
    if not cursor.accept("ALTER", "TABLE"):
        return None
    table = read_table(cursor, _WHERE)
    change = _read_change(cursor)
    if change is None:
        return None
    read_end(cursor, _WHERE)
    return ast.AlterTable(table, change)


def read_comment(cursor: Cursor) -> ast.AlterTable | None:
    if cursor.accept("COMMENT", "ON", "COLUMN"):
        return _read_column_comment(cursor)
    if not cursor.accept("COMMENT", "ON", "TABLE"):
        return None
    table = read_table(cursor, "COMMENT ON TABLE")
    cursor.expect("COMMENT ON TABLE", "IS")
    comment = None if cursor.accept("NULL") else read_string(cursor, "COMMENT ON TABLE", "a comment")
    read_end(cursor, "COMMENT ON TABLE")
    change = ast.UnsetProperties(("comment",)) if comment is None else ast.SetProperties({"comment": comment})
    return ast.AlterTable(table, change)


def _read_column_comment(cursor: Cursor) -> ast.AlterTable | None:
    where = "COMMENT ON COLUMN"
    *table, column = cursor.name(where, "a column with its table's name before it")
    if not table:
        return None
    cursor.expect(where, "IS")
    comment = "" if cursor.accept("NULL") else read_string(cursor, where, "a comment")
    read_end(cursor, where)
    change = ast.ChangeColumn((column,), comment=comment)
    return ast.AlterTable(TableName.of(tuple(table)), ast.ChangeColumns((change,)))


def _read_change(cursor: Cursor) -> ast.Alteration | None:
    if cursor.accept("SET", "TBLPROPERTIES"):
        return ast.SetProperties(read_properties(cursor, f"{_WHERE} SET TBLPROPERTIES"))
    if cursor.accept("UNSET", "TBLPROPERTIES"):
        cursor.accept("IF", "EXISTS")
        return ast.UnsetProperties(read_keys(cursor, f"{_WHERE} UNSET TBLPROPERTIES"))
    if cursor.accept("CLUSTER", "BY"):
        if cursor.accept("NONE"):
            return ast.ClusterBy(())
        return ast.ClusterBy(cursor.names_in_brackets(f"{_WHERE} CLUSTER BY"))
    if cursor.accept("RENAME", "COLUMN"):
        column = cursor.name(f"{_WHERE} RENAME COLUMN", "a column")
        cursor.expect(f"{_WHERE} RENAME COLUMN", "TO")
        return ast.RenameColumn(column, cursor.identifier(f"{_WHERE} RENAME COLUMN", "a name"))
    if cursor.accept("ADD"):
        return _read_add(cursor)
    if cursor.accept("DROP"):
        return _read_drop(cursor)
    if cursor.peek() in ("ALTER", "CHANGE"):
        return _read_column_changes(cursor)
    if cursor.accept("REPLACE", "COLUMNS"):
        cursor.index = len(cursor.tokens)
        return ast.ReplaceColumns()
    return None


def _read_add(cursor: Cursor) -> ast.Alteration | None:
    if cursor.peek() == "CONSTRAINT":
        return ast.AddConstraint(*read_check(cursor, f"{_WHERE} ADD"))
    if not (cursor.accept("COLUMN") or cursor.accept("COLUMNS")):
        return None
    where = f"{_WHERE} ADD COLUMNS"
    in_brackets = cursor.accept("(")
    columns = cursor.listed(lambda: read_definition(cursor, where, alters=True))
    if in_brackets:
        cursor.expect(where, ")")
    return ast.AddColumns(columns)


def _read_drop(cursor: Cursor) -> ast.Alteration | None:
    if cursor.accept("CONSTRAINT"):
        if_exists = cursor.accept("IF", "EXISTS")
        return ast.DropConstraint(cursor.identifier(f"{_WHERE} DROP CONSTRAINT", "a name"), if_exists)
    if cursor.accept("FEATURE"):
        name = read_key(cursor, f"{_WHERE} DROP FEATURE")
        return ast.DropFeature(name, cursor.accept("TRUNCATE", "HISTORY"))
    if not (cursor.accept("COLUMN") or cursor.accept("COLUMNS")):
        return None
    where = f"{_WHERE} DROP COLUMN"
    if_exists = cursor.accept("IF", "EXISTS")
    if cursor.peek() == "(":
        return ast.DropColumns(cursor.names_in_brackets(where), if_exists)
    return ast.DropColumns(cursor.listed(lambda: cursor.name(where, "a column")), if_exists)


def _read_column_changes(cursor: Cursor) -> ast.ChangeColumns | None:
    """Read ``ALTER COLUMN a TYPE …, b COMMENT …``, or Hive's ``CHANGE COLUMN a a type COMMENT …``."""
    is_change = cursor.peek() == "CHANGE"
    cursor.index += 1
    cursor.accept("COLUMN")
    where = f"{_WHERE} {'CHANGE' if is_change else 'ALTER'} COLUMN"
    column = cursor.name(where, "a column")
    first = _read_column_change(cursor, where, column)
    if first is None:
        found = _read_hive_change(cursor, where, column) if is_change else None
        return None if found is None else ast.ChangeColumns((found,))
    changes = [first]
    while cursor.accept(","):
        other = _read_column_change(cursor, where, cursor.name(where, "a column"))
        if other is None:
            return None
        changes.append(other)
    return ast.ChangeColumns(tuple(changes))


def _read_column_change(cursor: Cursor, where: str, column: NameParts) -> ast.ChangeColumn | None:
    """Read what becomes of a column; None where that is nothing known."""
    change = ast.ChangeColumn(column)
    if cursor.accept("TYPE"):
        return replace(change, data_type=read_type(cursor, where))
    if cursor.accept("SET", "NOT", "NULL"):
        return replace(change, nullable=False)
    if cursor.accept("DROP", "NOT", "NULL"):
        return replace(change, nullable=True)
    if cursor.accept("SET", "DEFAULT"):
        return replace(change, default=read_default(cursor, where))
    if cursor.accept("DROP", "DEFAULT"):
        return replace(change, default="")
    if cursor.accept("COMMENT"):
        return replace(change, comment=read_string(cursor, where, "a comment"))
    position = read_position(cursor, where)
    return None if position is None else replace(change, position=position)


def _read_hive_change(cursor: Cursor, where: str, column: NameParts) -> ast.ChangeColumn | None:
    new = read_definition(cursor, where, alters=True)
    if new.name[-1].lower() != column[-1].lower():
        return None
    nullable = None if new.nullable else False
    return ast.ChangeColumn(column, new.data_type, nullable, new.comment, None, new.position)
