"""Printed Columns; those of Connect are real ones, those of classic PySpark (which need a JVM) are recorded."""

from datetime import date
from typing import Any

import pytest

from deltamerge.skipping.predicates import (
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
from deltamerge.spark.column_trees import printed_sql, read_classic_column
from deltamerge.sql.conditions import ConditionShape, shape_of_tree, tree_contains_subquery
from deltamerge.sql.resolution import Relation, Scope

SCOPE = Scope(
    Relation((("t",),), {"id": None, "a": None, "d": None, "flag": None, "a.b": None, "x": {"y": None}}),
    Relation(
        (("s",), ("s.1",)),
        {"id": None, "a": None, "d": None, "x`y": None, "max(ts)": None, "only": None, "größe": None},
    ),
    case_sensitive=False,
)
A = ColumnRef(("a",))


def classic(printed: str) -> ConditionShape:
    return shape_of_tree(read_classic_column(f"Column<'{printed}'>"), SCOPE)


def keys(shape: ConditionShape) -> list[tuple[tuple[str, ...], str, tuple[str, ...] | None, bool]]:
    return [(k.target.path, k.source_sql, k.source_path, k.null_safe) for k in shape.equi_keys]


def test_names_are_quoted_where_sql_needs_it() -> None:
    assert keys(classic("(t.a = s.größe)")) == [(("a",), "s.`größe`", ("größe",), False)]


def test_the_wrapping_is_taken_off() -> None:
    assert printed_sql("Column<'=(t.a, 'x'>')'>") == "=(t.a, 'x'>')"
    assert printed_sql("t.a = 1") == "t.a = 1"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("=(t.id, s.id)", [(("id",), "s.id", ("id",), False)]),
        ("<=>(s.id, t.id)", [(("id",), "s.id", ("id",), True)]),
        (
            "and(and(=(t.id, s.id), =(t.a, s.a)), =(t.d, s.d))",
            [
                (("id",), "s.id", ("id",), False),
                (("a",), "s.a", ("a",), False),
                (("d",), "s.d", ("d",), False),
            ],
        ),
        ("=(t.`a.b`, s.id)", [(("a.b",), "s.id", ("id",), False)]),
        ("=(t.x.y, only)", [(("x", "y"), "only", ("only",), False)]),
        ("t.id = upper(s.id) AND t.a = 1", [(("id",), "upper(s.id)", None, False)]),
        ("and(t.id = s.id + 1, >(t.a, 1))", [(("id",), "s.id + 1", None, False)]),
        ("=(t.id, s.id) AS zz", []),
        # Not the SQL that Spark would take.
        ("=(t.id, +(s.id, 1))", []),
        ("=(t.id, upper(s.id))", []),
        ("=(t.id, CAST(s.id AS INT))", []),
        ("or(=(t.id, s.id), =(t.a, s.a))", []),
        ("!(=(t.id, s.id))", []),
        # Names that are printed without the backticks they need.
        ("=(t.id, s.max(ts))", []),
        ("=(t.id, s.my col)", []),
        ("=(t.id, s.x`y)", []),
        ("=(t.id, a, s.id)", []),
        ("=(id, s.id)", []),
    ],
)
def test_keys_of_classic_columns(printed: str, expected: list[object]) -> None:
    assert keys(classic(printed)) == expected


