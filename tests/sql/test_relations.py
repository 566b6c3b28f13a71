from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.qualifiers import alias_replacements
from deltamerge.sql.relations import (
    find_table_references,
    replace_references,
    travels_by_parameter,
)


def found(text: str, *names: str) -> list[tuple[str, str, int | None, str | None]]:
    references = find_table_references(text, names)
    assert [r.span.start for r in references] == sorted(r.span.start for r in references)
    return [(r.span.of(text), r.path_or_name, r.version, r.timestamp) for r in references]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM delta.`/a b/c`", [("delta.`/a b/c`", "/a b/c", None, None)]),
        ("SELECT * FROM DELTA . `/p``x` t", [("DELTA . `/p``x`", "/p`x", None, None)]),
        ("SELECT * FROM delta.`/p@v3` t", [("delta.`/p@v3`", "/p@v3", None, None)]),
        (
            "SELECT * FROM delta.`/p@20200102030405678`",
            [("delta.`/p@20200102030405678`", "/p@20200102030405678", None, None)],
        ),
        ("SELECT * FROM delta.`/p@home` t", [("delta.`/p@home`", "/p@home", None, None)]),
        ("SELECT * FROM delta.`/p` VERSION AS OF 7 AS t", [("delta.`/p` VERSION AS OF 7", "/p", 7, None)]),
        (
            "SELECT * FROM delta.`/p` FOR SYSTEM_VERSION AS OF '7' t",
            [("delta.`/p` FOR SYSTEM_VERSION AS OF '7'", "/p", 7, None)],
        ),
        (
            "SELECT * FROM delta.`/p` TIMESTAMP AS OF current_timestamp() - INTERVAL 1 DAY t JOIN delta.`/q` ON a",
            [
                (
                    "delta.`/p` TIMESTAMP AS OF current_timestamp() - INTERVAL 1 DAY",
                    "/p",
                    None,
                    "current_timestamp() - INTERVAL 1 DAY",
                ),
                ("delta.`/q`", "/q", None, None),
            ],
        ),
        (
            "SELECT * FROM delta.`/p` VERSION AS OF 7 WITH ('a' = 1, b.c = 'x') t",
            [("delta.`/p` VERSION AS OF 7 WITH ('a' = 1, b.c = 'x')", "/p", 7, None)],
        ),
        ("SELECT delta.`x` FROM parquet.`/p` delta", []),
        ("SELECT 'FROM delta.`/p`' -- FROM delta.`/q`\n FROM x", []),
        (
            "SELECT * FROM x WHERE delta.`a` = 1 AND b IN (SELECT b FROM delta.`/p`)",
            [("delta.`/p`", "/p", None, None)],
        ),
        ("delta.`/p`", []),
    ],
)
def test_delta_paths(text: str, expected: list[tuple[str, str, int | None, str | None]]) -> None:
    assert found(text) == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("SELECT * FROM orders", 1),
        ("SELECT * FROM Orders o, ORDERS p JOIN `orders` q ON o.id = q.id", 3),
        ("SELECT orders.id, orders FROM x", 0),
        ("SELECT * FROM db.orders", 0),
        ("SELECT * FROM orders.x", 0),
        ("SELECT * FROM (orders JOIN x ON true)", 1),
        ("SELECT * FROM ((SELECT * FROM orders) a JOIN orders b ON true)", 2),
        ("FROM orders SELECT *", 1),
        ("TABLE orders", 1),
        ("(TABLE orders) UNION TABLE orders", 2),
        ("SELECT EXTRACT(YEAR FROM orders) FROM x", 0),
        ("SELECT trim((a) FROM orders), a IS DISTINCT FROM orders FROM orders", 1),
        ("SELECT * FROM x LATERAL VIEW explode(a) y AS b, orders", 0),
        ("SELECT * FROM x WHERE a GROUP BY orders, b ORDER BY c, orders", 0),
        ("SELECT * FROM orders(1)", 0),
        ("SELECT * FROM x JOIN LATERAL (SELECT * FROM orders) y", 1),
        ("SELECT * FROM x JOIN y USING (orders), orders", 1),
        ("SELECT * FROM VALUES (1), (2) AS orders(a)", 0),
        ("SELECT (SELECT max(a) FROM orders), f(orders)", 1),
        ("SELECT * FROM x UNION ALL SELECT * FROM orders WHERE EXISTS (SELECT 1 FROM orders)", 2),
        ("SELECT * FROM a LEFT OUTER JOIN orders ON a.x = orders.x RIGHT JOIN orders o2 ON true", 2),
        ("SELECT sum(a) OVER (PARTITION BY b ORDER BY c, orders) FROM orders", 1),
        ("SELECT * FROM orders TABLESAMPLE (10 PERCENT) o", 1),
    ],
)
def test_tables_by_name(text: str, count: int) -> None:
    assert [name for _, name, _, _ in found(text, "orders")] == ["orders"] * count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("WITH orders AS (SELECT 1) SELECT * FROM orders", 0),
        ("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders", 1),
        (
            "WITH a AS (SELECT * FROM orders), orders(x) AS (SELECT 1), b AS (TABLE orders) SELECT * FROM orders",
            1,
        ),
        ("WITH orders (SELECT 1) SELECT * FROM orders", 0),
        ("WITH orders (x) (SELECT 1) SELECT * FROM orders", 0),
        ("WITH RECURSIVE orders AS (SELECT 1 UNION ALL SELECT * FROM orders) SELECT * FROM orders", 0),
        ("SELECT * FROM (WITH orders AS (SELECT 1) SELECT * FROM orders) x, orders", 1),
        ("WITH a AS (WITH orders AS (SELECT 1) SELECT * FROM orders) SELECT * FROM orders", 1),
        ("WITH orders AS (SELECT * FROM orders)", 1),
        ("INSERT INTO x WITH orders AS (SELECT 1) SELECT * FROM orders", 0),
        ("INSERT INTO x WITH orders (a) AS (SELECT * FROM orders) SELECT * FROM orders", 1),
        ("INSERT INTO x WITH orders (SELECT 1) SELECT * FROM orders", 0),
        ("CREATE TABLE x AS WITH orders AS (SELECT 1) SELECT * FROM orders", 0),
        ("EXPLAIN FORMATTED WITH RECURSIVE orders AS (TABLE orders) SELECT * FROM orders", 0),
        ("INSERT INTO x WITH RECURSIVE orders MAX RECURSION LEVEL 5 AS (SELECT 1) SELECT * FROM orders", 0),
        ("SELECT a.with, orders AS (b) FROM orders", 1),
        ("SELECT a AS with FROM orders", 1),
    ],
)
def test_ctes_hide_tables(text: str, count: int) -> None:
    assert len(found(text, "orders")) == count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM table_changes('db.t', 0, 5) c", ("table_changes('db.t', 0, 5)", "name", "db.t", ("0", "5"))),
        (
            "SELECT * FROM x JOIN TABLE_CHANGES_BY_PATH('/p', now() - INTERVAL 1 DAY)",
            ("TABLE_CHANGES_BY_PATH('/p', now() - INTERVAL 1 DAY)", "path", "/p", ("now() - INTERVAL 1 DAY",)),
        ),
        ("SELECT * FROM table_changes('t', f(1, 2))", ("table_changes('t', f(1, 2))", "name", "t", ("f(1, 2)",))),
    ],
)
def test_change_feeds(text: str, expected: tuple[str, str, str, tuple[str, ...]]) -> None:
    (one,) = find_table_references(text)
    assert (one.span.of(text), one.kind, one.path_or_name, one.boundaries) == expected
    assert one.alias_at is None


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("SELECT table_changes('t', 0) FROM orders", 1),
        ("SELECT * FROM table_changes, orders", 1),
        ("SELECT * FROM orders, table_changes('t', 0), table_changes('u', 0)", 3),
    ],
)
def test_only_calls_in_from_are_change_feeds(text: str, count: int) -> None:
    assert len(found(text, "orders")) == count


