from __future__ import annotations

from typing import Any

import pytest

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.merge_ast import Default, Delete, DoNothing, Insert, Star, Update
from deltamerge.sql.merge_parser import parse_merge
from deltamerge.sql.statements.ast import TimeTravel

HEAD = "MERGE INTO tgt t USING src s ON t.id = s.id "


def parse(sql: str) -> Any:
    """Parses, and checks that every expression is the SQL at its place."""
    merge = parse_merge(sql)
    assert merge.sql == sql
    expressions = [merge.condition]
    for clause in merge.clauses:
        expressions.extend(clause.values)
        if clause.condition is not None:
            expressions.append(clause.condition)
    for expression in expressions:
        assert expression.span is not None
        assert expression.span.of(sql) == expression.text
        assert expression.text == expression.text.strip()
    return merge


def of_kind(merge: Any, kind: str) -> list[Any]:
    return [clause for clause in merge.clauses if clause.kind == kind]


def only_clause(sql: str) -> Any:
    (clause,) = parse(sql).clauses
    return clause


def written(assignments: Any) -> list[tuple[tuple[str, ...], str]]:
    return [(a.target, "DEFAULT" if a.value == Default() else a.value.text) for a in assignments]


def test_a_whole_statement() -> None:
    merge = parse(
        """WITH a AS (SELECT 1), b(x) AS (SELECT * FROM a) -- first
        MERGE WITH SCHEMA EVOLUTION INTO cat.db.`my tbl` AS t
        USING (SELECT * FROM b) AS s
        ON t.id = s.id AND t.p IN (1, 2) /* on */
        WHEN NOT MATCHED BY SOURCE AND t.v > 1 THEN UPDATE SET t.v = 0, x.y = DEFAULT
        WHEN MATCHED AND s.op = 'D' THEN DELETE
        WHEN NOT MATCHED BY TARGET AND s.v > 1 THEN INSERT (id, `v w`) VALUES (s.id, DEFAULT)
        WHEN MATCHED THEN UPDATE SET * EXCEPT (x, t.`y z`)
        WHEN NOT MATCHED THEN INSERT * EXCEPT (x)
        WHEN NOT MATCHED BY SOURCE THEN DO NOTHING;"""
    )
    assert merge.ctes == "WITH a AS (SELECT 1), b(x) AS (SELECT * FROM a)"
    assert merge.schema_evolution
    assert (merge.target.parts, merge.target.path, merge.target_alias) == (("cat", "db", "my tbl"), None, "t")
    assert (merge.source.sql, merge.source.alias) == ("(SELECT * FROM b)", "s")
    assert merge.condition.text == "t.id = s.id AND t.p IN (1, 2)"
    assert [clause.kind for clause in merge.clauses] == [
        "not_matched_by_source",
        "matched",
        "not_matched",
        "matched",
        "not_matched",
        "not_matched_by_source",
    ]
    update, delete, insert, update_star, insert_star, do_nothing = merge.clauses
    assert update.condition.text == "t.v > 1"
    assert isinstance(update.action, Update)
    assert written(update.assignments) == [(("t", "v"), "0"), (("x", "y"), "DEFAULT")]
    assert [a.value == Default() for a in update.assignments] == [False, True]
    assert isinstance(delete.action, Delete)
    assert update_star.action == Update(Star((("x",), ("t", "y z"))))
    assert isinstance(insert.action, Insert)
    assert written(insert.assignments) == [(("id",), "s.id"), (("v w",), "DEFAULT")]
    assert [a.value == Default() for a in insert.assignments] == [False, True]
    assert insert_star.action == Insert(Star((("x",),)))
    assert isinstance(do_nothing.action, DoNothing)


