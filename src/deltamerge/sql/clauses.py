"""Reads the WHEN clauses of a MERGE statement."""

from __future__ import annotations

from collections.abc import Callable

from deltamerge.sql.cursor import Cursor, like
from deltamerge.sql.operands import INTERVAL_UNITS
from deltamerge.sql.parsed import (
    Action,
    Assignment,
    ClauseKind,
    Delete,
    DoNothing,
    Fragment,
    Insert,
    InsertStar,
    ParsedClause,
    Update,
    UpdateStar,
    Value,
    WrittenName,
)
from deltamerge.sql.tokens import Kind, is_keyword_place, parse_error

_ERROR_NAMES: dict[ClauseKind, str] = {
    "MATCHED": "MATCHED",
    "NOT MATCHED": "NOT_MATCHED_BY_TARGET",
    "NOT MATCHED BY SOURCE": "NOT_MATCHED_BY_SOURCE",
}


def read_clauses(cursor: Cursor) -> tuple[ParsedClause, ...]:
    """Reads all clauses up to the statement's end.

    Args:
        cursor: Stands after the ON condition.

    Returns:
        The clauses in the order of the text.

    Raises:
        DeltaParseException: See `deltamerge.sql.merge_parser.parse_merge`.
    """
    clauses: list[ParsedClause] = []
    while cursor.peek() not in ("", ";"):
        clauses.append(_read_clause(cursor, len(clauses) + 1))
    while cursor.accept(";"):
        pass
    if cursor.token is not None:
        cursor.fail("MERGE statement", ["the end of the statement"], "Give one statement at a time.")
    _check_clauses(cursor, clauses)
    return tuple(clauses)


def _check_clauses(cursor: Cursor, clauses: list[ParsedClause]) -> None:
    if not clauses:
        raise parse_error(
            cursor.text,
            cursor.span(len(cursor.tokens)),
            "there must be at least one WHEN clause in a MERGE statement",
            error_class="MERGE_WITHOUT_WHEN",
            hint="Add one after the ON condition, such as WHEN MATCHED THEN UPDATE SET *.",
        )
    for kind, name in _ERROR_NAMES.items():
        same = [clause for clause in clauses if clause.kind == kind]
        for clause in same[:-1]:
            if clause.condition is None:
                raise parse_error(
                    cursor.text,
                    clause.span,
                    f"only the last of the {len(same)} WHEN {kind} clauses can omit its condition; clause "
                    f"{clause.position} of the statement is not the last",
                    error_class=f"NON_LAST_{name}_CLAUSE_OMIT_CONDITION",
                    sqlstate="42613",
                    hint="Give it a condition with AND, or move it behind the others.",
                )


def _read_clause(cursor: Cursor, position: int) -> ParsedClause:
    start = cursor.index
    cursor.expect("WHEN clause" if position > 1 else "ON", "WHEN")
    kind: ClauseKind = "MATCHED"
    if cursor.expect_one("WHEN clause", "MATCHED", "NOT") == "NOT":
        cursor.expect("WHEN NOT", "MATCHED")
        kind = "NOT MATCHED"
        if cursor.accept("BY") and cursor.expect_one("WHEN NOT MATCHED BY", "SOURCE", "TARGET") == "SOURCE":
            kind = "NOT MATCHED BY SOURCE"
    where = f"WHEN {kind} clause ({position})"
    condition: Fragment | None = None
    if cursor.accept("AND"):
        condition_start = cursor.index
        condition = cursor.expression(where, "a condition after AND", "THEN")
        if cursor.peek() != "THEN":
            _missing_then(cursor, where, condition_start)
        cursor.index += 1
    else:
        expected = (
            ("AND", "THEN") if kind != "NOT MATCHED" or cursor.peek(-1) == "TARGET" else ("BY", "AND", "THEN")
        )
        if not cursor.accept("THEN"):
            cursor.fail(where, expected)
    action = _READERS[kind](cursor, where)
    return ParsedClause(kind, condition, action, cursor.since(start), position)


def _missing_then(cursor: Cursor, where: str, start: int) -> None:
    """Says where THEN was forgotten or misspelled."""
    depth = cursor.tokens[start].depth
    for index in range(start + 1, cursor.index):
        token = cursor.tokens[index]
        if (
            token.depth != depth
            or token.kind is not Kind.WORD
            or not is_keyword_place(cursor.tokens, index, start)
        ):
            continue
        if like(token.upper, ["THEN"]) or token.upper in ("UPDATE", "DELETE", "INSERT", "DO"):
            cursor.fail(where, ["THEN"], at=index)
    cursor.fail(where, ["THEN"])


def _read_matched(cursor: Cursor, where: str) -> Action:
    if cursor.peek() == "INSERT":
        cursor.fail(where, ["UPDATE", "DELETE", "DO NOTHING"], "Only WHEN NOT MATCHED clauses can insert.")
    return _read_change(cursor, where, star=_read_update_star)