@pytest.mark.parametrize(
    ("printed", "predicate"),
    [
        ("=(t.a, 'abc')", Comparison("=", A, "abc", "string")),
        ("=(t.a, 's.id')", Comparison("=", A, "s.id", "string")),
        ("=(t.a, 'y, z')", Comparison("=", A, "y, z", "string")),
        ("=(t.a, '')", Comparison("=", A, "", "string")),
        (r"=(t.a, 'it\'s, (x)')", Unknown()),
        ("=(t.a, 1)", Comparison("=", A, 1, "int")),
        ("=(t.a, -1)", Comparison("=", A, -1, "int")),
        ("=(t.a, 1099511627776L)", Comparison("=", A, 1099511627776, "bigint")),
        ("=(t.a, 1.5)", Unknown()),
        ("=(t.a, 1.0E30)", Unknown()),
        ("=(t.a, true)", Comparison("=", A, True, "boolean")),
        ("<(5, t.a)", Comparison(">", A, 5, "int")),
        ("<=>(t.a, NULL)", IsNull(A)),
        (">(t.a, 2020-01-31)", Comparison(">", A, date(2020, 1, 31), "date")),
        (">(t.a, 2020-13-31)", Unknown()),
        ("=(t.a, 2020-01-02 03:04:05.000678)", None),
        ("=(t.a, NaN)", None),
        ("=(t.a, [B@42fe7fb4)", None),
        ("in(t.a, 1, 2, 3)", In(A, (1, 2, 3), "int")),
        ("in(t.a, 'x', 'y, z')", In(A, ("x", "y, z"), "string")),
        ("in(t.a)", None),
        ("and(>=(t.a, 1), <=(t.a, 5))", None),
        ("isNull(t.a)", IsNull(A)),
        ("isNotNull(t.a)", IsNotNull(A)),
        ("like(t.a, 'ab%')", StartsWith(A, "ab")),
        ("startswith(t.a, 'ab')", StartsWith(A, "ab")),
        ("!(=(t.a, 1))", Not(Comparison("=", A, 1, "int"))),
        ("or(=(t.a, 1), t.a > 1.5D)", Or((Comparison("=", A, 1, "int"), Comparison(">", A, 1.5, "double")))),
        ("!(t.flag)", Not(Comparison("=", ColumnRef(("flag",)), True, "boolean"))),
        ("t.flag", Comparison("=", ColumnRef(("flag",)), True, "boolean")),
        ("exists(t.a, x_1 -> >(x_1, 1))", Unknown()),
        ("=(<lambda>(columnnodeexpression(UnresolvedAttribute(List(t, a),None)), t.a)", None),
        ("t.a = 'it''s'", Unknown()),
    ],
)
def test_predicates_of_classic_columns(printed: str, predicate: Predicate | None) -> None:
    shape = classic(printed)
    if predicate is None:
        assert all(c.predicate == Unknown() or c.side == "target_only" for c in shape.conjuncts)
    else:
        assert shape.target_predicate == And((predicate,))


def test_between_of_classic_columns_is_two_conjuncts() -> None:
    assert classic("and(>=(t.a, 1), <=(t.a, 5))").target_predicate == And(
        (Comparison(">=", A, 1, "int"), Comparison("<=", A, 5, "int"))
    )


def test_a_comment_in_an_expression_hides_nothing() -> None:
    assert [c.side for c in classic("and(t.id = s.id -- c, =(t.a, 1))").conjuncts] == ["unreadable"]


@pytest.fixture(scope="module")
def connect() -> Any:
    return pytest.importorskip("pyspark.sql.connect.functions")


def connect_shape(column: Any) -> ConditionShape:
    from deltamerge.spark.column_trees import read_proto

    return shape_of_tree(read_proto(column.to_plan(None)), SCOPE)


def test_keys_of_connect_columns(connect: Any) -> None:
    c, e = connect.col, connect.expr
    column = (c("t.id") == c("s.id")) & c("s.a").eqNullSafe(c("t.a")) & e("t.d = s.d + 1")
    assert keys(connect_shape(column)) == [
        (("id",), "`s`.`id`", ("id",), False),
        (("a",), "`s`.`a`", ("a",), True),
        (("d",), "s.d + 1", None, False),
    ]


def test_odd_names_of_connect_columns(connect: Any) -> None:
    c = connect.col
    sent = connect_shape((c("t.`a.b`") == c("s.`max(ts)`")) & (c("t.id") == c("`s.1`.`x``y`")))
    assert [(k.target.path, k.source_path) for k in sent.equi_keys] == [
        (("a.b",), ("max(ts)",)),
        (("id",), ("x`y",)),
    ]
    assert [k.source_sql for k in sent.equi_keys] == ["`s`.`max(ts)`", "`s.1`.`x``y`"]


