"""The deletion vectors of a merge by classic, of so many files at a time as the driver takes positions of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyroaring import BitMap64

from deltamerge.exceptions import DeltaRuntimeException
from deltamerge.log.actions import AddFile
from deltamerge.log.add_file_stats import physical_rows, rows_about
from deltamerge.log.packing import packed
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.target_scan import target_side
from deltamerge.merge.executors.touched_files import TouchedFiles, find_touched_rows
from deltamerge.merge.output.frames import Rows
from deltamerge.merge.planning.target_files import TargetFiles
from deltamerge.scan.paths import absolute_key
from deltamerge.write.deletion_vectors import VectorChanges, all_of, write_deletion_vectors


def fit_the_driver(execution: Execution, files: Sequence[AddFile]) -> bool:
    """Return whether the driver holds the positions of all rows of these files at once."""
    return rows_about((file.stats, file.size) for file in files) <= execution.limits.positions


def delete_rows(
    execution: Execution,
    source: Rows,
    target: TargetFiles,
    touched: TouchedFiles,
    found: Mapping[str, BitMap64] | None,
    files: Mapping[str, AddFile],
) -> VectorChanges:
    """Write the deletion vectors of touched files.

    Args:
        found: The positions of the rows that clauses change, by `file_key`, where the first scan found them; else
            they are looked for once more, in a few of the touched files at a time.
        files: The files that may match, by `file_key`.
    """
    store, folder = execution.table.store, execution.folder
    if found is not None:
        return write_deletion_vectors(store, folder, found, files)
    written, rows, all_there = [], 0, True
    for group in _groups(execution, touched.rewrite):
        side = target_side(execution, target, group)
        _, positions = find_touched_rows(execution.merge, source, side, files)
        all_there &= set(positions) == {absolute_key(execution.table, file) for file in group}
        rows += sum(map(len, positions.values()))
        written.append(write_deletion_vectors(store, folder, positions, files))
    counted = sum(touched.rows_by_clause.get(clause.key, 0) for clause in execution.merge.changing)
    # A touched file without a position would be removed with all its rows.
    if rows != counted or not all_there:
        raise DeltaRuntimeException(
            "DELTA_MERGE_SOURCE_CHANGED",
            f"The {execution.merge.statement.verb} found {counted} rows to update or delete, and others ({rows}) when "
            "it looked for their positions. A condition had another value when it was evaluated again, or the source "
            "returned other rows. "
            "The table is as it was. Conditions must not ask for anything that changes: compute it in the source.",
        )
    return all_of(written)


def _groups(execution: Execution, files: Sequence[AddFile]) -> Iterator[tuple[AddFile, ...]]:
    """Return as many files at a time as the driver takes positions of, at least one."""
    sized = ((file, physical_rows(execution.table.store, file)) for file in files)
    return map(tuple, packed(sized, execution.limits.positions))
