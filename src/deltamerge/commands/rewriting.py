"""Files that are rewritten with the same rows: compacted, ordered, purged, or in another form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from deltamerge.commands.committing import commit_command
from deltamerge.commands.cubes import CLUSTERING_PROVIDER, new_cube
from deltamerge.exceptions import DeltaRuntimeException
from deltamerge.log.actions import Action, AddFile, DomainMetadata, Metadata
from deltamerge.log.add_file_stats import logical_rows
from deltamerge.log.features.row_tracking import materialized_columns
from deltamerge.log.packing import packed
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.row_tracking import tracked_frame
from deltamerge.scan.target import ScanColumns, target_frame
from deltamerge.skipping.partition_keys import Partition, partition_of
from deltamerge.skipping.predicates import ALWAYS
from deltamerge.spark import columns as F
from deltamerge.spark.config import CommandConf
from deltamerge.spark.file_stores import file_stores
from deltamerge.spark.session import job_description, merge_conf, session_conf
from deltamerge.spark.table import Table
from deltamerge.sql.names import free_prefix, quote_name
from deltamerge.storage.store import in_parallel
from deltamerge.txn.prepared import ReadSet
from deltamerge.txn.transaction import now_ms
from deltamerge.write.data_files import WriteTarget, WrittenFiles, remove_leftovers, removing_leftovers, write_files
from deltamerge.write.layout import data_folder, target_file_size
from deltamerge.write.stored_schema import schema_to_write

# Of so many bins at a time one job writes the files.
_BINS_OF_A_JOB = 32


# The most bits of a column's place; 64 quantiles tell apart the files of a partition.
_BITS = 6
_CURVE_BITS = 60
_SAMPLED_ROWS = 100_000


@dataclass(frozen=True)
class RewriteRecord:
    """What a commit says of the files that it rewrites.

    Args:
        clustered: The names of the columns by which the new files are clustered; each bin becomes a cube.
        metadata: What the table has with the new files, where that is something else.
        domains: The table's domains that change with it.
    """

    operation: str
    parameters: Mapping[str, object]
    clustered: tuple[str, ...] = ()
    metadata: Metadata | None = None
    domains: tuple[DomainMetadata, ...] = ()


def by_partition(
    snapshot: Snapshot, files: Iterable[AddFile], session_time_zone: str
) -> dict[Partition, list[AddFile]]:
    partitions: dict[Partition, list[AddFile]] = defaultdict(list)
    partition = partition_of(snapshot, session_time_zone)
    for file in files:
        partitions[partition(file)].append(file)
    return partitions


def packed_partitions(
    snapshot: Snapshot, files: Iterable[AddFile], size: int, session_time_zone: str
) -> list[list[AddFile]]:
    of_partitions = by_partition(snapshot, files, session_time_zone).values()
    by_size = (sorted(of, key=lambda file: file.size) for of in of_partitions)
    return [of_bin for of in by_size for of_bin in packed(((file, file.size) for file in of), size)]


def rewrite_packed(
    table: Table, snapshot: Snapshot, files: Iterable[AddFile], record: RewriteRecord
) -> tuple[list[list[AddFile]], tuple[AddFile, ...]]:
    """Write the rows of files anew, by partition into files of the target's size, and commit.

    Returns:
        The files that were rewritten together, and the new ones.
    """
    conf = session_conf(table.spark, CommandConf)
    size = target_file_size(snapshot.metadata.configuration) or conf.optimize_max_file_size
    bins = packed_partitions(snapshot, files, size, merge_conf(table.spark).session_time_zone)
    is_something = bins or record.metadata is not None
    return bins, rewrite(table, snapshot, bins, (), conf, record) if is_something else ()


def rewrite(
    table: Table,
    snapshot: Snapshot,
    bins: Sequence[Sequence[AddFile]],
    columns: Sequence[Sequence[str]],
    conf: CommandConf,
    record: RewriteRecord,
) -> tuple[AddFile, ...]:
    """Write the rows of files anew and commit; return the new files.

    Args:
        bins: The files that are rewritten together.
        columns: The paths of the columns along whose Z-order curve the rows are.
    """
    after = record.metadata or snapshot.metadata
    folder = data_folder(after.configuration)
    size = target_file_size(snapshot.metadata.configuration) or conf.optimize_max_file_size
    removed = [file for files in bins for file in files]
    with removing_leftovers(table.store, folder):
        try:
            with job_description(table.spark, f"{record.operation} operation - rewriting {len(removed)} files"):
                # A cube's files are known by the job that writes them.
                at_once = 1 if record.clustered else _BINS_OF_A_JOB
                of_jobs = _write(table, snapshot, after, bins, columns, size, folder, at_once)
            written = reduce(WrittenFiles.with_files_of, of_jobs, WrittenFiles((), (), ()))
            _check_rows(table, removed, written)
        except BaseException:
            # Whatever ends it, also Ctrl-C, comes before the commit.
            remove_leftovers(table.store, folder)
            raise
        added = tuple(file for of_job in of_jobs for file in _rewritten(of_job.files, record.clustered))
        now, is_plain = now_ms(), record.metadata is None
        actions: list[Action] = [*record.domains] if record.metadata is None else [record.metadata, *record.domains]
        actions += [*added, *(file.remove(now, data_change=False) for file in removed)]
        commit_command(
            table,
            snapshot,
            record.operation,
            record.parameters,
            actions,
            metrics=_commit_metrics(added, removed) if is_plain else {"numOutputBytes": sum(f.size for f in added)},
            read=_read(removed, is_plain=is_plain),
            isolation="SnapshotIsolation" if is_plain else "Serializable",
        )
    return added


def _read(removed: Sequence[AddFile], *, is_plain: bool) -> ReadSet:
    """Return what a rewrite depends on: its own files, or all where the table's metadata says something else of them.

    A file that another writer adds meanwhile is in the form that the table had before.
    """
    files = frozenset(file.path for file in removed)
    return ReadSet(files=files) if is_plain else ReadSet((ALWAYS,), files, whole_table=True)


def _rewritten(files: Sequence[AddFile], clustered: Sequence[str]) -> list[AddFile]:
    """Return the files of one job as they are committed, those of a clustered table as a cube."""
    if not clustered:
        return [replace(file, data_change=False) for file in files]
    tags = new_cube(clustered)
    return [replace(file, data_change=False, tags=tags, clustering_provider=CLUSTERING_PROVIDER) for file in files]


def _check_rows(table: Table, removed: Sequence[AddFile], written: WrittenFiles) -> None:
    store_of = file_stores(table)
    before = sum(in_parallel(lambda file: logical_rows(store_of(file.path), file), removed))
    if written.row_count != before:
        raise DeltaRuntimeException(
            "DELTAMERGE_FILE_CHANGED",
            f"The table's log has {before} rows in the {len(removed)} files to rewrite, but {written.row_count} were "
            "read. The files are not those in the log; the table is as it was.",
        )


def _write(
    table: Table,
    snapshot: Snapshot,
    after: Metadata,
    bins: Sequence[Sequence[AddFile]],
    columns: Sequence[Sequence[str]],
    size: int,
    folder: str,
    at_once: int,
) -> list[WrittenFiles]:
    """Write bins as the metadata afterwards asks, so many by one job; return the files of each job."""
    schema, stored = schema_to_write(snapshot), materialized_columns(snapshot.metadata)
    target = WriteTarget(
        store=table.store,
        schema=schema_to_write(replace(snapshot, metadata=after)),
        partition_columns=after.partition_columns,
        configuration=after.configuration,
        folder=folder,
        hidden_columns=() if stored is None else stored.names,
    )
    found: list[WrittenFiles] = []
    for first in range(0, len(bins), at_once):
        frames = [
            _in_order(_rows(table, snapshot, schema, files), columns, max(1, sum(file.size for file in files) // size))
            for files in bins[first : first + at_once]
        ]
        of_job = replace(target, folder=f"{folder}/{first // at_once}")
        found.append(write_files(reduce(lambda left, right: left.union(right), frames), of_job))
    return found


def _rows(table: Table, snapshot: Snapshot, schema: StructType, files: Sequence[AddFile]) -> DataFrame:
    """Read files without the rows that deletion vectors delete, with their ids where these are tracked."""
    extra, stored = ScanColumns.beside(schema.names), materialized_columns(snapshot.metadata)
    if stored is None:
        frame = target_frame(table, snapshot, schema, files, extra)
    else:
        frame = tracked_frame(table, snapshot, schema, files, extra, stored)
    return frame.drop(extra.file_name, extra.row_index)


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


def _in_order(frame: DataFrame, columns: Sequence[Sequence[str]], files: int) -> DataFrame:
    """Return the rows in the order of the curve over some columns, in as many parts as there are to be files."""
    if not columns:
        return frame.coalesce(1)
    bits = max(1, min(_BITS, _CURVE_BITS // len(columns)))
    prefix = free_prefix(frame.columns)
    values = [F.col(quote_name(path)) for path in columns]
    quantiles = [f"{prefix}q{place}" for place in range(len(columns))]
    sample = frame.select(*(value.alias(name) for value, name in zip(values, quantiles, strict=True)))
    cuts = sample.limit(_SAMPLED_ROWS) if files == 1 else sample.sample(0.1).limit(_SAMPLED_ROWS)
    bounds = cuts.agg(*(_quantiles(F.col(name), 1 << bits).alias(name) for name in quantiles))
    places = [_place(value, F.col(name), 0, (1 << bits) - 1) for value, name in zip(values, quantiles, strict=True)]
    curve = f"{prefix}curve"
    rows = frame.crossJoin(F.broadcast(bounds)).withColumn(curve, _interleaved(places, bits))
    # Also where there is to be one file: what reads the rows and finds their places shall not be its one task.
    parts = rows.repartition(1) if files == 1 else rows.repartitionByRange(files, curve)
    return parts.sortWithinPartitions(curve).drop(curve, *quantiles)


def _quantiles(value: Column, count: int) -> Column:
    """Return the values that cut a sample into so many equal parts, ascending; NULLs come first."""
    ordered = F.sort_array(F.collect_list(value))
    size = F.size(ordered)
    return F.array(*(F.get(ordered, (size * F.lit(cut) / F.lit(count)).cast("int")) for cut in range(1, count)))


def _place(value: Column, bounds: Column, first: int, last: int) -> Column:
    """Return how many bounds are not above a value, by bisection; 0 of NULL."""
    if first == last:
        return F.lit(first)
    middle = (first + last) // 2
    below = F.coalesce(value < F.get(bounds, F.lit(middle)), F.lit(True))
    return F.when(below, _place(value, bounds, first, middle)).otherwise(_place(value, bounds, middle + 1, last))


def _interleaved(places: Sequence[Column], bits: int) -> Column:
    width = len(places)
    parts = [
        F.shiftleft(F.shiftright(place.cast("bigint"), bit).bitwiseAND(F.lit(1).cast("bigint")), bit * width + at)
        for at, place in enumerate(places)
        for bit in range(bits)
    ]
    return reduce(add, parts)
