"""Row ids, and the versions that last changed rows, as a file of a table with row tracking has them.

A file has both in hidden columns, or where these are NULL or missing, from its place in the log: the id of its first
row, and one version for all. A file that is written again has them in the hidden columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class HiddenColumns:
    """The hidden columns in which data files keep what rows had before they were rewritten."""

    row_id: str
    row_commit_version: str

    @property
    def names(self) -> tuple[str, str]:
        return self.row_id, self.row_commit_version

    def added_to(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema with the hidden columns, which come last where they are missing."""
        for name in self.names:
            index = schema.get_field_index(name)
            if index < 0:
                schema = schema.append(pa.field(name, pa.int64()))
            elif schema.field(index).type != pa.int64():
                raise ValueError(f"the hidden column {name} is {schema.field(index).type}")
            else:
                schema = schema.set(index, schema.field(index).with_nullable(True))
        return schema


@dataclass(frozen=True)
class Origin:
    """What the log has of a file's rows.

    Args:
        row_id: The id of its first row.
        row_commit_version: The version that last changed its rows.
    """

    row_id: int | None = None
    row_commit_version: int | None = None

    def fill(self, table: pa.Table, start: int, hidden: HiddenColumns) -> pa.Table:
        """Return rows of the file with the hidden columns filled.

        Args:
            table: Adjacent rows, with the hidden columns.
            start: The first row's position in the file.
        """
        if self.row_id is not None:
            ids = pa.array(np.arange(self.row_id + start, self.row_id + start + len(table)))
            table = _with(table, hidden.row_id, pc.coalesce(table.column(hidden.row_id), ids))
        if self.row_commit_version is not None:
            found = pc.coalesce(table.column(hidden.row_commit_version), pa.scalar(self.row_commit_version, pa.int64()))
            table = _with(table, hidden.row_commit_version, found)
        return table


NO_ORIGIN = Origin()


def changed_now(table: pa.Table, rows: np.ndarray[Any, Any], hidden: HiddenColumns) -> pa.Table:
    """Return rows, of which some get the version of the commit: the hidden column is NULL there."""
    keep = np.ones(len(table), np.bool_)
    keep[rows] = False
    version = table.column(hidden.row_commit_version)
    return _with(table, hidden.row_commit_version, pc.if_else(pa.array(keep), version, pa.scalar(None, pa.int64())))


def _with(table: pa.Table, name: str, values: Any) -> pa.Table:  # noqa: ANN401
    return table.set_column(table.schema.get_field_index(name), pa.field(name, pa.int64()), values)
