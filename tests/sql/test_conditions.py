from __future__ import annotations

import re
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamerge.skipping.predicates import (
    ALWAYS,
    NEVER,
    And,
    ColumnRef,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)
from deltamerge.sql.condition_reader import read_condition
from deltamerge.sql.conditions import ConditionShape, contains_subquery, shape_of_tree
from deltamerge.sql.resolution import Relation, Scope

TARGET = Relation(
    (("t",),),
    {
        "id": None,
        "Day": None,
        "x": {"a": None, "b": {"c": None}},
        "m": None,
        "a.b": None,
        "flag": None,
        "both": None,
    },
)
SOURCE = Relation((("s",),), {"id": None, "v": None, "r": {"k": None}, "both": None, "t": {"z": None}, "id2": None})
SCOPE = Scope(TARGET, SOURCE, case_sensitive=False)
ID = ColumnRef(("id",))


def shape_of(text: str, scope: Scope, double_quoted_identifiers: bool = False) -> ConditionShape:
    return shape_of_tree(read_condition(text, double_quoted_identifiers), scope)


def conjuncts(text: str, scope: Scope = SCOPE) -> list[tuple[str, str]]:
    return [(c.text, c.side) for c in shape_of(text, scope).conjuncts]


def keys(text: str, scope: Scope = SCOPE) -> list[tuple[str, str, tuple[str, ...] | None, bool]]:
    return [
        (".".join(k.target.path), k.source_sql, k.source_path, k.null_safe) for k in shape_of(text, scope).equi_keys
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "t.id = s.id AND t.Day > '2020' AND s.v > 1 AND rand() > 0 AND nope = 1",
            ["both", "target_only", "source_only", "neither", "unreadable"],
        ),
        ("day = v AND flag AND v", ["both", "target_only", "source_only"]),
        ("id = 1", ["unreadable"]),
        ("(t.id = s.id OR t.Day = s.v) AND (t.flag OR s.v)", ["both", "both"]),
        ("T.DAY = S.V", ["both"]),
        ("s.nope = 1 AND q.id = 1", ["unreadable", "unreadable"]),
        ("t.id IN (SELECT 1)", ["unreadable"]),
        ("struct(s.*) = t.x", ["unreadable"]),
        ("upper(t.Day) = concat(s.v, 'x')", ["both"]),
        ("t.Day = current_date AND t.Day > current_date() - INTERVAL 1 WEEK", ["target_only", "target_only"]),
        ("exists(t.m, v -> v > 1)", ["both"]),
        ("exists(t.m, y -> y > 1)", ["target_only"]),
        ("CAST(t.id AS DATE) > DATE'2020-01-01'", ["target_only"]),
        ("t.z = 1", ["source_only"]),
        ("t.id > 1", ["target_only"]),
        ("f(t)", ["source_only"]),
        ("f(s)", ["unreadable"]),
        ("t.id = 'x", ["unreadable"]),
        ("TRUE AND NULL", ["neither", "neither"]),
    ],
)
def test_sides(text: str, expected: list[str]) -> None:
    assert [side for _, side in conjuncts(text)] == expected


