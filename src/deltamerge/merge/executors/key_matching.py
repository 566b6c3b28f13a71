"""Pairs of source and target rows with equal keys, and target rows that BY SOURCE clauses take, kept in files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from deltamerge.log.actions import AddFile
from deltamerge.log.add_file_stats import rows_about
from deltamerge.log.features.deletion_vectors import deleted_rows
from deltamerge.log.paths import decode_path
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.lookup_recipe import LookupRecipe
from deltamerge.merge.executors.placement import fits_driver
from deltamerge.merge.executors.staged_source import StagedSource
from deltamerge.merge.planning.declined import Declined
from deltamerge.scan.column_presence import check_columns, check_footers, expected_columns
from deltamerge.scan.missing_files import refuse_replaced_files
from deltamerge.spark import tasks
from deltamerge.storage.store import Store
from deltamerge.workers.file_columns import Asked
from deltamerge.workers.files import Files
from deltamerge.workers.key_lookup import PAIRS_SCHEMA, UNFIT, OnFilters, pairing
from deltamerge.workers.row_blocks import NO_BLOCKS, Blocks, block_columns
from deltamerge.workers.row_pairs import NO_CLAUSE, RowPairs, distinct, read_pairs
from deltamerge.workers.vector_blocks import blocks_of

_BYTES_OF_A_PAIR = 48


@dataclass(frozen=True)
class Pairs:
    """The pairs of one file of the target.

    Args:
        rows_by_clause: How many rows each MATCHED clause takes, by its number, and each BY SOURCE clause, by
            `by_source_number`.
    """

    file: AddFile
    files: Files
    path: str
    found: int
    pairs: int
    rows: int
    rows_by_clause: Mapping[int, int]

    def read(self) -> RowPairs:
        return read_pairs(self.files, self.path)

    @property
    def changed(self) -> BitMap64:
        of_file = self.read()
        return _bits(of_file.rows[of_file.is_changing])


def find_pairs(
    execution: Execution,
    recipe: LookupRecipe,
    staged: StagedSource,
    files: Sequence[AddFile],
    unmatchable: frozenset[str] = frozenset(),
) -> tuple[Pairs, ...]:
    """Look the source's keys up in files of the target.

    Args:
        unmatchable: The paths of those in which no source row can match a row.

    Raises:
        Declined: A file's columns are not of the table's types, or there are more pairs or positions than the driver
            holds.
        DeltaTableException: A file has another size than in the log.
    """
    store, limits = execution.table.store, execution.limits
    refuse_replaced_files(execution.table, files)
    unmatched = rows_about((file.stats, file.size) for file in files) if recipe.unmatched is not None else 0
    if unmatched > limits.unmatched_rows:
        raise _declined(
            f"NOT MATCHED BY SOURCE clauses may change more than {limits.unmatched_rows:,} rows of the files they read"
        )
    if rows_about((file.stats, file.size) for file in files if file.deletion_vector) > limits.positions:
        raise _declined(f"deletion vectors cover more than {limits.positions:,} rows")
    if recipe.by_source:
        # Files in which nothing can match are read, too, and of those no keys.
        check_columns(execution.table, _expected_columns(execution), files)
    columns = {
        "path": [execution.located(decode_path(file.path)) for file in files],
        "file": [file.path for file in files],
        "values": [json.dumps(dict(file.partition_values)) for file in files],
        "joined": [file.path not in unmatchable for file in files],
        **block_columns(_deleted(store, files)),
    }
    kept = staged.columns
    only = recipe.matched[0].number if recipe.matched and not recipe.undecided else NO_CLAUSE
    clause = recipe.pairs or (only if kept.matched is None else kept.matched)
    work = pairing(
        execution.files,
        staged.kept,
        kept.keys,
        clause,
        recipe.compared,
        recipe.unmatched,
        _read_of_pairs(execution, recipe),
        execution.scratch,
        on=OnFilters(recipe.on_target, recipe.on_source),
        unique=staged.has_unique_keys,
        most_pairs=limits.pairs_of_task,
        index=staged.index,
    )
    # Of files and source only the key columns are read, and those in conditions.
    asked = set() if recipe.unmatched is None else {name for name, _ in recipe.unmatched.columns.values()}
    asked |= set() if recipe.pairs is None else {name for name, _ in recipe.pairs.target.values()}
    asked |= set() if recipe.on_target is None else {name for name, _ in recipe.on_target.columns.values()}
    share = len({*(key.column for key in recipe.compared), *asked}) / len(recipe.before)
    size = share * (staged.bytes + sum(file.size for file in files)) + unmatched * _BYTES_OF_A_PAIR
    reads_source = recipe.pairs is not None and staged.bytes_in_memory > limits.driver_source_bytes
    in_driver = not reads_source and fits_driver(execution, size, len(files))
    found = tasks.run(execution.table.spark, work, pa.table(columns), PAIRS_SCHEMA, in_driver=in_driver)
    for row in found:
        if row["pairs"] == UNFIT:
            # No operator may read a file without the table's columns.
            unfit = [file for file in files if file.path == row["file"]]
            check_footers(execution.table, _expected_columns(execution), unfit)
            raise _declined(f"{row['file']}: {row['detail']}" if row["file"] else row["detail"])
    if sum(row["found"] for row in found) > limits.pairs:
        raise _declined(f"there are more than {limits.pairs:,} pairs of source and target rows")
    by_path = {file.path: file for file in files}
    pairs = [
        Pairs(
            file=by_path[row["file"]],
            files=execution.files,
            path=row["path"],
            found=row["found"],
            pairs=row["pairs"],
            rows=row["rows"],
            rows_by_clause=_counts(row["detail"]),
        )
        for row in found
    ]
    return tuple(sorted(pairs, key=lambda of_file: of_file.file.path))


def _read_of_pairs(execution: Execution, recipe: LookupRecipe) -> Asked:
    """Return the target's columns that Spark reads of pairs; without pairs it may have others, too."""
    if not recipe.reads_pairs:
        return {}
    names, stored = execution.merge.target_schema.names, recipe.before
    read = [*stored] if recipe.pair_target is None else [names[index] for index in sorted(recipe.pair_target)]
    return {name: (stored[name].name, stored[name].type) for name in read}