@pytest.mark.parametrize(
    ("target", "name", "path", "alias"),
    [
        ("delta.`/a b/c` t", ("delta", "/a b/c"), "/a b/c", "t"),
        ("DELTA.`s3://b/k=%20/``x` AS t", ("DELTA", "s3://b/k=%20/`x"), "s3://b/k=%20/`x", "t"),
        ("delta.`relative`", ("delta", "relative"), "relative", None),
        ("'/a/it''s'", ("/a/it's",), "/a/it's", None),
        ('"/a/b" t', ("/a/b",), "/a/b", "t"),
        ("r'C:\\x' t", ("C:\\x",), "C:\\x", "t"),
        ("`/a/b` t", ("/a/b",), "/a/b", "t"),
        ("tbl", ("tbl",), None, None),
        ("`tbl` `t 1`", ("tbl",), None, "t 1"),
        ("db.tbl AS `as`", ("db", "tbl"), None, "as"),
        ("`delta`.tbl", ("delta", "tbl"), None, None),
        ("IDENTIFIER('db.`a.b`') t", ("db", "a.b"), None, "t"),
        ("identifier t", ("identifier",), None, "t"),
    ],
)
def test_targets(target: str, name: tuple[str, ...], path: str | None, alias: str | None) -> None:
    merge = parse(f"MERGE INTO {target} USING src s ON t.id = s.id WHEN MATCHED THEN DELETE")
    assert (merge.target.parts, merge.target.path, merge.target_alias) == (name, path, alias)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("src", {"sql": "src", "name": ("src",), "alias": None}),
        ("a.b.`c d` AS s", {"sql": "a.b.`c d`", "name": ("a", "b", "c d"), "alias": "s"}),
        ("parquet.`/p q` s", {"format": "parquet", "path": "/p q", "alias": "s"}),
        ("Delta.`/p@v3`", {"format": "delta", "path": "/p@v3", "alias": None}),
        ("db.`tbl` s", {"name": ("db", "tbl"), "path": None}),
        (
            "delta.`/p` VERSION AS OF 3 s",
            {
                "path": "/p",
                "at": TimeTravel(version=3),
                "alias": "s",
                "sql": "delta.`/p` VERSION AS OF 3",
            },
        ),
        ("tbl FOR VERSION AS OF '7' AS s", {"at": TimeTravel(version=7), "alias": "s"}),
        ("tbl FOR SYSTEM_VERSION AS OF 12", {"at": TimeTravel(version=12), "alias": None}),
        ("(SELECT 1 AS id) s", {"sql": "(SELECT 1 AS id)", "alias": "s"}),
        ("( ( SELECT 1 ) UNION SELECT 2 )", {"alias": None}),
        (
            "VALUES (1, 'a'), (2, 'b') AS s(id, v)",
            {"sql": "VALUES (1, 'a'), (2, 'b') AS s(id, v)", "alias": "s"},
        ),
        ("VALUES 1, 2 + 3", {"sql": "VALUES 1, 2 + 3", "alias": None}),
        ("range(10) s", {"sql": "range(10)", "alias": "s"}),
        ("range(0, 10) AS s (id)", {"sql": "range(0, 10) AS s (id)", "alias": "s"}),
        ("values v", {"sql": "values v", "name": ()}),
        ("timestamp s", {"alias": "s"}),
        ("src timestamp", {"alias": "timestamp"}),
        ("IDENTIFIER('a.b') s", {"name": ("a", "b"), "alias": "s"}),
    ],
)
def test_sources(source: str, expected: dict[str, Any]) -> None:
    merge = parse(f"MERGE INTO t USING {source} ON true WHEN MATCHED THEN DELETE")
    assert {field: getattr(merge.source, field) for field in expected} == expected
    assert merge.condition.text == "true"