@pytest.mark.parametrize("arguments", ["", "'t'", "'t', 1, 2, 3", "t, 1", "1, 1", "'t', "])
def test_arguments_of_a_change_feed_that_are_refused(arguments: str) -> None:
    with pytest.raises(DeltaParseException, match="arguments of table_changes are"):
        found(f"SELECT * FROM table_changes({arguments})")


def test_names_of_several_parts() -> None:
    text = "SELECT * FROM db.orders o JOIN `db`.`or ders`"
    assert [r.path_or_name for r in find_table_references(text, ["db.orders", "db.`or ders`"])] == [
        "db.orders",
        "db.`or ders`",
    ]


@pytest.mark.parametrize(
    ("tail", "takes_alias"),
    [
        ("", True),
        (" o", False),
        (" AS o", False),
        (" `o`", False),
        (" WHERE a", True),
        (" JOIN x", True),
        (", x", True),
        (" VERSION AS OF 1", True),
        (" VERSION AS OF 1 o", False),
        (" TABLESAMPLE (5 ROWS) o", False),
        (" TABLESAMPLE (5 ROWS)", True),
        (" TABLESAMPLE (5 ROWS) REPEATABLE (1) o", False),
        (" WITH (a = 1)", True),
        (" ASOF JOIN x MATCH_CONDITION (a >= b)", True),
        (" asof WHERE a", False),
        (" MATCH_CONDITION (a >= b)", True),
        (" match_condition, x", False),
    ],
)
def test_aliases_are_noticed(tail: str, takes_alias: bool) -> None:
    (reference,) = find_table_references("SELECT * FROM orders" + tail, ["orders"])
    assert (reference.alias_at is not None) == takes_alias


