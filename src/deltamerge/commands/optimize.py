"""OPTIMIZE: few large files in the place of many small ones, with rows in an order that lets readers skip files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from deltamerge.commands.cubes import files_to_cluster, packed_cubes
from deltamerge.commands.rewriting import RewriteRecord, by_partition, packed_partitions, rewrite, rewrite_packed
from deltamerge.commands.stored_columns import with_dropped_columns
from deltamerge.exceptions import DeltaAnalysisException, DeltaIllegalArgumentException
from deltamerge.log.actions import AddFile, compact_json
from deltamerge.log.add_file_stats import record_count
from deltamerge.log.features.column_mapping import NONE
from deltamerge.log.features.row_tracking import materialized_columns
from deltamerge.log.schema import lower_case
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.partition_rows import files_where
from deltamerge.skipping.indexed import IndexedColumns, leaves_of
from deltamerge.spark import columns as F
from deltamerge.spark.config import CommandConf
from deltamerge.spark.file_stores import file_stores
from deltamerge.spark.held_settings import for_reading, session_settings
from deltamerge.spark.session import errors_not_logged, merge_conf, session_conf
from deltamerge.spark.table import Table
from deltamerge.sql.names import did_you_mean, shown_name
from deltamerge.txn.transaction import now_ms
from deltamerge.write.layout import target_file_size
from deltamerge.write.stored_schema import schema_to_write


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
    is_z_ordered: bool = False
    is_clustered: bool = False

    @property
    def removed(self) -> tuple[AddFile, ...]:
        return tuple(file for files in self.bins for file in files)


def optimize(
    table: Table, where: Sequence[str], order_by: Sequence[tuple[str, ...]], *, is_full: bool = False
) -> Optimized:
    """Compact a table's small files, or order its rows by columns. Delta: OptimizeTableCommand.

    Args:
        where: Conditions on partition columns, all of which must hold.
        is_full: Whether files that other implementations have clustered are clustered anew, too.
    """
    started = now_ms()
    with session_settings(table.spark, for_reading(table.spark)), errors_not_logged():
        snapshot = table.snapshot_to_write()
        conf = session_conf(table.spark, CommandConf)
        clustered, named = tuple(map(shown_name, snapshot.clustered_by)), tuple(map(shown_name, order_by))
        _check_clustered(snapshot, where, named, is_full=is_full)
        columns = _columns_to_order_by(snapshot, order_by, conf) or snapshot.clustered_by
        candidates = _candidates(table, snapshot, where)
        bins = _bins(table, snapshot, candidates, columns, clustered, conf, is_full=is_full)
        added: tuple[AddFile, ...] = ()
        if bins:
            full: dict[str, object] = {"isFull": is_full} if clustered else {}
            parameters = {**_parameters(where, named, clustered), **full}
            record = RewriteRecord("OPTIMIZE", parameters, clustered)
            added = rewrite(table, snapshot, bins, columns, conf, record)
    rewritten = tuple(map(tuple, bins))
    return Optimized(snapshot, len(candidates), rewritten, added, started, bool(order_by), bool(clustered))


def compact(table: Table, snapshot: Snapshot, candidates: Sequence[AddFile], conf: CommandConf) -> None:
    """Compact the small ones of some files without being asked: the compaction after a commit."""
    bins = _bins(table, snapshot, candidates, (), (), conf, is_full=False)
    if bins:
        record = RewriteRecord("OPTIMIZE", _parameters((), (), (), is_auto=True))
        rewrite(table, snapshot, bins, (), conf, record)


def _parameters(
    where: Sequence[str], order_by: Sequence[str], clustered: Sequence[str], *, is_auto: bool = False
) -> dict[str, object]:
    return {
        "predicate": compact_json(list(where)),
        "zOrderBy": compact_json(list(order_by)),
        "clusterBy": compact_json(list(clustered)),
        "auto": is_auto,
    }


def purge(table: Table, where: Sequence[str]) -> Optimized:
    """Rewrite the files that have deleted rows or dropped columns, without these. Delta: DeltaReorgTableCommand.

    Args:
        where: Conditions on partition columns, all of which must hold.
    """
    started = now_ms()
    with session_settings(table.spark, for_reading(table.spark)), errors_not_logged():
        snapshot = table.snapshot_to_write()
        candidates = _candidates(table, snapshot, where)
        record = RewriteRecord("REORG", {"predicate": compact_json(list(where)), "applyPurge": True})
        bins, added = rewrite_packed(table, snapshot, _to_purge(table, snapshot, candidates), record)
    return Optimized(snapshot, len(candidates), tuple(map(tuple, bins)), added, started)


def _to_purge(table: Table, snapshot: Snapshot, files: Sequence[AddFile]) -> list[AddFile]:
    """Return the files with deletion vectors, and those with columns that the table has dropped."""
    with_vectors = [file for file in files if file.deletion_vector is not None]
    if snapshot.mapping_mode == NONE:
        # Without column mapping a table cannot drop columns.
        return with_vectors
    others = [file for file in files if file.deletion_vector is None]
    stored = materialized_columns(snapshot.metadata)
    hidden = () if stored is None else stored.names
    return [*with_vectors, *with_dropped_columns(file_stores(table), others, snapshot.schema, hidden)]


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
            parameters={"columnName": name, "columnList": ", ".join(columns)},
        ) from error
    return files


def _bins(
    table: Table,
    snapshot: Snapshot,
    files: Sequence[AddFile],
    columns: Sequence[tuple[str, ...]],
    clustered: Sequence[str],
    conf: CommandConf,
    *,
    is_full: bool,
) -> list[list[AddFile]]:
    """Put the files together that are rewritten together, by partition."""
    if clustered:
        # A clustered table has no partitions, and takes no other order.
        target = max(conf.optimize_target_cube_size, conf.optimize_min_cube_size)
        return packed_cubes(files_to_cluster(files, clustered, conf.optimize_min_cube_size, is_full=is_full), target)
    size = target_file_size(snapshot.metadata.configuration) or conf.optimize_max_file_size
    smallest = min(conf.optimize_min_file_size, size)
    zone = merge_conf(table.spark).session_time_zone
    if columns:
        return list(by_partition(snapshot, files, zone).values())
    small = (f for f in files if f.size < smallest or _deleted_share(f) > conf.optimize_max_deleted_rows_ratio)
    return [of_bin for of_bin in packed_partitions(snapshot, small, size, zone) if len(of_bin) > 1]


def _deleted_share(file: AddFile) -> float:
    if file.deletion_vector is None:
        return 0.0
    rows = record_count(file)
    return 1.0 if not rows else file.deletion_vector.cardinality / rows


def _check_clustered(snapshot: Snapshot, where: Sequence[str], order_by: Sequence[str], *, is_full: bool) -> None:
    if not snapshot.clustered_by:
        if is_full:
            raise DeltaAnalysisException(
                "DELTA_OPTIMIZE_FULL_NOT_SUPPORTED",
                "OPTIMIZE FULL is only for tables that are clustered by columns. Leave FULL out.",
            )
        return
    if where:
        raise DeltaAnalysisException(
            "DELTA_CLUSTERING_WITH_PARTITION_PREDICATE",
            "OPTIMIZE command for Delta table with clustering doesn't support partition predicates. Please remove the "
            f"predicates: {' '.join(where)}.",
            parameters={"predicates": " ".join(where)},
        )
    if order_by:
        raise DeltaAnalysisException(
            "DELTA_CLUSTERING_WITH_ZORDER_BY",
            "OPTIMIZE command for Delta table with clustering cannot specify ZORDER BY. Please remove ZORDER BY "
            f"({', '.join(order_by)}).",
            parameters={"zOrderBy": ", ".join(order_by)},
        )


def _columns_to_order_by(
    snapshot: Snapshot, order_by: Sequence[tuple[str, ...]], conf: CommandConf
) -> tuple[tuple[str, ...], ...]:
    """Return the columns as the table spells them."""
    found = tuple(_column_to_order_by(snapshot, path) for path in order_by)
    if found and conf.optimize_zorder_check_stats:
        _check_statistics(snapshot, found)
    return found


def _column_to_order_by(snapshot: Snapshot, path: tuple[str, ...]) -> tuple[str, ...]:
    spelled = next((found for found, _ in snapshot.schema.walk() if lower_case(found) == lower_case(path)), None)
    name = shown_name(path)
    if spelled is None:
        names = snapshot.schema.names
        raise DeltaIllegalArgumentException(
            "DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST",
            f"Z-Ordering column {name} does not exist in data schema: the columns are {', '.join(names)}."
            f"{did_you_mean(name, names)}",
            parameters={"columnName": name},
        )
    if spelled[0] in snapshot.metadata.partition_columns:
        raise DeltaIllegalArgumentException(
            "DELTA_ZORDERING_ON_PARTITION_COLUMN",
            f"{name} is a partition column. Z-Ordering can only be performed on data columns.",
            parameters={"colName": name},
        )
    return spelled


def _check_statistics(snapshot: Snapshot, columns: Sequence[tuple[str, ...]]) -> None:
    metadata = snapshot.metadata
    indexed = IndexedColumns.of(snapshot.schema, metadata.partition_columns, metadata.configuration)
    paths = {leaf.names: leaf.path for leaf in leaves_of(snapshot.schema)}
    without = [shown_name(path) for path in columns if paths.get(path) not in indexed.paths]
    if without:
        listed = "[" + ", ".join(without) + "]"
        raise DeltaAnalysisException(
            "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS",
            f"Z-Ordering on {listed} will be ineffective, because we currently do not collect stats for these columns. "
            "You can disable this check by setting spark.databricks.delta.optimize.zorder.checkStatsCollection.enabled "
            "= false.",
            parameters={
                "cols": listed,
                "zorderColStatKey": "spark.databricks.delta.optimize.zorder.checkStatsCollection.enabled",
            },
        )


def file_sizes(files: Sequence[AddFile]) -> tuple[int | None, int | None, float, int, int]:
    sizes = [file.size for file in files]
    average = sum(sizes) / len(sizes) if sizes else 0.0
    return min(sizes, default=None), max(sizes, default=None), average, len(sizes), sum(sizes)
