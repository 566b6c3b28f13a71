"""Defaults of columns that an INSERT leaves out, or that are set to DEFAULT (Protocol: Default Columns)."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql.types import StructType

from deltamerge.spark import columns as F
from deltamerge.sql.current_time import fix_current_time
from deltamerge.write.stored_expressions import stored_column

CURRENT_DEFAULT = "CURRENT_DEFAULT"


def column_defaults(schema: StructType, microseconds: int) -> Callable[[int], Column]:
    """Return a function from a column's position in the output schema to its default, NULL where it has none.

    Args:
        microseconds: The current time in all defaults of a statement, microseconds since 1970.
    """

    def default(index: int) -> Column:
        field = schema.fields[index]
        sql = (field.metadata or {}).get(CURRENT_DEFAULT)
        if sql is None:
            return F.lit(None).cast(field.dataType)
        value = stored_column(fix_current_time(sql, microseconds, ()), f"the default of column {field.name}")
        return value.cast(field.dataType)

    return default
