"""What is read of statements other than MERGE."""

from __future__ import annotations

import datetime as dt
import time
from decimal import Decimal
from typing import Any

import pytest

from deltamerge.exceptions import DeltaAnalysisException, DeltaParseException
from deltamerge.sql.caret import Span
from deltamerge.sql.literals import string_value
from deltamerge.sql.merge_ast import Expression
from deltamerge.sql.parameters import bind_parameters, literal
from deltamerge.sql.relations import changed_temporary_view, relation_names, with_plain_names
from deltamerge.sql.statements import ast
from deltamerge.sql.statements.ast import ColumnDefinition, TableName, TimeTravel
from deltamerge.sql.statements.changes import with_defaults, with_defaults_for_names
from deltamerge.sql.statements.parser import parse_statement

T = TableName(("t",))
PATH = TableName(("delta", "/a/b"), "/a/b")


def column(name: str, data_type: str, **options: Any) -> ColumnDefinition:
    return ColumnDefinition(tuple(name.split(".")), data_type, **options)


def alter(change: ast.Alteration) -> ast.AlterTable:
    return ast.AlterTable(T, change)


def change(*changes: ast.ChangeColumn) -> ast.AlterTable:
    return alter(ast.ChangeColumns(changes))


CASES: dict[str, ast.Statement | None] = {
    "OPTIMIZE delta.`/a/b`": ast.Optimize(PATH, None, ()),
    "optimize '/a/b' where p = 'x' zorder by (a, `b c`)": ast.Optimize(
        TableName(("/a/b",), "/a/b"), "p = 'x'", (("a",), ("b c",))
    ),
    "OPTIMIZE t ZORDER BY a, b;": ast.Optimize(T, None, (("a",), ("b",))),
    "OPTIMIZE t FULL": ast.Optimize(T, None, (), is_full=True),
    "REORG TABLE t WHERE p = 1 APPLY (PURGE)": ast.Reorganize(T, "p = 1"),
    "VACUUM t": ast.Vacuum(T, None, None, dry_run=False),
    "VACUUM t LITE RETAIN 0.5 HOURS DRY RUN": ast.Vacuum(T, "LITE", 0.5, dry_run=True),
    "VACUUM t FULL DRY RUN RETAIN 168 HOURS": ast.Vacuum(T, "FULL", 168, dry_run=True),
    "RESTORE t TO VERSION AS OF 3": ast.Restore(T, TimeTravel(3)),
    "RESTORE TABLE t TIMESTAMP AS OF '2024-01-01'": ast.Restore(T, TimeTravel(timestamp="'2024-01-01'")),
    "DESCRIBE HISTORY t LIMIT 2": ast.DescribeHistory(T, 2),
    "DESC DETAIL delta.`/a/b`": ast.DescribeDetail(PATH),
    "DESCRIBE history": ast.DescribeTable(TableName(("history",)), extended=False),
    "DESCRIBE TABLE EXTENDED db.t": ast.DescribeTable(TableName(("db", "t")), extended=True),
    "DESCRIBE t col": None,
    "DESCRIBE FUNCTION f": None,
    "SHOW TBLPROPERTIES t ('a.b')": ast.ShowProperties(T, "a.b"),
    "SHOW COLUMNS IN t": ast.ShowColumns(T),
    "SHOW COLUMNS FROM t IN d": ast.ShowColumns(TableName(("d", "t"))),
    "SHOW COLUMNS IN D.t FROM d": ast.ShowColumns(TableName(("d", "t"))),
    "SHOW COLUMNS IN e.t FROM d": None,
    "REFRESH TABLE IDENTIFIER('delta.`/a/b`')": ast.RefreshTable(PATH),
    "REFRESH TABLE IDENTIFIER('d' || '.' || concat('t', 'u'))": ast.RefreshTable(TableName(("d", "tu"))),
    "REFRESH TABLE delta.departments": ast.RefreshTable(TableName(("delta", "departments"))),
    "REFRESH TABLE delta.`departments`": ast.RefreshTable(TableName(("delta", "departments"), "departments")),
    "CREATE EXTERNAL TABLE t (a INT) USING delta OPTIONS (path '/p', 'delta.appendOnly' = 'true')": ast.CreateTable(
        T, "create", (column("a", "INT"),), location="/p", properties={"delta.appendOnly": "true"}
    ),
    "SHOW TABLES": None,
    "CONVERT TO DELTA parquet.`/p` NO STATISTICS PARTITIONED BY (a INT, b STRING)": ast.Convert(
        ("parquet", "/p"), "a INT, b STRING"
    ),
    "GENERATE symlink_format_manifest FOR TABLE t": ast.Generate("symlink_format_manifest", T),
    "DELETE FROM t": ast.DeleteRows(T, None, None),
    "INSERT INTO TABLE t SELECT * FROM s;": ast.InsertRows(T, overwrites=False, query="SELECT * FROM s"),
    "INSERT INTO t (a, b) VALUES (1, 2)": ast.InsertRows(
        T, overwrites=False, query="VALUES (1, 2)", columns=(("a",), ("b",))
    ),
    "INSERT WITH SCHEMA EVOLUTION INTO t BY NAME SELECT 1 AS a": ast.InsertRows(
        T, overwrites=False, query="SELECT 1 AS a", by_name=True, schema_evolution=True
    ),
    "INSERT INTO t (SELECT 1)": ast.InsertRows(T, overwrites=False, query="(SELECT 1)"),
    "INSERT OVERWRITE t PARTITION (p = 'x', q) BY NAME TABLE s": ast.InsertRows(
        T, overwrites=True, query="TABLE s", by_name=True, partition=(("p", "'x'"), ("q", None))
    ),
    "INSERT INTO t REPLACE WHERE p >= 1 AND p < 3 SELECT 1": ast.InsertRows(
        T, overwrites=False, query="SELECT 1", replace_where=Expression("p >= 1 AND p < 3", span=Span(28, 44))
    ),
    "CREATE TABLE t (id BIGINT NOT NULL COMMENT 'k', m MAP<STRING, ARRAY<INT>> DEFAULT map(), d DECIMAL(3, 1)) "
    "USING DELTA": ast.CreateTable(
        T,
        "create",
        (
            column("id", "BIGINT", nullable=False, comment="k"),
            column("m", "MAP<STRING, ARRAY<INT>>", default="map()"),
            column("d", "DECIMAL(3, 1)"),
        ),
    ),
    "CREATE TABLE IF NOT EXISTS t (a INT DEFAULT 1 + f(2, 3) NOT NULL, g INT GENERATED ALWAYS AS (a * 2), "
    "i BIGINT GENERATED BY DEFAULT AS IDENTITY (START WITH -1 INCREMENT BY 2), CONSTRAINT c CHECK (a > 0)) "
    "USING delta PARTITIONED BY (g) TBLPROPERTIES (a.b = true, 'c' '1') COMMENT 'x' LOCATION '/l'": ast.CreateTable(
        T,
        "create_if_not_exists",
        (
            column("a", "INT", nullable=False, default="1 + f(2, 3)"),
            column("g", "INT", generated="a * 2"),
            column("i", "BIGINT", identity=(-1, 2, True)),
        ),
        checks={"c": "a > 0"},
        partitioned_by=("g",),
        properties={"a.b": "true", "c": "1"},
        comment="x",
        location="/l",
    ),
    "CREATE OR REPLACE TABLE delta.`/a/b` CLUSTER BY (a) AS SELECT 1 AS a": ast.CreateTable(
        PATH, "create_or_replace", clustered_by=(("a",),), query="SELECT 1 AS a"
    ),
    "CREATE TABLE t LIKE delta.`/a/b`;": ast.CreateTableLike(T, "create", PATH),
    "CREATE TABLE IF NOT EXISTS t LIKE s LOCATION '/l' USING delta TBLPROPERTIES ('a' = 'b')": ast.CreateTableLike(
        T, "create_if_not_exists", TableName(("s",)), uses_delta=True, properties={"a": "b"}, location="/l"
    ),
    "CREATE TABLE t LIKE s USING parquet": None,
    "CREATE TABLE t LIKE s STORED AS ORC": None,
    "CREATE OR REPLACE TABLE t LIKE s": None,
    "CREATE TABLE t USING parquet AS SELECT 1": None,
    "CREATE TABLE t AS SELECT * FROM x JOIN y USING delta": ast.CreateOfDefaultSource(T),
    "CREATE TABLE t (a INT) TBLPROPERTIES ('a' = 'b') SELECT 1 FROM x JOIN y USING (a)": ast.CreateOfDefaultSource(T),
    "CREATE TABLE t (stored INT) STORED AS PARQUET": None,
    "CREATE TABLE t (a INT) ROW FORMAT DELIMITED FIELDS TERMINATED BY ','": None,
    "CREATE OR REPLACE TABLE t SHALLOW CLONE delta.`/a/b` VERSION AS OF 2 TBLPROPERTIES ('a' = 'b')": ast.CloneTable(
        T, "create_or_replace", PATH, TimeTravel(2), {"a": "b"}, None
    ),
    "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 1": ast.CreateTempView("v", replaces=True, query="SELECT 1"),
    "CREATE GLOBAL TEMP VIEW v AS SELECT 1": ast.CreateTempView("v", replaces=False, query="SELECT 1", is_global=True),
    "CREATE TEMP VIEW v (a, `b c` COMMENT 'x') COMMENT 'y' AS SELECT 1, 2": ast.CreateTempView(
        "v", replaces=False, query="SELECT 1, 2", columns=(("a", None), ("b c", "x"))
    ),
    "CREATE VIEW v AS SELECT 1": None,
    "CREATE TEMP VIEW v (a) TBLPROPERTIES ('x' = 'y') AS SELECT 1": None,
    "CREATE TEMP VIEW IF NOT EXISTS v AS SELECT 1": None,
    "CREATE TEMPORARY VIEW v USING parquet": None,
    "DROP TABLE IF EXISTS t": ast.DropTable(T),
    "DROP VIEW v": None,
    "TRUNCATE TABLE delta.`/a/b`;": ast.TruncateTable(PATH),
    "TRUNCATE TABLE t PARTITION (p = 'x')": ast.TruncateTable(T, of_partition=True),
    "INSERT OVERWRITE t PARTITION (p = 1) IF NOT EXISTS SELECT 1": ast.InsertRows(
        T, overwrites=True, query="SELECT 1", partition=(("p", "1"),), if_not_exists=True
    ),
    "ALTER TABLE t SET TBLPROPERTIES ('a' = 'b', c = -1)": alter(ast.SetProperties({"a": "b", "c": "-1"})),
    "ALTER TABLE t UNSET TBLPROPERTIES IF EXISTS ('a', b.c)": alter(ast.UnsetProperties(("a", "b.c"))),
    "ALTER TABLE t ADD CONSTRAINT c CHECK (a IN (1, 2))": alter(ast.AddConstraint("c", "a IN (1, 2)")),
    "ALTER TABLE t DROP CONSTRAINT IF EXISTS c": alter(ast.DropConstraint("c", if_exists=True)),
    "ALTER TABLE t ADD COLUMN a.b INT AFTER c": alter(ast.AddColumns((column("a.b", "INT", position=("c",)),))),
    "ALTER TABLE t ADD COLUMNS (a INT FIRST, b STRING COMMENT 'x')": alter(
        ast.AddColumns((column("a", "INT", position="FIRST"), column("b", "STRING", comment="x")))
    ),
    "ALTER TABLE t DROP COLUMNS (a, b.c)": alter(ast.DropColumns((("a",), ("b", "c")), if_exists=False)),
    "ALTER TABLE t RENAME COLUMN a.b TO c": alter(ast.RenameColumn(("a", "b"), "c")),
    "ALTER TABLE t ALTER COLUMN a TYPE DECIMAL(10, 2)": change(ast.ChangeColumn(("a",), data_type="DECIMAL(10, 2)")),
    "ALTER TABLE t CHANGE COLUMN a SET NOT NULL": change(ast.ChangeColumn(("a",), nullable=False)),
    "ALTER TABLE t CHANGE a a INT COMMENT 'x' AFTER b": change(
        ast.ChangeColumn(("a",), data_type="INT", comment="x", position=("b",))
    ),
    "ALTER TABLE t ALTER COLUMN a DROP DEFAULT": change(ast.ChangeColumn(("a",), default="")),
    "ALTER TABLE t ALTER COLUMN a COMMENT 'x', b.c TYPE BIGINT, d FIRST": change(
        ast.ChangeColumn(("a",), comment="x"),
        ast.ChangeColumn(("b", "c"), data_type="BIGINT"),
        ast.ChangeColumn(("d",), position="FIRST"),
    ),
    "ALTER TABLE t CLUSTER BY NONE": alter(ast.ClusterBy(())),
    "ALTER TABLE t DROP FEATURE 'x' TRUNCATE HISTORY": alter(ast.DropFeature("x", truncates_history=True)),
    "ALTER TABLE t RENAME TO u": None,
    "COMMENT ON TABLE t IS 'x'": alter(ast.SetProperties({"comment": "x"})),
    "EXPLAIN SELECT 1": None,
    "WITH s AS (SELECT 1) SELECT * FROM s": None,
    "CREATE TABLE delta.`/a/b` USING parquet AS SELECT 1": None,
    "CREATE TABLE t (primary INT, unique INT) USING delta OPTIONS ('a' = 1, 'a' = 2)": ast.CreateTable(
        T, "create", (column("primary", "INT"), column("unique", "INT"))
    ),
    "WITH a AS (SELECT 1 AS merge, 2 AS matched) SELECT merge, matched FROM a": None,
    "WITH RECURSIVE merge(i) MAX RECURSION LEVEL 3 AS (SELECT 1), b AS (SELECT 2) SELECT matched FROM merge": None,
    "EXPLAIN WITH s AS (SELECT 1) SELECT merge FROM s": None,
    "WITH s(a) AS (SELECT 1), r AS (TABLE s) INSERT INTO t BY NAME SELECT a FROM r": ast.InsertRows(
        T, False, "WITH s(a) AS (SELECT 1), r AS (TABLE s) (SELECT a FROM r)", by_name=True
    ),
    "SELECT 1": None,
    "SET x = it's": None,
}


