"""The live files of a snapshot, in one Arrow table."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.log.actions import AddFile, DeletionVectorDescriptor
from deltamerge.log.add_file_stats import rows_about
from deltamerge.log.arrays import from_numpy, mask_from_numpy
from deltamerge.log.file_actions import ADD_SCHEMA

_SMALL_BATCH = 1 << 12
_MOST_SMALL_BATCHES = 32


class PerFile(Protocol):
    """Something derived from files that is expensive to derive, one element per file."""

    def at_next_version(self, kept: npt.NDArray[np.bool_], added: int) -> PerFile:
        """Return the same for the next version of the table, which keeps some files and has `added` more at the end."""


@dataclass(frozen=True, eq=False)
class FileTable:
    """Files of a table, one row of `ADD_SCHEMA` each; filtered without Python objects.

    `derived` is what was derived from the files, by what it is; the next version of the table starts with it.
    """

    arrow: pa.Table
    derived: dict[Hashable, PerFile] = field(default_factory=dict, repr=False)

    @staticmethod
    def from_add_files(files: Iterable[AddFile]) -> FileTable:
        return FileTable(pa.Table.from_pylist([asdict(file) for file in files], schema=ADD_SCHEMA))

    @property
    def num_files(self) -> int:
        return int(self.arrow.num_rows)

    @property
    def size_in_bytes(self) -> int:
        return int(pc.sum(self.arrow.column("size")).as_py() or 0)

    def rows_about(self) -> int:
        columns = (self.arrow.column(name).to_pylist() for name in ("stats", "size"))
        return rows_about(zip(*columns, strict=True))

    @property
    def has_deletion_vectors(self) -> bool:
        column = self.arrow.column("deletion_vector")
        return bool(column.null_count < len(column))

    def paths(self) -> list[str]:
        """Return the files' paths in the log's spelling (URIs), in row order."""
        paths: list[str] = self.arrow.column("path").to_pylist()
        return paths

    def filter(self, mask: npt.NDArray[np.bool_]) -> FileTable:
        return FileTable(self.arrow.filter(mask_from_numpy(mask)))

    def at_next_version(self, kept: npt.NDArray[np.bool_], added: pa.Table) -> FileTable:
        left = _among(self.arrow, kept)
        derived = {key: known.at_next_version(kept, added.num_rows) for key, known in list(self.derived.items())}
        return FileTable(pa.concat_tables([left, added]) if added.num_rows else left, derived)

    def take(self, indices: npt.ArrayLike) -> FileTable:
        return FileTable(self.arrow.take(from_numpy(np.asarray(indices, dtype=np.int64))))

    def add_files(self) -> list[AddFile]:
        """Return the files as actions: for the few that a commit names, not for a whole table."""
        return [_add_file(row) for row in self.arrow.to_pylist()]


def _among(table: pa.Table, kept: npt.NDArray[np.bool_]) -> pa.Table:
    # Of a large table most chunks lose no file: those are not copied.
    batches, at = [], 0
    for batch in table.to_batches():
        part = kept[at : at + batch.num_rows]
        batches.append(batch if part.all() else batch.filter(mask_from_numpy(part)))
        at += batch.num_rows
    return pa.Table.from_batches(_joined(batches), table.schema)


def _joined(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return batches without empty ones; many small neighbours become one, as each version adds one."""
    joined: list[pa.RecordBatch] = []
    for is_small, some in groupby(filter(len, batches), lambda batch: len(batch) < _SMALL_BATCH):
        group = list(some)
        if is_small and len(group) > _MOST_SMALL_BATCHES:
            group = pa.Table.from_batches(group).combine_chunks().to_batches()
        joined += group
    return joined


def _add_file(row: dict[str, Any]) -> AddFile:
    row["partition_values"] = dict(row["partition_values"] or ())
    row["tags"] = None if row["tags"] is None else dict(row["tags"])
    row["data_change"] = row["data_change"] is not False
    vector = row["deletion_vector"]
    row["deletion_vector"] = None if vector is None else DeletionVectorDescriptor(**vector)
    return AddFile(**row)
