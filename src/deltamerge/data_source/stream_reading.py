"""Reading a table as it grows.

Batches lie between offsets: a version and the number of a file in it, before which all was read. The first batches read
the version at which a query starts whole (`is_initial`), and those after it what each commit adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from pyspark.sql.types import StructType

from deltamerge.data_source.reading import TableRead, reads_changes
from deltamerge.data_source.request import Request
from deltamerge.exceptions import (
    DeltaAnalysisException,
    DeltaIllegalArgumentException,
    DeltaTableException,
    DeltaUnsupportedOperationException,
    VersionNotFoundException,
)
from deltamerge.log.actions import AddFile, Metadata, RemoveFile, first_of
from deltamerge.log.change_feed import ChangedFile, changes_by_commit
from deltamerge.log.commit_times import CommitTimes, first_version_from
from deltamerge.log.commits import Commit, read_commit
from deltamerge.log.features.column_mapping import NONE, is_stored_alike
from deltamerge.log.schema import fits_into, parse_schema, simple_string
from deltamerge.log.snapshot import Snapshot
from deltamerge.workers.table_rows import FilePart, RowsOfTable
from deltamerge.write.overwrite_kind import illegal_option

_MAX_FILES = 1000
_BEGAN = "began"
_IS_BEGIN = "isBegin"

_REFUSED = {
    "endingVersion": "which a stream does not take, since it goes on; read a range of versions with spark.read",
    "endingTimestamp": "which a stream does not take, since it goes on; read a range of versions with spark.read",
    "excludeRegex": "which a stream does not take; leave out rows with where()",
    "withEventTimeOrder": "which a stream does not take: the first version comes in the order of its files; leave it "
    "out, with a watermark that is long enough for that",
}
"""Options of delta-spark's streams that would change which rows a stream gives."""


@dataclass(frozen=True)
class Offset:
    """Where a batch begins or ends: all before the file with this number of a version was read.

    Args:
        is_initial: Whether the version is the one that is read whole; it comes before what the same commit added.
    """

    version: int
    index: int
    is_initial: bool

    @staticmethod
    def of_json(values: Mapping[str, Any]) -> Offset:
        return Offset(int(values["reservoirVersion"]), int(values["index"]), bool(values["isInitialSnapshot"]))

    def to_json(self, table_id: str) -> dict[str, Any]:
        return {
            "reservoirId": table_id,
            "reservoirVersion": self.version,
            "index": self.index,
            "isInitialSnapshot": self.is_initial,
        }


@dataclass(frozen=True)
class MetadataSpan:
    """A table's metadata from one version to another."""

    first: int
    last: int
    metadata: Metadata


def open_stream(
    options: Mapping[str, str], settings: Mapping[str, str], schema: StructType, pinned: int | None = None
) -> TableStream:
    """Open the table of a query as a stream; options that a stream cannot honour are refused.

    Args:
        pinned: The version whose schema the query's frame has; None for the latest.
    """
    request = Request(options, settings)
    _check_options(request)
    latest = request.snapshot()
    # A table that was made anew since may not have the version yet.
    read = latest if pinned is None or pinned >= latest.version else request.snapshot(pinned)
    return TableStream(
        request,
        TableRead.of(request, read, schema),
        _positive("maxFilesPerTrigger", request.number("maxFilesPerTrigger")) or _MAX_FILES,
        _positive("maxBytesPerTrigger", request.bytes("maxBytesPerTrigger")),
    )


def _check_options(request: Request) -> None:
    if not request.options.keys().isdisjoint(("versionasof", "timestampasof")):
        raise travelling_stream()
    for name, why in _REFUSED.items():
        value = request.options.get(name.lower())
        if value is not None and value.lower() != "false":
            raise illegal_option(name, value, why)


def travelling_stream() -> DeltaAnalysisException:
    """Return the error of a stream of a table as it was."""
    return DeltaAnalysisException(
        "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS",
        "Cannot time travel in a stream. To begin it at an earlier version, give startingVersion or "
        "startingTimestamp; to read one version, spark.read.",
    )