@pytest.mark.parametrize("sql", CASES)
def test_a_statement_is_read(sql: str) -> None:
    assert parse_statement(sql) == CASES[sql]


@pytest.mark.parametrize(
    ("sql", "explain"),
    [
        ("WITH s AS (SELECT 1 AS id) MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE", None),
        ("EXPLAIN MERGE INTO t USING s ON a = b WHEN MATCHED THEN DELETE", "plan"),
        ("EXPLAIN WITH s AS (SELECT 1) MERGE INTO t USING s ON a = b WHEN MATCHED THEN DELETE", "plan"),
    ],
)
def test_a_merge_is_read(sql: str, explain: str | None) -> None:
    parsed = parse_statement(sql)
    assert isinstance(parsed, ast.ParsedMerge)
    assert (parsed.sql, parsed.explain) == (sql, explain)


def test_escapes_in_strings_are_those_that_spark_reads() -> None:
    assert string_value(r"'\101 \012 \277 \412 \0 \u00e4 \%'") == "A \n 277 412 \0 ä \\%"


def test_expressions_of_an_update_are_verbatim() -> None:
    parsed = parse_statement("UPDATE d.t AS x SET a = CASE WHEN b THEN 1 ELSE 2 END, c = DEFAULT WHERE a  =  'it''s'")
    assert isinstance(parsed, ast.UpdateRows)
    assert (parsed.table.parts, parsed.alias) == (("d", "t"), "x")
    assert [a.target for a in parsed.assignments] == [("a",), ("c",)]
    assert getattr(parsed.assignments[0].value, "text", None) == "CASE WHEN b THEN 1 ELSE 2 END"
    assert parsed.condition is not None
    assert parsed.condition.text == "a  =  'it''s'"


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("UPDATE t SET a", "expected = after the column's name"),
        ("VACUUM t RETAIN 1 DAYS", "VACUUM RETAIN: expected HOURS"),
        ("VACUUM t DRY RUN DRY RUN", "each option once"),
        ("RESTORE TABLE t", "TO VERSION AS OF"),
        ("CREATE TABLE t (a) USING delta", "a data type"),
        ("CREATE TABLE t (a INT) USING delta CLUSTERED BY (a) INTO 4 BUCKETS", "no buckets"),
        ("CREATE TABLE t DEEP CLONE s", "Only shallow clones"),
        ("DELETE FROM t WHERE", "a condition"),
        ("INSERT OVERWRITE t PARTITION (p = 1) IF NOT SELECT 1", "expected EXISTS"),
        ("INSERT OVERWRITE t PARTITION (p = 2020-01-01) SELECT 1", "Other values go between quotes: p = '2020-01-01'"),
        ("INSERT INTO t PARTITION (q, p = eu) SELECT 1", "Other values go between quotes: p = 'eu'"),
        ("INSERT INTO t PARTITION (p = date_add(DATE'2020-01-01', 1)) SELECT 1", "expected a constant"),
        ("INSERT INTO t PARTITION (p = 'a' || 'b') SELECT 1", "expected a constant"),
        ("INSERT INTO t PARTITION (p = CAST(1 + 1 AS STRING)) SELECT 1", "expected a constant"),
        ("INSERT INTO t PARTITION (p = ) SELECT 1", "expected a constant"),
        ("INSERT INTO t PARTITION (p = DEFAULT) SELECT 1", "DEFAULT"),
        ("ALTER TABLE t ADD CONSTRAINT c PRIMARY KEY (a)", "no keys"),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a)) USING delta", "no keys"),
        ("CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES s (a)) USING delta", "no keys"),
        ("CREATE TABLE t (a INT, UNIQUE (a)) USING delta", "no keys"),
        ("CREATE TABLE t (a INT PRIMARY KEY) USING delta", "no keys"),
        ("CREATE TABLE t (a INT, CONSTRAINT c PRIMARY KEY (a)) USING delta", "no keys"),
        ("CREATE TABLE t (a INT, CHECK (a > 0)) USING delta", "CONSTRAINT name CHECK"),
        ("CREATE TABLE t USING delta TBLPROPERTIES ('a' = '1', a = '2') AS SELECT 1 AS id", "duplicate keys `a`"),
        ("ALTER TABLE t SET TBLPROPERTIES (a.b = 1, 'a.b' = 1)", "duplicate keys `a.b`"),
        ("COMMENT ON TABLE t IS NULL x", "the end of the statement"),
        ("ALTER TABLE t ADD COLUMN g INT GENERATED ALWAYS AS (a + 1)", "are made by CREATE TABLE"),
        ("ALTER TABLE t ADD COLUMNS (g BIGINT GENERATED ALWAYS AS IDENTITY)", "are made by CREATE TABLE"),
        ("ALTER TABLE t RENAME COLUMN a TO b.c", "a name of one part"),
        ("ALTER TABLE t ALTER COLUMN a.b AFTER a.c", "a column of one part"),
    ],
)
def test_a_wrong_statement_is_an_error_at_its_place(sql: str, words: str) -> None:
    with pytest.raises(DeltaParseException, match=words) as raised:
        parse_statement(sql)
    assert "^" in raised.value.message


