"""Delta's operation metrics of a merge, from what was found, written and committed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.executors.merge_changes import AppendedRows, MergeChanges
from deltamerge.merge.planning.target_files import partition_count
from deltamerge.merge.statement import MergeStatement

WRITING_STEPS = ("write_all_changes", "write_only_inserts")


_NAMES = [
    "numSourceRows",
    "numSourceRowsInSecondScan",
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsMatchedUpdated",
    "numTargetRowsNotMatchedBySourceUpdated",
    "numTargetRowsDeleted",
    "numTargetRowsMatchedDeleted",
    "numTargetRowsNotMatchedBySourceDeleted",
    "numTargetRowsCopied",
    "numOutputRows",
    "numTargetFilesBeforeSkipping",
    "numTargetFilesAfterSkipping",
    "numTargetBytesBeforeSkipping",
    "numTargetBytesAfterSkipping",
    "numTargetPartitionsAfterSkipping",
    "numTargetFilesAdded",
    "numTargetFilesRemoved",
    "numTargetBytesAdded",
    "numTargetBytesRemoved",
    "numTargetPartitionsAddedTo",
    "numTargetPartitionsRemovedFrom",
    "numTargetChangeFilesAdded",
    "numTargetChangeFileBytes",
    "numTargetDeletionVectorsAdded",
    "numTargetDeletionVectorsRemoved",
    "numTargetDeletionVectorsUpdated",
    "executionTimeMs",
    "materializeSourceTimeMs",
    "scanTimeMs",
    "rewriteTimeMs",
]
_SKIPPED = "numTargetRowsSkipped"


def no_metrics(statement: MergeStatement) -> dict[str, int]:
    return dict.fromkeys([*_NAMES, *([_SKIPPED] if statement.skip_unchanged else [])], 0)


def metrics_of(changes: MergeChanges) -> dict[str, int]:
    execution, scan, touched = changes.execution, changes.target.sizes, changes.touched
    merge, steps = execution.merge, execution.steps
    written, removed = changes.written, changes.removed_files
    # Those of a table without a change data feed are only returned.
    change_files = written.change_files if execution.context.has_change_feed else ()
    is_partitioned = bool(execution.snapshot.metadata.partition_columns)
    matched_updated = touched.rows(merge.matched, "update")
    matched_deleted = touched.rows(merge.matched, "delete")
    by_source_updated = touched.rows(merge.not_matched_by_source, "update")
    by_source_deleted = touched.rows(merge.not_matched_by_source, "delete")
    updated = matched_updated + by_source_updated
    skipped = touched.rows(merge.skipping, "skip_unchanged")
    return {
        "numSourceRows": changes.source_rows,
        "numSourceRowsInSecondScan": changes.second_scan_rows,
        "numTargetRowsInserted": changes.inserted,
        "numTargetRowsUpdated": updated,
        "numTargetRowsMatchedUpdated": matched_updated,
        "numTargetRowsNotMatchedBySourceUpdated": by_source_updated,
        "numTargetRowsDeleted": matched_deleted + by_source_deleted,
        "numTargetRowsMatchedDeleted": matched_deleted,
        "numTargetRowsNotMatchedBySourceDeleted": by_source_deleted,
        "numTargetRowsCopied": changes.copied,
        **({_SKIPPED: skipped} if merge.statement.skip_unchanged else {}),
        "numOutputRows": changes.inserted + updated + changes.copied,
        "numTargetFilesBeforeSkipping": scan.files_before,
        "numTargetFilesAfterSkipping": scan.files_after,
        "numTargetBytesBeforeSkipping": scan.bytes_before,
        "numTargetBytesAfterSkipping": scan.bytes_after,
        "numTargetPartitionsAfterSkipping": scan.partitions_after,
        "numTargetFilesAdded": len(written.files),
        "numTargetFilesRemoved": len(removed),
        "numTargetBytesAdded": sum(file.size for file in written.files),
        "numTargetBytesRemoved": sum(file.size for file in removed),
        "numTargetPartitionsAddedTo": partition_count(written.files, is_partitioned),
        "numTargetPartitionsRemovedFrom": partition_count(removed, is_partitioned),
        "numTargetChangeFilesAdded": len(change_files),
        "numTargetChangeFileBytes": sum(file.size for file in change_files),
        "numTargetDeletionVectorsAdded": changes.vectors.vectors_added,
        "numTargetDeletionVectorsRemoved": changes.vectors.vectors_removed,
        "numTargetDeletionVectorsUpdated": changes.vectors.vectors_updated,
        "executionTimeMs": steps.elapsed,
        "materializeSourceTimeMs": steps.milliseconds("materialize_source"),
        "scanTimeMs": steps.milliseconds("plan_source", "summarize_source", "plan", "find_touched_files"),
        "rewriteTimeMs": steps.milliseconds(*WRITING_STEPS, "write_deletion_vectors"),
    }


# By the names of an UPDATE's and a DELETE's metrics those of a merge.
_OF_ROWS = {
    "numCopiedRows": "numTargetRowsCopied",
    "numAddedFiles": "numTargetFilesAdded",
    "numRemovedFiles": "numTargetFilesRemoved",
    "numAddedBytes": "numTargetBytesAdded",
    "numRemovedBytes": "numTargetBytesRemoved",
    "numAddedChangeFiles": "numTargetChangeFilesAdded",
    "numDeletionVectorsAdded": "numTargetDeletionVectorsAdded",
    "numDeletionVectorsRemoved": "numTargetDeletionVectorsRemoved",
    "numDeletionVectorsUpdated": "numTargetDeletionVectorsUpdated",
    "executionTimeMs": "executionTimeMs",
    "scanTimeMs": "scanTimeMs",
    "rewriteTimeMs": "rewriteTimeMs",
}
_CHANGED = {
    "DELETE": {"numDeletedRows": "numTargetRowsDeleted"},
    "UPDATE": {"numUpdatedRows": "numTargetRowsUpdated"},
}
# What is not known where files were removed whole and one of them has no statistics.
_UNKNOWN = ("numDeletedRows", "numCopiedRows", "numAddedFiles")


def operation_metrics(changes: MergeChanges, metrics: Mapping[str, int]) -> dict[str, str]:
    """Return the commit's ``operationMetrics``, by the names and rules that Delta has for the statement."""
    operation, appended = changes.execution.merge.statement.operation, changes.appended
    if appended is not None:
        return {name: str(value) for name, value in _of_write(metrics, appended).items()}
    if operation == "MERGE":
        return {name: str(value) for name, value in metrics.items()}
    found = {name: metrics[of_merge] for name, of_merge in (_OF_ROWS | _CHANGED[operation]).items()}
    if operation == "UPDATE":
        found["numRemovedFiles"] = len(changes.touched.rewrite)
        columns = changes.execution.snapshot.metadata.partition_columns
        if changes.execution.references.by_partition(columns):
            # delta-spark does not count the vectors of whole partitions.
            found |= dict.fromkeys((name for name in found if name.startswith("numDeletionVectors")), 0)
    if changes.execution.writes_deletion_vectors:
        found["numRemovedBytes"] = 0
    is_unknown = found.get("numDeletedRows") == 0 and found["numRemovedFiles"] > 0
    return {name: str(value) for name, value in found.items() if not (is_unknown and name in _UNKNOWN)}