def test_conjuncts_are_verbatim_with_their_place() -> None:
    text = "(t.id = s.id)  AND /* c */ (t.Day BETWEEN 1 AND 2 OR flag) and (s.v > 1 AND v < 3)"
    shape = shape_of(text, SCOPE)
    assert [c.text for c in shape.conjuncts] == [
        "t.id = s.id",
        "t.Day BETWEEN 1 AND 2 OR flag",
        "s.v > 1",
        "v < 3",
    ]
    assert [c.source_columns for c in shape.conjuncts] == [{"id"}, set(), {"v"}, {"v"}]
    assert [c.target_columns for c in shape.conjuncts] == [{"id"}, {"Day", "flag"}, set(), set()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t.id = s.id", [("id", "s.id", ("id",), False)]),
        ("s.id <=> t.id", [("id", "s.id", ("id",), True)]),
        ("t.id = s.id AND s.v == DAY", [("id", "s.id", ("id",), False), ("Day", "s.v", ("v",), False)]),
        ("t.id = upper(s.v) || s.id2", [("id", "upper(s.v) || s.id2", None, False)]),
        ("(t.id) = (s.id + 1)", [("id", "s.id + 1", None, False)]),
        ("t.x.b.C = s.R.K", [("x.b.c", "s.R.K", ("r", "k"), False)]),
        ("t.`a.b` = s.`id`", [("a.b", "s.`id`", ("id",), False)]),
        ("t.id = CAST(s.id AS STRING)", [("id", "CAST(s.id AS STRING)", None, False)]),
        ("t.id = s.id OR t.Day = 1", []),
        ("NOT t.id = s.id", []),
        ("t.id = 1", []),
        ("s.id = s.v", []),
        ("t.id = t.Day", []),
        ("t.id = s.id + t.Day", []),
        ("upper(t.id) = s.id", []),
        ("t.m.k = s.id", []),
        ("id = s.v", []),
        ("day = both", []),
        ("t.id = s.nope", []),
        ("t.id = s.r.k.deep", [("id", "s.r.k.deep", None, False)]),
        ("t.id = (SELECT s.id)", []),
        ("t.id > s.id", []),
        ("t.id = s.id = true", []),
    ],
)
def test_equi_keys(text: str, expected: list[tuple[str, str, tuple[str, ...] | None, bool]]) -> None:
    assert keys(text) == expected


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("t.id = 1", Comparison("=", ID, 1, "int")),
        ("5 < t.id", Comparison(">", ID, 5, "int")),
        ("-1 >= t.id", Comparison("<=", ID, -1, "int")),
        ("t.id <> 'x'", Comparison("<>", ID, "x", "string")),
        ("t.id <=> NULL", IsNull(ID)),
        ("t.id = NULL", NEVER),
        ("t.X.B.c > 1.5", Comparison(">", ColumnRef(("x", "b", "c")), Decimal("1.5"), "decimal(2,1)")),
        ("t.day < DATE'2020-01-01'", Comparison("<", ColumnRef(("Day",)), date(2020, 1, 1), "date")),
        ("t.flag", Comparison("=", ColumnRef(("flag",)), True, "boolean")),
        ("NOT flag", Not(Comparison("=", ColumnRef(("flag",)), True, "boolean"))),
        ("t.id IS NULL", IsNull(ID)),
        ("t.id IS NOT NULL", IsNotNull(ID)),
        ("isnotnull(t.id)", IsNotNull(ID)),
        ("t.id IN (1, 2)", In(ID, (1, 2), "int")),
        ("t.id IN (1, 2L, NULL)", In(ID, (1, 2), "bigint")),
        (
            "t.id IN (1.5, 2.25, 10.0)",
            In(ID, (Decimal("1.5"), Decimal("2.25"), Decimal("10.0")), "decimal(4,2)"),
        ),
        ("t.id NOT IN ('a')", Not(In(ID, ("a",), "string"))),
        ("t.id IN (1, 'a')", Unknown()),
        ("t.id IN (1, s.id)", None),
        ("t.id IN (1, t.Day)", Unknown()),
        ("t.id BETWEEN 1 AND 2", And((Comparison(">=", ID, 1, "int"), Comparison("<=", ID, 2, "int")))),
        ("t.id NOT BETWEEN 1 AND t.Day", Not(And((Comparison(">=", ID, 1, "int"), Unknown())))),
        ("t.id LIKE 'ab%'", StartsWith(ID, "ab")),
        ("startswith(t.id, 'ab')", StartsWith(ID, "ab")),
        ("t.id LIKE 'a_b%'", Unknown()),
        ("t.id LIKE '%ab'", Unknown()),
        ("t.id LIKE 'ab'", Unknown()),
        (
            "t.id = 1 OR t.Day = 'x'",
            Or((Comparison("=", ID, 1, "int"), Comparison("=", ColumnRef(("Day",)), "x", "string"))),
        ),
        ("t.id = 1 OR f(t.Day)", Or((Comparison("=", ID, 1, "int"), Unknown()))),
        ("NOT f(t.Day)", Unknown()),
        ("t.id + 1 = 2", Unknown()),
        ("t.id = t.Day", Unknown()),
        ("t.m.k = 1", Unknown()),
        ("t.id IS TRUE", Comparison("<=>", ID, True, "boolean")),
        ("t.id IS NOT DISTINCT FROM 1", Comparison("<=>", ID, 1, "int")),
        ("t.id IS DISTINCT FROM 1", Not(Comparison("<=>", ID, 1, "int"))),
        ("(t.id = 1) IS TRUE", Unknown()),
        ("TRUE", ALWAYS),
        ("FALSE", NEVER),
        ("NULL", NEVER),
        ("1 = 0", Unknown()),
        ("t.id = s.id", None),
        ("s.v = 1", None),
        ("both = 1", None),
    ],
)
def test_target_predicates(text: str, predicate: Predicate | None) -> None:
    shape = shape_of(text, SCOPE)
    assert shape.target_predicate == And(() if predicate is None else (predicate,))
    assert shape.conjuncts[0].predicate == (Unknown() if predicate is None else predicate)


def test_only_the_targets_conjuncts_restrict_the_target() -> None:
    shape = shape_of("t.id = s.id AND t.Day = 'x' AND (t.id = 1 OR s.v = 2) AND nope AND t.flag", SCOPE)
    assert shape.target_predicate == And(
        (
            Comparison("=", ColumnRef(("Day",)), "x", "string"),
            Comparison("=", ColumnRef(("flag",)), True, "boolean"),
        )
    )


