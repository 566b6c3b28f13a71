"""How data files have the columns that tasks hand to Spark, and what of a table the data source does not read."""

from __future__ import annotations

import re

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.features.column_mapping import COLUMN_ID, ID, NONE, PHYSICAL_NAME
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.workers.table_columns import Part, Shape

_LIMITED = re.compile(r"(var)?char\((\d+)\)", re.IGNORECASE)


def limited(field: StructField) -> tuple[str, int] | None:
    """Return whether a column is CHAR or VARCHAR, and its length; None for another one."""
    ddl = field.metadata.get(CHAR_VARCHAR_TYPE)
    if ddl is None:
        return None
    match = _LIMITED.fullmatch(ddl)
    if match is None:
        raise unsupported(f"column {field.name}, whose type {ddl} has CHAR or VARCHAR inside")
    return ("varchar" if match[1] else "char"), int(match[2])


def char_lengths(schema: StructType) -> dict[str, int]:
    limits = ((field.name, limited(field)) for field in schema.fields)
    return {name: limit[1] for name, limit in limits if limit is not None and limit[0] == "char"}


def stored_part(field: StructField, wanted: DataType, arrow: pa.DataType, mode: str) -> Part:
    metadata = field.metadata
    name = field.name if mode == NONE else metadata.get(PHYSICAL_NAME, field.name)
    length = limited(field)
    pad = length[1] if length is not None and length[0] == "char" else None
    shape = _stored_shape(field.dataType, wanted, arrow, mode, pad)
    return Part(name, shape, metadata.get(COLUMN_ID) if mode == ID else None)


def _stored_shape(stored: DataType, wanted: DataType, arrow: pa.DataType, mode: str, pad: int | None = None) -> Shape:
    if isinstance(wanted, StructType) and isinstance(stored, StructType):
        by_name = {field.name.lower(): field for field in stored.fields}
        return Shape(
            arrow,
            tuple(
                stored_part(by_name[field.name.lower()], field.dataType, arrow.field(index).type, mode)
                for index, field in enumerate(wanted.fields)
            ),
        )
    if isinstance(wanted, ArrayType) and isinstance(stored, ArrayType):
        inner = _stored_shape(stored.elementType, wanted.elementType, arrow.value_type, mode)
        return Shape(arrow, (Part("element", inner),))
    if isinstance(wanted, MapType) and isinstance(stored, MapType):
        key = _stored_shape(stored.keyType, wanted.keyType, arrow.key_type, mode)
        value = _stored_shape(stored.valueType, wanted.valueType, arrow.item_type, mode)
        return Shape(arrow, (Part("key", key), Part("value", value)))
    if isinstance(wanted, VariantType):
        return Shape(arrow, tuple(Part(field.name, Shape(field.type)) for field in arrow))
    return Shape(arrow, (), pad)


def unsupported(what: str, instead: str = "DeltaTable.forPath(spark, path).toDF()") -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTAMERGE_UNSUPPORTED_BY_DATA_SOURCE", f"The data source delta does not support {what}. Use {instead}."
    )
