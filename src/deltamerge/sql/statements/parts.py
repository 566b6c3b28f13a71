"""What several statements have: tables, time travel, properties, conditions, the end."""

from __future__ import annotations

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.caret import Span
from deltamerge.sql.cursor import Cursor
from deltamerge.sql.literals import string_value
from deltamerge.sql.merge_ast import Expression, NameParts
from deltamerge.sql.names import parse_table_name, quote
from deltamerge.sql.operands import constant_string, is_constant, skip_value
from deltamerge.sql.statements.ast import TableName, TimeTravel
from deltamerge.sql.tokens import Kind, parse_error


def read_table(cursor: Cursor, where: str) -> TableName:
    """Read a table's name, ``delta.`path` ``, ``'path'`` or ``IDENTIFIER('name')``."""
    start = cursor.index
    token = cursor.token
    if token is not None and token.kind is Kind.STRING:
        path = read_string(cursor, where, "a path")
        return TableName((path,), path)
    parts = read_name(cursor, where, "a table's name or delta.`path`")
    last = cursor.tokens[cursor.index - 1]
    if last.text == ")":
        return TableName.of(parts)
    is_delta = len(parts) == 2 and parts[0].lower() == "delta" and cursor.tokens[start].kind is Kind.WORD
    if is_delta and last.kind is Kind.QUOTED:
        return TableName(parts, parts[1])
    if len(parts) == 1 and last.kind is Kind.QUOTED and "/" in parts[0]:
        return TableName(parts, parts[0])
    return TableName(parts)


def read_name(cursor: Cursor, where: str, what: str) -> NameParts:
    """Read a name, also as ``IDENTIFIER('db' || '.tbl')``."""
    if cursor.peek() != "IDENTIFIER" or cursor.peek(1) != "(":
        return cursor.name(where, what)
    start = cursor.index + 2
    cursor.index += 1
    cursor.skip_brackets()
    name = constant_string(cursor.tokens[start : cursor.index - 1])
    if name is None:
        cursor.index = start
        cursor.fail(where, ["a name in quotes, or several strings with || between"])
    return parse_table_name(name)


def not_allowed(cursor: Cursor, problem: str, hint: str = "", at: Span | None = None) -> DeltaParseException:
    """Return the error for what others' Delta tables have and these have not, by default at the next token."""
    place = cursor.span() if at is None else at
    return parse_error(cursor.sql, place, problem, error_class="DELTA_OPERATION_NOT_ALLOWED", hint=hint)


def read_string(cursor: Cursor, where: str, what: str) -> str:
    token = cursor.token
    if token is None or token.kind is not Kind.STRING:
        cursor.fail(where, [f"{what} in quotes"])
    cursor.index += 1
    return string_value(token.text)


def read_integer(cursor: Cursor, where: str, what: str) -> int:
    """Read a whole number, perhaps negative."""
    sign = -1 if cursor.accept("-") else 1
    token = cursor.token
    digits = "" if token is None else token.text.rstrip("lL")
    if token is None or token.kind is not Kind.NUMBER or not digits.isdigit():
        cursor.fail(where, [what])
    cursor.index += 1
    return sign * int(digits)


def read_alias(cursor: Cursor, *following: str) -> str | None:
    """Read ``[AS] alias``, unless one of the words that may follow comes."""
    explicit = cursor.accept("AS")
    token = cursor.token
    if token is None or not token.is_identifier or (not explicit and token.upper in following):
        return None
    cursor.index += 1
    return token.name


def read_where(cursor: Cursor, where: str, *stops: str) -> Expression | None:
    if not cursor.accept("WHERE"):
        return None
    return cursor.expression(f"{where} WHERE", "a condition", *stops)


def read_time_travel(cursor: Cursor, where: str) -> TimeTravel | None:
    """Read ``[FOR] VERSION AS OF n`` or ``[FOR] TIMESTAMP AS OF value``, if it comes."""
    ahead = 1 if cursor.peek() == "FOR" else 0
    word = cursor.peek(ahead)
    if word not in ("VERSION", "SYSTEM_VERSION", "TIMESTAMP", "SYSTEM_TIME") or cursor.peek(ahead + 1) != "AS":
        return None
    cursor.index += ahead + 1
    cursor.expect(where, "AS", "OF")
    token = cursor.token
    if "VERSION" in word:
        if token is not None and token.kind is Kind.STRING and string_value(token.text).isdigit():
            cursor.index += 1
            return TimeTravel(version=int(string_value(token.text)))
        return TimeTravel(version=read_integer(cursor, where, "a version"))
    start = cursor.index
    cursor.index = skip_value(cursor.tokens, start)
    if cursor.index == start:
        cursor.fail(where, ["a timestamp"])
    return TimeTravel(timestamp=cursor.sql_since(start))


