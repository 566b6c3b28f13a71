"""Which target rows change and which source rows found a match, as positions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap64
from pyspark.sql import Column

from deltamerge.merge.analysis.resolved_merge import ResolvedClause, ResolvedMerge
from deltamerge.merge.output.clause_expressions import evaluate_clauses
from deltamerge.merge.output.frames import Rows, with_unmatchable
from deltamerge.scan.row_positions import bit_in_piece, from_pieces, piece_of
from deltamerge.spark import columns as F
from deltamerge.workers.row_pairs import NO_CLAUSE


@dataclass(frozen=True)
class Matches:
    """What was found in the target.

    Args:
        changed: By file, by its path in the log, the positions of the rows that a clause updates or deletes.
        rows_by_clause: How many target rows each clause changes or skips, by kind and number.
        updating: By the number of a MATCHED clause the source rows that it takes a new row from.
        matched_sources: The source rows that match a target row, whether or not a clause takes the pair.
        has_competing: Whether clauses take several source rows for one target row.
    """

    changed: Mapping[str, BitMap64]
    rows_by_clause: Mapping[tuple[str, int], int]
    updating: Mapping[int, BitMap64]
    matched_sources: BitMap64
    has_competing: bool
    sources_fire_once: bool


NO_MATCHES = Matches({}, {}, {}, BitMap64(), has_competing=False, sources_fire_once=True)


def find_matches(
    merge: ResolvedMerge,
    rows: Rows,
    unmatchable: Rows | None,
    path_of: Callable[[str], str],
    *,
    of_source: bool,
) -> Matches:
    """Evaluate the conditions on joined rows and keep only positions.

    Args:
        path_of: Returns the path in the log of a file as the rows name it.
    """
    names, changing, skipping = merge.names, merge.changing, merge.skipping
    rows = evaluate_clauses(rows, merge, "matched", values=False)
    if merge.changing_by_source:
        rows = with_unmatchable(rows, unmatchable)
        rows = evaluate_clauses(rows, merge, "not_matched_by_source", values=False)
    target_code = _code(merge, (*changing, *skipping))
    places = [_place(target_code, F.col(names.file_name), F.col(names.row_index))]
    if of_source:
        updates = [clause for clause in merge.matched if clause.action == "update"]
        source_code = F.when(F.col(names.source_row_present), F.coalesce(_code(merge, updates), F.lit(NO_CLAUSE)))
        # Rows of the source have no file.
        places.append(_place(source_code, F.lit(None).cast("string"), F.col(names.source_row_index)))
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
    return _matches(found, (*changing, *skipping), path_of)


def _place(code: Column, file: Column, row: Column) -> Column:
    return F.struct(
        code.cast("int").alias("code"),
        file.alias("file"),
        piece_of(row).alias("piece"),
        bit_in_piece(row).alias("bit"),
    )


def _code(merge: ResolvedMerge, clauses: Sequence[ResolvedClause]) -> Column:
    """Return the code of the clause that takes the row; NULL where none of these does."""
    code = F.lit(None).cast("int")
    for clause in clauses:
        taken = F.col(merge.names.clause(clause.kind)) == F.lit(clause.number)
        code = F.coalesce(F.when(taken, F.lit(clause.code)), code)
    return code


def _matches(
    found: list[dict[str, Any]],
    clauses: Sequence[ResolvedClause],
    path_of: Callable[[str], str],
) -> Matches:
    pieces: dict[tuple[int, str | None], list[tuple[int, bytes]]] = defaultdict(list)
    pairs: dict[tuple[int, str | None], int] = defaultdict(int)
    for row in found:
        key = row["code"], row["file"]
        pieces[key].append((row["piece"], row["bits"]))
        pairs[key] += row["n"]
    rows = {key: from_pieces(of_key) for key, of_key in pieces.items()}
    changed: dict[str, BitMap64] = {}
    fired: dict[str, int] = defaultdict(int)
    by_code = {clause.code: clause for clause in clauses}
    counts: dict[tuple[str, int], int] = {clause.key: 0 for clause in clauses}
    skipped: list[tuple[ResolvedClause, str, BitMap64]] = []
    sources: dict[int, BitMap64] = {}
    for (code, file), positions in rows.items():
        if file is None:
            sources[code] = positions
            continue
        path, clause = path_of(file), by_code[code]
        if clause.action == "skip_unchanged":
            skipped.append((clause, path, positions))
            continue
        changed[path] = changed.get(path, BitMap64()) | positions
        fired[path] += pairs[code, file]
        counts[clause.key] += len(positions)
    for clause, path, positions in skipped:
        counts[clause.key] += len(positions - changed.get(path, BitMap64()))
    updating = {number: positions for number, positions in sources.items() if number != NO_CLAUSE}
    updates = sum(pairs[number, None] for number in updating)
    return Matches(
        changed=dict(sorted(changed.items())),
        rows_by_clause=counts,
        updating=updating,
        matched_sources=BitMap64.union(*sources.values()) if sources else BitMap64(),
        has_competing=any(fired[path] > len(positions) for path, positions in changed.items()),
        sources_fire_once=updates == len(BitMap64.union(*updating.values())) if updating else True,
    )
