"""Change data of a merge: each row of the join into rows of the table and rows of the change data feed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from deltamerge.merge.analysis.internal_columns import InternalColumns
from deltamerge.merge.output.frames import Rows
from deltamerge.spark import columns as F


def generate_cdc_and_output_rows(
    rows: Rows, schema: StructType, names: InternalColumns, hidden: tuple[str, ...]
) -> DataFrame:
    """Make the table's rows and the change data of joined rows. Delta: generateCdcAndOutputRows.

    Every value was computed once, also where several rows have it.

    Args:
        rows: Rows of `write_all_changes_rows`.
        hidden: Columns of the rows that are written beside the table's.

    Returns:
        The table's columns, the change type (NULL for a row of the table), and the hidden columns.
    """
    change, of_row = F.col(names.change), partial(_row, schema, names, hidden)
    kept = of_row(names.output, None)
    # For each row: what it adds to the change data, and last the row of the table where there is one.
    packed = (
        F.when(change == F.lit("insert"), F.array(of_row(names.output, "insert"), kept))
        .when(
            change == F.lit("update"),
            F.array(of_row(names.copy, "update_preimage"), of_row(names.output, "update_postimage"), kept),
        )
        .when(change == F.lit("delete"), F.array(of_row(names.copy, "delete")))
        .when(change.isNull() & F.col(names.file_rewritten), F.array(kept))
    )
    return pack_and_explode_cdc_output(rows, packed, schema, names, hidden)


def generate_inserted_rows(rows: Rows, schema: StructType, names: InternalColumns) -> DataFrame:
    """Make the table's rows and the change data of inserted rows; else as `generate_cdc_and_output_rows`."""
    packed = F.array(*(_row(schema, names, (), names.output, change) for change in ("insert", None)))
    return pack_and_explode_cdc_output(rows, packed, schema, names, ())


def _row(
    schema: StructType,
    names: InternalColumns,
    hidden: tuple[str, ...],
    name_of: Callable[[int], str],
    change_type: str | None,
) -> Column:
    return F.struct(
        *(F.col(name_of(i)).alias(names.output(i)) for i in range(len(schema.fields))),
        F.lit(change_type).cast("string").alias(names.change_type),
        *(F.col(f"`{name}`") for name in hidden),
    )


def pack_and_explode_cdc_output(
    rows: Rows, packed: Column, schema: StructType, names: InternalColumns, hidden: tuple[str, ...]
) -> DataFrame:
    """Turn each row into the rows of an array of structs, in one column. Delta: packAndExplodeCDCOutput."""
    # Not of a column: of one Spark asks first for the size of its array, and may compute the values for that before the
    # clause's condition (InferFiltersFromGenerate).
    exploded = rows.frame.select(F.explode(packed).alias(names.packed))
    row = F.col(names.packed)
    return exploded.select(
        *(row.getField(names.output(i)).alias(field.name) for i, field in enumerate(schema.fields)),
        row.getField(names.change_type).alias(names.change_type),
        *(row.getField(name).alias(name) for name in hidden),
    )
