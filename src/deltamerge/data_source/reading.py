"""Reading a version of a table, or its changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from deltamerge.data_source.file_parts import PartitionColumn, file_parts, grouped
from deltamerge.data_source.filters import predicate_of
from deltamerge.data_source.request import Request
from deltamerge.data_source.shapes import stored_part
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.actions import AddFile
from deltamerge.log.change_feed import (
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    ChangeBoundary,
    ChangedFile,
    ChangeFeed,
    change_range,
)
from deltamerge.log.commit_times import CommitTimes, version_at
from deltamerge.log.features.column_mapping import NONE
from deltamerge.log.snapshot import Snapshot
from deltamerge.scan.changes import CHANGE_COLUMNS
from deltamerge.scan.column_presence import expected_columns
from deltamerge.scan.file_types import arrow_schema
from deltamerge.skipping.pruning import files_that_may_match
from deltamerge.spark.catalog import location_in, with_location
from deltamerge.spark.field_metadata import frame_metadata
from deltamerge.spark.nested_types import matching_inner_types, nullable_field
from deltamerge.spark.table import spark_schema
from deltamerge.workers.change_files import CHANGE_TYPE
from deltamerge.workers.table_rows import FilePart, RowsOfTable

_BATCH_ROWS = 10_000

Plan = Callable[[Sequence[Any]], list[Sequence[FilePart]]]
"""Returns what each task reads, of the files that may have rows for which some of Spark's filters hold."""


def schema_of(options: Mapping[str, str], settings: Mapping[str, str]) -> tuple[T.StructType, int]:
    """Return a table's schema and version, which a frame then stays at."""
    request = Request(options, settings)
    snapshot = _asked(request)
    # A stream takes no end, and without a begin the read is refused.
    given = [{which + "version", which + "timestamp"} & request.options.keys() for which in ("starting", "ending")]
    feed = _change_feed(request, snapshot) if reads_changes(request) and all(given) else None
    schema = readable_schema(snapshot if feed is None else feed.snapshot, request)
    if options.get("provider", "").lower() == "delta":
        # CREATE TABLE … USING delta LOCATION asks for the columns, and this is all that later queries know of it.
        schema = with_location(schema, request.path)
    return schema, snapshot.version


def plan_read(
    options: Mapping[str, str], settings: Mapping[str, str], schema: T.StructType, pinned: int | None
) -> tuple[RowsOfTable, Plan]:
    """Plan the read of a version.

    Args:
        pinned: The version; None for the one that the options ask for.
    """
    if "path" not in options:
        location = location_in(schema)
        options = options if location is None else {**options, "path": location}
    request = Request(options, settings)
    snapshot = _asked(request) if pinned is None else request.snapshot(pinned)
    if not reads_changes(request):
        read = TableRead.of(request, snapshot, schema)
        return read.rows, read.of_version
    feed = _change_feed(request, snapshot)
    changes = TableRead.of(request, snapshot if feed is None else feed.snapshot, schema)
    return changes.rows, lambda _: changes.changes(() if feed is None else feed.read().files)


def reads_changes(request: Request) -> bool:
    return request.flag("readChangeFeed", request.flag("readChangeData"))


def readable_schema(snapshot: Snapshot, request: Request) -> T.StructType:
    """Return the columns of a query: nullable, and with what frames have of their metadata."""
    schema = spark_schema(snapshot)
    if not schema.fields:
        raise DeltaAnalysisException(
            "DELTA_READ_TABLE_WITHOUT_COLUMNS",
            f"You are trying to read a Delta table {request.path} that does not have any columns. Write it anew with "
            "some.",
            parameters={"tableName": request.path},
        )
    fields = (nullable_field(field, frame_metadata) for field in schema.fields)
    return T.StructType([*fields, *(CHANGE_COLUMNS if reads_changes(request) else ())])


def _asked(request: Request) -> Snapshot:
    version, timestamp = request.version, request.milliseconds("timestampAsOf")
    if version is not None and timestamp is not None:
        raise DeltaAnalysisException(
            "DELTA_ONEOF_IN_TIMETRAVEL", "Please either provide 'timestampAsOf' or 'versionAsOf' for time travel."
        )
    if timestamp is not None:
        version = version_at(CommitTimes.of(request.snapshot()), timestamp)
    if reads_changes(request) and version is not None:
        raise travelled_changes()
    return request.snapshot(version)


def travelled_changes() -> DeltaAnalysisException:
    """Return the error of options of time travel beside those of the change data feed."""
    return DeltaAnalysisException(
        "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS",
        "Cannot time travel and read the change data feed at once: use startingVersion and endingVersion.",
    )


