"""The change data feed: which files hold what changed from one version to another.

Source: Delta protocol, "Add CDC File", "Change Data Files". The changes of a commit with change files are in
those only; of one without, each file added is inserts and each file removed is deletes, unless the data stayed the
same. Of a file that stays with another deletion vector, the rows that only the new one names are deletes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from deltamerge.exceptions import (
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    DeltaLogCorruptException,
    VersionNotFoundException,
)
from deltamerge.log.actions import AddCDCFile, AddFile, CommitInfo, Metadata, RemoveFile, first_of
from deltamerge.log.commit_times import CommitTimes, first_version_from, version_at
from deltamerge.log.commits import Commit, damaged, read_commit
from deltamerge.log.features.column_mapping import NONE, is_stored_alike
from deltamerge.log.features.deletion_vectors import vector_changes
from deltamerge.log.paths import canonical_path, names_no_file_of_table
from deltamerge.log.properties import is_enabled
from deltamerge.log.schema import StructType, fits_into, parse_schema, simple_string
from deltamerge.log.segment import commit_path, list_log
from deltamerge.log.snapshot import Snapshot, load_snapshot
from deltamerge.storage.store import Store
from deltamerge.workers.change_files import CHANGE_TYPE

ENABLED = "delta.enableChangeDataFeed"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
DISABLE = f"disable the change data feed ({ENABLED} = false)"
_ROWS_CHANGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


@dataclass(frozen=True)
class ChangedFile:
    """A file whose rows are changes; `change_type` is None for a change file, whose rows have it themselves."""

    version: int
    timestamp_ms: int
    change_type: str | None
    file: AddFile


@dataclass(frozen=True)
class Changes:
    """The changes of some versions.

    Args:
        files: By version.
        required: The columns that are NOT NULL in all of the versions, and in the schema that they are read with.
    """

    files: tuple[ChangedFile, ...]
    required: frozenset[str]


def required_columns(schema: StructType) -> frozenset[str]:
    return frozenset(field.name for field in schema.fields if not field.nullable)


def reserved_among(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.lower() in (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)]


def check_reserved_names(after: Metadata, before: Metadata | None) -> None:
    """Refuse metadata of a table with a change data feed that has columns of the feed's own names.

    Delta: OptimisticTransaction.performCdcMetadataCheck.

    Raises:
        DeltaAnalysisException: DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS where the feed would be new, else
            RESERVED_CDC_COLUMNS_ON_WRITE.
    """
    if not is_enabled(after.configuration, ENABLED) or after.schema_string is None:
        return
    found = reserved_among(field.name for field in parse_schema(after.schema_string).fields)
    if not found:
        return
    if before is not None and is_enabled(before.configuration, ENABLED):
        raise reserved_names(found, DISABLE)
    raise DeltaAnalysisException(
        "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS",
        f"Unable to enable Change Data Capture on the table. It has columns of the reserved names {', '.join(found)}, "
        "which the change data feed gives to columns of its own. Rename or drop them first.",
        parameters={"columnList": ", ".join(found)},
    )


def reserved_names(found: Iterable[str], otherwise: str) -> DeltaAnalysisException:
    names = ", ".join(found)
    return DeltaAnalysisException(
        "RESERVED_CDC_COLUMNS_ON_WRITE",
        f"The changed rows cannot be written: the table has, or would get, columns of the reserved names {names}. "
        f"Rename or drop them, or {otherwise}.",
        parameters={"columnList": names, "config": ENABLED},
    )


@dataclass(frozen=True)
class ChangeFeed:
    """The changes of some versions of a table.

    Args:
        latest: The table's latest version.
        snapshot: The version whose schema the changes are read with.
        begin: The metadata of the first version.
    """

    latest: Snapshot
    snapshot: Snapshot
    begin: Metadata
    first: int
    last: int

    @staticmethod
    def of(latest: Snapshot, first: int, last: int) -> ChangeFeed:
        """Return the changes from one version to another.

        They are read with the latest schema; where columns are mapped, with that of the last of the versions, so that
        columns which were renamed or dropped later are what they were. Delta: CDCReaderImpl.snapshotForBatchSchema.
        """
        begin = load_snapshot(latest.store, first)
        end = latest if last == latest.version else load_snapshot(latest.store, last)
        is_mapped = any(each.mapping_mode != NONE for each in (begin, end, latest))
        return ChangeFeed(latest, end if is_mapped else latest, begin.metadata, first, last)

    def read(self) -> Changes:
        """Read the commits."""
        schemas = [self.snapshot.schema, parse_schema(self.begin.schema_string)]

        def commits() -> Iterator[Commit]:
            for version in range(self.first, self.last + 1):
                commit = _commit(self.latest.store, version, self.last)
                metadata = first_of(Metadata, commit.actions)
                if metadata is not None:
                    schemas.append(parse_schema(metadata.schema_string))
                    if version == self.first and any(isinstance(a, RemoveFile) for a in commit.actions):
                        # The rows that it deletes have the schema of the version before, which is not read.
                        schemas.append(StructType())
                yield commit

        by_commit = changes_by_commit(self.latest, self.snapshot, self.begin, (self.first, self.last), commits())
        files = tuple(chain.from_iterable(by_commit))
        required = frozenset.intersection(*map(required_columns, schemas))
        return Changes(files, required)


def changes_by_commit(
    latest: Snapshot, snapshot: Snapshot, begin: Metadata, versions: tuple[int, int], commits: Iterable[Commit]
) -> Iterator[Sequence[ChangedFile]]:
    """Yield the files with the changes of each commit; commits are read as they are asked for.

    Args:
        snapshot: The version whose schema they are read with.
        begin: The metadata of the first version.
        versions: The first and the last one that were asked for.
    """
    if not is_enabled(begin.configuration, ENABLED):
        raise _not_recorded(versions[0], *versions)
    _check_schema(snapshot, begin, versions[0], versions)
    times = CommitTimes.of(latest, recreatable=False)
    for commit in commits:
        metadata = first_of(Metadata, commit.actions)
        if metadata is not None:
            if not is_enabled(metadata.configuration, ENABLED):
                raise _not_recorded(commit.version, *versions)
            _check_schema(snapshot, metadata, commit.version, versions)
        yield changed_files(commit, times.of_version(commit.version), latest.store)


def _commit(store: Store, version: int, last: int) -> Commit:
    try:
        return read_commit(store, version)
    except FileNotFoundError as error:
        kept = [commit.start for commit in list_log(store).commits]
        raise VersionNotFoundException(
            "DELTA_VERSION_NOT_FOUND",
            f"The changes of version {version} of the table {store.root} cannot be read: its commit was cleaned "
            f"up. Available versions: [{min(kept, default=last)}, {max(kept, default=last)}].",
            parameters={"userVersion": str(version)},
        ) from error


def changed_files(commit: Commit, timestamp_ms: int, store: Store) -> Sequence[ChangedFile]:
    for action in commit.actions:
        if isinstance(action, (AddFile, RemoveFile, AddCDCFile)) and names_no_file_of_table(action.path):
            raise damaged(
                store.absolute(commit_path(commit.version)), f"the file {action.path!r:.200} is not the table's"
            )
    change_files = [action for action in commit.actions if isinstance(action, AddCDCFile)]
    if change_files:
        return [ChangedFile(commit.version, timestamp_ms, None, _as_data_file(file)) for file in change_files]
    if _only_copied(commit.info):
        return []
    adds = [a for a in commit.actions if isinstance(a, AddFile) and a.data_change]
    removes = [a for a in commit.actions if isinstance(a, RemoveFile) and a.data_change]
    for file in removes:
        if file.partition_values is None:
            raise DeltaLogCorruptException(
                "DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA",
                "RemoveFile created without extended metadata is ineligible for CDC: "
                f"{file.path}, version {commit.version}.",
                parameters={"file": file.path},
            )
    stays = {canonical_path(file.path, store.root): file for file in adds}
    before = {path: file for file in removes if (path := canonical_path(file.path, store.root)) in stays}
    changes = [
        change for path, old in before.items() for change in vector_changes(store, _as_data_file(old), stays[path])
    ]
    changes += [("insert", file) for file in adds if canonical_path(file.path, store.root) not in before]
    changes += [
        ("delete", _as_data_file(file)) for file in removes if canonical_path(file.path, store.root) not in before
    ]
    return [ChangedFile(commit.version, timestamp_ms, change_type, file) for change_type, file in changes]


def _only_copied(info: CommitInfo | None) -> bool:
    """Return whether a commit is a merge that wrote files again without changing a row."""
    values = {} if info is None else info.values
    metrics = values.get("operationMetrics") or {}
    return values.get("operation") == "MERGE" and all(metrics.get(name) == "0" for name in _ROWS_CHANGED)


def _as_data_file(file: AddCDCFile | RemoveFile) -> AddFile:
    return AddFile(
        path=file.path,
        partition_values=file.partition_values or {},
        size=file.size or 0,
        modification_time=0,
        tags=file.tags,
        deletion_vector=file.deletion_vector if isinstance(file, RemoveFile) else None,
        stats=file.stats if isinstance(file, RemoveFile) else None,
    )


def _check_schema(snapshot: Snapshot, metadata: Metadata, version: int, asked: tuple[int, int]) -> None:
    read, written = snapshot.schema, parse_schema(metadata.schema_string)
    is_partitioned_alike = metadata.partition_columns == snapshot.metadata.partition_columns
    if is_partitioned_alike and fits_into(written, read) and is_stored_alike(written, read):
        return
    remedy = "Ask for the changes before and after that change separately."
    if snapshot.mapping_mode == NONE:
        remedy = "Where columns are not mapped it is the latest one: ask for the changes of later versions."
    raise DeltaAnalysisException(
        "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE",
        f"Retrieving table changes between version {asked[0]} and {asked[1]} failed because of an incompatible schema "
        f"change. The read schema is {simple_string(read)} at version {snapshot.version}, version {version} has "
        f"{simple_string(written)}. {remedy}",
        parameters={
            "start": str(asked[0]),
            "end": str(asked[1]),
            "readVersion": str(snapshot.version),
            "incompatibleVersion": str(version),
        },
    )


def _not_recorded(version: int, first: int, last: int) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTA_MISSING_CHANGE_DATA",
        f"Error getting change data for range [{first} , {last}] as change data was not recorded for version "
        f"[{version}]. If you've enabled change data feed on this table, look at history() for when it was first "
        f"enabled; otherwise set the table property {ENABLED}=true to start recording.",
        parameters={
            "startVersion": str(first),
            "endVersion": str(last),
            "version": str(version),
            "key": ENABLED,
        },
    )


@dataclass(frozen=True)
class ChangeBoundary:
    """Where changes begin or end: a version, or a timestamp in milliseconds since the epoch, or neither."""

    version: int | None = None
    timestamp_ms: int | None = None


def change_range(
    snapshot: Snapshot, start: ChangeBoundary, end: ChangeBoundary, *, allows_out_of_range: bool = False
) -> tuple[int, int] | None:
    """Return the first and the last version between two inclusive boundaries.

    A timestamp means the first version at or after it as the start, the last one not after it as the end; without
    an end it is the latest version. None where two timestamps have no version between them.

    Args:
        allows_out_of_range: Whether a start after the latest version has no changes, and an end after it is the latest
            version. Delta: changeDataFeed.timestampOutOfRange.enabled.
    """
    _check_boundary("starting", start)
    _check_boundary("ending", end)
    if start.version is None and start.timestamp_ms is None:
        raise DeltaAnalysisException(
            "DELTA_NO_START_FOR_CDC_READ", "No startingVersion or startingTimestamp provided for CDC read."
        )
    times = CommitTimes.of(snapshot, recreatable=False)
    if allows_out_of_range:
        latest = times.at(len(times.versions) - 1)
        if (start.version or 0) > snapshot.version or (start.timestamp_ms or 0) > latest:
            return None
        if end.timestamp_ms is not None and end.timestamp_ms > latest:
            end = ChangeBoundary(snapshot.version)
    first = start.version if start.timestamp_ms is None else first_version_from(times, start.timestamp_ms)
    assert first is not None
    if first > snapshot.version:
        raise DeltaIllegalArgumentException(
            "DELTA_CDC_START_VERSION_AFTER_LATEST",
            f"Start version {first} for change data feed exceeds the latest table version {snapshot.version}.",
            parameters={"start": str(first), "latest": str(snapshot.version)},
        )
    last = snapshot.version if end.version is None else end.version
    if end.timestamp_ms is not None:
        last = version_at(CommitTimes.of(snapshot), end.timestamp_ms)
    if last < first:
        if start.timestamp_ms is not None and end.timestamp_ms is not None and start.timestamp_ms <= end.timestamp_ms:
            return None
        raise DeltaIllegalArgumentException(
            "DELTA_INVALID_CDC_RANGE",
            f"CDC range from start {first} to end {last} was invalid. End cannot be before start.",
            parameters={"start": str(first), "end": str(last)},
        )
    return first, min(last, snapshot.version)


def _check_boundary(which: str, boundary: ChangeBoundary) -> None:
    if boundary.version is not None and boundary.timestamp_ms is not None:
        raise DeltaAnalysisException(
            "DELTA_MULTIPLE_CDC_BOUNDARY",
            f"Multiple {which} arguments provided for CDC read. Please provide one of either {which}Timestamp or "
            f"{which}Version.",
            parameters={"startingOrEnding": which},
        )
    if boundary.version is not None and boundary.version < 0:
        raise invalid_version(str(boundary.version))


def invalid_version(version: str) -> DeltaAnalysisException:
    return DeltaAnalysisException(
        "DELTA_VERSION_INVALID",
        f"The provided version ({version}) is not a valid version: changes are read from and to whole numbers from 0 "
        "on.",
        parameters={"version": version},
    )
