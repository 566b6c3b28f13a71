"""Parses the WHEN clauses of a MERGE statement."""

from __future__ import annotations

from typing import NoReturn

from deltamerge.sql.cursor import Cursor, like
from deltamerge.sql.merge_ast import (
    KIND_AS_SQL,
    Action,
    Assignment,
    ClauseKind,
    Default,
    Delete,
    DoNothing,
    Expression,
    Insert,
    MergeClause,
    Star,
    Update,
)
from deltamerge.sql.operands import INTERVAL_UNITS
from deltamerge.sql.tokens import Kind, is_keyword_place, parse_error

_ERROR_NAMES: dict[ClauseKind, str] = {
    "matched": "MATCHED",
    "not_matched": "NOT_MATCHED_BY_TARGET",
    "not_matched_by_source": "NOT_MATCHED_BY_SOURCE",
}
_NOT_ASSIGNED = INTERVAL_UNITS | {"NULL", "TRUE", "FALSE", "UNKNOWN", "END"}


def read_clauses(cursor: Cursor) -> tuple[MergeClause, ...]:
    """Read all clauses, from after the ON condition to the statement's end."""
    clauses: list[MergeClause] = []
    while cursor.peek() not in ("", ";"):
        clauses.append(_read_clause(cursor, len(clauses) + 1))
    while cursor.accept(";"):
        pass
    if cursor.token is not None:
        cursor.fail("MERGE statement", ["the end of the statement"], "Pass one statement at a time.")
    _check_clauses(cursor, clauses)
    return tuple(clauses)


def _check_clauses(cursor: Cursor, clauses: list[MergeClause]) -> None:
    if not clauses:
        raise parse_error(
            cursor.sql,
            cursor.span(len(cursor.tokens)),
            "there must be at least one WHEN clause in a MERGE statement",
            error_class="MERGE_WITHOUT_WHEN",
            hint="Add one after the ON condition, such as WHEN MATCHED THEN UPDATE SET *.",
        )
    for kind, name in _ERROR_NAMES.items():
        same = [(position, clause) for position, clause in enumerate(clauses, 1) if clause.kind == kind]
        for position, clause in same[:-1]:
            if clause.condition is None:
                assert clause.span is not None
                raise parse_error(
                    cursor.sql,
                    clause.span,
                    f"only the last of the {len(same)} {KIND_AS_SQL[kind]} clauses can omit its condition; clause "
                    f"{position} of the statement is not the last",
                    error_class=f"NON_LAST_{name}_CLAUSE_OMIT_CONDITION",
                    hint="Give it a condition with AND, or move it after the others.",
                )


def _read_clause(cursor: Cursor, position: int) -> MergeClause:
    start = cursor.index
    cursor.expect("WHEN clause" if position > 1 else "ON", "WHEN")
    kind: ClauseKind = "matched"
    if cursor.expect_one("WHEN clause", "MATCHED", "NOT") == "NOT":
        cursor.expect("WHEN NOT", "MATCHED")
        kind = "not_matched"
        if cursor.accept("BY") and cursor.expect_one("WHEN NOT MATCHED BY", "SOURCE", "TARGET") == "SOURCE":
            kind = "not_matched_by_source"
    where = f"{KIND_AS_SQL[kind]} clause ({position})"
    condition: Expression | None = None
    if cursor.accept("AND"):
        condition_start = cursor.index
        condition = cursor.expression(where, "a condition after AND", "THEN")
        if cursor.peek() != "THEN":
            _missing_then(cursor, where, condition_start)
        cursor.index += 1
    elif not cursor.accept("THEN"):
        by_may_follow = kind == "not_matched" and cursor.peek(-1) != "TARGET"
        cursor.fail(where, ["BY", "AND", "THEN"] if by_may_follow else ["AND", "THEN"])
    action = _read_insert(cursor, where) if kind == "not_matched" else _read_change(cursor, where, kind)
    return MergeClause(kind, condition, action, cursor.since(start))


def _missing_then(cursor: Cursor, where: str, start: int) -> NoReturn:
    """Fail where THEN was forgotten or misspelled."""
    depth = cursor.tokens[start].depth
    for index in range(start + 1, cursor.index):
        token = cursor.tokens[index]
        if token.depth != depth or token.kind is not Kind.WORD or not is_keyword_place(cursor.tokens, index, start):
            continue
        if like(token.upper, ["THEN"]) or token.upper in ("UPDATE", "DELETE", "INSERT", "DO"):
            cursor.fail(where, ["THEN"], at=index)
    cursor.fail(where, ["THEN"])


