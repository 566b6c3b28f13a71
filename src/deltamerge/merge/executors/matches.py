"""The first scan of the low-shuffle route: which target rows change, and which source rows found a match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from deltamerge.merge.analysis.resolved_merge import ResolvedClause, ResolvedMerge
from deltamerge.merge.executors.bitmaps import NO_ROWS, RowSet, bit_of, piece_of, united
from deltamerge.merge.output.clause_expressions import evaluate_matched, evaluate_not_matched_by_source
from deltamerge.merge.output.frames import Rows, TargetSide, joined, with_rows_alone
from deltamerge.merge.output.internal_columns import MergeNames

if TYPE_CHECKING:
    from pyspark.sql import Column

# Rows of the aggregate that tell of the source have numbers from here on.
OF_SOURCE = 1_000_000


@dataclass(frozen=True)
class Matches:
    """What the first scan found.

    Args:
        changed: By file, as the scan names it, the rows that a clause updates or deletes.
        rows_by_clause: How many target rows each clause changes, by kind and number.
        updating: By MATCHED clause, by its number, the source rows that it takes a new row from.
        matched_sources: The source rows that match a target row, whether or not a clause fires.
        has_competing: Whether clauses fire for several source rows on one target row.
        sources_fire_once: Whether no source row updates several target rows.
    """

    changed: Mapping[str, RowSet]
    rows_by_clause: Mapping[tuple[str, int], int]
    updating: Mapping[int, RowSet]
    matched_sources: RowSet
    has_competing: bool
    sources_fire_once: bool


NO_MATCHES = Matches({}, {}, {}, NO_ROWS, has_competing=False, sources_fire_once=True)


def changing_clauses(merge: ResolvedMerge) -> list[ResolvedClause]:
    """Gives the clauses that change target rows."""
    clauses = (*merge.matched, *merge.not_matched_by_source)
    return [clause for clause in clauses if clause.action in ("update", "delete")]


def find_matches(
    merge: ResolvedMerge, source: Rows, target: TargetSide, names: MergeNames, *, of_source: bool
) -> Matches:
    """Joins source and target once, on what ON and the conditions need, and keeps only row numbers.

    Args:
        merge: The merge.
        source: The source's side.
        target: The target's side, of the files that may match.
        names: The merge's own names.
        of_source: Whether it must be known which source rows matched.

    Returns:
        The rows that change.
    """
    by_source = [c for c in merge.not_matched_by_source if c.action != "do_nothing"]
    rows = joined(source, target.joined, merge.condition, "right_outer" if by_source else "inner")
    rows = evaluate_matched(rows, merge, names, values=False)
    if by_source:
        rows = with_rows_alone(rows, target.alone)
        rows = evaluate_not_matched_by_source(rows, merge, names, values=False)
    changing = changing_clauses(merge)
    places = [_place(_code(changing, names), F.col(names.file_name), F.col(names.row_index))]
    if of_source:
        matched = F.when(F.col(names.source_row_present), _source_code(merge, names))
        places.append(_place(matched, F.lit(None).cast("string"), F.col(names.source_row_index)))
    place = names.packed
    found = (
        rows.frame.select(F.explode(F.array(*places)).alias(place))
        .where(F.col(place).getField("code").isNotNull())
        .select(*(F.col(place).getField(name).alias(name) for name in ("code", "file", "piece", "bit")))
        .groupBy("code", "file", "piece")
        .agg(F.count(F.lit(1)).alias("n"), F.bitmap_construct_agg("bit").alias("bits"))
        .toArrow()
        .to_pylist()
    )
    return matches_of(found, changing)


def _place(code: Column, file: Column, row: Column) -> Column:
    return F.struct(
        code.cast("int").alias("code"),
        file.alias("file"),
        piece_of(row).alias("piece"),
        bit_of(row).alias("bit"),
    )


def _code(changing: list[ResolvedClause], names: MergeNames) -> Column:
    """Gives the place, in a list, of the clause that changes the target row; NULL where there is none."""
    code = F.lit(None).cast("int")
    for index, clause in enumerate(changing):
        taken = F.col(names.clause(clause.clause.kind)) == F.lit(clause.number)
        code = F.coalesce(F.when(taken, F.lit(index)), code)
    return code


def _source_code(merge: ResolvedMerge, names: MergeNames) -> Column:
    """Says which UPDATE takes a new row from the source row."""
    code = F.lit(OF_SOURCE)
    number = F.col(names.clause("matched"))
    for clause in merge.matched:
        if clause.action == "update":
            code = F.when(number == F.lit(clause.number), F.lit(OF_SOURCE + 1 + clause.number)).otherwise(
                code
            )
    return code


def matches_of(found: list[dict[str, Any]], changing: list[ResolvedClause]) -> Matches:
    """Puts together what a first scan found.

    Args:
        found: Rows of ``code`` (the place of a clause in `changing`, or, for rows of the source, `OF_SOURCE`, and with
            the number of an UPDATE added to it and one), ``file`` (None for rows of the source), ``piece``, ``n``
            (pairs of target and source row) and ``bits``.
        changing: The clauses that change target rows.
    """
    pieces: dict[tuple[int, str | None], dict[int, bytes]] = defaultdict(dict)
    fired: dict[tuple[str | None, int], int] = defaultdict(int)
    updates = 0
    for row in found:
        code, file, piece = row["code"], row["file"], row["piece"]
        of_code = pieces[code, file]
        of_code[piece] = united(
            [RowSet({piece: bits}) for bits in (row["bits"], of_code.get(piece)) if bits]
        ).pieces[piece]
        if code < OF_SOURCE:
            fired[file, piece] += row["n"]
        elif code > OF_SOURCE:
            updates += row["n"]
    files = sorted({file for code, file in pieces if file is not None and code < OF_SOURCE})
    changed = {
        file: united(RowSet(pieces[code, name]) for code, name in pieces if name == file) for file in files
    }
    competing = any(
        fired[file, piece] > len(RowSet({piece: bits}))
        for file, rows in changed.items()
        for piece, bits in rows.pieces.items()
    )
    counts: dict[tuple[str, int], int] = {(c.clause.kind, c.number): 0 for c in changing}
    for (code, _), of_file in pieces.items():
        if code < OF_SOURCE:
            clause = changing[code]
            counts[clause.clause.kind, clause.number] += len(RowSet(of_file))
    updating = [RowSet(rows) for (code, _), rows in pieces.items() if code > OF_SOURCE]
    sources = {code - OF_SOURCE - 1: RowSet(rows) for (code, _), rows in pieces.items() if code >= OF_SOURCE}
    return Matches(
        changed=changed,
        rows_by_clause=counts,
        updating={number: rows for number, rows in sources.items() if number >= 0},
        matched_sources=united(sources.values()),
        has_competing=competing,
        sources_fire_once=updates == len(united(updating)),
    )
