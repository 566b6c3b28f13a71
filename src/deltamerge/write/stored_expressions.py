"""Columns of the expressions that a table has in its log."""

from __future__ import annotations

from pyspark.sql import Column

from deltamerge.spark import columns as F
from deltamerge.sql.stored_expressions import check_stored


def stored_column(sql: str, place: str) -> Column:
    """Return an expression of a table's log, once it is known to be harmless; see `check_stored`."""
    check_stored(sql, place)
    return F.expr(sql)
