"""What `returning` gives beside DuckDB's ``MERGE … RETURNING merge_action, *``, by random merges."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combinations import combinations
from deltamerge import DeltaMergeBuilder, DeltaTable, write_delta
from recipes.searching import SMALL, rows_of, searching

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

duckdb = pytest.importorskip("duckdb", minversion="1.4", reason="DuckDB has MERGE … RETURNING since 1.4")

COLUMNS = ("k", "v", "n")
SCHEMA = "k INT, v STRING, n INT"
Kind = Literal["matched", "not_matched", "not_matched_by_source"]
Rows = list[tuple[Any, ...]]

OF_SOURCE = ("s.v IS NULL", "s.n > 1", "s.k IS NULL", "s.v = 'a' OR s.n IS NULL")
OF_TARGET = ("t.v IS NULL", "t.n > 1", "t.k = 2", "t.v = 'a' OR t.n IS NULL")
OF_BOTH = (*OF_SOURCE, *OF_TARGET, "s.n > t.n", "s.v <> t.v")
VALUES: dict[str, dict[str, tuple[str, ...]]] = {
    "matched": {"v": ("s.v", "t.v", "coalesce(s.v, t.v)", "'z'", "NULL"), "n": ("s.n", "t.n + s.n", "-1")},
    "not_matched": {"v": ("s.v", "'z'", "NULL"), "n": ("s.n", "s.n + 1", "-1")},
    "not_matched_by_source": {"v": ("t.v", "'z'", "NULL"), "n": ("t.n + 1", "-1", "NULL")},
}
CONDITIONS = {"matched": OF_BOTH, "not_matched": OF_SOURCE, "not_matched_by_source": OF_TARGET}


@dataclass(frozen=True)
class Clause:
    """One WHEN clause; the values are those of v and n."""

    kind: Kind
    action: Literal["insert", "update", "delete", "do_nothing"]
    condition: str | None
    values: dict[str, str]

    def sql(self) -> str:
        when = {"not_matched_by_source": "NOT MATCHED BY SOURCE"}.get(self.kind, self.kind.replace("_", " ").upper())
        condition = "" if self.condition is None else f" AND ({self.condition})"
        if self.action == "insert":
            action = f"INSERT (k, v, n) VALUES (s.k, {self.values['v']}, {self.values['n']})"
        elif self.action == "update":
            action = "UPDATE SET " + ", ".join(f"{name} = {value}" for name, value in self.values.items())
        else:
            action = self.action.replace("_", " ").upper()
        return f"WHEN {when}{condition} THEN {action}"

    def added_to(self, merge: DeltaMergeBuilder) -> DeltaMergeBuilder:
        when = {"matched": "whenMatched", "not_matched": "whenNotMatched"}.get(self.kind, "whenNotMatchedBySource")
        method = getattr(merge, when + {"do_nothing": "DoNothing"}.get(self.action, self.action.title()))
        if self.action == "insert":
            return method(self.condition, {"k": "s.k", **self.values})
        return method(self.condition, self.values) if self.action == "update" else method(self.condition)


def rows(keys: Any) -> st.SearchStrategy[Rows]:
    values = (st.sampled_from(["a", "b", None]), st.sampled_from([0, 1, 2, None]))
    return st.lists(st.tuples(keys, *values), max_size=6, unique_by=lambda row: row[0])


@st.composite
def clauses(draw: st.DrawFn) -> list[Clause]:
    found = list[Clause]()
    for kind in draw(st.lists(st.sampled_from(list(CONDITIONS)), min_size=1, max_size=5)):
        actions = ["insert", "do_nothing"] if kind == "not_matched" else ["update", "delete", "do_nothing"]
        condition = draw(st.sampled_from(CONDITIONS[kind]))
        values = {name: draw(st.sampled_from(given)) for name, given in VALUES[kind].items()}
        found.append(Clause(kind, draw(st.sampled_from(actions)), condition, values))  # type: ignore[arg-type]
    if draw(st.booleans()):
        # The last clause of its kind may take all rows.
        last = found.pop()
        found.append(Clause(last.kind, last.action, None, last.values))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "properties"),
    combinations(
        ["auto", "classic", "low_shuffle"],
        [{}, {"delta.enableChangeDataFeed": "true"}, {"delta.enableDeletionVectors": "true"}],
    ),
)
def test_returned_rows(spark: SparkSession, tmp_path: Path, executor: str, properties: dict[str, str]) -> None:
    number = iter(range(10**6))
    keys = st.sampled_from([1, 2, 3, 4, 5, 6, None])

    @searching
    @given(target=rows(keys), source=rows(keys), clauses=clauses(), null_safe=st.booleans())
    def holds(target: Rows, source: Rows, clauses: list[Clause], null_safe: bool) -> None:
        for key, setting in {**SMALL, "spark.deltamerge.merge.executor": executor}.items():
            spark.conf.set(key, setting)
        expected, after = merged_by_duckdb(target, source, clauses, null_safe)
        path = str(tmp_path / f"t{next(number)}")
        write_delta(spark.createDataFrame(target, SCHEMA), path, properties=properties)
        table = DeltaTable.forPath(spark, path)
        on = "t.k <=> s.k" if null_safe else "t.k = s.k"
        merge = table.alias("t").merge(spark.createDataFrame(source, SCHEMA).alias("s"), on)
        for clause in clauses:
            merge = clause.added_to(merge)
        returned = merge.returning()
        assert returned.columns == ["merge_action", *COLUMNS]
        assert rows_of(returned) == expected
        assert rows_of(table.toDF()) == after

    holds()


def merged_by_duckdb(target: Rows, source: Rows, clauses: list[Clause], null_safe: bool) -> tuple[Rows, Rows]:
    """Gives what DuckDB returns of a merge, and the table's rows after it."""
    with duckdb.connect() as connection:
        for name, given_rows in (("target", target), ("source", source)):
            connection.execute(f"CREATE TABLE {name} (k INT, v VARCHAR, n INT)")
            if given_rows:
                connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", given_rows)
        on = "t.k IS NOT DISTINCT FROM s.k" if null_safe else "t.k = s.k"
        whens = "\n".join(clause.sql() for clause in clauses)
        merge = f"MERGE INTO target t USING source s ON {on}\n{whens}\nRETURNING merge_action, *"
        returned = connection.execute(merge).fetchall()
        after = connection.execute("SELECT * FROM target").fetchall()
    return sorted(returned, key=repr), sorted(after, key=repr)
