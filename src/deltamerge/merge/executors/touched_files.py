"""find_touched_files: which files have rows that a clause changes, and how many rows each clause takes."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame

from deltamerge.exceptions import MultipleSourceRowsException
from deltamerge.log.actions import AddFile
from deltamerge.merge.analysis.internal_columns import InternalColumns
from deltamerge.merge.analysis.resolved_merge import ResolvedClause, ResolvedMerge
from deltamerge.merge.output.clause_expressions import evaluate_clauses
from deltamerge.merge.output.frames import Rows, TargetSide, joined, with_unmatchable
from deltamerge.scan.paths import file_key
from deltamerge.scan.row_positions import bit_in_piece, from_pieces, piece_of
from deltamerge.spark import columns as F

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")
TRACE = 5
logging.addLevelName(TRACE, "TRACE")

_SHOWN_ROWS = 3


@dataclass(frozen=True)
class TouchedFiles:
    """What the first scan found.

    Args:
        rewrite: Files with rows that a clause updates or deletes.
        only_matched: Files with rows that ON matches but no clause changes; an INSERT must know of these matches.
        rows_by_clause: How many target rows each clause changes or skips, by kind and number.
        has_multiple_matches: Whether several source rows match one target row, of which at most one changes it.
    """

    rewrite: tuple[AddFile, ...]
    only_matched: tuple[AddFile, ...]
    rows_by_clause: Mapping[tuple[str, int], int]
    has_multiple_matches: bool

    def rows(self, clauses: Sequence[ResolvedClause], action: str) -> int:
        return sum(self.rows_by_clause.get(clause.key, 0) for clause in clauses if clause.action == action)


NOTHING_TOUCHED = TouchedFiles((), (), {}, has_multiple_matches=False)


def find_touched_files(
    merge: ResolvedMerge,
    source: Rows,
    target: TargetSide,
    files: Mapping[str, AddFile],
) -> TouchedFiles:
    """Join source and target once and find what the merge changes. Delta: ClassicMergeExecutor.findTouchedFiles.

    Other than there, only rows for which a clause fires count as touched, and as matched more than once.

    Args:
        files: The target's files by `file_key`.
    """
    if not _looks_at_target(merge):
        return NOTHING_TOUCHED
    rows = _clauses_of_rows(merge, source, target)
    per_file = _matches_of_rows(merge, rows).groupBy("file").agg(*_sums(merge))
    found = [row.asDict() for row in per_file.collect()]
    return _touched(merge, rows, found, files)


def find_touched_rows(
    merge: ResolvedMerge,
    source: Rows,
    target: TargetSide,
    files: Mapping[str, AddFile],
) -> tuple[TouchedFiles, dict[str, BitMap64]]:
    """Return also, by `file_key`, the positions of the rows that a clause changes; else as `find_touched_files`.

    Delta: ClassicMergeExecutor.findTouchedFiles and writeDVs, which joins a second time.
    """
    if not _looks_at_target(merge):
        return NOTHING_TOUCHED, {}
    rows = _clauses_of_rows(merge, source, target)
    changed = reduce(lambda a, b: a | b, (F.col(c.name) for c in merge.changing), F.lit(False))
    pieces = (
        _matches_of_rows(merge, rows)
        .groupBy("file", piece_of(F.col("row")).alias("piece"))
        .agg(F.bitmap_construct_agg(F.when(changed, bit_in_piece(F.col("row")))).alias("bitmap"), *_sums(merge))
    )
    found = [row.asDict() for row in pieces.collect()]
    return _touched(merge, rows, found, files), _positions(found)


def _positions(found: Sequence[Mapping[str, Any]]) -> dict[str, BitMap64]:
    """Return the positions in pieces by `file_key`; files without any are left out."""
    pieces: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
    for row in found:
        pieces[file_key(row["file"])].append((row["piece"], row["bitmap"]))
    positions = {file: from_pieces(of_file) for file, of_file in pieces.items()}
    return {file: rows for file, rows in positions.items() if rows}


def _looks_at_target(merge: ResolvedMerge) -> bool:
    return bool(merge.matched or merge.not_matched_by_source or merge.inserts)


def _clauses_of_rows(merge: ResolvedMerge, source: Rows, target: TargetSide) -> Rows:
    how = "right_outer" if merge.not_matched_by_source else "inner"
    rows = joined(source, target.joined, merge.condition, how)
    rows = evaluate_clauses(rows, merge, "matched", values=False)
    if merge.not_matched_by_source:
        rows = with_unmatchable(rows, target.unmatchable)
        rows = evaluate_clauses(rows, merge, "not_matched_by_source", values=False)
    return rows


def _matches_of_rows(merge: ResolvedMerge, rows: Rows) -> DataFrame:
    """Count for each target row its matches, and flag the clauses that change it."""
    names = merge.names
    fired = _taken(merge.matched, names)
    of_target = _taken(merge.not_matched_by_source, names)
    for clause in merge.skipping:
        of_target = of_target | _takes(clause, names)
    matched = F.col(names.source_row_present).isNotNull()
    changes = rows.frame.where(matched | of_target).select(
        F.col(names.file_name).alias("file"),
        F.col(names.row_index).alias("row"),
        matched.alias("matched"),
        fired.alias("fired"),
        *(_takes(c, names).alias(c.name) for c in (*merge.changing, *merge.skipping)),
    )
    return changes.groupBy("file", "row").agg(
        F.sum(F.col("matched").cast("int")).alias("matched"),
        F.sum(F.col("fired").cast("int")).alias("fired"),
        *(F.max(c.name).alias(c.name) for c in (*merge.changing, *merge.skipping)),
    )


def _sums(merge: ResolvedMerge) -> list[Column]:
    return [
        F.sum((F.col("fired") > 1).cast("int")).alias("competing"),
        F.sum((F.col("matched") > 1).cast("int")).alias("multiple"),
        F.sum("matched").alias("matches"),
        *(F.sum(F.col(c.name).cast("int")).alias(c.name) for c in merge.changing),
        *(F.sum((F.col(c.name) & (F.col("fired") == 0)).cast("int")).alias(c.name) for c in merge.skipping),
    ]


def _touched(
    merge: ResolvedMerge,
    rows: Rows,
    found: Sequence[Mapping[str, Any]],
    files: Mapping[str, AddFile],
) -> TouchedFiles:
    names = merge.names
    competing = sum(row["competing"] or 0 for row in found)
    if competing and not merge.is_only_one_unconditional_delete:
        raise _multiple_source_rows(merge, rows, _taken(merge.matched, names), competing)
    counted = (*merge.changing, *merge.skipping)
    counts: dict[tuple[str, int], int] = {c.key: sum(row[c.name] or 0 for row in found) for c in counted}
    touched = {row["file"] for row in found if any(row[c.name] for c in merge.changing)}
    matched = {row["file"] for row in found if row["matches"]}
    rewrite = tuple(files[file_key(name)] for name in sorted(touched))
    only_matched = tuple(files[file_key(name)] for name in sorted(matched - touched))
    log_matched_files(file.path for file in rewrite)
    return TouchedFiles(rewrite, only_matched, counts, has_multiple_matches=any(row["multiple"] for row in found))


def log_matched_files(paths: Iterable[str]) -> None:
    logger.log(TRACE, "findTouchedFiles: matched files:\n%s", "\n".join(f"  {path}" for path in paths))


def _takes(clause: ResolvedClause, names: InternalColumns) -> Column:
    number = F.col(names.clause(clause.kind))
    return F.coalesce(number == F.lit(clause.number), F.lit(False))


def _taken(clauses: Sequence[ResolvedClause], names: InternalColumns) -> Column:
    taken = F.lit(False)
    for clause in clauses:
        if clause.action in ("update", "delete"):
            taken = taken | _takes(clause, names)
    return taken


def _multiple_source_rows(
    merge: ResolvedMerge, rows: Rows, fired: Column, affected: int
) -> MultipleSourceRowsException:
    shown = _competing_rows(merge, rows.frame.where(fired)).collect()
    lines = []
    for row in shown:
        lines.append(f" - target row {row['target']} is wanted by {row['wanted']} source rows:")
        lines += [f"     {source}" for source in row["sources"]]
    return MultipleSourceRowsException(
        "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE",
        f"Cannot perform MERGE as multiple source rows matched and attempted to modify {affected} target "
        f"row{'s' if affected != 1 else ''} in the Delta table in possibly conflicting ways; which source row is to "
        "be used is ambiguous. Nothing was written. Pass `dedupe_by` with the columns that tell which source row of a "
        "key is the latest, or let the clauses' conditions choose one. For example:\n" + "\n".join(lines),
        parameters={"affectedRows": str(affected), "samples": json.dumps([row["target"] for row in shown])},
    )


def _competing_rows(merge: ResolvedMerge, rows: DataFrame) -> DataFrame:
    names = merge.names
    target = F.struct(*(F.col(names.target(i)).alias(f.name) for i, f in enumerate(merge.target_schema.fields)))
    seen: set[str] = set()
    sources = []
    for i, field in enumerate(merge.source_schema.fields):
        if field.name.lower() not in seen:
            seen.add(field.name.lower())
            sources.append(F.col(names.source(i)).alias(field.name))
    options = {"ignoreNullFields": "false"}
    return (
        rows.groupBy(names.file_name, names.row_index)
        .agg(
            F.first(F.to_json(target, options)).alias("target"),
            F.count(F.lit(1)).alias("wanted"),
            F.slice(F.collect_list(F.to_json(F.struct(*sources), options)), 1, _SHOWN_ROWS).alias("sources"),
        )
        .where(F.col("wanted") > 1)
        .limit(_SHOWN_ROWS)
    )