def read_properties(cursor: Cursor, where: str) -> dict[str, str]:
    """Read ``('key' = 'value', a.b = true, …)``, each key once."""
    start, found = cursor.index, dict[str, str]()

    def read() -> None:
        key, value = _read_property(cursor, where)
        if key in found:
            raise parse_error(
                cursor.sql,
                cursor.since(start + 1),
                f"{where}: found duplicate keys `{key}`",
                error_class="DUPLICATE_KEY",
                hint="Give each key once.",
            )
        found[key] = value

    cursor.in_brackets(where, read)
    return found


def read_options(cursor: Cursor, where: str) -> dict[str, str]:
    """Read options as `read_properties` does; of a key that is there twice, the last one."""
    return dict(cursor.in_brackets(where, lambda: _read_property(cursor, where)))


def read_keys(cursor: Cursor, where: str) -> tuple[str, ...]:
    """Read ``('key', a.b, …)``."""
    return cursor.in_brackets(where, lambda: read_key(cursor, where))


def read_key(cursor: Cursor, where: str) -> str:
    """Read a property's key, a string or a name."""
    token = cursor.token
    if token is not None and token.kind is Kind.STRING:
        return read_string(cursor, where, "a key")
    return ".".join(cursor.name(where, "a property's key"))


def _read_property(cursor: Cursor, where: str) -> tuple[str, str]:
    key = read_key(cursor, where)
    if not cursor.accept("="):
        cursor.accept("==")
    return key, _read_property_value(cursor, where)


def _read_property_value(cursor: Cursor, where: str) -> str:
    token = cursor.token
    if token is not None and token.kind is Kind.STRING:
        return read_string(cursor, where, "a value")
    sign = "-" if cursor.accept("-") else ""
    token = cursor.token
    if token is None or not (token.kind is Kind.NUMBER or token.upper in ("TRUE", "FALSE")):
        cursor.fail(where, ["a property's value: a string, a number, true or false"])
    cursor.index += 1
    return sign + token.text.lower()


def read_rest(cursor: Cursor, where: str) -> str:
    """Read all that is left as a query, without semicolons at its end."""
    start = cursor.index
    end = len(cursor.tokens)
    while end > start and cursor.tokens[end - 1].text == ";":
        end -= 1
    if end == start:
        cursor.fail(where, ["a query"])
    cursor.index = end
    return cursor.sql_since(start)


def read_end(cursor: Cursor, where: str) -> None:
    while cursor.accept(";"):
        pass
    if cursor.token is not None:
        cursor.fail(where, ["the end of the statement"])


def read_partition(cursor: Cursor, where: str) -> tuple[tuple[str, str | None], ...]:
    where = f"{where} PARTITION"

    def column() -> tuple[str, str | None]:
        name = ".".join(cursor.name(where, "a partition column"))
        return name, _read_constant(cursor, where, name) if cursor.accept("=") else None

    cursor.expect(where, "PARTITION")
    return cursor.in_brackets(where, column)


def _read_constant(cursor: Cursor, where: str, column: str) -> str:
    """Read a partition's value, which Spark does not compute either: 2020-01-01 without quotes would be 2018."""
    start, what = cursor.index, "a constant"
    value = cursor.expression(where, what, ",")
    if is_constant(cursor.tokens[start : cursor.index]):
        return value.text
    if cursor.tokens[start].upper == "DEFAULT":
        raise parse_error(
            cursor.sql,
            cursor.since(start),
            f"{where}: the value of {quote(column)} is DEFAULT, and a partition is named by a constant",
            error_class="REF_DEFAULT_VALUE_IS_NOT_ALLOWED_IN_PARTITION",
        )
    hint = "" if "'" in value.text else f"Other values go between quotes: {column} = '{value.text}'."
    return cursor.fail(where, [f"{what} as the value of {quote(column)}"], hint, start)
