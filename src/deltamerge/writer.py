"""write_delta: a DataFrame into a Delta table without a merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deltamerge.table import open_table
from deltamerge.write.table_writer import write_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MODES = ("append", "overwrite", "error")


def write_delta(
    df: DataFrame,
    path: str,
    mode: str = "error",
    partition_by: str | Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
) -> int:
    """Writes a DataFrame's rows as a Delta table, or to one.

    Args:
        df: The rows.
        path: A local path or a URL.
        mode: ``append`` adds to a table (and makes it where there is none), ``overwrite`` replaces its rows and
            schema, ``error`` makes a new one only.
        partition_by: The partition columns of a new or overwritten table.
        properties: The properties of a new or overwritten table, such as ``delta.enableChangeDataFeed``.

    Returns:
        The version that was made.

    Raises:
        ValueError: The mode is none of these.
        DeltaAnalysisException: The rows do not fit the table.
        InvariantViolationException: A row violates a constraint.
    """
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, it is '{mode}'")
    columns = (partition_by,) if isinstance(partition_by, str) else partition_by
    table = open_table(df.sparkSession, path)
    return write_table(table, df, mode, None if columns is None else tuple(columns), properties or {})
