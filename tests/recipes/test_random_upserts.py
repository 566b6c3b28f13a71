"""Random histories of upserts beside a model in plain Python: rows and counts, each batch twice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamerge import DeltaTable, MergeReport, upsert, write_delta
from deltamerge.exceptions import MultipleSourceRowsException

from .searching import SMALL, rows_of, searching
from .upsert_model import NoLatestRow, Row, Rules, upserted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = st.sampled_from([1, 2, 3, None])
TIMES = st.sampled_from([1, 2, 3, 4, None])
VALUES = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([10, 20, None]))
RULES = st.builds(Rules, *[st.booleans()] * 6)


@st.composite
def batches(draw: st.DrawFn) -> list[Row]:
    """Draws a batch, some of whose rows are delivered twice."""
    rows = draw(st.lists(st.builds(Row, KEYS, TIMES, VALUES, st.sampled_from([True, False, None])), max_size=5))
    if draw(st.booleans()):
        # Of each key one row, so that more histories go on.
        rows = list({row.key: row for row in rows}.values())
    return rows + (draw(st.lists(st.sampled_from(rows), max_size=2)) if rows else [])


@st.composite
def histories(draw: st.DrawFn) -> tuple[Rules, list[Row], list[list[Row]]]:
    rules = draw(RULES)
    keys = draw(st.lists(KEYS, max_size=4))
    # Only NULL may be the key of several rows.
    unique = [key for i, key in enumerate(keys) if key is None or key not in keys[:i]]
    target = [Row(key, draw(TIMES) if rules.keeps_order else None, draw(VALUES)) for key in unique]
    return rules, target, draw(st.lists(batches(), min_size=1, max_size=3))


def table_rows(rows: list[Row], rules: Rules) -> list[tuple[Any, ...]]:
    found = ((row.key, *row.values, *([row.at] if rules.keeps_order else [])) for row in rows)
    return sorted(found, key=repr)


def upsert_by(rules: Rules, path: str, source: DataFrame) -> MergeReport:
    return upsert(
        path,
        source,
        "k",
        order_by="at" if rules.order_by else (),
        delete_when="s.gone" if rules.delete_when else None,
        null_safe=rules.null_safe,
        ignore_nulls=rules.ignore_nulls,
        skip_unchanged=rules.skip_unchanged,
    )


@pytest.mark.slow
@pytest.mark.parametrize("properties", [{}, {"delta.enableChangeDataFeed": "true"}])
def test_random_upserts(spark: SparkSession, tmp_path: Path, properties: dict[str, str]) -> None:
    number = iter(range(10**6))

    @searching
    @given(history=histories())
    def holds(history: tuple[Rules, list[Row], list[list[Row]]]) -> None:
        for key, setting in SMALL.items():
            spark.conf.set(key, setting)
        rules, rows, given_batches = history
        path = str(tmp_path / f"t{next(number)}")
        schema = "k INT, v STRING, w INT" + (", at INT" if rules.keeps_order else "")
        write_delta(spark.createDataFrame(table_rows(rows, rules), schema), path, properties=properties)
        table = DeltaTable.forPath(spark, path)
        for batch in (batch for batch in given_batches for _ in range(2)):
            given_rows = [(row.key, *row.values, row.at, row.gone) for row in batch]
            source = spark.createDataFrame(given_rows, "k INT, v STRING, w INT, at INT, gone BOOLEAN")
            try:
                expected = upserted(rows, batch, rules)
            except NoLatestRow:
                version = table.table.snapshot().version
                with pytest.raises(MultipleSourceRowsException, match="Nothing was changed"):
                    upsert_by(rules, path, source)
                assert table.table.snapshot().version == version
                continue
            report = upsert_by(rules, path, source)
            assert rows_of(table.toDF()) == table_rows(expected.rows, rules)
            counted = {n: report.metrics[f"numTargetRows{n}"] for n in ("Inserted", "Updated", "Deleted")}
            assert counted == {"Inserted": expected.inserted, "Updated": expected.updated, "Deleted": expected.deleted}
            if properties and report.version is not None:
                changes = table.changes(report.version, report.version).count()
                assert changes == expected.inserted + 2 * expected.updated + expected.deleted
            rows = expected.rows

    holds()
