"""Files by a condition on partition values, which Spark evaluates; no data is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.types import StructType

from deltamerge.log.actions import AddFile
from deltamerge.log.features.column_mapping import physical_name
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.char_padding import padded, with_length
from deltamerge.scan.target import partition_value
from deltamerge.spark import columns as F
from deltamerge.spark.table import Table
from deltamerge.sql.names import free_prefix


def files_where(
    table: Table,
    snapshot: Snapshot,
    files: Sequence[AddFile],
    schema: StructType,
    condition: Column,
    alias: str | None = None,
) -> tuple[AddFile, ...]:
    """Return the files for whose partition values a condition is TRUE.

    Args:
        schema: The columns that the condition may name; those that are no partition columns are NULL.
        alias: The name that qualifies them, or None.
    """
    columns = snapshot.metadata.partition_columns
    fields = [snapshot.schema.find(name) for name in columns]
    keys = [name if field is None else physical_name(field) for name, field in zip(columns, fields, strict=True)]
    groups: dict[tuple[str | None, ...], list[AddFile]] = defaultdict(list)
    for file in files:
        groups[tuple(file.partition_values.get(key) for key in keys)].append(file)
    if not groups:
        return ()
    prefix = free_prefix(schema.names)
    stored = {name: f"{prefix}{place}" for place, name in enumerate(columns)}
    number = f"{prefix}number"
    given = {name: pa.array([g[place] for g in groups], pa.string()) for place, name in enumerate(stored.values())}
    values = table.spark.createDataFrame(pa.table({**given, number: pa.array(range(len(groups)), pa.int32())}))
    row = [
        with_length(padded(partition_value(F.col(stored[field.name]), field.dataType), field), field)
        if field.name in stored
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in schema.fields
    ]
    rows = values.select(*row, number)
    rows = rows if alias is None else rows.alias(alias)
    taken = {found[0] for found in rows.where(condition).select(number).collect()}
    return tuple(file for place, group in enumerate(groups.values()) if place in taken for file in group)