@pytest.mark.parametrize(
    ("timestamp", "alias"),
    [
        ("'2020-01-01'", None),
        ("'2020-01-01'", "s"),
        ("TIMESTAMP'2020-01-01 00:00:00'", "s"),
        ("current_timestamp() - INTERVAL 1 DAY", "s"),
        ("current_timestamp() - INTERVAL '1' HOURS", None),
        ("date_sub(current_date(), 1)", "s"),
        ("('2020-01-01' || ' 00:00')::timestamp", "s"),
        ("to_timestamp('2020')  /* c */ + INTERVAL 1 YEAR 2 MONTHS", "s"),
        ("now() - INTERVAL '1-2' YEAR TO MONTH", "s"),
        ("cast('2020-01-01' AS timestamp)", "timestamp"),
    ],
)
def test_timestamps_of_sources(timestamp: str, alias: str | None) -> None:
    source = f"delta.`/p` TIMESTAMP AS OF {timestamp} {alias or ''}"
    merge = parse(f"MERGE INTO t USING {source} ON a WHEN MATCHED THEN DELETE")
    assert merge.source.at == TimeTravel(timestamp=timestamp)
    assert merge.source.alias == alias


@pytest.mark.parametrize(
    "condition",
    [
        "CASE WHEN s.v = 1 THEN true ELSE false END",
        "(CASE s.id WHEN 3 THEN 1 END) = 1",
        "CASE WHEN matched THEN 1 WHEN NOT matched THEN 2 END = 1",
        "s.v <> ' WHEN NOT MATCHED THEN '",
        "t.`when` = s.`then`",
        "t.when = s.then",
        "t.when AND s.matched",
        "when = then",
        "when.x = 1 and then.y = 2",
        "s.v = when",
        "t.case = s.end",
        "case = 1 and end = 2",
        "f(x -> CASE WHEN x THEN 1 END, 'then')",
        "exists(t.a, x -> x > 1 AND NOT x = 2)",
        "s.x -- WHEN MATCHED THEN\n = 1",
        "s.x /* THEN DELETE */ = 1",
        "a::map<string,int>['x'] = 1",
        "t.d = s.d - INTERVAL 1 DAY",
        "matched = 1 AND not matched",
        "s.not = t.matched",
        "TRUE",
        "a IN (SELECT CASE WHEN b THEN 1 END FROM q WHERE c)",
        's.k = "then"',
    ],
)
def test_keywords_inside_conditions_do_not_confuse(condition: str) -> None:
    merge = parse(
        f"MERGE INTO tgt t USING src s ON {condition}\nWHEN MATCHED AND {condition}\nTHEN DELETE "
        f"WHEN NOT MATCHED AND {condition} THEN INSERT *"
    )
    assert merge.condition.text == condition
    assert of_kind(merge, "matched")[0].condition.text == condition
    assert of_kind(merge, "not_matched")[0].condition.text == condition


@pytest.mark.parametrize(
    "value",
    [
        "CASE WHEN t.v > 5 THEN 7 ELSE 8 END",
        "'USING ON WHEN'",
        "concat(s.v, ', VALUES (')",
        "s.v::struct<a:int,b:map<string,int>>",
        "s.when",
        "s.values",
        "s.default + 1",
        "DEFAULT + 1",
        "`DEFAULT`",
        "(SELECT max(w) FROM q WHERE x = 1)",
        "t.d + INTERVAL '1' MONTH",
        "s.a = s.b",
        "s.a IS NULL",
        "array(-1, 2)[0]",
        "transform(s.a, (x, i) -> x + i)",
        "-- c\n 1",
    ],
)
def test_values_are_kept_verbatim(value: str) -> None:
    text = value.rsplit("\n", maxsplit=1)[-1].strip()
    clause = only_clause(HEAD + f"WHEN MATCHED THEN UPDATE SET a = {value}, b.c == {value}")
    assert written(clause.assignments) == [(("a",), text), (("b", "c"), text)]
    assert Default() not in [a.value for a in clause.assignments]
    clause = only_clause(HEAD + f"WHEN NOT MATCHED THEN INSERT (a, b) VALUES ({value}, {value})")
    assert [v.text for v in clause.values] == [text, text]


def test_clause_keywords_as_columns() -> None:
    clause = only_clause(HEAD + "WHEN MATCHED THEN UPDATE SET when = s.when, t.update = 1, set = set, `then`=then")
    assert [parts for parts, _ in written(clause.assignments)] == [
        ("when",),
        ("t", "update"),
        ("set",),
        ("then",),
    ]


