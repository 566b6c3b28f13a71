"""Change data of a merge: each row of the join into rows of the table and rows of the change data feed."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from deltamerge.merge.analysis.internal_columns import InternalColumns
from deltamerge.merge.output.frames import Rows
from deltamerge.spark import columns as F


def generate_cdc_and_output_rows(
    rows: Rows, schema: StructType, names: InternalColumns, hidden: tuple[str, ...] = ()
) -> DataFrame:
    """Make the table's rows and the change data of joined rows. Delta: generateCdcAndOutputRows.

    Every value was computed once, also where several rows have it.

    Args:
        rows: Rows of `write_all_changes_rows`.
        hidden: Columns of the rows that are written beside the table's.

    Returns:
        The table's columns, the change type (NULL for a row of the table), and the hidden columns.
    """
    return pack_and_explode_cdc_output(rows, _cdc_array(schema, names, hidden), names).select(
        *_unpacked(schema, names, hidden)
    )


def generate_inserted_rows(rows: Rows, schema: StructType, names: InternalColumns) -> DataFrame:
    packed = F.array(_row(schema, names.output, names, "insert"), _row(schema, names.output, names, None))
    return pack_and_explode_cdc_output(rows, packed, names).select(*_unpacked(schema, names))


def pack_and_explode_cdc_output(rows: Rows, packed: Column, names: InternalColumns) -> DataFrame:
    """Turn each row into the rows of an array of structs, in one column. Delta: packAndExplodeCDCOutput."""
    return rows.frame.select(packed.alias(names.packed)).select(F.explode(names.packed).alias(names.packed))


def _cdc_array(schema: StructType, names: InternalColumns, hidden: tuple[str, ...]) -> Column:
    """For each row: what it adds to the change data, and last the row of the table where there is one."""
    change = F.col(names.change)
    kept = _row(schema, names.output, names, None, hidden)
    return (
        F.when(change == F.lit("insert"), F.array(_row(schema, names.output, names, "insert", hidden), kept))
        .when(
            change == F.lit("update"),
            F.array(
                _row(schema, names.copy, names, "update_preimage", hidden),
                _row(schema, names.output, names, "update_postimage", hidden),
                kept,
            ),
        )
        .when(change == F.lit("delete"), F.array(_row(schema, names.copy, names, "delete", hidden)))
        .when(change.isNull() & F.col(names.file_rewritten), F.array(kept))
    )


def _row(
    schema: StructType,
    name_of: Callable[[int], str],
    names: InternalColumns,
    change_type: str | None,
    hidden: tuple[str, ...] = (),
) -> Column:
    return F.struct(
        *(F.col(name_of(i)).alias(names.output(i)) for i in range(len(schema.fields))),
        F.lit(change_type).cast("string").alias(names.change_type),
        *(F.col(f"`{name}`") for name in hidden),
    )


def _unpacked(schema: StructType, names: InternalColumns, hidden: tuple[str, ...] = ()) -> list[Column]:
    row = F.col(names.packed)
    return [
        *(row.getField(names.output(i)).alias(field.name) for i, field in enumerate(schema.fields)),
        row.getField(names.change_type).alias(names.change_type),
        *(row.getField(name).alias(name) for name in hidden),
    ]
