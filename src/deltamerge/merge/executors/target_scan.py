"""Files of the target as the operators read them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql.types import StructType

from deltamerge.log.actions import AddFile
from deltamerge.merge.analysis.join_keys import INTEGERS
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.output.clause_expressions import evaluate_clauses
from deltamerge.merge.output.frames import Rows, TargetSide, joined, target_rows
from deltamerge.merge.planning.target_files import TargetFiles
from deltamerge.merge.source.key_summary import SourceSummary
from deltamerge.scan.row_tracking import tracked_frame
from deltamerge.scan.target import ScanColumns, target_frame
from deltamerge.skipping.predicates import And, InRanges
from deltamerge.spark import columns as F
from deltamerge.sql.names import quote

# Dates as literals go through java.sql.Date, which knows neither all of them nor their right places.
_COMPARED_NAMES = frozenset({"tinyint", "smallint", "int", "bigint"})


def scan_rows(execution: Execution, files: Sequence[AddFile], *, to_write: bool = False) -> Rows:
    """Read the rows of files.

    Args:
        to_write: Whether some are written again: with row tracking each row's id and version are then among them.
    """
    merge, names, tracked = execution.merge, execution.merge.names, execution.row_tracking if to_write else None
    columns = ScanColumns(names.file_name, names.row_index)
    scanned = execution.table, execution.snapshot, merge.target_schema, files, columns
    if tracked is None:
        return target_rows(target_frame(*scanned), merge)
    rows = target_rows(tracked_frame(*scanned, tracked), merge)
    return Rows(rows.frame, (*rows.names[:-1], names.row_id, names.row_commit_version, names.target_row_present))


def target_side(
    execution: Execution, target: TargetFiles, files: Sequence[AddFile], *, to_write: bool = False
) -> TargetSide:
    unmatchable = target.unmatchable_among(files)
    joined = scan_rows(execution, target.joined_among(files), to_write=to_write)
    return TargetSide(joined, scan_rows(execution, unmatchable, to_write=to_write) if unmatchable else None)


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
    rows, schema = scan_rows(execution, files), execution.merge.target_schema
    predicate = None if source is None else source.predicate
    for part in predicate.parts if isinstance(predicate, And) else ():
        condition = _may_match(part, schema, execution.limits.filtered_ranges) if isinstance(part, InRanges) else None
        if condition is not None:
            rows = Rows(rows.frame.where(condition), rows.names)
    return rows


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


def finds_rows(execution: Execution, source: Rows, files: Sequence[AddFile]) -> bool:
    """Return whether a row of files matches the source, or is one that a BY SOURCE clause takes."""
    merge, names = execution.merge, execution.merge.names
    target = scan_rows(execution, files)
    if not merge.changing_by_source:
        return not joined(source, target, merge.condition, "inner").frame.isEmpty()
    rows = joined(source, target, merge.condition, "right_outer").renamed()
    rows = evaluate_clauses(rows, merge, "not_matched_by_source", values=False)
    taken = F.col(names.clause("not_matched_by_source")).isNotNull()
    return not rows.frame.where(taken | F.col(names.source_row_present)).isEmpty()
