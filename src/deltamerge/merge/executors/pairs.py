"""Pairs of source rows and target rows with equal keys, and target rows that leave without one.

They are found by tasks or by the driver, and kept in files.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from deltamerge.log.actions import AddFile
from deltamerge.log.add_file_stats import rows_about
from deltamerge.log.features.deletion_vectors import read_deletion_vectors
from deltamerge.log.paths import decode_path
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.planning.key_lookup_fit import KeyLookup
from deltamerge.merge.planning.placement import MOST_SOURCE_IN_DRIVER, bytes_for_driver, fits, run_near
from deltamerge.merge.planning.target_files import ScanPlan
from deltamerge.merge.source.staging import StagedSource
from deltamerge.scan.paths import without_file_scheme
from deltamerge.workers.key_lookup import PAIRS_SCHEMA, UNFIT, pairing
from deltamerge.workers.row_blocks import MOST_ROWS
from deltamerge.workers.row_pairs import NO_CLAUSE, distinct, read_pairs

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")

# A row that leaves without a match takes memory as a pair does, and that it is one is known too late.
MOST_LEAVING = 16_000_000
_BYTES_OF_A_ROW = 48
# The driver looks at the rows of all pairs at once, 8 bytes each.
_MOST_PAIRS = 32_000_000


@dataclass(frozen=True)
class Pairs:
    """The pairs of source rows and rows of one file of the target, and the rows that leave it without one.

    Args:
        file: The file.
        path: Where the pairs lie.
        pairs: How many of them a clause takes.
        rows: How many rows of the file these name.
        rows_by_clause: How many rows each MATCHED clause takes, by its number, and each BY SOURCE clause, by
            `of_by_source`.
    """

    file: AddFile
    path: str
    pairs: int
    rows: int
    rows_by_clause: Mapping[int, int]


def find_pairs(
    execution: Execution, how: KeyLookup, staged: StagedSource, plan: ScanPlan
) -> tuple[Pairs, ...] | None:
    """Looks the source's keys up in files of the target.

    Args:
        execution: What to work on.
        how: How the merge runs.
        staged: The source.
        plan: The files, and in which of them no key can be, so that their keys are not read.

    Returns:
        The pairs of each file that has some; None where a file's columns are not of the table's types, there are too
        many pairs, or may be too many rows that leave without one, or deletion vectors for more rows than the driver
        takes a bit of.
    """
    store, spark, files = execution.table.store, execution.table.spark, plan.files
    may_leave = rows_about((file.stats, file.size) for file in files) if how.leaving is not None else 0
    if may_leave > MOST_LEAVING:
        return None
    if rows_about((file.stats, file.size) for file in files if file.deletion_vector) > MOST_ROWS:
        return None
    folder = without_file_scheme(store.absolute(execution.folder))
    vectors = read_deletion_vectors(
        store, [file.deletion_vector for file in files if file.deletion_vector is not None]
    )
    gone = [
        None if f.deletion_vector is None else _bitmap(vectors[f.deletion_vector.unique_id]) for f in files
    ]
    columns = {
        "path": [without_file_scheme(store.absolute(decode_path(file.path))) for file in files],
        "file": [file.path for file in files],
        "values": [json.dumps(dict(file.partition_values)) for file in files],
        "gone": pa.array(gone, pa.binary()),
        "joined": [file.path not in plan.alone for file in files],
    }
    kept = staged.columns
    unique = staged.summary.repeated_keys == 0
    only = how.matched[0].number if how.matched else NO_CLAUSE
    clause = how.of_pairs or (only if kept.matched is None else kept.matched)
    pair = pairing(staged.kept, kept.keys, clause, how.lookup.target, how.leaving, folder, unique=unique)
    # Of files and source the key columns alone are read, and what conditions look at.
    asked = {name for name, _ in how.leaving.columns.values()} if how.leaving is not None else set()
    asked |= {name for name, _ in how.of_pairs.target.values()} if how.of_pairs is not None else set()
    share = len({*how.lookup.target, *asked}) / len(how.types)
    size = share * (staged.bytes + sum(file.size for file in files)) + may_leave * _BYTES_OF_A_ROW
    asks_source = how.of_pairs is not None and staged.bytes_in_memory > MOST_SOURCE_IN_DRIVER
    here = not asks_source and fits(bytes_for_driver(spark, execution.conf), size, len(files))
    told = run_near(spark, pair, pa.table(columns), PAIRS_SCHEMA, here=here)
    unfit = [f"{row['file']}: {row['told']}" for row in told if row["pairs"] == UNFIT]
    if unfit:
        logger.info("another executor finds the matches: %s", unfit[0])
    if unfit or sum(row["found"] for row in told) > _MOST_PAIRS:
        return None
    by_path = {file.path: file for file in files}
    found = [
        Pairs(by_path[row["file"]], row["path"], row["pairs"], row["rows"], _counts(row["told"]))
        for row in told
    ]
    return tuple(sorted(found, key=lambda pairs: pairs.file.path))


def fires_twice(found: Sequence[Pairs]) -> bool:
    """Tells whether a source row meets several rows: a value such as `uuid()` is then another one for each."""
    if not found:
        return False
    sources = np.concatenate([read_pairs(pairs.path).matched_sources for pairs in found])
    return len(distinct(sources)) < len(sources)


def _counts(told: str) -> dict[int, int]:
    return {int(number): rows for number, rows in json.loads(told).items()}


def _bitmap(positions: BitMap64) -> bytes:
    bits = np.zeros(positions.max() + 1 if positions else 0, np.uint8)
    bits[np.array(positions, np.int64)] = 1
    return np.packbits(bits, bitorder="little").tobytes()