def test_default_is_a_value_of_inserted_rows() -> None:
    query = "VALUES (1, DEFAULT, 'DEFAULT'), (DEFAULT, default, f(DEFAULT))"
    assert with_defaults(query, [None, "1 + 1", "3"]) == "VALUES (1, (1 + 1), 'DEFAULT'), (NULL, (1 + 1), f(DEFAULT))"
    assert with_defaults("SELECT 1, DEFAULT", ["1", "2"]) == "SELECT 1, (2)"
    assert with_defaults("( (VALUES (DEFAULT, 1)))", ["1", "2"]) == "( (VALUES ((1), 1)))"
    for query in ("(SELECT DEFAULT) UNION (SELECT 1)", "(SELECT a FROM (SELECT DEFAULT))"):
        assert with_defaults(query, ["1"]) == query
    query = "SELECT DISTINCT DEFAULT, f(default, a), default FROM t WHERE default = 1"
    assert with_defaults(query, ["1", "2", None]) == query
    assert with_defaults_for_names(query, ["1", "2", None]) == (
        "SELECT DISTINCT (1), f(default, a), NULL FROM t WHERE default = 1"
    )
    union = "SELECT 1, 2 UNION ALL SELECT DEFAULT, 5"
    for query in (union, "SELECT *, DEFAULT FROM t", "SELECT t.DEFAULT, DEFAULT AS d FROM t", "TABLE DEFAULT"):
        assert with_defaults_for_names(query, ["1", "2"]) == query