def _positive(name: str, value: int | None) -> int | None:
    if value == 0:
        raise illegal_option(name, "0", "must be positive")
    return value


@dataclass(eq=False)
class TableStream:
    """A table as a stream; `read` has the version whose schema the query has.

    A query that ended before its first batch did is asked anew where it begins, when the table has grown. Offsets that
    end a batch say where the query began, so that the first batch has the rows that it had. Before 4.2 Spark asks where
    the first batch ends before it asks where it begins, and never says where the next one does.

    Args:
        max_files: After how many files a batch ends.
        max_bytes: After how many bytes a batch ends; None for any number.
        began: Where a new query begins, once that matters.
        is_checked: Whether the schema at the begin of the first batch was looked at.
        initial: The version that is read whole and its files in order, as long as batches lie in it.
        known: The metadata of versions that batches begin with.
    """

    request: Request
    read: TableRead
    max_files: int
    max_bytes: int | None
    began: Mapping[str, Any] | None = None
    is_checked: bool = False
    initial: tuple[int, Sequence[ChangedFile]] | None = None
    known: MetadataSpan | None = None

    @property
    def rows(self) -> RowsOfTable:
        return self.read.rows

    def initial_offset(self) -> dict[str, Any]:
        return {**self._new_query(self.request.snapshot()), _IS_BEGIN: True}

    def _new_query(self, latest: Snapshot) -> Mapping[str, Any]:
        if self.began is None:
            self.began = self._initial(latest).to_json(latest.metadata.id)
        return self.began

    def latest_offset(
        self,
        start: Mapping[str, Any] | None = None,
        last: Mapping[str, Any] | None = None,
        *,
        is_limited: bool = True,
    ) -> dict[str, Any]:
        """Return where the next batch ends.

        Args:
            start: Where it begins; None where Spark does not tell.
            last: Where the last batch ends; None for the end of what the table has now.
            is_limited: Whether a batch whose begin is known has no more files and bytes than the options permit.
        """
        latest = self.request.snapshot()
        began = self._new_query(latest) if start is None else start.get(_BEGAN, self.began)
        end = Offset(latest.version + 1, 0, False) if last is None else Offset.of_json(last)
        if start is not None:
            begin = self._checked(start, latest)
            end = self._limited(begin, end, latest) if is_limited else end
        found = end.to_json(latest.metadata.id)
        return found if began is None else {**found, _BEGAN: began}

    def parts(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Sequence[FilePart]]:
        latest = self.request.snapshot()
        begin = self._checked(end.get(_BEGAN, start) if start.get(_IS_BEGIN) else start, latest)
        return self.read.changes([file for _, file in self._between(begin, Offset.of_json(end), latest)])

    def _checked(self, start: Mapping[str, Any], latest: Snapshot) -> Offset:
        """Return where a batch begins, if the table is the same and has been of the same form since."""
        self._check_table(start, latest)
        begin = Offset.of_json(start)
        # The commits from the first one on are looked at as they are read.
        if not self.is_checked:
            version = self._first_readable(min(begin.version, latest.version), latest)
            self._check_schema(version, self._metadata(version, latest))
        self.is_checked = True
        return begin

    def _first_readable(self, version: int, latest: Snapshot) -> int:
        """Return the first version from one on whose state can be read: in a log that was cut off, not each can.

        Only names tell columns that are not mapped, so that the commits before it are read alike. Delta:
        DeltaSource.checkReadIncompatibleSchemaChangeOnStreamStartOnce.
        """
        if version == latest.version or latest.mapping_mode != NONE or reads_changes(self.request):
            return version
        return max(version, CommitTimes.of(latest).versions[0])

    def _metadata(self, version: int, latest: Snapshot) -> Metadata:
        if self.known is None or not self.known.first <= version <= self.known.last:
            self.known = MetadataSpan(version, version, self._snapshot(version, latest).metadata)
        return self.known.metadata

    def _snapshot(self, version: int, latest: Snapshot) -> Snapshot:
        if version == latest.version:
            return latest
        try:
            return self.request.snapshot(version)
        except DeltaTableException as error:
            if error.getCondition() != "DELTA_VERSION_NOT_FOUND":
                raise
            raise self._cleaned_up(version) from error

    def _cleaned_up(self, version: int) -> DeltaTableException:
        return VersionNotFoundException(
            "DELTA_VERSION_NOT_FOUND",
            f"The stream needs version {version} of {self.request.path}, whose commit was cleaned up. Start it anew, "
            "with another checkpoint location.",
            parameters={"userVersion": str(version)},
        )

    def _initial(self, latest: Snapshot) -> Offset:
        version, timestamp = self.request.options.get("startingversion"), self.request.milliseconds("startingTimestamp")
        if version is not None and timestamp is not None:
            raise DeltaIllegalArgumentException(
                "DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET",
                "Please either provide 'startingVersion' or 'startingTimestamp'.",
                parameters={"version": "startingVersion", "timestamp": "startingTimestamp"},
            )
        if version is not None and version.lower() == "latest":
            return Offset(latest.version + 1, 0, False)
        if version is not None:
            number = self.request.number("startingVersion")
            assert number is not None
            if number > latest.version + 1:
                raise VersionNotFoundException(
                    "DELTA_VERSION_NOT_FOUND",
                    f"The stream is to start at version {number}, but version {latest.version} is the latest of "
                    f"{self.request.path}.",
                    parameters={"userVersion": version},
                )
            return Offset(number, 0, False)
        if timestamp is not None:
            return Offset(first_version_from(CommitTimes.of(latest, recreatable=False), timestamp), 0, False)
        return Offset(latest.version, 0, True)

    def _limited(self, start: Offset, end: Offset, latest: Snapshot) -> Offset:
        files = size = 0
        for offset, changed in self._between(start, end, latest):
            is_full = files >= self.max_files or (self.max_bytes is not None and size >= self.max_bytes)
            if files and is_full and self._may_begin(offset):
                return offset
            files, size = files + 1, size + changed.file.size
        return max(start, end, key=lambda offset: (offset.version, not offset.is_initial, offset.index))

    def _may_begin(self, offset: Offset) -> bool:
        """Return whether a batch may begin at a file: not among the changes of a commit, which belong together."""
        return offset.is_initial or offset.index == 0 or not reads_changes(self.request)

    def _between(self, start: Offset, end: Offset, latest: Snapshot) -> Iterator[tuple[Offset, ChangedFile]]:
        version, first = start.version, start.index
        if start.is_initial:
            stop = end.index if end.is_initial else None
            files = self._of_version(version, latest)
            yield from self._numbered(files, version, slice(first, stop), is_initial=True)
            if end.is_initial:
                return
            version, first = version + 1, 0
        else:
            self.initial = None
        versions = range(version, end.version + (end.index > 0))
        for number, files in zip(versions, self._of_commits(versions, latest), strict=True):
            stop = end.index if number == end.version else None
            yield from self._numbered(files, number, slice(first, stop), is_initial=False)
            first = 0

    @staticmethod
    def _numbered(
        files: Sequence[ChangedFile], version: int, wanted: slice, *, is_initial: bool
    ) -> Iterator[tuple[Offset, ChangedFile]]:
        for index in range(*wanted.indices(len(files))):
            yield Offset(version, index, is_initial), files[index]

    def _of_version(self, version: int, latest: Snapshot) -> Sequence[ChangedFile]:
        if self.initial is None or self.initial[0] != version:
            snapshot = self._snapshot(version, latest)
            files = sorted(snapshot.files.add_files(), key=lambda file: (file.modification_time, file.path))
            self.initial = version, [ChangedFile(version, snapshot.timestamp_ms, "insert", file) for file in files]
        return self.initial[1]

    def _of_commits(self, versions: range, latest: Snapshot) -> Iterator[Sequence[ChangedFile]]:
        """Return the files of each commit, which is read as it is asked for."""
        commits = map(self._commit, versions)
        if versions and reads_changes(self.request):
            # With it the metadata of its version is known where that of the one before was.
            first = next(commits)
            begin = self._metadata(versions[0], latest)
            asked = versions[0], versions[-1]
            return changes_by_commit(latest, latest, begin, asked, chain([first], commits))
        return map(self._added, commits)

    def _commit(self, version: int) -> Commit:
        try:
            commit = read_commit(self.request.store, version)
        except FileNotFoundError as error:
            raise self._cleaned_up(version) from error
        metadata = first_of(Metadata, commit.actions)
        if metadata is not None:
            self._check_schema(version, metadata)
        if self.known is not None and self.known.last == version - 1:
            span = replace(self.known, last=version)
            self.known = span if metadata is None else MetadataSpan(version, version, metadata)
        return commit

    def _added(self, commit: Commit) -> Sequence[ChangedFile]:
        added = [a for a in commit.actions if isinstance(a, AddFile) and a.data_change]
        removed = [a for a in commit.actions if isinstance(a, RemoveFile) and a.data_change]
        if removed and not self._passes_over(commit, added):
            return ()
        return [ChangedFile(commit.version, 0, "insert", file) for file in added]

    def _passes_over(self, commit: Commit, added: Sequence[AddFile]) -> bool:
        """Return whether what a commit that removes rows adds is read; or refuse the commit."""
        if self.request.flag("skipChangeCommits"):
            return False
        if self.request.flag("ignoreChanges") or self.request.flag("ignoreFileDeletion"):
            return True
        if not added and self.request.flag("ignoreDeletes"):
            return True
        kind = "an update, delete or merge" if added else "a delete"
        operation = commit.info.values.get("operation") if commit.info is not None else None
        by = f" ({operation})" if operation else ""
        raise DeltaUnsupportedOperationException(
            "DELTA_SOURCE_TABLE_IGNORE_CHANGES" if added else "DELTA_SOURCE_IGNORE_DELETE",
            f"Detected {kind}{by} in the source table at version {commit.version}, which a stream of added "
            "rows cannot show. To pass over such commits, set the option skipChangeCommits to true; to read what "
            "changed, readChangeFeed.",
            parameters={"version": str(commit.version)},
        )

    def _check_schema(self, version: int, metadata: Metadata) -> None:
        read = self.read.snapshot
        written, known = parse_schema(metadata.schema_string), read.schema
        is_read_alike = metadata.partition_columns == read.metadata.partition_columns
        is_read_alike &= fits_into(written, known) and is_stored_alike(written, known)
        # A later version may have no other columns, not even fewer: a dropped one would be NULL.
        if not is_read_alike or (version > read.version and not fits_into(known, written)):
            raise DeltaAnalysisException(
                "DELTA_SCHEMA_CHANGED_WITH_VERSION",
                f"Detected a schema change in version {version} of {self.request.path}: the stream reads "
                f"{simple_string(known)}, and from then on the table has {simple_string(written)}. Make its frame "
                "anew (spark.readStream) and start the query again from its checkpoint; if that fails too, with "
                "another one.",
                parameters={"version": str(version)},
            )

    def _check_table(self, start: Mapping[str, Any], latest: Snapshot) -> None:
        found = latest.metadata.id
        if start.get("reservoirId", found) != found:
            raise DeltaAnalysisException(
                "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
                f"The streaming query was reading from an unexpected Delta table (id = '{found}'). It used to read "
                f"from another Delta table (id = '{start['reservoirId']}') according to checkpoint. The table may have "
                "been deleted and made anew: start the query with another checkpoint location.",
                parameters={"newTableId": found, "oldTableId": str(start["reservoirId"])},
            )