def _read_change(cursor: Cursor, where: str, kind: ClauseKind) -> Action:
    if cursor.accept("DELETE"):
        return Delete()
    if (nothing := _read_do_nothing(cursor, where)) is not None:
        return nothing
    if not cursor.accept("UPDATE"):
        hint = "Only WHEN NOT MATCHED clauses can insert." if cursor.peek() == "INSERT" else ""
        cursor.fail(where, ["UPDATE", "DELETE", "DO NOTHING"], hint)
    where = f"{where}, UPDATE"
    cursor.expect(where, "SET")
    if cursor.peek() == "*" and kind == "not_matched_by_source":
        hint = "There is no source row to take * from: name the columns and their values."
        cursor.fail(where, ["a column"], hint)
    if cursor.accept("*"):
        return Update(_read_star(cursor, f"{where} SET *"))
    return Update(read_assignments(cursor, where))


def read_assignments(cursor: Cursor, where: str, *stops: str) -> tuple[Assignment, ...]:
    """Read what follows SET, up to one of the words that may follow."""
    return cursor.listed(lambda: _read_assignment(cursor, where, stops))


def _read_do_nothing(cursor: Cursor, where: str) -> DoNothing | None:
    if not cursor.accept("DO"):
        return None
    cursor.expect(f"{where}, DO", "NOTHING")
    return DoNothing()


def _read_insert(cursor: Cursor, where: str) -> Action:
    if cursor.peek() in ("UPDATE", "DELETE"):
        cursor.fail(where, ["INSERT", "DO NOTHING"], "There is no target row to change; did you mean BY SOURCE?")
    if (nothing := _read_do_nothing(cursor, where)) is not None:
        return nothing
    if not cursor.accept("INSERT"):
        cursor.fail(where, ["INSERT", "DO NOTHING"])
    where = f"{where}, INSERT"
    if cursor.accept("*"):
        return Insert(_read_star(cursor, f"{where} *"))
    if cursor.peek() != "(":
        hint = "Name the columns: INSERT (a, b) VALUES (…)." if cursor.peek() in ("VALUES", "ROW") else ""
        cursor.fail(where, ["*", "(columns)"], hint)
    columns = cursor.names_in_brackets(where)
    cursor.expect(where, "VALUES")
    start = cursor.index
    values = cursor.in_brackets(f"{where} VALUES", lambda: _read_value(cursor, f"{where} VALUES"))
    if len(columns) != len(values):
        raise parse_error(
            cursor.sql,
            cursor.since(start),
            f"{where}: {len(columns)} columns are named, and {len(values)} values given",
            error_class="MERGE_INSERT_VALUE_COUNT_MISMATCH",
            hint="Write as many values as columns; DEFAULT is a value.",
        )
    return Insert(tuple(map(Assignment, columns, values)))


def _read_star(cursor: Cursor, where: str) -> Star:
    if not cursor.accept("EXCEPT"):
        if cursor.peek() == "EXCLUDE" or like(cursor.peek(), ["EXCEPT"]):
            cursor.fail(where, ["EXCEPT", "WHEN"], "Did you mean EXCEPT?")
        return Star()
    return Star(cursor.names_in_brackets(f"{where} EXCEPT"))


def _read_assignment(cursor: Cursor, where: str, stops: tuple[str, ...]) -> Assignment:
    column = cursor.name(f"{where} SET", "a column")
    if not (cursor.accept("=") or cursor.accept("==")):
        hint = "Only columns and fields of structs can be set." if cursor.peek() == "[" else ""
        cursor.fail(f"{where} SET", ["= after the column's name"], hint)
    start = cursor.index
    value = _read_value(cursor, f"{where} SET", *stops)
    _check_comma(cursor, f"{where} SET", start)
    return Assignment(column, value)


def _read_value(cursor: Cursor, where: str, *stops: str) -> Expression | Default:
    value = cursor.expression(where, "a value", ",", *stops)
    return Default() if value.text.upper() == "DEFAULT" else value


def _check_comma(cursor: Cursor, where: str, start: int) -> None:
    """Fail at ``a = 1 b = 2``, where a comma was forgotten."""
    tokens = cursor.tokens
    depth = tokens[start].depth
    for index in range(start + 1, cursor.index - 1):
        token = tokens[index]
        if (
            token.depth == depth
            and token.is_identifier
            and tokens[index + 1].text == "="
            and tokens[index - 1].text != "."
            and (tokens[index - 1].is_identifier or tokens[index - 1].kind in (Kind.NUMBER, Kind.STRING))
            and (token.kind is Kind.QUOTED or is_keyword_place(tokens, index, start))
            and token.upper not in _NOT_ASSIGNED
        ):
            cursor.fail(where, [", between assignments"], at=index)