def _expected_columns(execution: Execution) -> tuple[str, ...]:
    snapshot = execution.snapshot
    return expected_columns(execution.merge.target_schema, snapshot.metadata.partition_columns, snapshot.mapping_mode)


def _declined(reason: str) -> Declined:
    return Declined("match", "key_lookup", reason)


def fires_twice(found: Iterable[Pairs], source_rows: int) -> bool:
    """Return whether a source row is in several pairs: a value such as `uuid()` is then another one for each."""
    # Of all pairs together the driver would hold many bytes each.
    is_matched, pairs_so_far = np.zeros(source_rows, np.bool_), 0
    for pairs in found:
        sources = pairs.read().matched_sources
        is_matched[sources] = True
        pairs_so_far += len(sources)
    return bool(np.count_nonzero(is_matched) < pairs_so_far)


def matched_sources(found: Iterable[Pairs]) -> BitMap64:
    matched = BitMap64()
    for pairs in found:
        matched |= _bits(pairs.read().matched_sources)
    return matched


def updating_sources(found: Iterable[Pairs], clauses: Sequence[int]) -> dict[int, BitMap64]:
    """Return by the number of an UPDATE clause the source rows that it takes a new row from, where there are any."""
    updating = {number: BitMap64() for number in clauses}
    for pairs in found:
        of_file = pairs.read()
        for number in clauses:
            updating[number] |= _bits(of_file.sources[of_file.clauses == number])
    return {number: sources for number, sources in updating.items() if sources}


def _bits(numbers: np.ndarray[Any, Any]) -> BitMap64:
    return BitMap64(distinct(numbers).astype(np.uint64))


def _deleted(store: Store, files: Sequence[AddFile]) -> list[Blocks]:
    vectors = deleted_rows(store, files)
    return [NO_BLOCKS if f.deletion_vector is None else blocks_of(vectors[f.deletion_vector.unique_id]) for f in files]


def _counts(detail: str) -> dict[int, int]:
    return {int(number): rows for number, rows in json.loads(detail).items()}
