from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamerge.sql.condition_reader import read_condition
from deltamerge.sql.expression import Literal, Name, Node, Opaque, Operation, conjuncts_of, leaves


def show(node: Node) -> str:
    """Draws a tree in one line."""
    if isinstance(node, Name):
        return ".".join(node.parts)
    if isinstance(node, Literal):
        return repr(node.value)
    if isinstance(node, Opaque):
        return "?" + ("" if node.complete else "!")
    return f"{node.op}({', '.join(map(show, node.operands))})"


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1 OR b = 2 AND NOT c = 3", "or(=(a, 1), and(=(b, 2), not(=(c, 3))))"),
        ("NOT a AND b", "and(not(a), b)"),
        ("! a = b", "not(=(a, b))"),
        ("!(a = b)", "not(=(a, b))"),
        ("NOT NOT a", "not(not(a))"),
        ("(a OR b) AND (c)", "and(or(a, b), c)"),
        ("((a = (1)))", "=(a, 1)"),
        ("a BETWEEN 1 AND 2 AND b", "and(between(a, 1, 2), b)"),
        ("a NOT BETWEEN 1 AND 2 OR b BETWEEN c AND d", "or(not(between(a, 1, 2)), between(b, c, d))"),
        ("a BETWEEN 1 AND 2 AND b BETWEEN 3 AND 4 AND c", "and(between(a, 1, 2), between(b, 3, 4), c)"),
        ("a IN (1, -2, 'x')", "in(a, 1, -2, 'x')"),
        ("a NOT IN (1)", "not(in(a, 1))"),
        ("a IN (b, c + 1)", "in(a, b, +(c, 1))"),
        ("a IS NULL AND b IS NOT NULL", "and(isnull(a), isnotnull(b))"),
        ("a IS TRUE OR b IS NOT FALSE", "or(<=>(a, True), not(<=>(b, False)))"),
        ("a IS DISTINCT FROM 1 AND b IS NOT DISTINCT FROM c", "and(not(<=>(a, 1)), <=>(b, c))"),
        ("a LIKE 'x%'", "like(a, 'x%')"),
        ("a NOT LIKE 'x%'", "not(like(a, 'x%'))"),
        ("a LIKE 'x%' ESCAPE '!'", "?"),
        ("a LIKE ANY ('x', 'y')", "?"),
        ("a RLIKE 'x'", "?"),
        ("a <=> b", "<=>(a, b)"),
        ("a == b", "=(a, b)"),
        ("a != b AND c <> d AND e !< f AND g !> h", "and(<>(a, b), <>(c, d), >=(e, f), <=(g, h))"),
        ("a = b = c", "?"),
        ("a = b IS NULL", "?"),
        ("a < b + 1", "<(a, +(b, 1))"),
        ("f(a) = g(b, c)", "=(?, ?)"),
        ("(a, b) = (c, d)", "=(?, ?)"),
        ("CASE WHEN a AND b OR c = 1 THEN d END = 2", "=(case(or(and(a, b), =(c, 1)), d), 2)"),
        ("startswith(a, 'x')", "startswith(a, 'x')"),
        ("isnull(a) OR isnotnull(b.c)", "or(isnull(a), isnotnull(b.c))"),
        ("isnull(a = 1)", "isnull(=(a, 1))"),
        ("t.`a.b`.c = `x``y`", "=(t.a.b.c, x`y)"),
        ("a.and = b.or", "=(a.and, b.or)"),
        ("t.between = 1 AND t.in = 2", "and(=(t.between, 1), =(t.in, 2))"),
        ("a = DATE'2020-01-01' AND b = - 1", "and(=(a, datetime.date(2020, 1, 1)), =(b, -1))"),
        ("a = -(-1)", "=(a, ?)"),
        ("a IN (SELECT b FROM c)", "?!"),
        ("EXISTS (SELECT 1)", "?!"),
        ("a = (SELECT 1)", "=(a, ?!)"),
        ("count(*) = 1", "=(?!, 1)"),
        ("struct(s.*) = t.x", "=(?!, t.x)"),
        ("a * b = c", "=(*(a, b), c)"),
        ("a + b * c - 1 > 2", ">(-(+(a, *(b, c)), 1), 2)"),
        ("(a + b) * -c", "*(+(a, b), ?)"),
        ("a - -1 = b % 3", "=(-(a, -1), %(b, 3))"),
        ("a / b * c = a DIV b - c", "=(*(?, c), -(?, c))"),
        ("a & b + c = 1", "=(?, 1)"),
        ("a || '-' || b = c", "=(concat(concat(a, '-'), b), c)"),
        ("d + INTERVAL '1' DAY > e", ">(+(d, ?), e)"),
        ("a[1] + 2 = x:y + 1", "=(?, ?)"),
        ("CASE WHEN a > b AND c THEN a + 1 WHEN x THEN 3 ELSE -1 END", "case(and(>(a, b), c), +(a, 1), x, 3, -1)"),
        ("CASE a WHEN 1 THEN 2 END", "?"),
        ("case + CASE WHEN CASE WHEN a THEN b END THEN 1 END", "+(case, case(case(a, b), 1))"),
        ("if(a > b, a, coalesce(b, 0))", "case(>(a, b), a, coalesce(b, 0))"),
        ("CAST(a AS DATE) = to_date(b)", "=(date(a), date(b))"),
        ("CAST(a AS INT) = 1", "=(?, 1)"),
        ("a = 'x' 'y'", "=(a, ?)"),
        ("a = :p AND b = ?", "and(=(a, ?), =(b, ?))"),
        ("a AND", "?"),
        ("a OR OR b", "or(a, ?)"),
        ("= a", "?"),
        ("a IS", "?"),
        ("", "?!"),
        ("a = 'x", "?!"),
        ("and(=(t.id, s.id), >(t.d, 1))", "and(=(t.id, s.id), >(t.d, 1))"),
        ("and(t.id = s.id OR t.x, !(=(t.b, 'x')))", "and(or(=(t.id, s.id), t.x), not(=(t.b, 'x')))"),
        ("not(<=>(a, NULL))", "not(<=>(a, None))"),
        ("in(t.a, 1, 2)", "in(t.a, 1, 2)"),
        ("or(isNull(t.a), isNotNull(t.b))", "or(isnull(t.a), isnotnull(t.b))"),
        ("=(a, b, c)", "?"),
        ("=(t.a, +(s.a, 1))", "=(t.a, +(s.a, 1))"),
    ],
)
def test_trees(text: str, tree: str) -> None:
    node = read_condition(text)
    assert show(node) == tree
    for part in walk(node):
        assert part.span is not None
        assert part.span.of(text) == part.text