def test_parameters_are_bound_by_name_and_in_order() -> None:
    values = {"a": "it's \\", "b": dt.date(2024, 1, 2), "c": Decimal("1.50"), "d": None, "e": 2**40, "f": True}
    assert (
        bind_parameters("x = :a AND y:z::int > :b AND ':a' < :c OR :d OR :e OR :f", values, literal)
        == "x = CAST(X'69742773205c' AS STRING) AND y:z::int > DATE'2024-01-02' AND ':a' < 1.50BD "
        "OR NULL OR 1099511627776L OR TRUE"
    )
    assert bind_parameters("parse_json(s):a + m[1]:a + f(:a)", {"a": 5}, literal) == "parse_json(s):a + m[1]:a + f(5)"
    assert bind_parameters("a = ? AND b = ?", [1, float("inf")], literal) == "a = 1 AND b = DOUBLE('inf')"
    with pytest.raises(DeltaAnalysisException, match="unbound parameter: a"):
        bind_parameters("x = :a", {}, literal)


def test_negative_parameters_begin_no_comment() -> None:
    values = {"a": -5, "b": -(2**40), "c": -1.5, "d": Decimal("-1.50"), "e": float("-inf")}
    assert (
        bind_parameters("1-:a, 1-:b, 1-:c, 1-:d, 1-:e", values, literal)
        == "1-(-5), 1-(-1099511627776L), 1-(-1.5D), 1-(-1.50BD), 1-DOUBLE('-inf')"
    )