def test_references_are_replaced_and_all_else_is_kept() -> None:
    text = "SELECT  *  FROM delta.`/p@v3` a /* c */ JOIN orders VERSION AS OF 3 b ON 'orders' = a.orders"
    first, second = find_table_references(text, ["orders"])
    assert replace_references(text, {second.span: "v2", first.span: "v1"}) == (
        "SELECT  *  FROM v1 a /* c */ JOIN v2 b ON 'orders' = a.orders"
    )


@pytest.mark.parametrize("value", [":v", "?", "-1", "1+1", "3L", "'x'", "1.5", "(1)", "v", ""])
def test_a_version_that_is_no_whole_number_is_refused(value: str) -> None:
    with pytest.raises(DeltaParseException, match="expected a version, a whole number"):
        found(f"SELECT * FROM delta.`/p` VERSION AS OF {value}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM t VERSION AS OF :v", True),
        ("SELECT * FROM t TIMESTAMP AS OF date_sub(?, 1) x", True),
        ("SELECT :v AS of, x FROM t VERSION AS OF 1 WHERE a > :v", False),
        ("SELECT ? AS of", False),
        ("SELECT * FROM table_changes(:t, 0)", True),
        ("SELECT * FROM x JOIN table_changes('t', ?)", True),
        ("SELECT * FROM range(:n)", False),
    ],
)
def test_parameters_of_time_travel_are_noticed(text: str, expected: bool) -> None:
    assert travels_by_parameter(text) == expected


PIECES = """SELECT FROM WITH AS ( ) , orders delta.`/p` x JOIN ON WHERE VERSION OF 1 TIMESTAMP 'a' . * TABLE UNION
    AND"""
WORDS = st.sampled_from(PIECES.split())


@given(st.lists(WORDS, max_size=20).map(" ".join))
def test_any_text_is_searched_without_surprise(text: str) -> None:
    try:
        references = find_table_references(text, ["orders"])
    except DeltaParseException:
        return
    for left, right in pairwise(references):
        assert left.span.end <= right.span.start
    assert replace_references(text, {r.span: r.span.of(text) for r in references}) == text
    alias_replacements(text, references, {"orders": ("orders",)})
