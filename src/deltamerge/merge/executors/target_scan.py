"""Files of the target as the operators read them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from deltamerge.log.actions import AddFile
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.join_keys import INTEGERS
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.output.frames import Rows, TargetSide, target_rows
from deltamerge.merge.planning.target_files import TargetFiles
from deltamerge.merge.source.key_summary import SourceSummary
from deltamerge.scan.row_tracking import tracked_frame
from deltamerge.scan.target import ScanColumns, target_frame
from deltamerge.skipping.predicates import And, InRanges
from deltamerge.spark import columns as F
from deltamerge.spark.table import Table
from deltamerge.sql.names import quote

# Dates as literals go through java.sql.Date, which knows neither all of them nor their right places.
_COMPARED_NAMES = frozenset({"tinyint", "smallint", "int", "bigint"})


def scan_rows(execution: Execution, files: Sequence[AddFile]) -> Rows:
    return target_rows(scan_files(execution, files), execution.merge)


def scan_rows_to_write(execution: Execution, files: Sequence[AddFile]) -> Rows:
    """Read rows some of which are written again; with row tracking each row's id and version are among them."""
    rows = target_rows(scan_to_rewrite(execution, files), execution.merge)
    names = execution.merge.names
    tracked = () if execution.row_tracking is None else (names.row_id, names.row_commit_version)
    return Rows(rows.frame, (*rows.names[:-1], *tracked, names.target_row_present))


def target_side_to_write(execution: Execution, target: TargetFiles, files: Sequence[AddFile]) -> TargetSide:
    unmatchable = target.unmatchable_among(files)
    joined = scan_rows_to_write(execution, target.joined_among(files))
    return TargetSide(joined, scan_rows_to_write(execution, unmatchable) if unmatchable else None)


def target_side(execution: Execution, target: TargetFiles, files: Sequence[AddFile]) -> TargetSide:
    unmatchable = target.unmatchable_among(files)
    joined = scan_rows(execution, target.joined_among(files))
    return TargetSide(joined, scan_rows(execution, unmatchable) if unmatchable else None)


def first_side(execution: Execution, target: TargetFiles, source: SourceSummary | None) -> TargetSide:
    """Return the target's side of the first scan: all rows where BY SOURCE clauses change those without a match."""
    if execution.merge.changing_by_source:
        return target_side(execution, target, target.files)
    return TargetSide(matching_side(execution, target.files, source))


def matching_side(execution: Execution, files: tuple[AddFile, ...], source: SourceSummary | None) -> Rows:
    """Return the target's side of a join that only matching rows come out of.

    Args:
        source: What is known of the source; rows outside of its keys' ranges need not be there, and Spark skips row
            groups and pages that have no others. None where it may return other rows at the next read.
    """
    frame, schema = scan_files(execution, files), execution.merge.target_schema
    predicate = None if source is None else source.predicate
    for part in predicate.parts if isinstance(predicate, And) else ():
        condition = _may_match(part, schema, execution.limits.filtered_ranges) if isinstance(part, InRanges) else None
        if condition is not None:
            frame = frame.where(condition)
    return target_rows(frame, execution.merge)


def _may_match(ranges: InRanges, schema: StructType, most: int) -> Column | None:
    """Return a filter for values in ranges; None where Spark may compare otherwise."""
    if ranges.or_null or not ranges.ranges or len(ranges.column.path) > 1:
        return None
    index = schema.names.index(ranges.column.path[0])
    if not isinstance(schema.fields[index].dataType, INTEGERS) or ranges.type_name not in _COMPARED_NAMES:
        return None
    column = F.col(quote(schema.names[index]))
    ends = ranges.ranges if len(ranges.ranges) <= most else ((ranges.ranges[0][0], ranges.ranges[-1][1]),)
    return reduce(or_, ((column >= F.lit(low)) & (column <= F.lit(high)) for low, high in ends))


def scan_files(execution: Execution, files: Sequence[AddFile]) -> DataFrame:
    return target_frame(*_scan_of(execution, files))


def scan_to_rewrite(execution: Execution, files: Sequence[AddFile]) -> DataFrame:
    """Read files whose rows are written again; with row tracking each row's id and version come last."""
    if execution.row_tracking is None:
        return scan_files(execution, files)
    return tracked_frame(*_scan_of(execution, files), execution.row_tracking)


def _scan_of(
    execution: Execution, files: Sequence[AddFile]
) -> tuple[Table, Snapshot, StructType, Sequence[AddFile], ScanColumns]:
    merge = execution.merge
    extra = ScanColumns(merge.names.file_name, merge.names.row_index)
    return execution.table, execution.snapshot, merge.target_schema, files, extra
