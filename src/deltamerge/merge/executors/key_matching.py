"""Pairs of source and target rows with equal keys, and target rows that BY SOURCE clauses take, in files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from deltamerge.log.actions import AddFile
from deltamerge.log.add_file_stats import rows_about
from deltamerge.log.features.deletion_vectors import deleted_rows
from deltamerge.log.paths import decode_path
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.lookup import Lookup
from deltamerge.merge.executors.lookup_recipe import LookupRecipe
from deltamerge.merge.plan import Declined
from deltamerge.scan.column_presence import check_columns, check_footers, expected_columns
from deltamerge.scan.missing_files import refuse_replaced_files
from deltamerge.spark import tasks
from deltamerge.storage.store import Store
from deltamerge.workers.file_columns import Asked
from deltamerge.workers.file_pairs import PAIRS_SCHEMA, pairing
from deltamerge.workers.files import Files
from deltamerge.workers.row_blocks import NO_BLOCKS, Blocks, block_columns
from deltamerge.workers.row_pairs import (
    NO_CLAUSE,
    RowPairs,
    counts_by_clause,
    distinct,
    read_pairs,
    write_pairs,
)
from deltamerge.workers.source_keys import KeyLookup, RowChoice
from deltamerge.workers.source_parts import RowGroup
from deltamerge.workers.vector_blocks import blocks_of

_BYTES_OF_A_PAIR = 48


@dataclass(frozen=True)
class Pairs:
    """The pairs of one file of the target.

    Args:
        path: The file that has them.
        opened: How many rows of a source in parts are opened to take theirs.
        taken: How many a clause takes.
        taken_rows: How many rows of the target these name.
        rows_by_clause: How many rows each MATCHED clause takes, by its number, and each BY SOURCE clause, by
            `by_source_number`.
        exchanged: Where the source's rows of these pairs are, if they were brought together.
    """

    file: AddFile
    files: Files
    path: str
    count: int
    opened: int
    taken: int
    taken_rows: int
    rows_by_clause: Mapping[int, int]
    exchanged: tuple[RowGroup, ...] = ()

    @classmethod
    def of(cls, found: Mapping[str, Any], file: AddFile, files: Files) -> Pairs:
        counts = {int(number): rows for number, rows in json.loads(found["rows_by_clause"]).items()}
        count, opened, taken, taken_rows = (found[name] for name in ("pairs", "opened", "taken", "taken_rows"))
        return cls(file, files, found["path"], count, opened, taken, taken_rows, counts)

    def read(self) -> RowPairs:
        return read_pairs(self.files, self.path)

    def taking(self, pairs: RowPairs) -> Pairs:
        """Return those of some pairs of the file that clauses take, in a file of their own."""
        changing = pairs.changing
        return replace(
            self,
            path=write_pairs(self.files, self.path.rpartition("/")[0], changing),
            taken=len(changing.rows),
            taken_rows=len(distinct(changing.rows)),
            rows_by_clause=counts_by_clause(pairs),
        )

    @property
    def changed(self) -> BitMap64:
        of_file = self.read()
        return _bits(of_file.rows[of_file.is_changing])


def find_pairs(lookup: Lookup, files: Sequence[AddFile], unmatchable: frozenset[str]) -> tuple[Pairs, ...]:
    """Look the source's keys up in files of the target.

    Args:
        unmatchable: The paths of those in which no source row can match a row.

    Raises:
        Declined: A file's columns are not of the table's types, or there are more pairs or positions than the driver
            holds.
        DeltaTableException: A file has another size than in the log.
    """
    execution, recipe, staged = lookup.execution, lookup.recipe, lookup.staged
    store, limits = execution.table.store, execution.limits
    refuse_replaced_files(execution.table, files)
    unmatched = rows_about((file.stats, file.size) for file in files) if recipe.choices.unmatched is not None else 0
    if unmatched > limits.unmatched_rows:
        raise _declined(
            f"NOT MATCHED BY SOURCE clauses may change more than {limits.unmatched_rows:,} rows of the files they read"
        )
    if rows_about((file.stats, file.size) for file in files if file.deletion_vector) > limits.positions:
        raise _declined(f"deletion vectors cover more than {limits.positions:,} rows")
    if recipe.clauses.by_source:
        # Files in which nothing can match are read, too, and of those no keys.
        check_columns(execution.table, _expected_columns(execution), files)
    columns = {
        "path": [execution.located(decode_path(file.path)) for file in files],
        "file": [file.path for file in files],
        "values": [json.dumps(dict(file.partition_values)) for file in files],
        "size": [file.size for file in files],
        "joined": [file.path not in unmatchable for file in files],
        **block_columns(_deleted(store, files)),
    }
    size = _share_read(recipe) * (staged.bytes + sum(file.size for file in files))
    reads_source = recipe.choices.pair is not None and staged.bytes_in_memory > limits.driver_source_bytes
    in_driver = not reads_source and execution.fits_driver(size + unmatched * _BYTES_OF_A_PAIR, len(files))
    work = pairing(execution.files, _key_lookup(lookup), execution.scratch)
    found = tasks.run(execution.table.spark, work, pa.table(columns), PAIRS_SCHEMA, in_driver=in_driver)
    _refuse_unfit(execution, files, found)
    if sum(row["pairs"] for row in found) > limits.pairs:
        raise _declined(f"there are more than {limits.pairs:,} pairs of source and target rows")
    by_path = {file.path: file for file in files}
    pairs = [Pairs.of(row, by_path[row["file"]], execution.files) for row in found]
    return tuple(sorted(pairs, key=lambda of_file: of_file.file.path))


def _key_lookup(lookup: Lookup) -> KeyLookup:
    execution, recipe, staged = lookup.execution, lookup.recipe, lookup.staged
    choices, matched = recipe.choices, recipe.clauses.matched
    clause: int | str | RowChoice = matched[0].number if matched and not recipe.undecided else NO_CLAUSE
    if choices.pair is not None:
        clause = choices.pair
    elif staged.columns.matched is not None:
        clause = staged.columns.matched
    return KeyLookup(
        staged.rows,
        recipe.compared,
        clause,
        choices.unmatched,
        _read_of_pairs(execution, recipe),
        unique=staged.has_unique_keys,
        most_pairs=execution.limits.pairs_of_task,
        on_target=choices.on_target,
        on_source=choices.on_source,
        index=staged.index,
    )


def _share_read(recipe: LookupRecipe) -> float:
    """Return which share of the columns is read: the keys and those in conditions."""
    read = {key.column for key in recipe.compared}
    for choice in (recipe.choices.unmatched, recipe.choices.on_target, recipe.choices.pair):
        read |= set() if choice is None else {name for name, _ in choice.target.values()}
    return len(read) / len(recipe.table.before)


def _refuse_unfit(execution: Execution, files: Sequence[AddFile], found: Iterable[Mapping[str, Any]]) -> None:
    for row in found:
        if row["reason"] is None:
            continue
        # No operator may read a file without the table's columns.
        unfit = [file for file in files if file.path == row["file"]]
        check_footers(execution.table, _expected_columns(execution), unfit)
        raise _declined(f"{row['file']}: {row['reason']}" if row["file"] else row["reason"])


def _read_of_pairs(execution: Execution, recipe: LookupRecipe) -> Asked:
    """Return the target's columns that Spark reads of pairs; where there are none, the table may have others, too."""
    names, stored = execution.merge.target_schema.names, recipe.table.before
    read = [names[index] for index in sorted(recipe.pair_values.target) if names[index] in stored]
    return {name: (stored[name].name, stored[name].type) for name in read}


def _expected_columns(execution: Execution) -> tuple[str, ...]:
    snapshot = execution.snapshot
    return expected_columns(execution.merge.target_schema, snapshot.metadata, snapshot.mapping_mode)


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


def _bits(numbers: np.ndarray[Any, Any]) -> BitMap64:
    return BitMap64(distinct(numbers).astype(np.uint64))


def _deleted(store: Store, files: Sequence[AddFile]) -> list[Blocks]:
    vectors = deleted_rows(store, files)
    return [NO_BLOCKS if f.deletion_vector is None else blocks_of(vectors[f.deletion_vector.unique_id]) for f in files]
