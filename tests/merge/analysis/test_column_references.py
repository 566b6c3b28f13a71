"""Which columns the expressions of a MERGE refer to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from deltamerge.merge.analysis.column_references import MergeReferences
from deltamerge.merge.analysis.resolved_merge import ResolvedClause
from deltamerge.skipping.predicates import ALWAYS, NEVER, And, ColumnRef, Comparison, Or, Predicate, Unknown

from ..planning.merges import DELETE, INSERT, UPSERT, merge_of


def references(clauses: str = UPSERT, on: str = "t.id = s.id") -> MergeReferences:
    return MergeReferences(merge_of(clauses, on))


def first(of: MergeReferences) -> ResolvedClause:
    return of.merge.clauses[0]


def compare(column: str, op: str, value: int) -> Predicate:
    return Comparison(op, ColumnRef((column,)), value, "int")


# ON and what it excludes


def test_on_is_parsed_into_conjuncts_and_keys() -> None:
    on = references(on="t.id = s.id AND t.n > 5 AND s.n < 3 AND t.n + s.n = 4 AND my_function(x.y)").on
    assert [part.side for part in on.conjuncts] == [
        "both",
        "target_only",
        "source_only",
        "both",
        "unreadable",
    ]
    assert [(key.target.path, key.source_path) for key in on.equi_keys] == [(("id",), ("id",))]


def test_rows_that_on_matches() -> None:
    found = references(on="t.id = s.id AND t.n > 5")
    of_target, of_source = found.on.target_predicate, compare("id", "<", 100)
    assert found.matching(of_source) == And((of_target, of_source))
    assert found.to_read(of_source) == found.matching(of_source)


BY_SOURCE = "WHEN NOT MATCHED BY SOURCE"


def test_rows_that_by_source_clauses_change() -> None:
    clauses = f"{UPSERT} {BY_SOURCE} AND t.n = 1 THEN DELETE {BY_SOURCE} AND day IS NULL THEN UPDATE SET n = 0"
    found = references(clauses)
    assert len(found.by_source_predicates) == 2
    assert found.to_read(NEVER) == Or((found.matching(NEVER), *found.by_source_predicates))


@pytest.mark.parametrize(
    "clauses",
    [
        f"{BY_SOURCE} THEN DELETE",
        f"{BY_SOURCE} AND t.n = 1 THEN DO NOTHING {BY_SOURCE} THEN DELETE",
    ],
)
def test_a_by_source_clause_without_a_condition_reads_all(clauses: str) -> None:
    assert references(f"{UPSERT} {clauses}").to_read(NEVER) == ALWAYS


def test_by_source_clauses_that_do_nothing_read_nothing() -> None:
    found = references(f"{UPSERT} {BY_SOURCE} THEN DO NOTHING")
    assert found.by_source_predicates == ()
    assert found.to_read(NEVER) == found.matching(NEVER)


@pytest.mark.parametrize(
    ("clauses", "on", "expected"),
    [
        (UPSERT, "t.id = s.id AND t.n > 5", True),
        ("WHEN MATCHED AND t.n < s.n THEN DELETE", "t.id = s.id", True),
        (f"{DELETE} {BY_SOURCE} AND t.day = DATE'2024-01-01' THEN DELETE", "t.id = s.id", True),
        (UPSERT, "t.id = my_function(s.id)", False),
        (UPSERT, "t.id = s.id AND rand() > 0.5", False),
        ("WHEN MATCHED AND t.day < current_date() THEN DELETE", "t.id = s.id", False),
        ("WHEN MATCHED AND t.day < current_date THEN DELETE", "t.id = s.id", False),
        (f"{DELETE} {BY_SOURCE} AND t.day < current_date() THEN DELETE", "t.id = s.id", False),
        ("WHEN MATCHED THEN UPDATE SET name = uuid()", "t.id = s.id", True),
        ("WHEN NOT MATCHED AND rand() > 0.5 THEN INSERT *", "t.id = s.id", True),
    ],
)
def test_conditions_that_only_compare_are_deterministic(clauses: str, on: str, expected: bool) -> None:
    assert references(clauses, on).is_deterministic == expected


# What a clause refers to


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("s.n > 5", True),
        ("my_function(s.n, s.name)", True),
        ("true", True),
        ("t.n > 5", False),
        ("s.n = t.n", False),
        ("n > 5", False),
        ("x.n > 5", False),
        ("exists(SELECT 1 FROM u)", False),
    ],
)
def test_conditions_on_the_source(condition: str, expected: bool) -> None:
    found = references(f"WHEN MATCHED AND {condition} THEN DELETE")
    assert found.of(first(found)).condition_from_source == expected


def test_by_source_clauses_see_only_the_target() -> None:
    """The target's column s is a struct, whatever the source is called."""
    target = {"id": LongType(), "v": StringType(), "s": StructType([StructField("v", StringType())])}
    source = {"id": LongType(), "v": StringType()}
    clauses = f"{BY_SOURCE} AND s.v = 'x' THEN UPDATE SET v = s.v"
    found = MergeReferences(merge_of(clauses, "t.id = s.id", target, source))
    of_clause = found.of(first(found))
    assert not of_clause.condition_from_source
    assert of_clause.source_columns == (None, None, None)
    assert of_clause.from_source == (False, False, False)


