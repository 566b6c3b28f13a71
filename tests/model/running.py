"""Runs a drawn merge by one executor on a table that a witness makes and reads."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltamerge import DeltaMergeBuilder, DeltaTable, MergeReport, merge_sql
from deltamerge.exceptions import DeltaAnalysisException, MultipleSourceRowsException
from deltamerge.merge.command import MergeIntoCommand
from deltamerge.merge.plan import Alternative, MergePlan

from .language import Row
from .merge_model import Clause
from .strategies import Example, rows_query
from .witness import Witness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Seen:
    """What can be seen of a merge.

    Args:
        plan: The plan as it was carried out.
        rows: The table's rows.
        changes: Its change data, None without a feed.
        metrics: Its counts of rows.
        clause_rows: The rows of its clauses, by kind and action.
        version: The version that it made; None where it made none.
    """

    plan: MergePlan
    rows: list[Row]
    changes: list[tuple[str, Row]] | None
    metrics: dict[str, int]
    clause_rows: dict[str, int]
    version: int | None


@dataclass(frozen=True)
class Wanted:
    """A plan to ask for.

    Args:
        executor: ``spark.deltamerge.merge.executor``.
        ruled_out: Operators that are not to be used.
    """

    executor: str
    ruled_out: tuple[Alternative, ...] = ()


class PlanDoesNotFit(Exception):
    """A plan that was asked for does not fit the merge."""


def without(executor: str, *operators: tuple[Any, str]) -> Wanted:
    return Wanted(executor, tuple(Alternative(decision, choice, "ruled out") for decision, choice in operators))


PLANS = (
    Wanted("auto"),
    Wanted("classic"),
    without("classic", ("unchanged_rows", "deletion_vector")),
    Wanted("low_shuffle"),
    without("low_shuffle", ("unchanged_rows", "patch")),
    without("low_shuffle", ("unchanged_rows", "deletion_vector")),
    Wanted("insert_only"),
    without("insert_only", ("source", "read_once")),
    Wanted("key_lookup"),
    without("key_lookup", ("changed_rows", "arrow")),
    without("key_lookup", ("source", "in_place"), ("changed_rows", "arrow")),
    without("key_lookup", ("changed_rows", "arrow"), ("changed_rows", "pair_values")),
    without("key_lookup", ("source", "in_place"), ("changed_rows", "arrow"), ("changed_rows", "pair_values")),
)
"""One for each combination of operators that a session can have."""


def _with_clause(merge: DeltaMergeBuilder, clause: Clause) -> DeltaMergeBuilder:
    """Adds a clause to a builder."""
    kind = {"matched": "Matched", "not_matched": "NotMatched", "not_matched_by_source": "NotMatchedBySource"}
    name = f"when{kind[clause.kind]}{clause.action.title().replace('_', '')}"
    condition = None if clause.condition is None else clause.condition.sql()
    if clause.action in ("delete", "do_nothing"):
        return getattr(merge, name)(condition)
    if clause.assignments is None:
        return getattr(merge, f"{name}All")(condition, except_cols=list(clause.excepted))
    return getattr(merge, name)(condition, {".".join(path): value.sql() for path, value in clause.assignments})


def _plan_of(report: MergeReport) -> MergePlan:
    assert report.outcome.plan is not None
    return report.outcome.plan


def make_table(spark: SparkSession, example: Example, witness: Witness, path: str) -> None:
    """Makes the target, and deletes by a merge what the example wants deleted before."""
    spark.conf.set("spark.deltamerge.merge.executor", "auto")
    witness.make(spark, example, path)
    if example.deleted is not None:
        merge_sql(
            spark,
            f"MERGE INTO delta.`{path}` AS t USING (SELECT 1 AS one) AS s ON {example.deleted.sql()} "
            "WHEN MATCHED THEN DELETE",
        )


def run(spark: SparkSession, example: Example, witness: Witness, made: str, path: str, wanted: Wanted) -> Seen | None:
    """Merges into a copy of the target.

    Returns:
        What came of it; None where several source rows want one target row.

    Raises:
        PlanDoesNotFit: The plan does not fit the merge.
    """
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(made, path)
    spark.sql(rows_query(example.types, example.source)).createOrReplaceTempView("model_source")
    spark.conf.set("spark.deltamerge.merge.executor", wanted.executor)
    table = DeltaTable.forPath(spark, path).alias("t")
    merge = table.merge(
        spark.table("model_source").alias("s"), example.merge.on.sql(), skip_unchanged=example.merge.skip_unchanged
    )
    for clause in example.merge.clauses:
        merge = _with_clause(merge, clause)
    command = MergeIntoCommand(merge.table, merge.statement, ruled_out=wanted.ruled_out)
    try:
        report = MergeReport(command.run())
    except DeltaAnalysisException as error:
        if error.getCondition() != "DELTAMERGE_EXECUTOR_NOT_AVAILABLE":
            raise
        raise PlanDoesNotFit from error
    except MultipleSourceRowsException:
        versions = [DeltaTable.forPath(spark, place).table.snapshot().version for place in (made, path)]
        assert versions[0] == versions[1], "a failed merge made a version"
        return None
    counts: dict[str, int] = {}
    for outcome in report.clauses:
        key = f"{outcome.kind} {outcome.action}"
        counts[key] = counts.get(key, 0) + outcome.rows
    changes = None
    if "delta.enableChangeDataFeed" in example.properties:
        changes = [] if report.version is None else witness.changes(spark, path, report.version)
    return Seen(
        plan=_plan_of(report),
        rows=witness.rows(spark, path),
        changes=changes,
        metrics=dict(report.metrics),
        clause_rows=counts,
        version=report.version,
    )


def row_versions(spark: SparkSession, path: str) -> dict[int, int]:
    """Gives the version that last changed each row, by the row's id, in a table with row tracking."""
    rows = DeltaTable.forPath(spark, path).with_row_ids().selectExpr("_metadata.*").collect()
    versions = {row.row_id: row.row_commit_version for row in rows}
    assert len(versions) == len(rows), "two rows have one id"
    return versions


def bag(rows: Iterable[Any]) -> list[str]:
    """Makes rows comparable whatever their order; NaN is itself, and -0.0 is not 0.0."""
    return sorted(json.dumps(_plain(row), sort_keys=True) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return f"{type(value).__name__} {value}"


def rows_before(example: Example) -> list[Row]:
    """Gives the rows of all files without those that were deleted before the merge."""
    rows = itertools.chain.from_iterable(example.files)
    gone = example.deleted
    return [row for row in rows if gone is None or gone.value({"t": row}) is not True]
