"""Differences from delta-spark that are meant: each with its reason, and none wider than that (docs/differences.md)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from corpus.outcome import Outcome

from .merge import RandomMerge

_IDENTITY = "DELTA_IDENTITY_COLUMNS_"
DUPLICATES = "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"


@dataclass(frozen=True)
class Seen:
    """A difference.

    Args:
        merge: The merge.
        ours: deltamerge's outcome.
        theirs: delta-spark's.
        what: What differs.
    """

    merge: RandomMerge
    ours: Outcome
    theirs: Outcome
    what: str


def only_competing_rows_count(seen: Seen) -> bool:
    """delta-spark counts each pair that ON matches, deltamerge only pairs for which a clause fires."""
    return seen.what == "error" and seen.theirs.error == DUPLICATES and seen.ours.error != DUPLICATES


def rows_are_not_doubled(seen: Seen) -> bool:
    """A target row that several source rows match, none of which a clause takes, comes out of delta-spark's join twice.

    Its own check of the number of records stops it then; deltamerge keeps the row once.
    """
    return seen.what == "error" and seen.theirs.error == "DELTA_NUM_RECORDS_MISMATCH" and seen.ours.error is None


def own_check_of_rows(seen: Seen) -> bool:
    """With deletion vectors Spark may evaluate delta-spark's expressions on rows that its own filter takes out.

    What stands there for rows that no clause takes then fails its merge.
    """
    return (
        seen.what == "error"
        and seen.theirs.error == "USER_RAISED_EXCEPTION"
        and "Unexpected row: did not match any merge clause" in seen.theirs.message
        and ("delta.enableDeletionVectors", "true") in seen.merge.table.properties
    )


def rows_that_stay_are_not_checked(seen: Seen) -> bool:
    """The empty string becomes NULL as a partition value, and what was computed from it no longer fits.

    delta-spark checks such a row again where it copies it; deltamerge checks the rows that a merge makes.
    """
    return (
        seen.what == "error"
        and seen.ours.error is None
        and seen.theirs.error == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
        and "Generated Column" in seen.theirs.message
        and any(f" - {name} : null" in seen.theirs.message for name in seen.merge.table.partition_by)
    )


def rows_of_skipped_files_fail_no_merge(seen: Seen) -> bool:
    """Of files that no source key can meet no row is read, so none is there that ON cannot cast or compute."""
    told = seen.ours.reported_metrics or {}
    before, after = (told.get(f"numTargetFiles{when}Skipping", 0) for when in ("Before", "After"))
    failed = ("CAST_INVALID_INPUT", "CAST_OVERFLOW", "DIVIDE_BY_ZERO", "ARITHMETIC_OVERFLOW")
    return seen.what == "error" and seen.ours.error is None and seen.theirs.error in failed and after < before


def source_is_counted_once(seen: Seen) -> bool:
    """delta-spark counts the source's rows as often as its join reads them.

    That is not at all where Spark sees that ON is never true, and several times in a nested loop.
    """
    rows = [n for n in seen.theirs.metrics if n.startswith("numTargetRows") and n != "numTargetRowsCopied"]
    ours, theirs = (outcome.metrics.get("numSourceRows", 0) for outcome in (seen.ours, seen.theirs))
    return (
        seen.what == "metrics"
        and all(seen.ours.metrics.get(name) == seen.theirs.metrics[name] for name in rows)
        and ours > 0
        and theirs % ours == 0
    )


def files_are_kept(seen: Seen) -> bool:
    """delta-spark rewrites files of which ON matches a row, also where no clause changes one.

    A table that only takes appends refuses that; change data files are then missing, and the feed tells of rows that
    went and came.
    """
    counts = seen.ours.counts or {}
    if seen.ours.error or any(counts.get(f"num_{what}_rows") for what in ("updated", "deleted")):
        return False
    if seen.what == "error":
        return seen.theirs.error == "DELTA_CANNOT_MODIFY_APPEND_ONLY"
    if counts.get("num_inserted_rows"):
        return False
    told = seen.theirs.changes or ()
    kinds = ('"_change_type":"delete"', '"_change_type":"insert"')
    went, came = (sorted(row.replace(kind, "") for row in told if kind in row) for kind in kinds)
    only_those = went == came and len(told) == 2 * len(went) > 0
    return seen.what == "changes" and not seen.ours.changes and only_those


def breaks_two_rules(seen: Seen) -> bool:
    """delta-spark looks at appendOnly as it commits, after the rows' constraints, and at UPDATEs before INSERTs."""
    ours, theirs = seen.ours.error or "", seen.theirs.error or ""
    if seen.what == "error" and ours.startswith(_IDENTITY) and theirs.startswith(_IDENTITY):
        return True
    return (
        seen.what == "error"
        and seen.ours.error == "DELTA_CANNOT_MODIFY_APPEND_ONLY"
        and seen.theirs.error in ("DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES")
        and ("delta.appendOnly", "true") in seen.merge.table.properties
    )


