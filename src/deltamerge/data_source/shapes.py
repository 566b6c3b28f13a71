"""How data files have the columns that tasks hand to Spark, and what of a table the data source does not read."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.features.column_mapping import COLUMN_ID, ID, NONE, PHYSICAL_NAME
from deltamerge.scan.file_types import shape_by
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.workers.table_columns import Part

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
    shape = shape_by(partial(stored_part, mode=mode), field.dataType, wanted, arrow)
    return Part(name, replace(shape, pad=pad), metadata.get(COLUMN_ID) if mode == ID else None)


def unsupported(what: str, instead: str = "DeltaTable.forPath(spark, path).toDF()") -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTAMERGE_UNSUPPORTED_BY_DATA_SOURCE", f"The data source delta does not support {what}. Use {instead}."
    )
