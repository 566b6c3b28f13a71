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
from deltamerge.merge.executors.key_matching import Pairs
from deltamerge.merge.executors.lookup_recipe import LookupRecipe
from deltamerge.merge.executors.staged_source import StagedSource
from deltamerge.merge.planning.declined import Declined
from deltamerge.workers.row_pairs import unmatched
from deltamerge.workers.staged_rows import in_plain_numbers, open_staged
from deltamerge.write.layout import partition_folders

_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Partition:
    """A partition; a table without partition columns has one.

    Args:
        folders: Where its files are below the merge's folder, with a slash at the end; empty without partition columns.
        inserted: For each file of new rows the first of the staged rows that may go there, and the one after the last.
        values: The values of these rows in the partition columns, dates as days since 1970, by the staged rows' names.
    """

    folders: str
    pairs: tuple[Pairs, ...]
    inserted: tuple[tuple[int, int], ...]
    rows: int
    values: Mapping[str, int | str | None]


def partitions_of(
    execution: Execution,
    recipe: LookupRecipe,
    staged: StagedSource,
    found: Sequence[Pairs],
    changed: Sequence[Pairs],
) -> list[Partition]:
    """Find the partitions that get files.

    Args:
        found: All pairs: their source rows are not new.
        changed: Those of files that are written again, or whose updated rows are.

    Raises:
        Declined: New rows go to very many partitions, or to one that must not be NULL.
    """
    columns = execution.write_target.physical_partition_columns
    if not columns:
        rows = np.arange(staged.rows if staged.columns.inserts else 0)
        return [Partition("", tuple(changed), _ranges(execution, rows, staged), len(rows), {})]
    new = _new_partitions(execution, recipe, staged, found) if staged.columns.inserts and staged.rows else []
    by_folders: dict[str, list[Pairs]] = {}
    for pairs in changed:
        folders = partition_folders(columns, pairs.file.partition_values)
        by_folders.setdefault(folders, []).append(pairs)
    both = [Partition(p.folders, tuple(by_folders.pop(p.folders, ())), p.inserted, p.rows, p.values) for p in new]
    return [*(Partition(at, tuple(pairs), (), 0, {}) for at, pairs in by_folders.items()), *both]


def _new_partitions(
    execution: Execution, recipe: LookupRecipe, staged: StagedSource, found: Sequence[Pairs]
) -> list[Partition]:
    columns, limits = execution.snapshot.metadata.partition_columns, execution.limits
    physical, kept = execution.write_target.physical_partition_columns, staged.columns
    names = [next(iter(kept.inserts.values()))[column] for column in columns]
    wanted = list(dict.fromkeys([*names, *([] if kept.clause is None else [kept.clause])]))
    rows = open_staged(execution.files, staged.kept, wanted)
    is_new = unmatched(execution.files, [pairs.path for pairs in found], staged.rows)
    if kept.clause is not None:
        inserting = pa.array(list(kept.inserts), pa.int32())
        is_new &= pc.is_in(rows.column(kept.clause).cast(pa.int32()), inserting).to_numpy()
    by = [f"p{index}" for index in range(len(names))]
    table = pa.table([in_plain_numbers(rows.column(name)) for name in names], names=by)
    table = table.append_column("row", pa.array(np.arange(staged.rows))).filter(pa.array(is_new))
    groups = table.group_by(by).aggregate([("row", "list")])
    if len(groups) > limits.partitions:
        raise _declined(execution, f"new rows go to more than {limits.partitions:,} partitions")
    partitions = []
    for number, group in enumerate(groups.select(by).to_pylist()):
        values = list(group.values())
        spelled = {
            column: _spelled(value, recipe.stored[column].type) for column, value in zip(columns, values, strict=True)
        }
        for column in {path[0] for path in recipe.not_null}.intersection(columns):
            if spelled[column] is None:
                raise _declined(execution, f"partition column {column} would be NULL")
        of_partition = np.sort(groups["row_list"][number].values.to_numpy())
        partitions.append(
            Partition(
                folders=partition_folders(physical, dict(zip(physical, spelled.values(), strict=True))),
                pairs=(),
                inserted=_ranges(execution, of_partition, staged),
                rows=len(of_partition),
                values=dict(zip(names, values, strict=True)),
            )
        )
    looked_at = sum(end - first for partition in partitions for first, end in partition.inserted)
    if looked_at > limits.partition_rows:
        raise _declined(execution, "new rows of very many partitions are mixed")
    return partitions


def _declined(execution: Execution, reason: str) -> Declined:
    return Declined("changed_rows", execution.plan.changed_rows.choice, reason)


def _ranges(execution: Execution, rows: np.ndarray[Any, Any], staged: StagedSource) -> tuple[tuple[int, int], ...]:
    """Distribute rows over files: for each the first row, and the one after the last."""
    most = rows_of_a_file(execution)
    if most is None:
        most = max(1, staged.rows * execution.limits.staged_bytes_of_a_file // max(1, staged.bytes))
    shares = np.array_split(rows, -(-len(rows) // most)) if len(rows) else []
    return tuple((int(share[0]), int(share[-1]) + 1) for share in shares)


def _spelled(value: int | str | None, kind: pa.DataType) -> str | None:
    """Spell a value as the log does; the empty string is NULL. Protocol: Partition Value Serialization.

    Raises:
        ValueError: A date is not of the years 1 to 9999.
    """
    if value is None or value == "":
        return None
    if pa.types.is_date(kind):
        return date.fromordinal(_EPOCH + int(value)).isoformat()
    return str(value)


def rows_of_a_file(execution: Execution) -> int | None:
    """Return how many rows a new file has at most, by the table's property or the session's setting."""
    of_table = execution.write_target.records_per_file
    return execution.context.session.records_per_file if of_table is None else of_table