@pytest.mark.parametrize(
    "ctes",
    [
        "WITH a (SELECT 1)",
        "WITH a(x) (SELECT 1), `b c`(x, y) AS (SELECT 2)",
        "WITH RECURSIVE a(x) MAX RECURSION LEVEL 5 AS (SELECT 1), merge AS (SELECT 2)",
        "with a as (select ')' /* ( */), b as ((select 1) union (select 2))",
    ],
)
def test_ctes(ctes: str) -> None:
    merge = parse(f"{ctes}\nMERGE INTO t USING a ON true WHEN MATCHED THEN DELETE")
    assert merge.ctes == ctes
    explained = parse(f"EXPLAIN {ctes} MERGE INTO t USING a ON true WHEN MATCHED THEN DELETE")
    assert (explained.ctes, explained.explain) == (ctes, "plan")


@pytest.mark.slow
def test_wide_statements_are_read_quickly() -> None:
    columns = [f"c{i}" for i in range(3000)]
    assignments = ", ".join(f"{c} = coalesce(s.{c}, t.{c} + {i})" for i, c in enumerate(columns))
    values = ", ".join(f"CASE WHEN s.{c} > 1 THEN s.{c} ELSE (0) END" for c in columns)
    merge = parse(
        f"{HEAD} WHEN MATCHED THEN UPDATE SET {assignments} "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(columns)}) VALUES ({values})"
    )
    assert [len(clause.values) for clause in merge.clauses] == [3000, 3000]