def _read_by_source(cursor: Cursor, where: str) -> Action:
    if cursor.peek() == "INSERT":
        cursor.fail(where, ["UPDATE", "DELETE", "DO NOTHING"], "Only WHEN NOT MATCHED clauses can insert.")
    return _read_change(cursor, where, star=_no_update_star)


def _read_change(cursor: Cursor, where: str, star: Callable[[Cursor, str], Action]) -> Action:
    if cursor.accept("DELETE"):
        return Delete()
    if cursor.accept("DO"):
        cursor.expect(f"{where}, DO", "NOTHING")
        return DoNothing()
    if not cursor.accept("UPDATE"):
        cursor.fail(where, ["UPDATE", "DELETE", "DO NOTHING"])
    where = f"{where}, UPDATE"
    cursor.expect(where, "SET")
    if cursor.peek() == "*":
        return star(cursor, where)
    assignments = [_read_assignment(cursor, where)]
    while cursor.accept(","):
        assignments.append(_read_assignment(cursor, where))
    return Update(tuple(assignments))


def _read_update_star(cursor: Cursor, where: str) -> Action:
    cursor.index += 1
    return UpdateStar(_read_except(cursor, f"{where} SET *"))


def _no_update_star(cursor: Cursor, where: str) -> Action:
    cursor.fail(
        where, ["a column"], "There is no source row to take * from: name the columns and their values."
    )


def _read_insert(cursor: Cursor, where: str) -> Action:
    if cursor.peek() in ("UPDATE", "DELETE"):
        cursor.fail(
            where, ["INSERT", "DO NOTHING"], "There is no target row to change; did you mean BY SOURCE?"
        )
    if cursor.accept("DO"):
        cursor.expect(f"{where}, DO", "NOTHING")
        return DoNothing()
    if not cursor.accept("INSERT"):
        cursor.fail(where, ["INSERT", "DO NOTHING"])
    where = f"{where}, INSERT"
    if cursor.accept("*"):
        return InsertStar(_read_except(cursor, f"{where} *"))
    if cursor.peek() != "(":
        hint = "Name the columns: INSERT (a, b) VALUES (…)." if cursor.peek() in ("VALUES", "ROW") else ""
        cursor.fail(where, ["*", "(columns)"], hint)
    columns = cursor.names_in_brackets(where)
    cursor.expect(where, "VALUES")
    start = cursor.index
    cursor.expect(f"{where} VALUES", "(")
    values = [_read_value(cursor, f"{where} VALUES")]
    while cursor.accept(","):
        values.append(_read_value(cursor, f"{where} VALUES"))
    if cursor.peek() != ")":
        cursor.fail(f"{where} VALUES", [",", ")"])
    cursor.index += 1
    if len(columns) != len(values):
        raise parse_error(
            cursor.text,
            cursor.since(start),
            f"{where}: {len(columns)} columns are named, and {len(values)} values given",
            error_class="MERGE_INSERT_VALUE_COUNT_MISMATCH",
            sqlstate="21S01",
            hint="Give as many values as columns; DEFAULT is a value.",
        )
    return Insert(columns, tuple(values))


def _read_except(cursor: Cursor, where: str) -> tuple[WrittenName, ...]:
    if not cursor.accept("EXCEPT"):
        if cursor.peek() == "EXCLUDE" or like(cursor.peek(), ["EXCEPT"]):
            cursor.fail(where, ["EXCEPT", "WHEN"], "Did you mean EXCEPT?")
        return ()
    return cursor.names_in_brackets(f"{where} EXCEPT")


def _read_assignment(cursor: Cursor, where: str) -> Assignment:
    column = cursor.name(f"{where} SET", "a column")
    if not (cursor.accept("=") or cursor.accept("==")):
        hint = "Only columns and fields of structs can be set." if cursor.peek() == "[" else ""
        cursor.fail(f"{where} SET", ["= after the column's name"], hint)
    start = cursor.index
    value = _read_value(cursor, f"{where} SET")
    _check_comma(cursor, f"{where} SET", start)
    return Assignment(column, value)


def _read_value(cursor: Cursor, where: str) -> Value:
    fragment = cursor.expression(where, "a value", ",")
    return Value(fragment.text, fragment.span, fragment.text.upper() == "DEFAULT")


def _check_comma(cursor: Cursor, where: str, start: int) -> None:
    """Finds ``a = 1 b = 2``, where a comma was forgotten."""
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
            and token.upper not in INTERVAL_UNITS
            and token.upper not in ("NULL", "TRUE", "FALSE", "UNKNOWN", "END")
        ):
            cursor.fail(where, [", between assignments"], at=index)


_READERS: dict[ClauseKind, Callable[[Cursor, str], Action]] = {
    "MATCHED": _read_matched,
    "NOT MATCHED": _read_insert,
    "NOT MATCHED BY SOURCE": _read_by_source,
}