def test_stars_of_connect_columns(connect: Any) -> None:
    """A string of a star prints like one."""
    from deltamerge.spark.column_trees import proto_contains_star

    c, e = connect.col, connect.expr
    strings = (connect.lit("*"), c("t.a") == "*", connect.rpad(c("s.x"), 3, "*"), c("t.a").isin("*", "x"), e("'*'"))
    stars = (connect.struct("*"), c("t.*"), e("struct(s.*)"), connect.transform("a", lambda x: connect.struct("s.*")))
    assert [proto_contains_star(column.to_plan(None)) for column in strings] == [False] * 5
    assert [proto_contains_star(column.to_plan(None)) for column in stars] == [True] * 4


def test_strings_of_connect_columns_are_no_columns(connect: Any) -> None:
    c = connect.col
    for text in ("only", "x, y", "it's", "a is null", "d", "1", "2020-01-01", "null", "true", ""):
        sent = connect_shape(c("t.a") == text)
        assert sent.target_predicate == And((Comparison("=", A, text, "string"),))
    # A string that reads like a column.
    sent = connect_shape(c("t.a") == "s.id")
    assert keys(sent) == []
    assert sent.target_predicate == And((Comparison("=", A, "s.id", "string"),))


def test_predicates_of_connect_columns(connect: Any) -> None:
    import datetime
    from decimal import Decimal

    c, lit = connect.col, connect.lit
    zone = datetime.timezone.utc
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, 678, tzinfo=zone)
    expected: list[tuple[Any, Predicate]] = [
        (c("t.a") > 1, Comparison(">", A, 1, "int")),
        (c("t.a") == 2**40, Comparison("=", A, 2**40, "bigint")),
        (c("t.a") < 1.5, Comparison("<", A, 1.5, "double")),
        (c("t.a") <= Decimal("-1.50"), Comparison("<=", A, Decimal("-1.50"), "decimal(3,2)")),
        (lit(True) == c("t.a"), Comparison("=", A, True, "boolean")),
        (c("t.a") != datetime.date(2020, 1, 31), Not(Comparison("=", A, date(2020, 1, 31), "date"))),
        (c("t.a") == moment, Comparison("=", A, moment, "timestamp")),
        (c("t.a").isin("x", "y, z"), In(A, ("x", "y, z"), "string")),
        (c("t.a").isNull() | c("t.a").isNotNull(), Or((IsNull(A), IsNotNull(A)))),
        (c("t.a").like("ab%"), StartsWith(A, "ab")),
        (c("t.a").startswith("ab"), StartsWith(A, "ab")),
        (~c("t.flag"), Not(Comparison("=", ColumnRef(("flag",)), True, "boolean"))),
        (c("t.a").cast("int") == 1, Unknown()),
        (connect.upper("t.a") == "X", Unknown()),
        (connect.exists("t.a", lambda x: x > 1), Unknown()),
        ((c("t.a") == 1).alias("zz"), Comparison("=", A, 1, "int")),
        (c("t.a")["k"] == 1, Unknown()),
    ]
    for column, predicate in expected:
        sent = connect_shape(column)
        assert [conjunct.side for conjunct in sent.conjuncts] == ["target_only"]
        assert sent.target_predicate == And((predicate,)), str(column)


def test_what_connect_columns_hold_is_not_overlooked(connect: Any) -> None:
    c = connect.col
    for column in (
        connect.upper("t.a") == connect.concat("s.a", "t.d"),
        c("t.a")["k"] == c("s.a").cast("int"),
        connect.exists("t.a", lambda x: x > c("s.a")),
        connect.when(c("t.a") > 1, c("s.a")).otherwise(0) == 1,
        connect.udf(lambda x: x)(c("s.a")) == c("t.a"),
    ):
        sent = connect_shape(column)
        assert {conjunct.side for conjunct in sent.conjuncts} <= {"both", "unreadable"}
        assert keys(sent) == []
    sent = connect_shape(connect.struct("s.*") == c("t.x"))
    assert [conjunct.side for conjunct in sent.conjuncts] == ["unreadable"]


def test_subqueries_in_expressions_of_columns(connect: Any) -> None:
    from deltamerge.spark.column_trees import read_proto

    assert tree_contains_subquery(read_proto(connect.expr("t.a IN (SELECT 1)").to_plan(None)))
    assert not tree_contains_subquery(read_proto((connect.col("t.a") == 1).to_plan(None)))