def _change_feed(request: Request, latest: Snapshot) -> ChangeFeed | None:
    """Return the changes that are asked for; None where no version lies between two timestamps."""
    start = ChangeBoundary(request.boundary("startingVersion"), request.milliseconds("startingTimestamp"))
    end = ChangeBoundary(request.boundary("endingVersion"), request.milliseconds("endingTimestamp"))
    allows = request.conf.changes_out_of_range
    versions = change_range(latest, start, end, allows_out_of_range=allows)
    return None if versions is None else ChangeFeed.of(latest, *versions)


@dataclass(frozen=True)
class TableRead:
    """The columns of a table that a query reads, and the version whose schema they have."""

    request: Request
    snapshot: Snapshot
    rows: RowsOfTable
    partitions: tuple[PartitionColumn, ...]

    @staticmethod
    def of(request: Request, snapshot: Snapshot, schema: T.StructType) -> TableRead:
        arrow, mode = arrow_schema(schema), snapshot.mapping_mode
        of_table = spark_schema(snapshot)
        changes = CHANGE_COLUMNS if reads_changes(request) else ()
        by_name = {field.name.lower(): field for field in [*of_table.fields, *changes]}
        names = {name.lower() for name in snapshot.metadata.partition_columns}
        columns, partitions = [], []
        for field, target in zip(schema.fields, arrow, strict=True):
            found = by_name.get(field.name.lower())
            if found is None or not _is_read_as(found.dataType, field.dataType):
                raise _other_schema(request, field, found)
            part = stored_part(found, field.dataType, target.type, mode)
            columns.append(part)
            if field.name.lower() in names:
                physical = stored_part(found, field.dataType, target.type, "name" if mode != NONE else NONE).name
                partitions.append(PartitionColumn(field.name, physical, target.type, part.shape.pad))
        expected = expected_columns(of_table, snapshot.metadata, mode)
        by_zone = request.gives_timestamps or any(pa.types.is_timestamp(each.type) for each in partitions)
        zone = request.conf.session_time_zone if by_zone else None
        rows = RowsOfTable(request.files, request.path, arrow, tuple(columns), expected, _BATCH_ROWS, zone)
        return TableRead(request, snapshot, rows, tuple(partitions))

    def of_version(self, filters: Sequence[Any]) -> list[Sequence[FilePart]]:
        """Return what tasks read of the version, but for files in which no row passes Spark's filters."""
        snapshot, files = self.snapshot, self.snapshot.files
        if filters:
            predicate = predicate_of(filters, snapshot.schema)
            zone = self.request.conf.session_time_zone
            columns = snapshot.metadata.partition_columns
            files = files.filter(files_that_may_match(predicate, files, snapshot.schema, columns, zone))
        return self._of_files(files.add_files())

    def changes(self, changed: Sequence[ChangedFile]) -> list[Sequence[FilePart]]:
        """Return what tasks read of changes; a table may have columns of its own with the names of the feed's."""
        constants = [_of_feed(change) if reads_changes(self.request) else {} for change in changed]
        return self._of_files([change.file for change in changed], constants)

    def _of_files(
        self, files: Sequence[AddFile], constants: Sequence[Mapping[str, pa.Array]] | None = None
    ) -> list[Sequence[FilePart]]:
        zone = self.request.conf.session_time_zone
        parts = file_parts(self.snapshot.store, files, self.partitions, zone, constants)
        return grouped(self.request, zip(parts, (file.size for file in files), strict=True))


def _of_feed(change: ChangedFile) -> dict[str, pa.Array]:
    values = {
        COMMIT_VERSION: pa.array([change.version], pa.int64()),
        COMMIT_TIMESTAMP: pa.array([change.timestamp_ms * 1000], pa.timestamp("us", "UTC")),
    }
    if change.change_type is not None:
        values[CHANGE_TYPE] = pa.array([change.change_type])
    return values


def _is_read_as(stored: T.DataType, wanted: T.DataType) -> bool:
    """Return whether a column is read in a type: the same, but perhaps for some of its fields and nullability."""
    if isinstance(stored, T.StructType) and isinstance(wanted, T.StructType):
        fields = {field.name.lower(): field.dataType for field in stored.fields}
        return all(f.name.lower() in fields and _is_read_as(fields[f.name.lower()], f.dataType) for f in wanted.fields)
    inner = matching_inner_types(stored, wanted)
    if inner:
        return all(_is_read_as(one, other) for _, one, other in inner)
    return stored.simpleString() == wanted.simpleString()


def _other_schema(request: Request, field: T.StructField, found: T.StructField | None) -> DeltaAnalysisException:
    has = "the table has no such column" if found is None else f"in the table it is {found.dataType.simpleString()}"
    return DeltaAnalysisException(
        "DELTA_SCHEMA_CHANGED",
        f"Column {field.name} ({field.dataType.simpleString()}) is asked for, and {has}: {request.path}. Read it "
        "without a schema of your own; if it is a table of the catalog, whose schema has changed since: DROP TABLE and "
        "CREATE TABLE name USING delta LOCATION 'path' make it anew, the data stays.",
    )
