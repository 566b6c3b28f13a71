"""What a column gets that an INSERT leaves out, or that is set to DEFAULT."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from deltamerge.sql.current_time import fix_current_time

if TYPE_CHECKING:
    from pyspark.sql import Column

CURRENT_DEFAULT = "CURRENT_DEFAULT"


def column_defaults(schema: StructType, microseconds: int) -> Callable[[int], Column]:
    """Gives each column's default.

    Args:
        schema: The output schema.
        microseconds: The time that all defaults of a statement tell, microseconds since 1970.

    Returns:
        For a column's position its default, of the column's type; NULL where it has none.
        Protocol: Default Columns.
    """

    def default(index: int) -> Column:
        field = schema.fields[index]
        text = (field.metadata or {}).get(CURRENT_DEFAULT)
        value = F.lit(None) if text is None else F.expr(fix_current_time(text, microseconds, ()))
        return value.cast(field.dataType)

    return default
