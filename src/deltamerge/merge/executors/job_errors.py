"""Errors of Spark jobs, worded for the person whose data or cluster is at fault."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql.types import DataType

from deltamerge.exceptions import DeltaError, DeltaRuntimeException, DeltaTableException
from deltamerge.merge.analysis.column_references import MergeReferences
from deltamerge.merge.analysis.resolved_merge import (
    Output,
    ResolvedClause,
    ResolvedMerge,
    TakeSource,
    TakeValue,
)
from deltamerge.merge.source.rows_at_fault import row_at_fault_in
from deltamerge.merge.source.unfit_values import unfit_value_in
from deltamerge.spark.failed_jobs import WRAPPERS, cause_in
from deltamerge.spark.session import SPARK_ERRORS
from deltamerge.sql.merge_ast import Expression
from deltamerge.workers.staged_rows import SourceChanged
from deltamerge.write.assignment_errors import Narrowing, narrowing_casts, overflow_in, overflow_of
from deltamerge.write.char_varchar import excess_in
from deltamerge.write.constraints import violation_in

# Blocks of rows that are kept, and parts of a shuffle that were other ones when Spark computed them again.
_LOST_ROWS = re.compile(
    r"CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND|[Cc]heckpoint block rdd_\d+_\d+ not found"
    r"|[^\n]*(?:stage with indeterminate output|Task with indeterminate results)[^\n]*"
)
# A job that somebody cancelled, and one that the cluster could not run: no other plan makes up for that.
_STOPPED = re.compile(
    r"OPERATION_CANCELED|SPARK_JOB_CANCELLED|[Cc]ancelled (?:because|as part|by)|part of cancelled job group"
    r"|Job \d+ cancelled|SparkContext was shut ?down|ExecutorLostFailure|OutOfMemoryError|UNABLE_TO_ACQUIRE_MEMORY"
    r"|MemoryError|No space left on device|Too many open files|StatusCode\.(?:CANCELLED|UNAVAILABLE)"
)
# As Python prints the exception of a task.
_CHANGED_SOURCE = re.compile(rf"{SourceChanged.__name__}: ([^\n]*)")
_OVERFLOWS = ("CAST_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE", "DIVIDE_BY_ZERO")
# Spark repeats the line of an expression that failed, with marks under the part.
_POINTED_AT = re.compile(r"== SQL [^\n]*==\n([^\n]+)\n[ \^]*\^")
_UNREADABLE = "FAILED_READ_FILE"


def is_lost_source(error: BaseException) -> bool:
    """Return whether a job failed because rows of the source were lost with an executor, so that it is to be run again.

    They were kept, or part of a shuffle whose lost rows are others when they are computed again.
    """
    return _LOST_ROWS.search(str(error)) is not None


def changed_source_in(error: BaseException) -> str | None:
    """Return which file of the source is no longer the one that was looked at, where work failed for that reason."""
    if isinstance(error, SourceChanged):
        return str(error)
    found = _CHANGED_SOURCE.search(str(error))
    return found and found.group(1)


def is_stopped(error: BaseException) -> bool:
    """Return whether a job was cancelled or ran out of memory, disk or executors, so that its data is not at fault."""
    return _STOPPED.search(str(error)) is not None


def is_unreadable(error: BaseException) -> bool:
    """Return whether a job failed as it read files, and not because a value cannot be computed."""
    cause = cause_in(str(error))
    return cause is not None and cause[0].startswith(_UNREADABLE)


@contextmanager
def assigning_values(merge: ResolvedMerge) -> Iterator[None]:
    """Return Delta's error for an assigned value that cannot be computed or does not fit its column.

    Raises:
        OverflowException: DELTA_CAST_OVERFLOW_IN_TABLE_WRITE in the place of Spark's overflow, where a value is
            cast to its column's type. Delta: CheckOverflowInTableWrite.
    """
    try:
        yield
    except PySparkException as error:
        if isinstance(error, DeltaError) or _is_in_condition(str(error), merge):
            raise
        found = cause_in(str(error))
        overflow = signal = overflow_in(str(error))
        narrowing = _narrowing(merge)
        if overflow is not None:
            detail = overflow.words
        elif not narrowing or found is None or not found[0].startswith(_OVERFLOWS):
            # Delta guards the casts that it adds itself: an overflow in a user's own CAST stays Spark's error.
            raise
        else:
            detail = f"[{found[0]}] {found[1]}"
            overflow = overflow_of(found[1], [one for one, _ in narrowing])
        raise overflow.error(
            "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE",
            f"An assigned value cannot be stored in its column: {detail}{_narrowed(narrowing)} Nothing was changed. "
            "Correct the value in the source, cast it in the statement, or use try_cast for NULL in its place.",
        ) from (error if signal is None else None)


def _is_in_condition(message: str, merge: ResolvedMerge) -> bool:
    """Return whether the SQL that Spark points at is part of ON or a clause's condition, and of no value."""
    found = _POINTED_AT.search(message)
    if found is None:
        return False
    line = found.group(1)
    statement = merge.statement
    conditions = [statement.condition, *(c.condition for c in statement.clauses if c.condition is not None)]
    assigned = [a.value for c in statement.clauses for a in c.assignments]
    values = [value for value in assigned if isinstance(value, Expression)]
    return any(line in c.sql for c in conditions) and not any(line in v.sql for v in values)