def right_operand(text: str) -> Node:
    node = read_condition(text)
    assert isinstance(node, Operation)
    return node.operands[1]


def walk(node: Node) -> Iterator[Node]:
    yield node
    if isinstance(node, Operation):
        for operand in node.operands:
            yield from walk(operand)


def test_deep_conditions_are_no_error() -> None:
    many = [f"a{i} = {i}" for i in range(5000)]
    assert len(conjuncts_of(read_condition(" AND ".join(many)))) == 5000
    deep = "=(a, 1)"
    for _ in range(60):
        deep = f"and({deep}, =(b, 2))"
    assert len(conjuncts_of(read_condition(deep))) == 61
    deeper = "(" * 2000 + "a" + ")" * 2000
    assert show(read_condition(deeper)) == "?!"


@pytest.mark.parametrize(
    ("text", "value", "type_name"),
    [
        ("1", 1, "int"),
        ("2147483648", 2147483648, "bigint"),
        ("-2147483648", -2147483648, "int"),
        ("1.5", "1.5", "decimal(2,1)"),
        ("-0.50", "-0.50", "decimal(2,2)"),
        ("1.5D", 1.5, "double"),
        ("1.5f", 1.5, "float"),
        ("0.1F", 0.10000000149011612, "float"),
        ("1e3", 1000.0, "double"),
        ("1.5BD", "1.5", "decimal(2,1)"),
        ("10L", 10, "bigint"),
        ("10S", 10, "smallint"),
        ("-128Y", -128, "tinyint"),
        ("99999999999999999999", "99999999999999999999", "decimal(20,0)"),
        ("'abc'", "abc", "string"),
        ('"abc"', "abc", "string"),
        (r"r'a\b'", "a\\b", "string"),
        ("X'0aFF'", b"\n\xff", "binary"),
        ("true", True, "boolean"),
        ("NULL", None, "void"),
    ],
)
def test_literals(text: str, value: Any, type_name: str) -> None:
    node = right_operand(f"x = {text}")
    assert isinstance(node, Literal)
    if type_name.startswith("decimal"):
        assert (str(node.value), node.type_name) == (value, type_name)
    else:
        assert (node.value, type(node.value), node.type_name) == (value, type(value), type_name)


