"""The OPTIMIZE builder, as delta-spark's Python API has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from deltamerge.api.arguments import names_of
from deltamerge.commands.cubes import cube_id
from deltamerge.commands.optimize import Optimized, file_sizes, optimize
from deltamerge.commands.rewriting import by_partition
from deltamerge.log.properties import integer
from deltamerge.log.snapshot import Snapshot
from deltamerge.skipping.indexed import NUM_INDEXED_COLS, STATS_COLUMNS, IndexedColumns
from deltamerge.spark.session import default_parallelism, merge_conf
from deltamerge.spark.table import Table
from deltamerge.sql.names import parse_name

_SIZES = "STRUCT<min: BIGINT, max: BIGINT, avg: DOUBLE, totalFiles: BIGINT, totalSize: BIGINT>"
_CUBES = "STRUCT<num: BIGINT, size: BIGINT>"
_Z_ORDER = (
    f"STRUCT<strategyName: STRING, inputCubeFiles: {_CUBES}, inputOtherFiles: {_CUBES}, inputNumCubes: BIGINT, "
    f"mergedFiles: {_CUBES}, numOutputCubes: BIGINT, mergedNumCubes: BIGINT>"
)
_Z_CUBES = "STRUCT<numFiles: BIGINT, size: BIGINT>"
_CLUSTERING = (
    f"STRUCT<inputZCubeFiles: {_Z_CUBES}, inputOtherFiles: {_Z_CUBES}, inputNumZCubes: BIGINT, "
    f"mergedFiles: {_Z_CUBES}, numOutputZCubes: BIGINT>"
)
_PARALLELISM = (
    "STRUCT<maxClusterActiveParallelism: BIGINT, minClusterActiveParallelism: BIGINT, "
    "maxSessionActiveParallelism: BIGINT, minSessionActiveParallelism: BIGINT>"
)
_METRICS = (
    "STRUCT<numFilesAdded: BIGINT, numFilesRemoved: BIGINT, "
    f"filesAdded: {_SIZES}, filesRemoved: {_SIZES}, partitionsOptimized: BIGINT, zOrderStats: {_Z_ORDER}, "
    f"clusteringStats: {_CLUSTERING}, numBins: BIGINT, numBatches: BIGINT, totalConsideredFiles: BIGINT, "
    "totalFilesSkipped: BIGINT, preserveInsertionOrder: BOOLEAN, numFilesSkippedToReduceWriteAmplification: BIGINT, "
    "numBytesSkippedToReduceWriteAmplification: BIGINT, startTimeMs: BIGINT, endTimeMs: BIGINT, "
    f"totalClusterParallelism: BIGINT, totalScheduledTasks: BIGINT, autoCompactParallelismStats: {_PARALLELISM}, "
    "deletionVectorStats: STRUCT<numDeletionVectorsRemoved: BIGINT, numDeletionVectorRowsRemoved: BIGINT>, "
    "numTableColumns: BIGINT, numTableColumnsWithStats: BIGINT>"
)


@dataclass
class DeltaOptimizeBuilder:
    """An OPTIMIZE under construction; see `DeltaTable.optimize`.

    Args:
        table: The table.
        predicates: Conditions on partition columns, all of which must hold.
    """

    table: Table
    predicates: tuple[str, ...] = ()

    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Limit the command to some partitions.

        Args:
            partitionFilter: SQL over the partition columns.
        """
        self.predicates = (*self.predicates, partitionFilter)
        return self

    def executeCompaction(self) -> DataFrame:
        """Combine small files into larger ones; in a clustered table, cluster the rows.

        The new files leave out the rows that deletion vectors delete.

        Returns:
            One row: path and metrics, as delta-spark has them.

        Raises:
            DeltaAnalysisException: The condition uses a column that is not a partition column.
            DeltaConcurrentModificationException: Another writer's commit removed a file that was being rewritten.
        """
        return optimized_frame(self.table, optimize(self.table, self.predicates, ()))

    def executeZOrderBy(self, *cols: str | Sequence[str]) -> DataFrame:
        """Order the rows along a Z-order curve, so that readers skip files by any of some columns.

        Args:
            cols: The columns, one by one or in one list.

        Returns:
            One row: path and metrics, as delta-spark has them.

        Raises:
            TypeError: A column is not a string.
            DeltaIllegalArgumentException: There is no such column, or it is a partition column.
            DeltaAnalysisException: Its type cannot be ordered, or it has no statistics.
            DeltaConcurrentModificationException: Another writer's commit removed a file that was being rewritten.
        """
        columns = names_of(cols, "Z-order column must be str. ")
        return optimized_frame(self.table, optimize(self.table, self.predicates, tuple(map(parse_name, columns))))


def optimized_frame(table: Table, done: Optimized) -> DataFrame:
    """Return what a command did to a table's files.

    Args:
        table: The table.
        done: What was done.

    Returns:
        One row: path and metrics.
    """
    return table.spark.createDataFrame([(table.location, _metrics(table, done))], f"path STRING, metrics {_METRICS}")


def _metrics(table: Table, done: Optimized) -> tuple[Any, ...]:
    removed = done.removed
    vectors = [file.deletion_vector for file in removed if file.deletion_vector is not None]
    zone = merge_conf(table.spark).session_time_zone
    return (
        len(done.added),
        len(removed),
        file_sizes(done.added),
        file_sizes(removed),
        len(by_partition(done.snapshot, (files[0] for files in done.bins), zone)),
        _z_order_stats(done) if done.is_z_ordered else None,
        _clustering_stats(done) if done.is_clustered else None,
        len(done.bins),
        1,
        done.considered,
        done.considered - len(removed),
        False,
        0,
        0,
        done.started_ms,
        0,
        default_parallelism(table.spark) or 0,
        0,
        None,
        (len(vectors), sum(vector.cardinality for vector in vectors)) if vectors else None,
        len(done.snapshot.schema.fields),
        _columns_with_statistics(done.snapshot),
    )


def _columns_with_statistics(snapshot: Snapshot) -> int:
    """Return how many columns the table's properties ask for statistics of.

    Delta: OptimizeExecutor, which takes the number in the property, of partition columns and structs, too.
    """
    metadata, columns = snapshot.metadata, snapshot.schema.fields
    if STATS_COLUMNS in metadata.configuration:
        indexed = IndexedColumns.of(snapshot.schema, metadata.partition_columns, metadata.configuration)
        return len({path[0] for path in indexed.paths})
    count = integer(metadata.configuration, NUM_INDEXED_COLS, 32)
    return len(columns) if count < 0 else min(count, len(columns))


def _clustering_stats(done: Optimized) -> tuple[Any, ...]:
    in_cubes = [file for file in done.removed if cube_id(file)]
    others = [file for file in done.removed if not cube_id(file)]
    cubes = len({cube_id(file) for file in in_cubes})
    counted = [(len(files), sum(file.size for file in files)) for files in (in_cubes, others, done.removed)]
    return (counted[0], counted[1], cubes, counted[2], len(done.bins))


def _z_order_stats(done: Optimized) -> tuple[Any, ...]:
    removed = len(done.removed), sum(file.size for file in done.removed)
    return ("all", (0, 0), removed, 0, removed, len(done.bins), None)
