"""The partitions to which a key lookup's changed and new rows belong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.merge.execution import Execution
from deltamerge.merge.key_lookup_fit import KeyLookup
from deltamerge.merge.pairs import Pairs
from deltamerge.merge.staging import StagedSource
from deltamerge.scan.key_lookup import unmatched
from deltamerge.scan.staged_rows import in_plain_numbers, open_staged
from deltamerge.write.layout import partition_folders

# A task looks for its partition's rows among all rows between the first and the last.
_MOST_ROWS_LOOKED_AT = 50_000_000
_MOST_PARTITIONS = 1_000
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Partition:
    """One of them; all of a table without partition columns is one.

    Args:
        folders: Where its files lie below the merge's folder, with a slash at the end; empty without partition columns.
        pairs: The pairs of its files.
        inserted: The first of the kept rows that may be inserted, and the one after the last.
        rows: How many of them there may be.
        values: What these rows have in the columns that say their partition, dates as days since 1970; by the kept
            rows' names.
    """

    folders: str
    pairs: tuple[Pairs, ...]
    inserted: tuple[int, int]
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
        rows = staged.rows if staged.columns.inserts else 0
        return [Partition("", tuple(changed), (0, rows), rows, {})]
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
    return [*(Partition(at, tuple(pairs), (0, 0), 0, {}) for at, pairs in by_folders.items()), *both]


def _new_partitions(
    columns: Sequence[str], how: KeyLookup, staged: StagedSource, found: Sequence[Pairs]
) -> list[Partition] | None:
    """Finds the partitions of the rows that are inserted."""
    kept = staged.columns
    names = [next(iter(kept.inserts.values()))[column] for column in columns]
    wanted = list(dict.fromkeys([*names, *([] if kept.clause is None else [kept.clause])]))
    rows = open_staged(staged.kept, wanted)
    is_new = unmatched([pairs.path for pairs in found], 0, staged.rows)
    if kept.clause is not None:
        is_new &= pc.is_valid(rows.column(kept.clause)).to_numpy()
    by = [f"p{index}" for index in range(len(names))]
    table = pa.table([in_plain_numbers(rows.column(name)) for name in names], names=by)
    table = table.append_column("row", pa.array(np.arange(staged.rows))).filter(pa.array(is_new))
    groups = table.group_by(by).aggregate([("row", "min"), ("row", "max"), ("row", "count")]).to_pylist()
    if len(groups) > _MOST_PARTITIONS:
        return None
    partitions = []
    for group in groups:
        values = [group[name] for name in by]
        texts = {
            column: _text(value, how.types[column]) for column, value in zip(columns, values, strict=True)
        }
        if any(texts[column] is None for column in how.not_null.intersection(columns)):
            return None
        folders = partition_folders(columns, texts)
        rows_between = (group["row_min"], group["row_max"] + 1)
        partitions.append(
            Partition(folders, (), rows_between, group["row_count"], dict(zip(names, values, strict=True)))
        )
    looked_at = sum(p.inserted[1] - p.inserted[0] for p in partitions)
    return partitions if looked_at <= _MOST_ROWS_LOOKED_AT else None


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
