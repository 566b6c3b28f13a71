"""NULLs of arrays and maps, counted in the file: its footer counts missing elements and empty arrays, too."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

# Elements of a row may be many.
_BATCH_ROWS = 8192


def count_nulls(file: pq.ParquetFile, path: tuple[str, ...], leaves: Sequence[int]) -> int | None:
    """Count the rows in which a column is NULL, or a struct that it is in; None where PyArrow cannot read it.

    Reads the column's smallest leaf only, some rows at a time: every leaf has which rows have a value. `path` is
    the column's in the file, through structs only, `leaves` are the indices of those of its leaves whose missing
    values the footer counts.
    """
    chunks = {leaf: _chunks(file.metadata, leaf) for leaf in leaves}
    smallest = min(leaves, key=lambda leaf: sum(chunk.total_compressed_size for chunk in chunks[leaf]))
    batches = file.iter_batches(
        batch_size=_BATCH_ROWS,
        row_groups=[group for group, chunk in enumerate(chunks[smallest]) if _may_be_null(chunk)],
        columns=[file.schema.column(smallest).path],
        use_threads=False,
    )
    try:
        return sum(int(_at(batch, path).null_count) for batch in batches)
    except pa.ArrowNotImplementedError:
        return None


def _chunks(footer: pq.FileMetaData, leaf: int) -> list[pq.ColumnChunkMetaData]:
    return [footer.row_group(group).column(leaf) for group in range(footer.num_row_groups)]


def _may_be_null(chunk: pq.ColumnChunkMetaData) -> bool:
    statistics = chunk.statistics
    return statistics is None or not statistics.has_null_count or statistics.null_count > 0


def _at(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    column = batch.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column
