"""The partitions to which a key lookup's changed and new rows belong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.pairs import Pairs
from deltamerge.merge.planning.key_lookup_fit import KeyLookup
from deltamerge.merge.source.staging import StagedSource
from deltamerge.workers.row_pairs import unmatched
from deltamerge.workers.staged_rows import in_plain_numbers, open_staged
from deltamerge.write.layout import partition_folders

# A task looks for its partition's rows among all rows between the first and the last.
_MOST_ROWS_LOOKED_AT = 50_000_000
_MOST_PARTITIONS = 1_000
# Kept rows of so many bytes make a file of about delta-spark's default size.
_STAGED_BYTES_OF_A_FILE = 256 << 20
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Partition:
    """One of them; all of a table without partition columns is one.

    Args:
        folders: Where its files lie below the merge's folder, with a slash at the end; empty without partition columns.
        pairs: The pairs of its files.
        inserted: For each file that new rows take, the first of the kept rows that may go there, and the one after the
            last.
        rows: How many new rows there may be.
        values: What these rows have in the columns that say their partition, dates as days since 1970; by the kept
            rows' names.
    """

    folders: str
    pairs: tuple[Pairs, ...]
    inserted: tuple[tuple[int, int], ...]
    rows: int
    values: Mapping[str, int | str | None]


def partitions_of(
    execution: Execution,
    how: KeyLookup,
    staged: StagedSource,
    found: Sequence[Pairs],
    changed: Sequence[Pairs],
) -> list[Partition] | None:
    """Finds the partitions that get files.

    Args:
        execution: What to work on.
        how: How the merge runs.
        staged: The source.
        found: All pairs: rows that stand there are not new.
        changed: Those of files that are written again, or whose updated rows are.

    Returns:
        The partitions; None where they are very many, or have values that Spark writes better.
    """
    columns = execution.snapshot.metadata.partition_columns
    if not columns:
        rows = np.arange(staged.rows if staged.columns.inserts else 0)
        return [Partition("", tuple(changed), _ranges(rows, how, staged), len(rows), {})]
    new = _new_partitions(columns, how, staged, found) if staged.columns.inserts and staged.rows else []
    if new is None:
        return None
    by_folders: dict[str, list[Pairs]] = {}
    for pairs in changed:
        folders = partition_folders(columns, pairs.file.partition_values)
        by_folders.setdefault(folders, []).append(pairs)
    both = [
        Partition(p.folders, tuple(by_folders.pop(p.folders, ())), p.inserted, p.rows, p.values) for p in new
    ]
    return [*(Partition(at, tuple(pairs), (), 0, {}) for at, pairs in by_folders.items()), *both]


def _new_partitions(
    columns: Sequence[str], how: KeyLookup, staged: StagedSource, found: Sequence[Pairs]
) -> list[Partition] | None:
    """Finds the partitions of the rows that are inserted."""
    kept = staged.columns
    names = [next(iter(kept.inserts.values()))[column] for column in columns]
    wanted = list(dict.fromkeys([*names, *([] if kept.clause is None else [kept.clause])]))
    rows = open_staged(staged.kept, wanted)
    is_new = unmatched([pairs.path for pairs in found], staged.rows)
    if kept.clause is not None:
        inserting = pa.array(list(kept.inserts), pa.int32())
        is_new &= pc.is_in(rows.column(kept.clause).cast(pa.int32()), inserting).to_numpy()
    by = [f"p{index}" for index in range(len(names))]
    table = pa.table([in_plain_numbers(rows.column(name)) for name in names], names=by)
    table = table.append_column("row", pa.array(np.arange(staged.rows))).filter(pa.array(is_new))
    groups = table.group_by(by).aggregate([("row", "list")])
    if len(groups) > _MOST_PARTITIONS:
        return None
    partitions = []
    for number, group in enumerate(groups.select(by).to_pylist()):
        values = list(group.values())
        texts = {
            column: _text(value, how.types[column]) for column, value in zip(columns, values, strict=True)
        }
        if any(texts[column] is None for column in how.not_null.intersection(columns)):
            return None
        of_partition = np.sort(groups["row_list"][number].values.to_numpy())
        partitions.append(
            Partition(
                folders=partition_folders(columns, texts),
                pairs=(),
                inserted=_ranges(of_partition, how, staged),
                rows=len(of_partition),
                values=dict(zip(names, values, strict=True)),
            )
        )
    looked_at = sum(end - first for partition in partitions for first, end in partition.inserted)
    return partitions if looked_at <= _MOST_ROWS_LOOKED_AT else None


def _ranges(rows: np.ndarray[Any, Any], how: KeyLookup, staged: StagedSource) -> tuple[tuple[int, int], ...]:
    """Shares rows out to files: for each the first row, and the one after the last."""
    most = how.records_per_file
    if most is None:
        most = max(1, staged.rows * _STAGED_BYTES_OF_A_FILE // max(1, staged.bytes))
    shares = np.array_split(rows, -(-len(rows) // most)) if len(rows) else []
    return tuple((int(share[0]), int(share[-1]) + 1) for share in shares)


def _text(value: int | str | None, kind: pa.DataType) -> str | None:
    """Spells a value as the log does; no text is NULL. Protocol: Partition Value Serialization.

    Raises:
        ValueError: A date is not of the years 1 to 9999.
    """
    if value is None or value == "":
        return None
    if pa.types.is_date(kind):
        return date.fromordinal(_EPOCH + int(value)).isoformat()
    return str(value)