@pytest.mark.parametrize(
    "text",
    [
        "'it''s'",
        r"'a\nb'",
        "128Y",
        "1e999",
        "X'0'",
        "DATE'2020-13-01'",
        "DATE'2020-1-1'",
        "DATE'12020-01-01'",
        "TIMESTAMP'2020-01-01 00:00:00 Europe/Berlin'",
        "TIMESTAMP'2020-01-01 00:00:00.1234567'",
        "INTERVAL '1' DAY",
        "1e3BD",
        "9" * 39,
        "1.5L",
    ],
)
def test_literals_that_are_left_alone(text: str) -> None:
    assert isinstance(right_operand(f"x = {text}"), Opaque)


@pytest.mark.parametrize(
    ("text", "expected", "type_name"),
    [
        ("DATE'2020-01-31'", "2020-01-31", "date"),
        ("date '0001-01-01'", "0001-01-01", "date"),
        ("TIMESTAMP'2020-01-01 10:00:00'", "2020-01-01T10:00:00", "timestamp"),
        ("TIMESTAMP'2020-01-01'", "2020-01-01T00:00:00", "timestamp"),
        ("TIMESTAMP'2020-01-01T10:00:00.5'", "2020-01-01T10:00:00.500000", "timestamp"),
        ("TIMESTAMP'2020-01-01 10:00:00Z'", "2020-01-01T10:00:00+00:00", "timestamp"),
        ("TIMESTAMP'2020-01-01 10:00:00-05:30'", "2020-01-01T10:00:00-05:30", "timestamp"),
        ("TIMESTAMP_NTZ'2020-01-01 10:00:00'", "2020-01-01T10:00:00", "timestamp_ntz"),
    ],
)
def test_dates_and_timestamps(text: str, expected: str, type_name: str) -> None:
    node = right_operand(f"x < {text}")
    assert isinstance(node, Literal)
    assert isinstance(node.value, date)
    assert (node.value.isoformat(), node.type_name) == (expected, type_name)


@pytest.mark.parametrize(
    ("text", "names", "words"),
    [
        ("f(s.a, b) + CAST(c AS INT)", ["s.a", "b", "c"], ["AS", "INT"]),
        ("transform(s.a, x -> x + y)", ["s.a", "y"], ["x", "x"]),
        ("aggregate(a, 0, (acc, x) -> acc + x)", ["a"], ["acc", "x", "acc", "x"]),
        ("EXTRACT(YEAR FROM t.d)", ["t.d"], ["YEAR", "FROM"]),
        ("t.d + INTERVAL 1 DAY", ["t.d"], ["INTERVAL", "DAY"]),
        ("a[0].b.c + f(x).y", ["a", "x"], []),
        ("v:a.b || w::int", ["v", "w"], []),
        ("DATE'2020-01-01' + x", ["x"], []),
        ("cat.fn(x)", ["x"], ["cat.fn"]),
        ("`fn`(x) + `INT`", ["x", "INT"], []),
        ("s.v COLLATE UTF8_LCASE || 'x'", ["s.v"], ["COLLATE", "UTF8_LCASE"]),
        ("f(a => b)", ["b"], ["a"]),
    ],
)
def test_names_in_opaque_parts(text: str, names: list[str], words: list[str]) -> None:
    parts = [part for part in leaves(read_condition(text)) if not isinstance(part, Literal)]
    opaque = [part for part in parts if isinstance(part, Opaque)]
    assert all(part.complete for part in opaque)
    named = [part.names if isinstance(part, Opaque) else (part,) for part in parts]
    assert [".".join(name.parts) for each in named for name in each] == names
    assert [".".join(name.parts) for part in opaque for name in part.words] == words


def test_double_quotes_may_be_names() -> None:
    node = read_condition('x = "abc"', double_quoted_identifiers=True)
    assert show(node) == "=(x, ?!)"


PIECES = """a t.b 1 'x' = < <=> AND OR NOT ( ) IN BETWEEN IS NULL LIKE , + - f( CASE WHEN THEN END -> :: . * !
    DATE'2020-01-01'"""
PARTS = st.sampled_from(PIECES.split())


@given(st.lists(PARTS, max_size=15).map(" ".join))
def test_any_text_is_read(text: str) -> None:
    node = read_condition(text)
    for part in walk(node):
        assert part.span is not None
        assert part.span.of(text) == part.text
    assert conjuncts_of(node)
