"""Scans without the rows that deletion vectors delete."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from deltamerge.log.actions import AddFile, DeletionVectorDescriptor
from deltamerge.log.add_file_stats import rows_about
from deltamerge.log.features.deletion_vectors import checked_rows, deleted_rows, vector_path
from deltamerge.scan.missing_files import naming_missing_files
from deltamerge.scan.paths import spark_path, spark_spellings, without_file_scheme
from deltamerge.scan.row_positions import block_of, is_in_block
from deltamerge.spark import columns as F
from deltamerge.spark.own_python import map_in_arrow
from deltamerge.spark.table import Table
from deltamerge.workers.row_blocks import BLOCK_ROWS, Blocks, blocks_table
from deltamerge.workers.vector_blocks import blocks_of, passing_on, reading_vectors

logger = logging.getLogger("deltamerge.merge.MergeIntoCommand")

# Blocks that the driver holds: 128 MiB.
MOST_BLOCKS = 1 << 18
# Above this the blocks are left to Spark's own choice of a join.
_MOST_BROADCAST_BYTES = 256 << 20
_VECTOR = pa.struct(
    {
        "offset": pa.int64(),
        "size": pa.int64(),
        "cardinality": pa.int64(),
        "rows": pa.int64(),
        "name": pa.string(),
        "files": pa.list_(pa.string()),
    }
)


def without_deleted_rows(
    table: Table, frame: DataFrame, file_name: str, row_index: str, files: Sequence[AddFile]
) -> DataFrame:
    """Return the rows that no deletion vector deletes. Protocol: Deletion Vectors."""
    columns = file, number, words = [f"{file_name}_{part}" for part in ("file", "block", "words")]
    blocks = _blocks_by_tasks(table, files, columns) if _are_many(files) else None
    if blocks is None:
        blocks = _blocks_by_driver(table, files, columns)
    if blocks is None:
        return frame
    row = F.col(row_index)
    same_block = (F.col(file_name) == F.col(file)) & (block_of(row) == F.col(number))
    return frame.join(blocks, same_block, "left").where(~is_in_block(F.col(words), row)).drop(*columns)


def _are_many(files: Sequence[AddFile]) -> bool:
    """Return whether there may be more blocks than the driver takes."""
    stored = [
        (file, file.deletion_vector.cardinality)
        for file in files
        if file.deletion_vector is not None and vector_path(file.deletion_vector) is not None
    ]
    if sum(deleted for _, deleted in stored) <= MOST_BLOCKS:
        return False
    blocks = (rows_about([(file.stats, file.size)]) // BLOCK_ROWS + 1 for file, _ in stored)
    return sum(min(deleted, most) for (_, deleted), most in zip(stored, blocks, strict=True)) > MOST_BLOCKS


def _vectors(table: Table, files: Iterable[AddFile]) -> Iterator[tuple[DeletionVectorDescriptor, list[str]]]:
    for file in files:
        if file.deletion_vector is not None:
            yield file.deletion_vector, spark_spellings(table, file)


def _blocks_by_driver(table: Table, files: Iterable[AddFile], columns: Sequence[str]) -> DataFrame | None:
    files = list(files)
    positions = deleted_rows(table.store, files)
    found = blocks_table(_blocks(positions, _vectors(table, files)), columns)
    if not found.num_rows:
        return None
    blocks = table.spark.createDataFrame(found)
    return F.broadcast(blocks) if found.nbytes <= _MOST_BROADCAST_BYTES else blocks


def _blocks(
    positions: dict[str, BitMap64], vectors: Iterable[tuple[DeletionVectorDescriptor, Sequence[str]]]
) -> Iterator[tuple[str, Blocks]]:
    for vector, spellings in vectors:
        blocks = blocks_of(positions[vector.unique_id])
        yield from ((spelling, blocks) for spelling in spellings)


def _tasks_read_vectors(spark: SparkSession) -> bool:
    """Return whether executors have the libraries that read a vector."""
    try:
        map_in_arrow(spark.range(1), passing_on, "id BIGINT").collect()
    except PySparkException:
        logger.warning("executors cannot read deletion vectors; the driver does", exc_info=True)
        return False
    return True


def _blocks_by_tasks(table: Table, files: Sequence[AddFile], columns: Sequence[str]) -> DataFrame | None:
    """Let tasks read the vectors; None where they cannot, or do not see all of them."""
    by_path: dict[str, list[dict[str, Any]]] = defaultdict(list)
    inline = []
    for file in files:
        for vector, spellings in _vectors(table, [file]):
            path = vector_path(vector)
            if path is None:
                inline.append(file)
                continue
            by_path[table.store.absolute(path)].append(
                {
                    "offset": 1 if vector.offset is None else vector.offset,
                    "size": vector.size_in_bytes,
                    "cardinality": vector.cardinality,
                    "rows": checked_rows(table.store, file),
                    "name": f"the deletion vector of {file.path}",
                    "files": spellings,
                }
            )
    wanted = pa.table(
        {
            "file": [without_file_scheme(path) for path in by_path],
            "vectors": pa.array(by_path.values(), pa.list_(_VECTOR)),
        }
    )
    paths = [spark_path(table, path) for path in by_path]
    # A vector that is not read would bring rows back, so none may be passed over.
    reader = table.spark.read.format("binaryFile").options(ignoreCorruptFiles=False, ignoreMissingFiles=False)
    with naming_missing_files(table.name):
        stored = reader.load(paths)
    same = F.regexp_replace("path", "^file:/+", "/") == F.col("file")
    found = stored.join(F.broadcast(table.spark.createDataFrame(wanted)), same)
    if not _tasks_read_vectors(table.spark) or found.select("file").count() != len(by_path):
        return None
    schema = ", ".join(
        f"`{name}` {kind}" for name, kind in zip(columns, ("STRING", "BIGINT", "ARRAY<BIGINT>"), strict=True)
    )
    blocks = map_in_arrow(found.select("content", "vectors"), reading_vectors(columns), schema)
    others = _blocks_by_driver(table, inline, columns) if inline else None
    return blocks if others is None else blocks.union(others)