def _narrowing(merge: ResolvedMerge) -> list[tuple[Narrowing, ResolvedClause]]:
    by_name = merge.assignment.structs_by_name
    return [
        (one, clause)
        for clause in merge.clauses
        for output, field in zip(clause.outputs, merge.output_schema.fields, strict=False)
        if (given := _given_type(merge, clause, output)) is not None
        for one in narrowing_casts(field.name, given, field.dataType, structs_by_name=by_name)
    ]


def _narrowed(narrowing: list[tuple[Narrowing, ResolvedClause]]) -> str:
    found = [f"{one.words} in {clause.clause.to_sql()}" for one, clause in narrowing]
    return f" Assignments that narrow a type: {'; '.join(dict.fromkeys(found))}." if found else ""


def _given_type(merge: ResolvedMerge, clause: ResolvedClause, output: Output) -> DataType | None:
    if isinstance(output, TakeSource):
        return merge.source_schema.fields[output.index].dataType
    return clause.value_types[output.index] if isinstance(output, TakeValue) else None


def translated_of_merge(error: Exception, table: str, merge: ResolvedMerge, references: MergeReferences) -> Exception:
    """Return the error that a user can act on; the source is read once more for a row that Spark does not name."""
    worded = translated(error, table)
    unfit = None if isinstance(worded, DeltaError) else unfit_value_in(error, merge, references)
    if unfit is None:
        return worded
    unfit.__cause__ = error
    return unfit


@contextmanager
def translating(table: str) -> Iterator[None]:
    """Raise errors of Spark's as `translated`: those of values that Spark computes as it plans come from anywhere."""
    try:
        yield
    except SPARK_ERRORS as error:
        worded = translated(error, table)
        raise worded from worded.__cause__


def translated(error: Exception, table: str) -> Exception:
    """Return the error that a user can act on: the one behind Spark's or Java's, if any.

    What led to it is its ``__cause__``, unless that is only the signal which this library's own expressions raise.
    """
    if isinstance(error, DeltaError) or not isinstance(error, SPARK_ERRORS):
        return error
    message = str(error)
    at_fault = violation_in(message, table) or excess_in(message) or row_at_fault_in(message) or _unstored_in(message)
    if at_fault is not None:
        return at_fault
    found = cause_in(message)
    condition = (error.getCondition() or "") if isinstance(error, PySparkException) else WRAPPERS[0]
    if found is not None and found[0].startswith(_UNREADABLE):
        unreadable = DeltaTableException(
            found[0],
            f"{found[1]} The file is missing or damaged: restore it, or an earlier version of its table. Nothing was "
            f"changed in table {table}.",
            sqlstate=found[2],
        )
        unreadable.__cause__ = error
        return unreadable
    if found is None or not condition.startswith(WRAPPERS):
        return error
    condition, cause, sqlstate = found
    worded = DeltaRuntimeException(condition, f"{cause} Nothing was changed in table {table}.", sqlstate=sqlstate)
    worded.__cause__ = error
    return worded


def _unstored_in(message: str) -> DeltaRuntimeException | None:
    found = overflow_in(message)
    if found is None:
        return None
    return found.error(
        "DELTA_CAST_OVERFLOW_IN_TABLE_WRITE",
        f"A value cannot be stored in its column: {found.words}. Nothing was changed. Correct the value in the source, "
        "or use try_cast for NULL in its place.",
    )


def source_failed_repeatedly(attempts: int, error: Exception) -> DeltaRuntimeException:
    """The source's rows were lost each time they were computed."""
    found = _LOST_ROWS.search(str(error))
    last = str(error).splitlines()[0] if found is None else found.group(0).strip()
    return DeltaRuntimeException(
        "DELTA_MERGE_MATERIALIZE_SOURCE_FAILED_REPEATEDLY",
        f"Keeping the source of the MERGE statement has failed {attempts} times, because executors that held its rows "
        "were lost. The table is as it was. Give executors more memory, or write the source to a table first and merge "
        f"from there. The last failure: {last}",
    )
