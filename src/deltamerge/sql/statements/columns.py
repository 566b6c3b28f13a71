"""Parses the definitions of columns; a type's SQL is verbatim, for Spark's own parser."""

from __future__ import annotations

from dataclasses import replace

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.cursor import Cursor
from deltamerge.sql.statements.ast import ColumnDefinition, Position
from deltamerge.sql.statements.parts import read_integer, read_string
from deltamerge.sql.tokens import Kind, is_keyword_place, parse_error

# Constraints that Delta tables do not have.
KEYS = ("PRIMARY", "FOREIGN", "UNIQUE", "REFERENCES")
_AFTER_TYPE = frozenset(
    ("NOT", "NULL", "COMMENT", "DEFAULT", "GENERATED", "CONSTRAINT", "FIRST", "AFTER", "CHECK", *KEYS)
)
_LONG = range(-(1 << 63), 1 << 63)


def read_definition(cursor: Cursor, where: str, *, alters: bool = False) -> ColumnDefinition:
    """Read a column: name, type, then what else there is of it in any order.

    Args:
        alters: Whether it is a column of ALTER TABLE, which may have a position, and no value that is computed.
    """
    name = cursor.name(where, "a column")
    column = ColumnDefinition(name, read_type(cursor, where))
    while (changed := _read_option(cursor, where, column, alters)) is not None:
        column = changed
    return column


def read_type(cursor: Cursor, where: str) -> str:
    """Read a type, in which commas may be between angle brackets."""
    start = cursor.index
    angles = 0
    while (token := cursor.token) is not None:
        if angles == 0 and (token.text in (",", ")", ";") or (cursor.index > start and token.upper in _AFTER_TYPE)):
            break
        angles += (token.text == "<") - (token.text == ">")
        if token.text == "(":
            cursor.skip_brackets()
        else:
            cursor.index += 1
    if cursor.index == start:
        cursor.fail(where, ["a data type"])
    return cursor.sql_since(start)


def _read_option(cursor: Cursor, where: str, column: ColumnDefinition, alters: bool) -> ColumnDefinition | None:
    if cursor.accept("NOT"):
        cursor.expect(f"{where} NOT", "NULL")
        return replace(column, nullable=False)
    if cursor.accept("NULL"):
        return column
    if cursor.accept("COMMENT"):
        return replace(column, comment=read_string(cursor, f"{where} COMMENT", "a comment"))
    if cursor.accept("DEFAULT"):
        return replace(column, default=read_default(cursor, where))
    if cursor.peek() == "GENERATED":
        if alters:
            hint = "Generated and identity columns are made by CREATE TABLE: rows that are there would need values."
            cursor.fail(where, ["a column without GENERATED"], hint)
        cursor.index += 1
        return _read_generated(cursor, f"{where} GENERATED", column)
    if cursor.peek() in KEYS:
        raise no_keys(cursor)
    if alters and (position := read_position(cursor, where)) is not None:
        return replace(column, position=position)
    return None


def no_keys(cursor: Cursor) -> DeltaParseException:
    hint = "CHECK constraints and NOT NULL are enforced."
    return parse_error(cursor.sql, cursor.span(), "Delta tables have no keys", hint=hint)


def read_position(cursor: Cursor, where: str) -> Position:
    if cursor.accept("FIRST"):
        return "FIRST"
    return (cursor.identifier(f"{where} AFTER", "a column"),) if cursor.accept("AFTER") else None


def read_default(cursor: Cursor, where: str) -> str:
    """Read an expression up to the next part of the definition."""
    start = cursor.index
    while (token := cursor.token) is not None and token.text not in (",", ")", ";"):
        follows = token.kind is Kind.WORD and is_keyword_place(cursor.tokens, cursor.index, start)
        if follows and (
            token.upper in ("COMMENT", "GENERATED", "FIRST", "AFTER")
            or (token.upper == "NOT" and cursor.peek(1) == "NULL" and cursor.peek(-1) != "IS")
        ):
            break
        if token.text in ("(", "[", "{"):
            cursor.skip_brackets()
        else:
            cursor.index += 1
    if cursor.index == start:
        cursor.fail(f"{where} DEFAULT", ["a value"])
    return cursor.sql_since(start)


def _read_long(cursor: Cursor, where: str) -> int:
    start = cursor.index
    found = read_integer(cursor, where, "a number")
    if found not in _LONG:
        raise parse_error(cursor.sql, cursor.since(start), "the number is no BIGINT, as identity columns have them")
    return found


def _read_generated(cursor: Cursor, where: str, column: ColumnDefinition) -> ColumnDefinition:
    by_default = cursor.expect_one(where, "ALWAYS", "BY") == "BY"
    cursor.expect(where, *(("DEFAULT", "AS") if by_default else ("AS",)))
    if not by_default and cursor.peek() == "(":
        start = cursor.index
        cursor.skip_brackets()
        return replace(column, generated=cursor.sql_since(start)[1:-1].strip())
    cursor.expect(where, "IDENTITY")
    start_with, step = 1, 1
    if cursor.accept("("):
        while not cursor.accept(")"):
            cursor.accept(",")
            if cursor.expect_one(f"{where} AS IDENTITY", "START", "INCREMENT") == "START":
                cursor.expect(where, "WITH")
                start_with = _read_long(cursor, where)
            else:
                cursor.expect(where, "BY")
                step = _read_long(cursor, where)
                if step == 0:
                    place, problem = cursor.span(cursor.index - 1), "the step of an identity column cannot be 0"
                    raise parse_error(cursor.sql, place, problem, error_class="IDENTITY_COLUMNS_ILLEGAL_STEP")
    return replace(column, identity=(start_with, step, by_default))
