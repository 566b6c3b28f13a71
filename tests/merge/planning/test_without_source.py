"""Plans of UPDATE and DELETE, which are merges without a source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.merge.analysis.column_references import MergeReferences
from deltamerge.merge.planning.context import PlanningContext
from deltamerge.merge.planning.planner import make_plan
from deltamerge.merge.source.key_summary import NO_ROWS
from deltamerge.merge.statement import Operation

from .merges import PLAIN, VECTORS, Choices, Table, choices, context_of

PARTITIONED = replace(PLAIN, partitions=("day",))
FEED = replace(VECTORS, properties={**VECTORS.properties, "delta.enableChangeDataFeed": "true"})
SET = "UPDATE SET n = t.n + 1"


def context(folder: Path, action: str, condition: str | None, table: Table = PLAIN) -> PlanningContext:
    when = "WHEN NOT MATCHED BY SOURCE" + ("" if condition is None else f" AND {condition}")
    found = context_of(folder, f"{when} THEN {action}", "false", table)
    operation: Operation = "DELETE" if action == "DELETE" else "UPDATE"
    statement = replace(found.merge.statement, operation=operation, source_name=())
    merge = replace(found.merge, statement=statement, source_schema=StructType([]))
    return replace(found, merge=merge, references=MergeReferences(merge), summary=NO_ROWS)


@pytest.mark.parametrize(
    ("action", "condition", "table", "expected"),
    [
        ("DELETE", None, PLAIN, ("whole_files", "none", "none", "none")),
        ("DELETE", "true", VECTORS, ("whole_files", "none", "none", "none")),
        (
            "DELETE",
            "t.day < DATE'2024-01-01' OR year(t.day) = 2030",
            PARTITIONED,
            ("whole_files", "none", "none", "none"),
        ),
        ("DELETE", "t.day IS NULL AND t.id = 1", PARTITIONED, ("key_lookup", "none", "arrow", "patch")),
        ("DELETE", "t.id = 1", VECTORS, ("key_lookup", "none", "arrow", "deletion_vector")),
        ("DELETE", "t.id = 1", FEED, ("key_lookup", "none", "arrow", "deletion_vector")),
        ("DELETE", "t.id % 7 = length(t.name)", PLAIN, ("join", "none", "spark", "patch")),
        (SET, None, PLAIN, ("key_lookup", "none", "pair_values", "patch")),
        (SET, "t.id = 1", FEED, ("key_lookup", "none", "pair_values", "deletion_vector")),
        (SET, "length(t.name) = 2", VECTORS, ("join", "none", "spark", "deletion_vector")),
    ],
)
def test_plans(tmp_path: Path, action: str, condition: str | None, table: Table, expected: Choices) -> None:
    assert choices(make_plan(context(tmp_path, action, condition, table))) == expected


def test_a_plan_that_no_delete_has(tmp_path: Path) -> None:
    found = context(tmp_path, "DELETE", "t.id = 1")
    forced = replace(found, conf=replace(found.conf, executor="insert_only"))
    with pytest.raises(DeltaAnalysisException, match="this delete cannot run so: no delete runs so"):
        make_plan(forced)


def test_files_are_skipped(tmp_path: Path) -> None:
    """What the log says of the files leaves some out before anything is read."""
    assert context(tmp_path, "DELETE", "t.id < 10").files.num_files == 1


def test_change_data(tmp_path: Path) -> None:
    """Of a DELETE by deletion vectors these hold the changes."""
    assert not context(tmp_path / "a", "DELETE", "t.id = 1", FEED).writes_change_data
    assert context(tmp_path / "b", SET, "t.id = 1", FEED).writes_change_data
