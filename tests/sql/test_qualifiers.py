from __future__ import annotations

import pytest

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.sql.names import parse_name
from deltamerge.sql.qualifiers import alias_replacements, qualifiers_in, rename_columns, to_aliases, without_qualifier
from deltamerge.sql.relations import find_table_references, replace_references


def aliased(text: str, *names: str) -> str:
    whole = {name: ("c", "db", *parse_name(name))[-3:] for name in names}
    whole |= {name: ("c", *parse_name(name)) for name in names if "." in name}
    references = find_table_references(text, names)
    return replace_references(text, alias_replacements(text, references, whole))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT db.a.id FROM db.a", "SELECT `a`.id FROM db.a AS `a`"),
        ("SELECT DB.`A`.id, f(db.a.s.x) FROM db.a", "SELECT `a`.id, f(`a`.s.x) FROM db.a AS `a`"),
        ("SELECT db.a.*, struct(a.*) FROM db.a", "SELECT `a`.*, struct(a.*) FROM db.a AS `a`"),
        ("SELECT c.db.a.id FROM db.a", "SELECT `a`.id FROM db.a AS `a`"),
        ("SELECT db.t.id, t.id FROM t", "SELECT `t`.id, t.id FROM t AS `t`"),
        ("SELECT db.a.id FROM db.a x", "SELECT db.a.id FROM db.a x"),
        ("SELECT db.a.id FROM db.a VERSION AS OF 1", "SELECT `a`.id FROM db.a VERSION AS OF 1 AS `a`"),
        ("SELECT db.a(1), other.a.id FROM db.a", "SELECT db.a(1), other.a.id FROM db.a AS `a`"),
        ("SELECT 'db.a.id', x.db.a.id FROM db.a", "SELECT 'db.a.id', x.db.a.id FROM db.a AS `a`"),
        ("SELECT 1 FROM db.a, db.a.parts", "SELECT 1 FROM db.a AS `a`, db.a.parts"),
        ("TABLE db.a", "TABLE db.a"),
        (
            "SELECT db.a.id FROM db.a VERSION AS OF 1 TABLESAMPLE (5 ROWS) WHERE true",
            "SELECT `a`.id FROM db.a VERSION AS OF 1 TABLESAMPLE (5 ROWS) AS `a` WHERE true",
        ),
        (
            "SELECT * FROM t WITH (`x` = 1) TABLESAMPLE SYSTEM (5 PERCENT) REPEATABLE (3), y",
            "SELECT * FROM t WITH (`x` = 1) TABLESAMPLE SYSTEM (5 PERCENT) REPEATABLE (3) AS `t`, y",
        ),
        ("SELECT * FROM t WITH ('x' = 1) o", "SELECT * FROM t WITH ('x' = 1) o"),
        (
            "SELECT db.a.id FROM x WHERE EXISTS (SELECT 1 FROM db.a)",
            "SELECT db.a.id FROM x WHERE EXISTS (SELECT 1 FROM db.a AS `a`)",
        ),
        (
            "SELECT * FROM db.a WHERE EXISTS (SELECT 1 FROM x WHERE x.id = db.a.id)",
            "SELECT * FROM db.a AS `a` WHERE EXISTS (SELECT 1 FROM x WHERE x.id = `a`.id)",
        ),
        (
            "SELECT * FROM ((SELECT 1) x JOIN db.a ON db.a.id = 1) WHERE db.a.id > 0",
            "SELECT * FROM ((SELECT 1) x JOIN db.a AS `a` ON `a`.id = 1) WHERE `a`.id > 0",
        ),
        ("SELECT db.a.id, * EXCEPT (id) FROM db.a", "SELECT `a`.id, * EXCEPT (id) FROM db.a AS `a`"),
    ],
)
def test_whole_names_before_columns_become_aliases(text: str, expected: str) -> None:
    assert aliased(text, "db.a", "t") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "SELECT one.t.id, two.t.* FROM one.t JOIN two.t USING (id)",
            "SELECT `c.one.t`.id, `c.two.t`.* FROM one.t AS `c.one.t` JOIN two.t AS `c.two.t` USING (id)",
        ),
        # Ambiguous, and left for Spark to say so.
        (
            "SELECT t.id FROM one.t JOIN two.t",
            "SELECT t.id FROM one.t AS `c.one.t` JOIN two.t AS `c.two.t`",
        ),
        (
            "SELECT 1 FROM one.t WHERE (SELECT x FROM two.t WHERE t.x = one.t.x)",
            "SELECT 1 FROM one.t AS `c.one.t` WHERE (SELECT x FROM two.t AS `c.two.t` WHERE `c.two.t`.x = `c.one.t`.x)",
        ),
        (
            "SELECT t.id, one.t.id FROM one.t UNION ALL SELECT t.id, two.t.id FROM two.t",
            "SELECT t.id, `t`.id FROM one.t AS `t` UNION ALL SELECT t.id, `t`.id FROM two.t AS `t`",
        ),
        (
            "SELECT one.t.id FROM one.t, parquet_db.t",
            "SELECT `c.one.t`.id FROM one.t AS `c.one.t`, parquet_db.t",
        ),
        ("SELECT * FROM one.t, one.t", "SELECT * FROM one.t AS `t`, one.t AS `t`"),
    ],
)
def test_tables_of_one_name_in_several_databases(text: str, expected: str) -> None:
    assert aliased(text, "one.t", "two.t") == expected


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("db.tbl.id = s.id", "db.tbl", "`tbl`.id = s.id"),
        ("tbl.id = s.id AND DB.Tbl . id > 1", "db.tbl", "tbl.id = s.id AND `tbl` . id > 1"),
        ("delta.`/a/b`.id = s.id", "delta./a/b", "`/a/b`.id = s.id"),
        ("`/a/b`.`x.y` = 1", "delta./a/b", "`/a/b`.`x.y` = 1"),
        ("s.tbl.id = x.db.tbl.id", "db.tbl", "s.tbl.id = x.db.tbl.id"),
        (
            "f(db.tbl.id, 'db.tbl.id') -- db.tbl.id\n + db.tbl.x[db.tbl.i].db.tbl.y",
            "db.tbl",
            "f(`tbl`.id, 'db.tbl.id') -- db.tbl.id\n + `tbl`.x[`tbl`.i].db.tbl.y",
        ),
        ("tbl + db.tbl", "db.tbl", "tbl + db.tbl"),
        ("count(tbl.*), struct(db.tbl.*)", "db.tbl", "count(tbl.*), struct(`tbl`.*)"),
        ("db.tbl(1)", "db", "db.tbl(1)"),
        ("a::db.tbl.x", "db.tbl", "a::db.tbl.x"),
        ("cat.db.tbl.s.f", "cat.db.tbl", "`tbl`.s.f"),
    ],
)
def test_qualifiers_are_replaced(text: str, name: str, expected: str) -> None:
    assert rename_columns(text, to_aliases([tuple(name.split("."))])) == expected