def test_clause_without_a_condition() -> None:
    found = references(DELETE)
    of_clause = found.of(first(found))
    assert of_clause.condition_from_source
    assert (of_clause.from_source, of_clause.source_columns, of_clause.keeps_value) == ((), (), ())


def test_star() -> None:
    found = references(INSERT)
    of_clause = found.of(first(found))
    assert of_clause.from_source == (True,) * 4
    assert of_clause.source_columns == (0, 1, 2, 3)
    assert of_clause.keeps_value == (True,) * 4


@pytest.mark.parametrize(
    ("value", "from_source", "column", "as_is"),
    [
        ("s.n", True, 1, 1),
        ("(s.n)", True, 1, 1),
        ("s.N", True, 1, 1),
        ("s.id", True, 0, None),
        ("s.n + 1", True, None, None),
        ("CAST(s.id AS INT)", True, None, None),
        ("my_function(s.n)", True, None, None),
        ("7", True, None, None),
        ("DEFAULT", True, None, None),
        ("t.n", False, None, None),
        ("n", False, None, None),
        ("t.n + s.n", False, None, None),
        ("(SELECT 1)", False, None, None),
        ("s.missing", False, None, None),
    ],
)
def test_values(value: str, from_source: bool, column: int | None, as_is: int | None) -> None:
    found = references(f"WHEN MATCHED THEN UPDATE SET n = {value}")
    of_clause = found.of(first(found))
    assert of_clause.from_source[1] == from_source
    assert of_clause.source_columns[1] == column
    assert of_clause.taken_as_is(1) == as_is


def test_columns_that_stay_are_not_from_the_source() -> None:
    found = references("WHEN MATCHED THEN UPDATE SET n = s.n")
    assert found.of(first(found)).from_source == (False, True, False, False)


def test_structs_keep_fields_that_only_the_target_has() -> None:
    old = StructType([StructField("x", LongType()), StructField("y", LongType())])
    new = StructType([StructField("x", LongType())])
    columns = {"id": LongType(), "s": old}
    for clauses, from_source in (("WHEN MATCHED THEN UPDATE SET *", False), (INSERT, True)):
        found = MergeReferences(merge_of(clauses, target=columns, source={**columns, "s": new}, evolution=True))
        assert found.of(first(found)).from_source == (True, from_source)
    found = MergeReferences(merge_of("WHEN MATCHED THEN UPDATE SET s.x = s.id", target=columns))
    assert found.of(first(found)).from_source == (False, False)


def test_clauses_of_several_kinds_have_their_own_numbers() -> None:
    found = references("WHEN MATCHED THEN UPDATE SET n = t.n WHEN NOT MATCHED THEN INSERT (n) VALUES (s.n)")
    update, insert = found.merge.clauses
    assert (update.number, insert.number) == (0, 0)
    assert not found.of(update).from_source[1]
    assert found.of(insert).from_source[1]


def test_what_may_be_a_column_of_a_joined_frame() -> None:
    """Spark takes ``x.n`` for a column of the frame x in a join without an alias, though the target has a struct x."""
    merge = merge_of(UPSERT, "t.id = 1 AND x.n = 2 AND x.y = 3")
    target = StructType([*merge.target_schema.fields, StructField("x", StructType([StructField("n", LongType())]))])
    known = MergeReferences(replace(merge, target_schema=target)).on
    assert [part.side for part in known.conjuncts[:2]] == ["target_only", "target_only"]
    statement = replace(merge.statement, source_name=())
    joined = MergeReferences(replace(merge, target_schema=target, statement=statement)).on
    assert [part.side for part in joined.conjuncts[:2]] == ["target_only", "unreadable"]
    assert joined.conjuncts[1].predicate == Unknown()
