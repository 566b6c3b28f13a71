"""Rows that Spark computes, kept in Arrow files for tasks to look up."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import BooleanType, DateType, NumericType, TimestampNTZType, TimestampType

from deltamerge.merge.analysis.join_keys import JoinKey
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.job_errors import is_lost_source, is_stopped, is_unreadable
from deltamerge.merge.executors.lookup import StagedSource
from deltamerge.merge.executors.lookup_recipe import LookupRecipe
from deltamerge.merge.executors.staged_columns import StagedColumns
from deltamerge.merge.output.clause_expressions import (
    evaluate_clauses,
    generate_clause_values,
    generate_precomputed_conditions,
)
from deltamerge.merge.output.derived_columns import with_derived
from deltamerge.merge.output.frames import source_rows
from deltamerge.merge.plan import Declined
from deltamerge.merge.source.key_summary import KeyRange, SourceSummary, summary_of
from deltamerge.merge.source.source import read_source
from deltamerge.spark import columns as F
from deltamerge.spark.own_python import map_in_arrow
from deltamerge.spark.session import SPARK_ERRORS, estimated_bytes
from deltamerge.spark.tasks import collected, python_workers
from deltamerge.workers.staged_rows import (
    REMOTE_SUFFIX,
    STAGED_SUFFIX,
    TOO_MANY,
    StagedFile,
    StagedRows,
    Staging,
    in_order,
    staged_schema,
    staging,
)

# Of `monotonically_increasing_id`: the bits of a row's number in its partition.
_ROW_BITS = 33


@contextmanager
def computing_for_all(execution: Execution, recipe: LookupRecipe, columns: StagedColumns) -> Iterator[None]:
    """Decline values that cannot be computed: of rows that match nothing nobody may ask for them."""
    try:
        yield
    except SPARK_ERRORS as error:
        if not columns.computed or is_unreadable(error) or is_lost_source(error) or is_stopped(error):
            raise
        if recipe.computed_keys:
            reason = "a key, value or condition cannot be computed for every source row"
            raise Declined("match", "key_lookup", reason) from error
        reason = "a value or condition cannot be computed for every source row"
        raise Declined("changed_rows", execution.plan.changed_rows.choice, reason) from error


def check_there(execution: Execution, files: Sequence[StagedFile]) -> None:
    """Check that tasks write where the driver reads: a session may be on another machine."""
    written = [file.path for file in files if file.is_staged]
    there = set(execution.files.names(execution.scratch)) if written else set()
    if not there.issuperset(path.rpartition("/")[2] for path in written):
        raise Declined("match", "key_lookup", "tasks write to the disk of another machine than the driver's")


def stage_computed(execution: Execution, recipe: LookupRecipe, columns: StagedColumns) -> StagedSource:
    """Let Spark compute the source once, and stage of its rows what the clauses write."""
    merge, names = execution.merge, execution.merge.names
    rows = evaluated_rows(execution, recipe, read_source(merge).frame, columns)
    own = (F.col(names.source(index)).alias(name) for name, index in columns.own.items())
    frame = rows.select(*own, *aliased(columns.computed))
    # A row that no INSERT takes, and that nothing else needs, is only counted.
    needed = merge.matched or recipe.clauses.by_source
    ranged = recipe.ranged
    found = stage_columns(frame, execution, ranged, None if needed else columns.clause)
    size = sum(row["size"] for row in found)
    return StagedSource(
        columns=columns,
        rows=StagedRows(staged_files(found), in_parts=execution.opens_in_parts(size)),
        row_count=sum(row["staged"] for row in found),
        bytes=size,
        bytes_in_memory=size,
        summary=_summary(found, recipe.keys.keys, len(ranged)),
    )


def stage_columns(
    frame: DataFrame, execution: Execution, keys: Sequence[tuple[str, JoinKey]], clause: str | None
) -> list[dict[str, Any]]:
    limits, most = execution.limits, most_bytes(execution)
    types = [(name, key.given.simpleString()) for name, key in keys]
    found = stage_rows(frame, execution, limits.indexed_rows, most, types, clause)
    if found is None:
        raise too_many_rows(execution)
    return found


def too_many_rows(execution: Execution) -> Declined:
    limits, most = execution.limits, most_bytes(execution)
    reason = f"the source has more than {limits.indexed_rows:,} rows or {most >> 20:,} MiB"
    return Declined("match", "key_lookup", f"{reason}, which is more than tasks look keys up in")


def most_bytes(execution: Execution) -> int:
    """Return how many bytes of a source are staged. Where the disk is full, the write shall say so."""
    limits = execution.limits
    if not execution.maps_source:
        return limits.staged_bytes
    free = shutil.disk_usage(execution.scratch or tempfile.gettempdir()).free
    return max(limits.source_bytes, min(limits.staged_bytes, free // 2))


def stage_rows(
    frame: DataFrame,
    execution: Execution,
    most_rows: int,
    most_bytes: int,
    keys: Sequence[tuple[str, str]] = (),
    clause: str | None = None,
) -> list[dict[str, Any]] | None:
    """Stage a frame's rows in Arrow files; None where they are more than may be staged.

    Args:
        keys: The columns whose ranges are returned, with their types; else as in `Staging`.
    """
    # Parquet has no structs without fields.
    is_mapped = execution.maps_source or "struct<>" in frame.schema.simpleString()
    suffix = STAGED_SUFFIX if is_mapped else REMOTE_SUFFIX
    wanted = Staging(execution.scratch, tuple(name for name, _ in keys), most_rows, most_bytes, suffix, clause)
    work, few = staging(execution.files, wanted), _few_rows(frame, execution)
    if few is not None:
        found = [row for batch in work(few.to_batches()) for row in batch.to_pylist()]
    else:
        with python_workers():
            done = map_in_arrow(frame, work, staged_schema([kind for _, kind in keys]))
            found = [row.asDict() for row in done.collect()]
    too_many = sum(row["staged"] for row in found) > most_rows
    return None if too_many or any(row["path"] == TOO_MANY for row in found) else found


def _few_rows(frame: DataFrame, execution: Execution) -> pa.Table | None:
    """Collect a frame's rows where they are few and tasks run on this machine, by Spark's estimate of their bytes.

    Tasks would first wait for Python workers.
    """
    limits = execution.limits
    if not execution.context.session.runs_in_local_mode:
        return None
    estimated = estimated_bytes(frame)
    if estimated > limits.collected_bytes or not execution.fits_driver(estimated, files=0):
        return None
    # Spark's estimate does not count the rows that a function such as explode makes of one.
    most = limits.collected_values // len(frame.columns)
    row_of_partition = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << _ROW_BITS) - 1))
    rows = collected(frame.filter(row_of_partition < F.lit(most)))
    return rows if len(rows) < most else None


def comes_to_driver(execution: Execution, frame: DataFrame, rows: int, read_bytes: float) -> bool:
    """Return whether computed rows are few enough to come to the driver.

    Args:
        read_bytes: How many bytes of files they are computed from: strings and what is nested may take as many.
    """
    limits, fields = execution.limits, frame.schema.fields
    if rows * len(fields) > limits.collected_values:
        return False
    sized = (NumericType, BooleanType, DateType, TimestampType, TimestampNTZType)
    return read_bytes <= limits.collected_bytes or all(isinstance(field.dataType, sized) for field in fields)


def staged_files(found: list[dict[str, Any]]) -> tuple[StagedFile, ...]:
    return tuple(StagedFile(row["path"], row["staged"]) for row in found if row["staged"])


def _summary(found: list[dict[str, Any]], keys: Sequence[JoinKey], ranged: int) -> SourceSummary:
    ranges = [
        KeyRange(
            min((row[f"lo{i}"] for row in found if row[f"lo{i}"] is not None), key=in_order, default=None),
            max((row[f"hi{i}"] for row in found if row[f"hi{i}"] is not None), key=in_order, default=None),
            sum(row[f"n{i}"] for row in found),
            sum(row[f"bytes{i}"] for row in found),
            sum(row[f"not_utf8{i}"] for row in found),
        )
        for i in range(ranged)
    ]
    return summary_of(sum(row["n"] for row in found), ranges, keys, partitions=len(found))


def evaluated_rows(execution: Execution, recipe: LookupRecipe, source: DataFrame, columns: StagedColumns) -> DataFrame:
    """Evaluate the clauses on the source's rows; all columns get internal names."""
    merge, names = execution.merge, execution.merge.names
    rows = source_rows(source, merge)
    rows = rows.adding([(name, F.expr(sql)) for name, sql in recipe.computed_keys.items()])
    clauses = recipe.clauses
    if clauses.matched and recipe.choices.pair is None and not recipe.reads_pairs:
        reached = merge.matched[:1] if clauses.take_all else merge.matched
        rows = generate_precomputed_conditions(rows, reached, "matched", F.lit(True), names)
        matched = [clause for clause in clauses.updates if clause.kind == "matched"]
        rows = generate_clause_values(rows, matched, "matched", names, columns.values)
    rows = rows.renamed()
    if merge.inserts:
        rows = evaluate_clauses(rows, merge, "not_matched", values=True)
    for derivation in columns.derivations:
        rows = with_derived(rows, merge, derivation)
    return rows.frame


def aliased(columns: Mapping[str, Column]) -> list[Column]:
    return [column.alias(name) for name, column in columns.items()]
