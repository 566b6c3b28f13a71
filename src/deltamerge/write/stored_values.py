"""Values as a scan of the table returns them once they are written, as SQL."""

from __future__ import annotations

from pyspark.sql.types import BinaryType, CharType, DataType, StringType, StructField

from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE


def stored_sql(value: str, field: StructField, *, is_partition: bool) -> str:
    """Return SQL for a plain value of a column's type as it is stored: CHAR padded, no empty string in partitions.

    Protocol: Partition Value Serialization. Delta: TransactionalWrite.convertEmptyToNullIfNeeded.
    """
    limited = DataType.fromDDL(field.metadata.get(CHAR_VARCHAR_TYPE, "STRING"))
    if isinstance(limited, CharType):
        value = f"rpad({value}, greatest(length({value}), {limited.length}), ' ')"
    may_be_null = is_partition and isinstance(field.dataType, (BinaryType, StringType))
    return f"CASE WHEN length({value}) > 0 THEN {value} END" if may_be_null else value