def test_star_except_does_not_swallow_the_next_clause() -> None:
    merge = parse(HEAD + "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
    assert [clause.action for clause in merge.clauses] == [Update(Star()), Insert(Star())]


def test_letter_case_blanks_and_comments_do_not_matter() -> None:
    merge = parse(
        "merge/**/into\tdelta.`/p`as t\nusing(select 1 id)as s on(t.id=s.id)when\nnot--\nmatched "
        "by/**/target then insert(id)values(s.id)when matched then update set*;;"
    )
    assert merge.condition.text == "(t.id=s.id)"
    assert [clause.kind for clause in merge.clauses] == ["not_matched", "matched"]


@pytest.mark.parametrize(
    ("before", "explain"),
    [
        ("", None),
        ("EXPLAIN", "plan"),
        ("explain analyze", "analyze"),
        ("-- what would it do?\nEXPLAIN /* and */ ANALYZE", "analyze"),
    ],
)
def test_explain(before: str, explain: str | None) -> None:
    merge = parse(f"{before} {HEAD} WHEN MATCHED THEN DELETE")
    assert (merge.explain, merge.condition.text) == (explain, "t.id = s.id")


HINTS = [
    ("EXPLAN " + HEAD + "WHEN MATCHED THEN DELETE", "Did you mean EXPLAIN?"),
    ("EXPLAIN ANALYSE " + HEAD + "WHEN MATCHED THEN DELETE", "Did you mean ANALYZE?"),
    ("EXPLAIN MERG INTO t USING s ON a WHEN MATCHED THEN DELETE", "Did you mean MERGE?"),
    ("EXPLAIN EXTENDED " + HEAD + "WHEN MATCHED THEN DELETE", "expected MERGE or ANALYZE, found 'EXTENDED'"),
    ("EXPLAIN FORMATTED " + HEAD + "WHEN MATCHED THEN DELETE", "EXPLAIN and EXPLAIN ANALYZE"),
    ("EXPLAIN SELECT 1", "expected MERGE or ANALYZE, found 'SELECT'"),
    ("EXPLAIN ANALYZE", "expected MERGE, found the end"),
    ("EXPLAIN ANALYZE EXTENDED " + HEAD + "WHEN MATCHED THEN DELETE", "expected MERGE, found 'EXTENDED'"),
    ("", "MERGE"),
    ("MERG INTO t USING s ON a WHEN MATCHED THEN DELETE", "Did you mean MERGE?"),
    ("MERGE t USING s ON a WHEN MATCHED THEN DELETE", "INTO"),
    ("MERGE WITH SCHEMA EVOLUTON INTO t USING s ON a WHEN MATCHED THEN DELETE", "Did you mean EVOLUTION?"),
    ("MERGE INTO my-tbl USING s ON a WHEN MATCHED THEN DELETE", "between backticks"),
    ("MERGE INTO t x (SELECT 1) s ON a WHEN MATCHED THEN DELETE", "expected USING"),
    ("MERGE INTO t USNG s ON a WHEN MATCHED THEN DELETE", "Did you mean USING?"),
    ("MERGE INTO t USING src s OM a WHEN MATCHED THEN DELETE", "Did you mean ON?"),
    ("MERGE INTO t USING src ONN a WHEN MATCHED THEN DELETE", "Did you mean ON?"),
    ("MERGE INTO t USING s WHEN MATCHED THEN DELETE", "expected ON"),
    ("MERGE INTO t USING s ON WHEN MATCHED THEN DELETE", "expected a condition"),
    ("MERGE INTO t USING '/p' s ON a WHEN MATCHED THEN DELETE", "format.`path`"),
    ("MERGE INTO t USING () s ON a WHEN MATCHED THEN DELETE", "a query"),
    ("MERGE INTO t USING delta.`/p` VERSION AS OF x s ON a WHEN MATCHED THEN DELETE", "a version"),
    ("MERGE INTO t VERSION AS OF 3 USING s ON a WHEN MATCHED THEN DELETE", "older version"),
    ("WITH a AS SELECT 1 MERGE INTO t USING a ON x WHEN MATCHED THEN DELETE", "AS ("),
    (HEAD + "WEN MATCHED THEN DELETE", "Did you mean WHEN?"),
    (HEAD + "WHEN MATCHED THEN UPDATE SET a = s.a WEN NOT MATCHED THEN INSERT *", "Did you mean WHEN?"),
    (HEAD + "WHEN MATCHD THEN DELETE", "Did you mean MATCHED?"),
    (HEAD + "WHEN MATCHED THN DELETE", "Did you mean THEN?"),
    (HEAD + "WHEN MATCHED AND s.x > 1 THN DELETE", "Did you mean THEN?"),
    (HEAD + "WHEN MATCHED AND s.x > 1 DELETE", "expected THEN, found 'DELETE'"),
    (HEAD + "WHEN MATCHED AND s.x > 1", "expected THEN, found the end"),
    (HEAD + "WHEN MATCHED AND THEN DELETE", "expected a condition after AND"),
    (HEAD + "WHEN MATCHED DELETE", "AND or THEN"),
    (HEAD + "WHEN MATCHED THEN DELTE", "Did you mean DELETE?"),
    (HEAD + "WHEN MATCHED THEN INSERT *", "Only WHEN NOT MATCHED clauses can insert"),
    (HEAD + "WHEN MATCHED THEN UPDATE a = 1", "expected SET"),
    (HEAD + "WHEN MATCHED THEN UPDATE SET a = 1 b = 2", ", between assignments"),
    (HEAD + "WHEN MATCHED THEN UPDATE SET a = 1,", "expected a column"),
    (HEAD + "WHEN MATCHED THEN UPDATE SET a =", "expected a value"),
    (HEAD + "WHEN MATCHED THEN UPDATE SET a[0] = 1", "fields of structs"),
    (HEAD + "WHEN MATCHED THEN UPDATE SET (a, b) = (1, 2)", "expected a column"),
    (HEAD + "WHEN MATCHED THEN UPDATE SET * EXCLUDE (a)", "Did you mean EXCEPT?"),
    (HEAD + "WHEN NOT MATCHED THEN UPDATE SET *", "BY SOURCE"),
    (HEAD + "WHEN NOT MATCHED THEN DELETE", "BY SOURCE"),
    (HEAD + "WHEN NOT MATCHED THEN INSERT VALUES (1)", "Name the columns"),
    (HEAD + "WHEN NOT MATCHED THEN INSERT (a) VALUS (1)", "Did you mean VALUES?"),
    (HEAD + "WHEN NOT MATCHED THEN INSERT (a,, b) VALUES (1)", "expected a column"),
    (HEAD + "WHEN NOT MATCHED THEN INSERT (a) VALUES ()", "expected a value"),
    (HEAD + "WHEN NOT MATCHED THEN INSERT * EXCEPT a", "expected ("),
    (HEAD + "WHEN NOT MATCHED THEN DO NOTING", "Did you mean NOTHING?"),
    (HEAD + "WHEN NOT MATCHED BY SOURC THEN DELETE", "Did you mean SOURCE?"),
    (HEAD + "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *", "no source row"),
    (HEAD + "WHEN NOT MATCHED BY SOURCE THEN INSERT *", "Only WHEN NOT MATCHED clauses can insert"),
    (HEAD + "WHEN MATCHED THEN DELETE garbage", "expected WHEN"),
    (HEAD + "WHEN MATCHED THEN DELETE; SELECT 1", "one statement"),
    (HEAD + "WHEN MATCHED AND s.a = 'x THEN DELETE", "never closed"),
    (HEAD + "WHEN MATCHED AND CASE WHEN s.a THEN 1 THEN DELETE", "no END"),
]


@pytest.mark.parametrize(("sql", "part"), HINTS)
def test_syntax_errors_say_what_was_expected(sql: str, part: str) -> None:
    with pytest.raises(DeltaParseException) as caught:
        parse_merge(sql)
    assert caught.value.error_class == "PARSE_SYNTAX_ERROR"
    assert caught.value.sqlstate == "42601"
    assert part in caught.value.message
    assert "line 1, column" in caught.value.message
    assert "^" in caught.value.message


def test_the_caret_stands_under_the_token() -> None:
    sql = "MERGE INTO t USING s ON t.id = s.id\nWHEN MATCHED AND s.a\n  THN DELETE"
    with pytest.raises(DeltaParseException) as caught:
        parse_merge(sql)
    assert caught.value.message.splitlines()[1:] == ["line 3, column 3:", "    THN DELETE", "    ^^^"]


@pytest.mark.parametrize(
    ("tail", "error_class", "sqlstate"),
    [
        ("", "MERGE_WITHOUT_WHEN", "42601"),
        (";", "MERGE_WITHOUT_WHEN", "42601"),
        (
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT * WHEN MATCHED AND a THEN DELETE",
            "NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION",
            "42613",
        ),
        (
            "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY TARGET THEN INSERT *",
            "NON_LAST_NOT_MATCHED_BY_TARGET_CLAUSE_OMIT_CONDITION",
            "42613",
        ),
        (
            "WHEN NOT MATCHED BY SOURCE THEN DELETE WHEN NOT MATCHED BY SOURCE THEN DO NOTHING",
            "NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION",
            "42613",
        ),
        ("WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)", "MERGE_INSERT_VALUE_COUNT_MISMATCH", "21S01"),
        ("WHEN NOT MATCHED THEN INSERT (a) VALUES (1, 2)", "MERGE_INSERT_VALUE_COUNT_MISMATCH", "21S01"),
    ],
)
def test_statements_that_spark_refuses_by_class(tail: str, error_class: str, sqlstate: str) -> None:
    with pytest.raises(DeltaParseException) as caught:
        parse_merge(HEAD + tail)
    assert (caught.value.error_class, caught.value.sqlstate) == (error_class, sqlstate)


@pytest.mark.parametrize(
    "sql",
    [
        "MERGE INTO t USING src s(a, b) ON a WHEN MATCHED THEN DELETE",
        "MERGE INTO t USING (SELECT 1) AS s (a) ON a WHEN MATCHED THEN DELETE",
        "MERGE INTO t AS x (a) USING src s ON a WHEN MATCHED THEN DELETE",
    ],
)
def test_column_aliases_are_refused(sql: str) -> None:
    with pytest.raises(DeltaParseException) as caught:
        parse_merge(sql)
    assert (caught.value.error_class, caught.value.sqlstate) == ("COLUMN_ALIASES_NOT_ALLOWED", "42601")
