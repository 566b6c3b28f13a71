"""Whether files have a row that a merge would have read, had they been there: the second look after a conflict."""

from __future__ import annotations

from collections.abc import Sequence

from deltamerge.log.actions import AddFile
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.target_scan import scan_rows
from deltamerge.merge.output.clause_expressions import evaluate_not_matched_by_source
from deltamerge.merge.output.frames import Rows, joined
from deltamerge.spark import columns as F


def finds_rows(execution: Execution, source: Rows, files: Sequence[AddFile]) -> bool:
    """Return whether a row of files matches the source, or is one that a BY SOURCE clause takes."""
    merge, names = execution.merge, execution.merge.names
    target = scan_rows(execution, files)
    if not merge.changing_by_source:
        return not joined(source, target, merge.condition, "inner").frame.isEmpty()
    rows = joined(source, target, merge.condition, "right_outer").renamed()
    rows = evaluate_not_matched_by_source(rows, merge, values=False)
    taken = F.col(names.clause("not_matched_by_source")).isNotNull()
    return not rows.frame.where(taken | F.col(names.source_row_present)).isEmpty()
