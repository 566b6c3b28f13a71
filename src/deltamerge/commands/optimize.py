"""OPTIMIZE: few large files in the place of many small ones, with rows in an order that lets readers skip files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from deltamerge.commands.committing import commit_command
from deltamerge.commands.cubes import CLUSTERING_PROVIDER, files_to_cluster, listed, new_cube, packed_cubes
from deltamerge.commands.z_order import z_ordered
from deltamerge.exceptions import DeltaAnalysisException, DeltaRuntimeException
from deltamerge.log.actions import Action, AddFile
from deltamerge.log.add_file_stats import logical_rows, record_count
from deltamerge.log.features.clustering import clustered_by
from deltamerge.log.features.row_tracking import materialized_columns
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.partition_rows import files_where
from deltamerge.scan.row_tracking import tracked_frame
from deltamerge.scan.target import ScanColumns, target_frame
from deltamerge.skipping.indexed import IndexedColumns, leaves_of
from deltamerge.spark import columns as F
from deltamerge.spark.config import CommandConf
from deltamerge.spark.session import (
    errors_not_logged,
    for_reading,
    job_description,
    session_conf,
    session_settings,
)
from deltamerge.spark.table import Table
from deltamerge.sql.names import free_prefix
from deltamerge.txn.prepared import ReadSet
from deltamerge.txn.transaction import now_ms
from deltamerge.write.data_files import WriteTarget, WrittenFiles, remove_leftovers, removing_leftovers, write_files
from deltamerge.write.inert import schema_to_write
from deltamerge.write.layout import data_folder, target_file_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Of so many bins at a time one job writes the files.
_BINS_OF_A_JOB = 32


@dataclass(frozen=True)
class Optimized:
    """What an OPTIMIZE did.

    Args:
        considered: How many files the conditions leave.
        bins: The files that were rewritten together.
    """

    snapshot: Snapshot
    considered: int
    bins: tuple[tuple[AddFile, ...], ...]
    added: tuple[AddFile, ...]
    started_ms: int
    is_z_ordered: bool

    @property
    def removed(self) -> tuple[AddFile, ...]:
        return tuple(file for files in self.bins for file in files)


def optimize(table: Table, where: Sequence[str], order_by: Sequence[str]) -> Optimized:
    """Compact a table's small files, or order its rows by columns. Delta: OptimizeTableCommand.

    Args:
        where: Conditions on partition columns, all of which must hold.

    Raises:
        DeltaAnalysisException: A condition asks for other columns, or rows cannot be ordered by a column.
        DeltaConcurrentModificationException: Another writer's commit removed a file that was to be rewritten.
    """
    started = now_ms()
    with session_settings(table.spark, for_reading(table.spark)), errors_not_logged():
        snapshot = table.snapshot()
        snapshot.check_writable()
        conf = session_conf(table.spark, CommandConf)
        clustered = clustered_by(snapshot.domain_metadata, snapshot.schema)
        _check_clustered(snapshot, where, order_by)
        columns = _columns_to_order_by(snapshot, order_by, conf) or clustered
        candidates = _candidates(table, snapshot, where)
        bins = _bins(snapshot, candidates, columns, clustered, conf)
        added: tuple[AddFile, ...] = ()
        if bins:
            parameters = {
                "predicate": listed(where),
                "zOrderBy": listed(order_by),
                "clusterBy": listed(clustered),
                "auto": False,
                **({"isFull": False} if clustered else {}),
            }
            record = _Record("OPTIMIZE", parameters, clustered)
            added = _rewrite(table, snapshot, bins, columns, conf, record)
    return Optimized(snapshot, len(candidates), tuple(map(tuple, bins)), added, started, bool(order_by))


def purge(table: Table, where: Sequence[str]) -> Optimized:
    """Rewrite the files that have deletion vectors, without the rows that these delete. Delta: DeltaReorgTableCommand.

    Args:
        where: Conditions on partition columns, all of which must hold.

    Raises:
        DeltaAnalysisException: A condition asks for other columns.
        DeltaConcurrentModificationException: Another writer's commit removed a file that was to be rewritten.
    """
    started = now_ms()
    with session_settings(table.spark, for_reading(table.spark)), errors_not_logged():
        snapshot = table.snapshot()
        snapshot.check_writable()
        conf = session_conf(table.spark, CommandConf)
        candidates = _candidates(table, snapshot, where)
        partitions: dict[tuple[tuple[str, str | None], ...], list[AddFile]] = defaultdict(list)
        for file in candidates:
            if file.deletion_vector is not None:
                partitions[tuple(sorted(file.partition_values.items()))].append(file)
        size = target_file_size(snapshot.metadata.configuration) or conf.optimize_max_file_size
        bins = [of_bin for of in partitions.values() for of_bin in _packed(of, size)]
        added: tuple[AddFile, ...] = ()
        if bins:
            record = _Record("REORG", {"predicate": listed(where), "applyPurge": True})
            added = _rewrite(table, snapshot, bins, (), conf, record)
    return Optimized(snapshot, len(candidates), tuple(map(tuple, bins)), added, started, is_z_ordered=False)


@dataclass(frozen=True)
class _Record:
    """What a commit says of the files that it rewrites.

    Args:
        clustered: The columns by which the new files are clustered; each bin becomes a cube.
    """

    operation: str
    parameters: Mapping[str, object]
    clustered: tuple[str, ...] = ()


def _candidates(table: Table, snapshot: Snapshot, where: Sequence[str]) -> list[AddFile]:
    files = snapshot.files.add_files()
    columns = snapshot.metadata.partition_columns
    schema = schema_to_write(snapshot)
    partition_schema = StructType([field for field in schema.fields if field.name in columns])
    try:
        for predicate in where:
            files = list(files_where(table, snapshot, files, partition_schema, F.expr(predicate)))
    except AnalysisException as error:
        if not (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
            raise
        name = (error.getMessageParameters() or {}).get("objectName", "").strip("`")
        raise DeltaAnalysisException(
            "DELTA_NON_PARTITION_COLUMN_REFERENCE",
            f"Predicate references non-partition column '{name}'. Only the partition columns may be referenced: "
            f"[{', '.join(columns)}].",
            sqlstate="42P10",
            parameters={"columnName": name, "columnList": ", ".join(columns)},
        ) from error
    return files


def _rewrite(
    table: Table,
    snapshot: Snapshot,
    bins: Sequence[Sequence[AddFile]],
    columns: Sequence[str],
    conf: CommandConf,
    record: _Record,
) -> tuple[AddFile, ...]:
    folder = data_folder(snapshot.metadata.configuration)
    size = target_file_size(snapshot.metadata.configuration) or conf.optimize_max_file_size
    removed = [file for files in bins for file in files]
    with removing_leftovers(table.store, folder):
        try:
            with job_description(table.spark, f"{record.operation} operation - rewriting {len(removed)} files"):
                # A cube's files are known by the job that writes them.
                at_once = 1 if record.clustered else _BINS_OF_A_JOB
                of_jobs = _write(table, snapshot, bins, columns, size, folder, at_once)
            written = reduce(WrittenFiles.with_files_of, of_jobs)
            _check_rows(table, removed, written)
        except BaseException:
            # Whatever ends it, also Ctrl-C, comes before the commit.
            remove_leftovers(table.store, folder)
            raise
        added = tuple(file for of_job in of_jobs for file in _rewritten(of_job.files, record.clustered))
        now = now_ms()
        actions: list[Action] = [*added, *(file.remove(now, data_change=False) for file in removed)]
        commit_command(
            table,
            snapshot,
            record.operation,
            record.parameters,
            actions,
            metrics=_commit_metrics(added, removed),
            read=ReadSet(files=frozenset(file.path for file in removed)),
            isolation="SnapshotIsolation",
        )
    return added


def _rewritten(files: Sequence[AddFile], clustered: Sequence[str]) -> list[AddFile]:
    """Return the files of one job as they are committed, those of a clustered table as a cube."""
    if not clustered:
        return [replace(file, data_change=False) for file in files]
    tags = new_cube(clustered)
    return [replace(file, data_change=False, tags=tags, clustering_provider=CLUSTERING_PROVIDER) for file in files]


def _check_rows(table: Table, removed: Sequence[AddFile], written: WrittenFiles) -> None:
    before = sum(logical_rows(table.store, file) for file in removed)
    if written.row_count != before:
        raise DeltaRuntimeException(
            "DELTAMERGE_FILE_CHANGED",
            f"The table's log has {before} rows in the {len(removed)} files to rewrite, but {written.row_count} were "
            "read. The files are not those in the log; the table is as it was.",
            sqlstate="XXKDS",
        )


def _write(
    table: Table,
    snapshot: Snapshot,
    bins: Sequence[Sequence[AddFile]],
    columns: Sequence[str],
    size: int,
    folder: str,
    at_once: int,
) -> list[WrittenFiles]:
    """Write bins, so many by one job; return the files of each job."""
    schema, stored = schema_to_write(snapshot), materialized_columns(snapshot.metadata)
    target = WriteTarget(
        store=table.store,
        schema=schema,
        partition_columns=snapshot.metadata.partition_columns,
        configuration=snapshot.metadata.configuration,
        folder=folder,
        hidden_columns=() if stored is None else stored.names,
    )
    found: list[WrittenFiles] = []
    for first in range(0, len(bins), at_once):
        frames = [
            _in_order(_rows(table, snapshot, schema, files), files, columns, size)
            for files in bins[first : first + at_once]
        ]
        of_job = replace(target, folder=f"{folder}/{first // at_once}")
        found.append(write_files(reduce(lambda left, right: left.union(right), frames), of_job))
    return found


def _rows(table: Table, snapshot: Snapshot, schema: StructType, files: Sequence[AddFile]) -> DataFrame:
    """Read files without the rows that deletion vectors delete, with their ids where these are tracked."""
    prefix, stored = free_prefix(schema.names), materialized_columns(snapshot.metadata)
    extra = ScanColumns(prefix + "file", prefix + "row")
    if stored is None:
        frame = target_frame(table, snapshot, schema, files, extra)
    else:
        frame = tracked_frame(table, snapshot, schema, files, extra, stored)
    return frame.drop(extra.file_name, extra.row_index)


def _in_order(frame: DataFrame, files: Sequence[AddFile], columns: Sequence[str], size: int) -> DataFrame:
    if not columns:
        return frame.coalesce(1)
    return z_ordered(frame, columns, max(1, sum(file.size for file in files) // size))


def _bins(
    snapshot: Snapshot,
    files: Sequence[AddFile],
    columns: Sequence[str],
    clustered: Sequence[str],
    conf: CommandConf,
) -> list[list[AddFile]]:
    """Put the files together that are rewritten together, by partition."""
    if clustered:
        # A clustered table has no partitions, and takes no other order.
        target = max(conf.optimize_target_cube_size, conf.optimize_min_cube_size)
        return packed_cubes(files_to_cluster(files, clustered, conf.optimize_min_cube_size), target)
    size = target_file_size(snapshot.metadata.configuration) or conf.optimize_max_file_size
    smallest = min(conf.optimize_min_file_size, size)
    partitions: dict[tuple[tuple[str, str | None], ...], list[AddFile]] = defaultdict(list)
    for file in files:
        if columns or file.size < smallest or _deleted_share(file) > conf.optimize_max_deleted_rows_ratio:
            partitions[tuple(sorted(file.partition_values.items()))].append(file)
    if columns:
        return list(partitions.values())
    return [of_bin for of in partitions.values() for of_bin in _packed(of, size) if len(of_bin) > 1]


def _packed(files: Iterable[AddFile], size: int) -> list[list[AddFile]]:
    packed: list[list[AddFile]] = [[]]
    filled = 0
    for file in sorted(files, key=lambda one: one.size):
        if packed[-1] and filled + file.size > size:
            packed.append([])
            filled = 0
        packed[-1].append(file)
        filled += file.size
    return packed


def _deleted_share(file: AddFile) -> float:
    if file.deletion_vector is None:
        return 0.0
    rows = record_count(file)
    return 1.0 if not rows else file.deletion_vector.cardinality / rows


def _check_clustered(snapshot: Snapshot, where: Sequence[str], order_by: Sequence[str]) -> None:
    if not clustered_by(snapshot.domain_metadata, snapshot.schema):
        return
    if where:
        raise DeltaAnalysisException(
            "DELTA_CLUSTERING_WITH_PARTITION_PREDICATE",
            "OPTIMIZE command for Delta table with clustering doesn't support partition predicates. Please remove the "
            f"predicates: {' '.join(where)}.",
            sqlstate="0A000",
            parameters={"predicates": " ".join(where)},
        )
    if order_by:
        raise DeltaAnalysisException(
            "DELTA_CLUSTERING_WITH_ZORDER_BY",
            "OPTIMIZE command for Delta table with clustering cannot specify ZORDER BY. Please remove ZORDER BY "
            f"({', '.join(order_by)}).",
            sqlstate="42613",
            parameters={"zOrderBy": ", ".join(order_by)},
        )


def _columns_to_order_by(snapshot: Snapshot, order_by: Sequence[str], conf: CommandConf) -> tuple[str, ...]:
    """Return the columns as the table spells them."""
    by_name = {field.name.lower(): field for field in snapshot.schema.fields}
    found = []
    for name in order_by:
        field = by_name.get(name.split(".")[0].strip("`").lower())
        if field is None:
            raise DeltaAnalysisException(
                "DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST",
                f"ZOrdering column {name} does not exist in data schema.",
                sqlstate="42703",
                parameters={"columnName": name},
            )
        if field.name in snapshot.metadata.partition_columns:
            raise DeltaAnalysisException(
                "DELTA_ZORDERING_ON_PARTITION_COLUMN",
                f"{name} is a partition column. Z-Ordering can only be performed on data columns.",
                sqlstate="42P10",
                parameters={"colName": name},
            )
        found.append(name.replace("`", "") if "." in name else field.name)
    if found and conf.optimize_zorder_check_stats:
        _check_statistics(snapshot, found)
    return tuple(found)


def _check_statistics(snapshot: Snapshot, columns: Sequence[str]) -> None:
    metadata = snapshot.metadata
    indexed = IndexedColumns.of(snapshot.schema, metadata.partition_columns, metadata.configuration)
    paths = {leaf.names: leaf.path for leaf in leaves_of(snapshot.schema)}
    without = [name for name in columns if paths.get(tuple(name.split("."))) not in indexed.paths]
    if without:
        listed = "[" + ", ".join(without) + "]"
        raise DeltaAnalysisException(
            "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS",
            f"Z-Ordering on {listed} will be ineffective, because we currently do not collect stats for these columns. "
            "You can disable this check by setting spark.databricks.delta.optimize.zorder.checkStatsCollection.enabled "
            "= false.",
            sqlstate="KD00D",
            parameters={
                "cols": listed,
                "zorderColStatKey": "spark.databricks.delta.optimize.zorder.checkStatsCollection.enabled",
            },
        )


def _commit_metrics(added: Sequence[AddFile], removed: Sequence[AddFile]) -> dict[str, int]:
    sizes = sorted(file.size for file in added)
    vectors = [file.deletion_vector for file in removed if file.deletion_vector is not None]
    return {
        "numAddedFiles": len(added),
        "numRemovedFiles": len(removed),
        "numAddedBytes": sum(sizes),
        "numRemovedBytes": sum(file.size for file in removed),
        "numDeletionVectorsRemoved": len(vectors),
        **(
            {
                "minFileSize": sizes[0],
                "p25FileSize": sizes[len(sizes) // 4],
                "p50FileSize": sizes[len(sizes) // 2],
                "p75FileSize": sizes[len(sizes) * 3 // 4],
                "maxFileSize": sizes[-1],
            }
            if sizes
            else {}
        ),
    }


def file_sizes(files: Sequence[AddFile]) -> tuple[int | None, int | None, float, int, int]:
    """Return the least size, the greatest, the average, how many files there are, and their size together."""
    sizes = [file.size for file in files]
    average = sum(sizes) / len(sizes) if sizes else 0.0
    return min(sizes, default=None), max(sizes, default=None), average, len(sizes), sum(sizes)
