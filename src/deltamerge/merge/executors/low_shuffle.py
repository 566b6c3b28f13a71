"""LowShuffleMergeExecutor: one join finds the positions of the rows that change; only these rows are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from deltamerge.log.actions import AddFile
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.matches import NO_MATCHES, Matches, find_matches
from deltamerge.merge.executors.merge_changes import MergeChanges
from deltamerge.merge.executors.spark_changes import SparkChanges, write_changes
from deltamerge.merge.executors.target_scan import finds_rows, first_side, target_side
from deltamerge.merge.executors.touched_files import find_touched_files
from deltamerge.merge.output.frames import Rows, joined, source_rows
from deltamerge.merge.planning.target_files import TargetFiles
from deltamerge.merge.source.key_summary import SourceSummary, can_broadcast
from deltamerge.merge.source.source import Source
from deltamerge.scan.paths import absolute_key, file_key
from deltamerge.spark import columns as F


def execute_low_shuffle(execution: Execution, source: Source, summary: SourceSummary) -> MergeChanges:
    """Run a merge whose source is kept."""
    merge, steps, conf = execution.merge, execution.steps, execution.conf
    with steps.step("plan", "choosing the files to read"):
        target = execution.target_files(summary.predicate)
    rows = source_rows(source.frame, merge)
    sent = Rows(F.broadcast(rows.frame), rows.names)
    threshold, most = conf.auto_broadcast_join_threshold, execution.limits.broadcast_key_bytes
    keys, whole = (
        sent if can_broadcast(size, threshold, most) else rows for size in (summary.key_bytes, summary.row_bytes)
    )
    join = _Join(execution, keys, whole, target)
    matches = NO_MATCHES
    if target.files and (merge.changing or merge.inserts):
        with steps.step("find_touched_files", "scanning files for matches", target.files):
            matches = join.find(summary, rows)
    changes = write_changes(SparkChanges(execution, summary, target, rows, join.rows, matches))
    return replace(changes, finds_rows=partial(finds_rows, execution, rows))


@dataclass(frozen=True)
class _Join:
    """Source and target joined.

    Args:
        keys: The source's side where only ON and conditions are evaluated, to be sent to every executor if that is
            little.
        source: The same where its rows are written.
    """

    execution: Execution
    keys: Rows
    source: Rows
    target: TargetFiles

    def find(self, summary: SourceSummary, source: Rows) -> Matches:
        execution, merge = self.execution, self.execution.merge
        side = first_side(execution, self.target, summary)
        by_source = merge.changing_by_source
        rows = joined(self.keys, side.joined, merge.condition, "right_outer" if by_source else "inner")
        by_name = {absolute_key(execution.table, file): file for file in self.target.files}
        of_source = merge.inserts or any(clause.action == "update" for clause in merge.matched)
        matches = find_matches(
            merge, rows, side.unmatchable, lambda uri: by_name[file_key(uri)].path, of_source=of_source
        )
        if matches.has_competing and not merge.is_only_one_unconditional_delete:
            # The scan that knows the rows themselves reports which they are.
            everything = target_side(execution, self.target, self.target.files)
            find_touched_files(merge, source, everything, by_name)
            raise AssertionError("several source rows change one target row")
        return matches

    def rows(self, how: str, files: Sequence[AddFile]) -> tuple[Rows, Rows | None]:
        side = target_side(self.execution, self.target, files, to_write=True)
        rows = joined(self.source, side.joined, self.execution.merge.condition, how)
        return rows, side.unmatchable