def _of_write(metrics: Mapping[str, int], appended: AppendedRows) -> dict[str, int]:
    """Return what the history counts of rows and those that they replace. Delta: WRITE_REPLACE_WHERE."""
    written, change_files = appended.written, metrics["numTargetChangeFilesAdded"]
    return {
        "numFiles": len(written.files) + metrics["numTargetFilesAdded"],
        "numOutputRows": written.row_count + metrics["numTargetRowsCopied"],
        "numOutputBytes": sum(file.size for file in written.files) + metrics["numTargetBytesAdded"],
        "numRemovedFiles": metrics["numTargetFilesRemoved"],
        "numRemovedBytes": metrics["numTargetBytesRemoved"],
        "numDeletedRows": metrics["numTargetRowsDeleted"],
        "numCopiedRows": metrics["numTargetRowsCopied"],
        "numAddedChangeFiles": change_files + (len(written.change_files) if change_files else 0),
    }


def operation_parameters(merge: ResolvedMerge) -> dict[str, str]:
    """Return the commit's ``operationParameters``: JSON in strings, as Delta writes them."""

    def predicates(clauses: Iterable[object]) -> str:
        return json.dumps(list(clauses), ensure_ascii=False, separators=(",", ":"))

    def of(kind: str) -> str:
        return predicates(
            {
                **({"predicate": c.clause.condition.text} if c.clause.condition is not None else {}),
                "actionType": c.action,
            }
            for c in merge.given
            if c.kind == kind and c.action != "do_nothing"
        )

    if not merge.statement.has_source:
        conditions = [clause.clause.condition for clause in merge.clauses if clause.clause.condition is not None]
        of_all = ["true"] if merge.statement.operation == "DELETE" else []
        return {"predicate": predicates([condition.text for condition in conditions] or of_all)}
    return {
        "predicate": predicates([merge.statement.condition.text]),
        "matchedPredicates": of("matched"),
        "notMatchedPredicates": of("not_matched"),
        "notMatchedBySourcePredicates": of("not_matched_by_source"),
    }
