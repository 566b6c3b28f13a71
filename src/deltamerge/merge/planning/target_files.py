"""Which files of the target a merge reads, and which of them it joins with the source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from deltamerge.log.actions import AddFile
from deltamerge.log.file_table import FileTable
from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.analysis.column_references import by_source_predicates
from deltamerge.merge.analysis.resolved_merge import ResolvedMerge
from deltamerge.merge.result.metrics import ScanSizes, partition_count
from deltamerge.merge.source.key_summary import SourceKeys, has_slices, unscaled_digits
from deltamerge.skipping.histogram import KeyHistogram, histogram_of
from deltamerge.skipping.keys import Mask
from deltamerge.skipping.predicates import ALWAYS, And, Or, Predicate
from deltamerge.skipping.pruning import extents, files_that_may_match
from deltamerge.sql.conditions import ConditionShape


@dataclass(frozen=True)
class ScanPlan:
    """Which files a merge reads.

    Args:
        predicate: What a target row looks like that the merge may have to see.
        files: The files that may hold such rows.
        alone: The paths, in the log's spelling, of those of them in which no source row can match a row: BY SOURCE
            clauses may change their rows, and they are not joined.
        sizes: What skipping left of the table.
    """

    predicate: Predicate
    files: tuple[AddFile, ...]
    alone: frozenset[str]
    sizes: ScanSizes

    def joining_all(self) -> ScanPlan:
        """Gives the same plan with all files joined."""
        return replace(self, alone=frozenset())

    def joined_among(self, files: Iterable[AddFile]) -> tuple[AddFile, ...]:
        """Gives those of some files that are joined with the source."""
        return tuple(file for file in files if file.path not in self.alone)

    def alone_among(self, files: Iterable[AddFile]) -> tuple[AddFile, ...]:
        """Gives those of some files that are not joined."""
        return tuple(file for file in files if file.path in self.alone)


def plan_scan(
    snapshot: Snapshot,
    merge: ResolvedMerge,
    shape: ConditionShape,
    source: Predicate,
    session_time_zone: str,
    among: Mask | None = None,
) -> ScanPlan:
    """Finds the files that may hold rows the merge must see.

    Args:
        snapshot: The table.
        merge: The merge.
        shape: What ON says.
        source: What a target row looks like that the source can match.
        session_time_zone: ``spark.sql.session.timeZone``.
        among: Which files of the table are asked for, one bool per file; None for all.
    """
    predicate = read_predicate(merge, shape, source)
    mask = may_match_mask(snapshot, predicate, session_time_zone, among)
    kept = _among(snapshot.files, mask)
    files = tuple(kept.add_files())
    joined = (
        may_match_mask(snapshot, _matching(shape, source), session_time_zone, mask)[mask]
        if merge.not_matched_by_source
        else np.ones(len(files), np.bool_)
    )
    sizes = ScanSizes(
        files_before=snapshot.files.num_files,
        bytes_before=snapshot.files.size_in_bytes,
        files_after=kept.num_files,
        bytes_after=kept.size_in_bytes,
        partitions_after=partition_count(files, bool(snapshot.metadata.partition_columns)),
    )
    alone = frozenset(file.path for file, joins in zip(files, joined, strict=True) if not joins)
    return ScanPlan(predicate, files, alone, sizes)


def read_predicate(merge: ResolvedMerge, shape: ConditionShape, source: Predicate) -> Predicate:
    """Says what a target row looks like that the merge may have to see.

    Args:
        merge: The merge.
        shape: What ON says.
        source: What a target row looks like that the source can match.

    Returns:
        ON's part for the target and the source's ranges; or, where BY SOURCE clauses look at the rest of the table,
        their conditions.
    """
    by_source = by_source_predicates(merge)
    if ALWAYS in by_source:
        return ALWAYS
    matching = _matching(shape, source)
    return Or((matching, *by_source)) if by_source else matching


def _matching(shape: ConditionShape, source: Predicate) -> Predicate:
    return And((shape.target_predicate, source))


def may_match(
    snapshot: Snapshot, predicate: Predicate, session_time_zone: str, among: Mask | None = None
) -> FileTable:
    """Finds the files that may hold rows of a predicate, without an object for each."""
    return _among(snapshot.files, may_match_mask(snapshot, predicate, session_time_zone, among))


def _among(files: FileTable, mask: Mask) -> FileTable:
    return files if bool(mask.all()) else files.filter(mask)


def may_match_mask(
    snapshot: Snapshot, predicate: Predicate, session_time_zone: str, among: Mask | None = None
) -> Mask:
    """Tells of each file of the table whether it may hold rows of a predicate; see `files_that_may_match`."""
    partition_columns = snapshot.metadata.partition_columns
    return files_that_may_match(
        predicate, snapshot.files, snapshot.schema, partition_columns, session_time_zone, among
    )


def key_slices(
    snapshot: Snapshot, shape: ConditionShape, keys: SourceKeys, session_time_zone: str
) -> dict[tuple[str, ...], KeyHistogram]:
    """Cuts the spans of the target's key columns into slices, by which gaps between the source's keys are found.

    Args:
        snapshot: The table.
        shape: What ON says.
        keys: Its keys.
        session_time_zone: ``spark.sql.session.timeZone``.

    Returns:
        The slices by the column's path; none where there is one file, of which nothing can be left out.
    """
    # Of a column that equals more than one key the decimal decides.
    ordered = sorted(filter(has_slices, keys.keys), key=lambda key: unscaled_digits(key) is not None)
    scales = {key.key.target.path: unscaled_digits(key) for key in ordered}
    if not scales:
        return {}
    among = may_match_mask(snapshot, shape.target_predicate, session_time_zone)
    if among.sum() < 2:
        return {}
    partition_columns = snapshot.metadata.partition_columns
    found = extents(scales, snapshot.files, snapshot.schema, partition_columns, session_time_zone, among)
    cut = {path: histogram_of(low, high, scales[path]) for path, (low, high) in found.items()}
    return {path: slices for path, slices in cut.items() if slices is not None}