def test_case_matters_where_the_session_says_so() -> None:
    scope = Scope(Relation((("t",),), {"Id": None, "id": None}), Relation((("s",),), {"ID": None}), case_sensitive=True)
    assert keys("t.id = s.ID AND t.Id = ID", scope) == [
        ("id", "s.ID", ("ID",), False),
        ("Id", "ID", ("ID",), False),
    ]
    assert conjuncts("t.ID = 1 AND T.id = 1", scope) == [
        ("t.ID = 1", "unreadable"),
        ("T.id = 1", "unreadable"),
    ]
    insensitive = Scope(scope.target, scope.source, case_sensitive=False)
    assert keys("t.id = s.ID", insensitive) == []


def test_tables_without_alias_are_qualified_by_their_name() -> None:
    scope = Scope(
        Relation((("cat", "db", "tbl"),), {"id": None}),
        Relation((("delta", "/a b"),), {"id": None}),
        case_sensitive=False,
    )
    assert keys("tbl.id = delta.`/a b`.id AND cat.db.tbl.id <=> `/a b`.id", scope) == [
        ("id", "delta.`/a b`.id", ("id",), False),
        ("id", "`/a b`.id", ("id",), True),
    ]
    assert conjuncts("cat.tbl.id = 1", scope) == [("cat.tbl.id = 1", "unreadable")]


def test_one_alias_for_both_sides_is_ambiguous() -> None:
    scope = Scope(Relation((("x",),), {"id": None}), Relation((("x",),), {"id": None}), case_sensitive=False)
    assert keys("x.id = x.id", scope) == []
    assert conjuncts("x.id = 1", scope) == [("x.id = 1", "unreadable")]


def test_duplicate_columns_are_never_resolved() -> None:
    scope = Scope(
        Relation((("t",),), {"id": None}),
        Relation((("s",),), {"v": None}, frozenset({"V"})),
        case_sensitive=False,
    )
    assert keys("t.id = s.v", scope) == []


def test_double_quotes_are_strings_unless_the_session_says_otherwise() -> None:
    assert shape_of('t.id = "v"', SCOPE).target_predicate == And((Comparison("=", ID, "v", "string"),))
    shape = shape_of('t.id = "v"', SCOPE, double_quoted_identifiers=True)
    assert [c.side for c in shape.conjuncts] == ["unreadable"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s.v + s.r.k", {"v", "r"}),
        ("V || t.Day", {"v"}),
        ("both", {"both"}),
        ("upper(s.id) -- s.v", {"id"}),
        ("DEFAULT", set()),
        ("1", set()),
        ("transform(s.r, x -> x + v)", {"r", "v"}),
        ("s.*", None),
        ("count(*)", None),
        ("struct(s)", None),
        ("(SELECT max(s.v))", None),
        ("nope", None),
        ("s.nope", None),
        ("s.v * 2", {"v"}),
        ("t.z", {"t"}),
        ("CASE WHEN s.v > 1 THEN s.id ELSE t.Day END", {"v", "id"}),
        ("'it", None),
    ],
)
def test_source_columns(text: str, expected: set[str] | None) -> None:
    (conjunct,) = shape_of(f"f({text}\n)", SCOPE).conjuncts
    if expected is None:
        assert conjunct.side == "unreadable"
    else:
        assert conjunct.source_columns == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s.v IN (SELECT w FROM q)", True),
        ("EXISTS (SELECT 1)", True),
        ("s.v = (WITH q AS (SELECT 1) SELECT * FROM q)", True),
        ("s.v = ((((SELECT 1))))", True),
        ("s.v IN (VALUES 1, 2)", True),
        ("s.v IN (FROM q SELECT w)", True),
        ("s.v IN (TABLE q)", True),
        ("exists(t.m, x -> x > 1)", False),
        ("s.v IN ('(SELECT 1)') -- (SELECT 1)", False),
        ("(`select`) = 1 AND (select = 1)", False),
        ("(s.v)", False),
        ("extract(year from s.v)", False),
    ],
)
def test_subqueries(text: str, expected: bool) -> None:
    assert contains_subquery(text) is expected


PIECES = """t.id s.id t.flag id v 1 'x' = <=> < AND OR NOT ( ) IN BETWEEN IS NULL LIKE TRUE , + * upper( x -> s.*
    CASE WHEN THEN ELSE END (SELECT DATE'2020-01-01' INTERVAL day"""


@given(st.lists(st.sampled_from(PIECES.split()), max_size=14).map(" ".join))
def test_nothing_is_said_of_what_mentions_the_source(text: str) -> None:
    shape = shape_of(text, SCOPE)
    for conjunct in shape.conjuncts:
        assert conjunct.text in text
        if "s." in conjunct.text:
            assert conjunct.side in ("source_only", "both", "unreadable")
        if "t." in conjunct.text:
            assert conjunct.side in ("target_only", "both", "unreadable")
        # A lambda's parameter may have that name, too.
        if "s.*" in conjunct.text or re.search(r"SELECT(?![^()]*\) ->)", conjunct.text):
            assert conjunct.side == "unreadable"
        if conjunct.side not in ("target_only", "neither"):
            assert conjunct.predicate == Unknown()
    for key in shape.equi_keys:
        assert "t." not in key.source_sql