def test_spans_and_times_of_day_are_literals() -> None:
    values = [dt.timedelta(1, 3723, 5), -dt.timedelta(seconds=1), dt.time(1, 2, 3)]
    assert bind_parameters("?, ?, ?", values, literal) == (
        "INTERVAL '1 01:02:03.000005' DAY TO SECOND, INTERVAL '-0 00:00:01' DAY TO SECOND, TIME'01:02:03'"
    )
    with pytest.raises(DeltaAnalysisException, match=r"LITERAL_TYPE.*create_map"):
        bind_parameters("?", [{"a": 1}], literal)


def test_datetimes_are_instants_as_in_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    aware = dt.datetime(2024, 7, 1, 12, 0, 0, 5, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert bind_parameters("?", [aware], literal) == "TIMESTAMP'2024-07-01 10:00:00.000005+00:00'"
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert bind_parameters("?", [dt.datetime(2024, 7, 1, 12)], literal) == "TIMESTAMP'2024-07-01 03:00:00+00:00'"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_names_of_relations() -> None:
    sql = "WITH c AS (SELECT * FROM A.b) SELECT * FROM c JOIN `x y` ON 1 = (SELECT max(i) FROM z), range(3), delta.`/p`"
    assert set(relation_names(sql)) == {("a", "b"), ("x y",), ("z",), ("delta", "/p")}


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("INSERT INTO t TABLE v", {("v",)}),
        ("INSERT INTO TABLE t TABLE v", {("v",)}),
        ("INSERT OVERWRITE db.t PARTITION (p = 1) TABLE global_temp.v", {("global_temp", "v")}),
        ("INSERT INTO t BY NAME TABLE v", {("v",)}),
        ("WITH c AS (SELECT 1) INSERT INTO t TABLE v", {("v",)}),
        ("INSERT INTO TABLE t VALUES (1)", set()),
        ("INSERT INTO t SELECT 1 AS table", set()),
        ("CREATE TABLE c USING delta COMMENT 'x' AS TABLE v", {("v",)}),
        ("CREATE OR REPLACE TABLE c (a INT)", set()),
        ("CACHE LAZY TABLE c AS TABLE v", {("v",)}),
        ("CACHE TABLE c TABLE v", {("v",)}),
        ("CACHE LAZY TABLE c OPTIONS ('a' = 'b') TABLE v", {("v",)}),
        ("CACHE TABLE c SELECT 1 AS table", set()),
        ("SELECT a AS table FROM t", {("t",)}),
        ("DROP TABLE t", set()),
        ("MERGE INTO t USING global_temp.v s ON a WHEN MATCHED THEN DELETE", {("global_temp", "v")}),
        ("EXPLAIN ANALYZE MERGE INTO t USING (SELECT * FROM v) ON a WHEN MATCHED THEN DELETE", {("v",)}),
        ("WITH v AS (SELECT 1) MERGE INTO t USING v ON a WHEN MATCHED THEN DELETE", set()),
        ("MERGE INTO t USING IDENTIFIER(:v) s ON a WHEN MATCHED THEN DELETE", {("seen",)}),
        ("SELECT * FROM t JOIN u USING (a)", {("t",), ("u",)}),
    ],
)
def test_names_of_relations_of_statements(sql: str, names: set[tuple[str, ...]]) -> None:
    assert set(relation_names(with_plain_names(sql, {"v": "seen"}))) == names


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("/* c */ DROP VIEW IF EXISTS v", ("v",)),
        ("-- c\nCREATE OR REPLACE TEMP VIEW v USING csv", ("v",)),
        ("CREATE OR REPLACE GLOBAL TEMPORARY VIEW `v` AS SELECT 1", ("global_temp", "v")),
        ("ALTER VIEW global_temp.v AS SELECT 1", ("global_temp", "v")),
        ("DROP VIEW IDENTIFIER('v')", ("v",)),
        ("CREATE OR REPLACE VIEW IF NOT EXISTS v AS SELECT 1", None),
        ("DROP TABLE view", ("view",)),
        ("DROP TABLE IF EXISTS global_temp.v PURGE", ("global_temp", "v")),
        ("DROP TABLE IDENTIFIER('v')", ("v",)),
        ("CREATE TABLE v (a INT)", None),
        ("SELECT * FROM v", None),
    ],
)
def test_temporary_views_that_a_statement_changes(sql: str, name: tuple[str, ...] | None) -> None:
    assert changed_temporary_view(with_plain_names(sql)) == name


