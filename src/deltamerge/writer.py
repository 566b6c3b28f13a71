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
    *,
    overwrite_schema: bool = False,
) -> int:
    """Writes a DataFrame's rows as a Delta table, or to one.

    Args:
        df: The rows.
        path: A local path or a URL.
        mode: ``append`` adds to a table (and makes it where there is none), ``overwrite`` replaces its rows,
            ``error`` makes a new one only.
        partition_by: The partition columns of a new table, or of one whose schema is replaced.
        properties: The properties of a new or overwritten table, such as ``delta.enableChangeDataFeed``.
        overwrite_schema: Whether an overwrite replaces the columns and the partitioning too. Otherwise the table
            keeps both, with all that it says of its columns: generation expressions, identities, defaults, comments.

    Returns:
        The version that was made.

    Raises:
        ValueError: The mode is none of these, or not ``overwrite`` where the schema is to be replaced.
        DeltaAnalysisException: The rows do not fit the table.
        InvariantViolationException: A row violates a constraint.
    """
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {', '.join(_MODES)}, it is '{mode}'")
    if overwrite_schema and mode != "overwrite":
        raise ValueError(f"overwrite_schema goes with mode='overwrite', the mode is '{mode}'")
    kind = "overwrite_schema" if overwrite_schema else mode
    columns = (partition_by,) if isinstance(partition_by, str) else partition_by
    table = open_table(df.sparkSession, path)
    return write_table(table, df, kind, None if columns is None else tuple(columns), properties or {})
