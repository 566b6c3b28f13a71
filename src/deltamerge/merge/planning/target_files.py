"""Which files of the target a merge reads, and which of them it joins with the source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from deltamerge.log.actions import AddFile
from deltamerge.log.file_table import FileTable
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.column_references import MergeReferences
from deltamerge.merge.analysis.join_keys import JoinKeys
from deltamerge.merge.source.key_summary import has_histogram, unscaled_digits
from deltamerge.skipping.histogram import KeyHistogram, histogram_of
from deltamerge.skipping.keys import Mask
from deltamerge.skipping.predicates import Predicate
from deltamerge.skipping.pruning import extents, files_that_may_match


@dataclass(frozen=True)
class ScanSizes:
    """What skipping left of a table; 0 partitions on an unpartitioned one."""

    files_before: int
    bytes_before: int
    files_after: int
    bytes_after: int
    partitions_after: int


@dataclass(frozen=True)
class TargetFiles:
    """Which files a merge reads.

    Args:
        predicate: What rows fulfil that the merge may have to read.
        unmatchable: The paths, as in the log, of those of them in which no source row can match a row: only BY SOURCE
            clauses may change their rows, and they are not joined.
    """

    predicate: Predicate
    files: tuple[AddFile, ...]
    unmatchable: frozenset[str]
    sizes: ScanSizes

    def joining_all(self) -> TargetFiles:
        return replace(self, unmatchable=frozenset())

    def joined_among(self, files: Iterable[AddFile]) -> tuple[AddFile, ...]:
        return tuple(file for file in files if file.path not in self.unmatchable)

    def unmatchable_among(self, files: Iterable[AddFile]) -> tuple[AddFile, ...]:
        return tuple(file for file in files if file.path in self.unmatchable)


def target_files(
    snapshot: Snapshot,
    references: MergeReferences,
    source: Predicate,
    session_time_zone: str,
    among: Mask | None = None,
) -> TargetFiles:
    """Find the files that may hold rows the merge must see.

    Args:
        source: What a target row looks like that the source can match.
        among: Which files of the table are asked for, one bool per file; None for all.
    """
    predicate = references.to_read(source)
    mask = may_match_mask(snapshot, predicate, session_time_zone, among)
    kept = _among(snapshot.files, mask)
    files = tuple(kept.add_files())
    joined = (
        may_match_mask(snapshot, references.matching(source), session_time_zone, mask)[mask]
        if references.merge.not_matched_by_source
        else np.ones(len(files), np.bool_)
    )
    sizes = ScanSizes(
        files_before=snapshot.files.num_files,
        bytes_before=snapshot.files.size_in_bytes,
        files_after=kept.num_files,
        bytes_after=kept.size_in_bytes,
        partitions_after=partition_count(files, bool(snapshot.metadata.partition_columns)),
    )
    unmatchable = frozenset(file.path for file, joins in zip(files, joined, strict=True) if not joins)
    return TargetFiles(predicate, files, unmatchable, sizes)


def partition_count(files: Iterable[AddFile], is_partitioned: bool) -> int:
    if not is_partitioned:
        return 0
    return len({tuple(sorted(file.partition_values.items())) for file in files})


def may_match(snapshot: Snapshot, predicate: Predicate, session_time_zone: str) -> FileTable:
    """Find the files that may hold rows of a predicate, without an object for each."""
    return _among(snapshot.files, may_match_mask(snapshot, predicate, session_time_zone))


def _among(files: FileTable, mask: Mask) -> FileTable:
    return files if bool(mask.all()) else files.filter(mask)


def may_match_mask(snapshot: Snapshot, predicate: Predicate, session_time_zone: str, among: Mask | None = None) -> Mask:
    partition_columns = snapshot.metadata.partition_columns
    return files_that_may_match(predicate, snapshot.files, snapshot.schema, partition_columns, session_time_zone, among)


def key_histograms(
    snapshot: Snapshot, target_predicate: Predicate, keys: JoinKeys, session_time_zone: str
) -> dict[tuple[str, ...], KeyHistogram]:
    """Return histograms of the target's key columns, by whose buckets gaps between the source's keys are found.

    Args:
        target_predicate: What a row fulfils that any of the keys can match.

    Returns:
        The histograms by the column's path; none where there is one file, of which nothing can be left out.
    """
    # Of a column that equals more than one key the decimal decides.
    ordered = sorted(filter(has_histogram, keys.keys), key=lambda key: unscaled_digits(key) is not None)
    scales = {key.key.target.path: unscaled_digits(key) for key in ordered}
    if not scales:
        return {}
    among = may_match_mask(snapshot, target_predicate, session_time_zone)
    if among.sum() < 2:
        return {}
    partition_columns = snapshot.metadata.partition_columns
    found = extents(scales, snapshot.files, snapshot.schema, partition_columns, session_time_zone, among)
    cut = {path: histogram_of(low, high, scales[path]) for path, (low, high) in found.items()}
    return {path: histogram for path, histogram in cut.items() if histogram is not None}