def test_tables_whose_names_end_alike_keep_their_whole_names() -> None:
    names = [("prod", "people"), ("cat", "staging", "People")]
    text = "prod.people.id = staging.people.id AND cat.staging.people.v > id"
    expected = "`prod.people`.id = `cat.staging.People`.id AND `cat.staging.People`.v > id"
    assert rename_columns(text, to_aliases(names)) == expected
    with pytest.raises(DeltaAnalysisException, match=r"people.id may be a column of prod.people and cat.staging.Peop"):
        rename_columns("people.id = 1", to_aliases(names))


@pytest.mark.parametrize(
    "sql",
    [
        "(SELECT max(u.v) FROM u)",
        "(SELECT max(db.u.v) FROM db.u)",
        "1 + (SELECT max(u.v) FROM other AS u WHERE u.id > 1)",
        "EXISTS (SELECT 1 FROM a JOIN other u ON a.id = u.id)",
        "(SELECT max(x.v) FROM a x WHERE x.id IN (SELECT u.id FROM u))",
        "(SELECT max(u.v) FROM (SELECT v FROM other) u)",
        "(SELECT max(u.v) FROM VALUES (1), (2) AS u(v) JOIN range(5) v ON u.v = v.id)",
        "(SELECT max(u.v) FROM other LATERAL VIEW explode(a) u AS v)",
    ],
)
def test_columns_of_a_relation_in_a_subquery_stay(sql: str) -> None:
    renaming = to_aliases([("db", "source"), ("db", "u")])
    assert rename_columns(sql, renaming) == sql
    assert ("u",) not in qualifiers_in(sql)
    of_both = "(SELECT max(u.v) FROM u WHERE db.source.id = id) + db.u.v"
    assert rename_columns(of_both, renaming) == "(SELECT max(u.v) FROM u WHERE `source`.id = id) + `u`.v"


def test_parameters_of_functions_are_no_columns() -> None:
    renaming = to_aliases([("db", "u")])
    assert rename_columns("transform(a, u -> u.x + db.u.x)", renaming) == "transform(a, u -> u.x + `u`.x)"
    both = "aggregate(a, 0, (db, y) -> db.u.x + y) + db.u.y"
    assert rename_columns(both, renaming) == both
    assert qualifiers_in("db.u.x = 1 and y = U.z") == {("db",), ("db", "u"), ("u",)}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("t.p = 'a' AND `T`.`q` > t.v", "p = 'a' AND `q` > v"),
        ("p = 't.p' OR s.t.p = 1", "p = 't.p' OR s.t.p = 1"),
        ("exists(a, t -> t.x = 1)", "exists(a, t -> t.x = 1)"),
        ("t . p.f IS NULL AND t(1) = t", "p.f IS NULL AND t(1) = t"),
    ],
)
def test_columns_without_their_alias(sql: str, expected: str) -> None:
    assert without_qualifier(sql, "t") == expected
