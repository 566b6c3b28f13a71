"""Delta's operation metrics of a merge, from what was found, written and committed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deltamerge.log.actions import AddFile
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.executors.touched_files import TouchedFiles
from deltamerge.merge.planning.target_files import ScanSizes, partition_count
from deltamerge.write.data_files import WrittenFiles
from deltamerge.write.deletion_vectors import VectorChanges


@dataclass(frozen=True)
class Timings:
    """Milliseconds spent on parts of the merge."""

    execution: int = 0
    materialize_source: int = 0
    scan: int = 0
    rewrite: int = 0


def merge_metrics(
    merge: ResolvedMerge,
    *,
    source_rows: int,
    second_scan_rows: int,
    scan: ScanSizes,
    touched: TouchedFiles,
    inserted: int,
    copied: int,
    removed: Sequence[AddFile],
    written: WrittenFiles,
    vectors: VectorChanges,
    is_partitioned: bool,
    timings: Timings,
) -> dict[str, int]:
    """Put the metrics together.

    Args:
        second_scan_rows: Rows of the source in the second scan, -1 where there was none.
        removed: The files that the commit removes and does not add again with another deletion vector.
        timings: Milliseconds.

    Returns:
        The metrics by Delta's names.
    """
    matched_updated = touched.rows(merge.matched, "update")
    matched_deleted = touched.rows(merge.matched, "delete")
    by_source_updated = touched.rows(merge.not_matched_by_source, "update")
    by_source_deleted = touched.rows(merge.not_matched_by_source, "delete")
    updated = matched_updated + by_source_updated
    return {
        "numSourceRows": source_rows,
        "numSourceRowsInSecondScan": second_scan_rows,
        "numTargetRowsInserted": inserted,
        "numTargetRowsUpdated": updated,
        "numTargetRowsMatchedUpdated": matched_updated,
        "numTargetRowsNotMatchedBySourceUpdated": by_source_updated,
        "numTargetRowsDeleted": matched_deleted + by_source_deleted,
        "numTargetRowsMatchedDeleted": matched_deleted,
        "numTargetRowsNotMatchedBySourceDeleted": by_source_deleted,
        "numTargetRowsCopied": copied,
        "numOutputRows": inserted + updated + copied,
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
        "numTargetChangeFilesAdded": len(written.change_files),
        "numTargetChangeFileBytes": sum(file.size for file in written.change_files),
        "numTargetDeletionVectorsAdded": vectors.vectors_added,
        "numTargetDeletionVectorsRemoved": vectors.vectors_removed,
        "numTargetDeletionVectorsUpdated": vectors.vectors_updated,
        "executionTimeMs": timings.execution,
        "materializeSourceTimeMs": timings.materialize_source,
        "scanTimeMs": timings.scan,
        "rewriteTimeMs": timings.rewrite,
    }


def operation_parameters(merge: ResolvedMerge) -> dict[str, str]:
    """Return the commit's ``operationParameters`` of a merge: JSON in strings, as Delta writes them."""

    def predicates(clauses: Iterable[object]) -> str:
        return json.dumps(list(clauses), ensure_ascii=False, separators=(",", ":"))

    def of(kind: str) -> str:
        return predicates(
            {
                **({"predicate": c.clause.condition.text} if c.clause.condition is not None else {}),
                "actionType": c.action,
            }
            for c in merge.clauses
            if c.clause.kind == kind and c.action != "do_nothing"
        )

    return {
        "predicate": predicates([merge.statement.condition.text]),
        "matchedPredicates": of("matched"),
        "notMatchedPredicates": of("not_matched"),
        "notMatchedBySourcePredicates": of("not_matched_by_source"),
    }
