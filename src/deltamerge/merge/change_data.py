"""Change data of a merge: each row of the join into rows of the table and rows of the change data feed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from deltamerge.merge.scopes import Rows
from deltamerge.names import MergeNames

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def generate_cdc_and_output_rows(
    rows: Rows, schema: StructType, names: MergeNames, *, deduplicate_deletes: bool
) -> DataFrame:
    """Makes the table's rows and the change data of joined rows.

    Args:
        rows: Rows as `write_all_changes_rows` gives them.
        schema: The output schema.
        names: The merge's own names.
        deduplicate_deletes: Whether several source rows may have deleted one target row.

    Returns:
        The table's columns, and the change type: NULL for a row of the table. Every value was computed once, also
        where it stands in several rows. Delta: generateCdcAndOutputRows.
    """
    packed = _cdc_array(schema, names)
    if deduplicate_deletes:
        return deduplicate_cdf_deletes(rows, packed, schema, names)
    return pack_and_explode_cdc_output(rows, packed, (), names).select(*_unpacked(schema, names))


def generate_inserted_rows(rows: Rows, schema: StructType, names: MergeNames) -> DataFrame:
    """Makes the table's rows and the change data of inserted rows.

    Args:
        rows: The output columns of the rows to insert.
        schema: The output schema.
        names: The merge's own names.

    Returns:
        As `generate_cdc_and_output_rows`.
    """
    packed = F.array(_row(schema, names.output, names, "insert"), _row(schema, names.output, names, None))
    return pack_and_explode_cdc_output(rows, packed, (), names).select(*_unpacked(schema, names))


def pack_and_explode_cdc_output(
    rows: Rows, packed: Column, kept: tuple[tuple[str, Column], ...], names: MergeNames
) -> DataFrame:
    """Turns each row into the rows of an array of structs.

    Args:
        rows: The rows.
        packed: For each row the array.
        kept: Columns to keep beside the structs.
        names: The merge's own names.

    Returns:
        One struct column, and the kept ones. Delta: packAndExplodeCDCOutput.
    """
    arrays = rows.frame.select(packed.alias(names.packed), *(column.alias(name) for name, column in kept))
    return arrays.select(F.explode(names.packed).alias(names.packed), *(name for name, _ in kept))


def deduplicate_cdf_deletes(rows: Rows, packed: Column, schema: StructType, names: MergeNames) -> DataFrame:
    """Keeps one delete of each target row that several source rows deleted.

    Args:
        rows: Rows as `write_all_changes_rows` gives them.
        packed: For each row the array of what it becomes.
        schema: The output schema.
        names: The merge's own names.

    Returns:
        The table's columns and the change type. Delta: deduplicateCDFDeletes.
    """
    is_delete = F.col(names.change).eqNullSafe(F.lit("delete"))
    source_row = F.when(~is_delete, F.col(names.source_row_index))
    keys = (
        (names.file_name, F.col(names.file_name)),
        (names.row_index, F.col(names.row_index)),
        (names.source_row_index, source_row),
    )
    exploded = pack_and_explode_cdc_output(rows, packed, keys, names)
    typed = exploded.select("*", F.col(names.packed).getField(names.change_type).alias(names.change_type))
    once = typed.dropDuplicates([name for name, _ in keys] + [names.change_type])
    return once.select(*_unpacked(schema, names))


def _cdc_array(schema: StructType, names: MergeNames) -> Column:
    """For each row: what it adds to the change data, and last the row of the table where there is one."""
    change = F.col(names.change)
    kept = _row(schema, names.output, names, None)
    return (
        F.when(change == F.lit("insert"), F.array(_row(schema, names.output, names, "insert"), kept))
        .when(
            change == F.lit("update"),
            F.array(
                _row(schema, names.copy, names, "update_preimage"),
                _row(schema, names.output, names, "update_postimage"),
                kept,
            ),
        )
        .when(change == F.lit("delete"), F.array(_row(schema, names.copy, names, "delete")))
        .when(change.isNull() & F.col(names.file_rewritten), F.array(kept))
    )


def _row(
    schema: StructType, name_of: Callable[[int], str], names: MergeNames, change_type: str | None
) -> Column:
    return F.struct(
        *(F.col(name_of(i)).alias(names.output(i)) for i in range(len(schema.fields))),
        F.lit(change_type).cast("string").alias(names.change_type),
    )


def _unpacked(schema: StructType, names: MergeNames) -> list[Column]:
    row = F.col(names.packed)
    return [
        *(row.getField(names.output(i)).alias(field.name) for i, field in enumerate(schema.fields)),
        row.getField(names.change_type).alias(names.change_type),
    ]