@pytest.mark.parametrize(
    "value",
    [
        "'x'",
        "'x' 'y'",
        '"x"',
        "-1",
        "0.5F",
        "NULL",
        "true",
        "DATE'2020-01-01'",
        "TIMESTAMP_NTZ '2020-01-01 00:00:00'",
        "X'00'",
        "INTERVAL '1 02:03:04' DAY TO SECOND",
        "(-1)",
        "CAST(X'27' AS STRING)",
        "CAST(1.5BD AS DECIMAL(3, 1))",
    ],
)
def test_constants_of_partitions(value: str) -> None:
    found = parse_statement(f"INSERT INTO t PARTITION (p = {value}, q) SELECT 1")
    assert isinstance(found, ast.InsertRows)
    assert found.partition == (("p", value), ("q", None))


@pytest.mark.parametrize("option", ["START WITH 9223372036854775808", "INCREMENT BY -9223372036854775809"])
def test_identities_are_bigint(option: str) -> None:
    with pytest.raises(DeltaParseException, match=r"PARSE_SYNTAX_ERROR.*is no BIGINT"):
        parse_statement(f"CREATE TABLE t (i BIGINT GENERATED ALWAYS AS IDENTITY ({option})) USING delta")


def test_a_step_of_an_identity_is_not_zero() -> None:
    with pytest.raises(DeltaParseException, match="IDENTITY_COLUMNS_ILLEGAL_STEP"):
        parse_statement("CREATE TABLE t (i BIGINT GENERATED ALWAYS AS IDENTITY (INCREMENT BY 0)) USING delta")


def test_vacuum_names_its_kind_once() -> None:
    with pytest.raises(DeltaParseException, match="each option once"):
        parse_statement("VACUUM t LITE FULL")