def nothing_changed(seen: Seen) -> bool:
    """delta-spark may commit although no row changed."""
    changed = ("num_updated_rows", "num_deleted_rows", "num_inserted_rows")
    counts = seen.theirs.counts or {}
    return (
        seen.what == "version"
        and seen.theirs.new_version
        and not seen.ours.new_version
        and seen.ours.rows == seen.theirs.rows
        and not any(counts.get(name) for name in changed)
    )


def char_columns(seen: Seen) -> bool:
    """delta-spark pads CHAR columns, and then does not find its own column, or takes the table for a view."""
    generated = any(c.name == "g" for c in seen.merge.table.columns)
    taken_for_view = "DELTA_OPERATION_ON_TEMP_VIEW_WITH_GENERATED_COLS_NOT_SUPPORTED"
    return (
        seen.what == "error"
        and (
            seen.theirs.error == "DELTA_MERGE_RESOLVED_ATTRIBUTE_MISSING_FROM_INPUT"
            or (generated and seen.theirs.error == taken_for_view)
        )
        and any("CHAR" in c.kind.sql for c in seen.merge.table.columns)
    )


def changes_are_padded(seen: Seen) -> bool:
    """delta-spark leaves CHAR values in change data to the reader's padding, deltamerge writes them padded."""
    return (
        seen.what == "changes"
        and any("CHAR" in c.kind.sql for c in seen.merge.table.columns)
        and _without_padding(seen.ours.changes) == _without_padding(seen.theirs.changes)
    )


def spark_fails_itself(seen: Seen) -> bool:
    """A name in another case than the table's ends Spark's analysis of an evolving MERGE, where case matters."""
    return (
        seen.what == "error"
        and seen.ours.error is None
        and seen.theirs.error == "INTERNAL_ERROR"
        and "phase analysis failed with an internal error" in seen.theirs.message
        and seen.merge.conf.get("spark.sql.caseSensitive") == "true"
    )


def _without_padding(rows: tuple[str, ...] | None) -> list[str]:
    return sorted(re.sub(r' +"', '"', row) for row in rows or ())


EXPLAINED: tuple[tuple[str, Callable[[Seen], bool]], ...] = (
    ("only source rows for which a clause fires compete", only_competing_rows_count),
    ("a row that several source rows match stays one row", rows_are_not_doubled),
    ("rows that no clause takes fail no merge", own_check_of_rows),
    ("rows that stay are not checked again", rows_that_stay_are_not_checked),
    ("rows of skipped files fail no merge", rows_of_skipped_files_fail_no_merge),
    ("the source's rows are counted once", source_is_counted_once),
    ("files in which nothing changes are kept", files_are_kept),
    ("a merge that breaks two rules fails by one of them", breaks_two_rules),
    ("no row changed, no version", nothing_changed),
    ("change data of CHAR columns is padded", changes_are_padded),
    ("CHAR columns may be compared", char_columns),
    ("names in another case end no analysis", spark_fails_itself),
)


def explain(merge: RandomMerge, ours: Outcome, theirs: Outcome, what: str) -> str | None:
    """Gives the reason for a difference, or None where there is none."""
    seen = Seen(merge, ours, theirs, what)
    return next((reason for reason, holds in EXPLAINED if holds(seen)), None)
