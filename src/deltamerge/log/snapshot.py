"""A version of a table: its protocol, metadata and live files."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import monotonic

import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.exceptions import DeltaLogCorruptException, DeltaTableException
from deltamerge.log.actions import CommitInfo, DomainMetadata, Metadata, Protocol, SetTransaction, first_of
from deltamerge.log.checkpoint.reading import read_checkpoint_actions, read_checkpoint_files
from deltamerge.log.commits import damaged, filled, parse_actions, read_ahead
from deltamerge.log.features.clustering import clustered_by
from deltamerge.log.features.column_mapping import (
    NONE,
    are_mapped,
    check_partition_keys,
    mapping_mode,
    partition_keys,
    physical_name,
    physical_schema,
)
from deltamerge.log.file_actions import REMOVE_KEY_SCHEMA, REMOVE_SCHEMA
from deltamerge.log.file_table import FileTable
from deltamerge.log.paths import names_no_file_of_table
from deltamerge.log.properties import has_in_commit_timestamps, interval_ms
from deltamerge.log.protocol import check_readable, names_column_mapping
from deltamerge.log.protocol import check_writable as check_protocol_writable
from deltamerge.log.replay import LogLines, TableState, commit_info, live_files, parse_log_files, tombstones
from deltamerge.log.schema import StructType, parse_schema
from deltamerge.log.segment import (
    LOG_FOLDER,
    CommitFile,
    LogSegment,
    extended,
    find_segment,
    list_log,
    read_last_checkpoint,
)
from deltamerge.log.version_checksum import VersionState, check_state, reading_checksum, recorded_timestamp
from deltamerge.storage.store import Store, StoredFile

_LOGGER = logging.getLogger(__name__)
_ATTEMPTS = 3

_TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A table at a version, which this library can read.

    `timestamp_ms` is the commit's in-commit timestamp where the table has those, else the commit file's
    modification time, milliseconds since the epoch. `domain_metadata` is without removed domains.
    """

    store: Store
    version: int
    timestamp_ms: int
    protocol: Protocol
    metadata: Metadata
    files: FileTable = field(repr=False)
    set_transactions: dict[str, SetTransaction] = field(repr=False)
    domain_metadata: dict[str, DomainMetadata] = field(repr=False)
    segment: LogSegment = field(repr=False)
    # When it was read, by a clock that nobody sets (seconds).
    read_at: float = field(default_factory=monotonic, repr=False, compare=False)

    @cached_property
    def schema(self) -> StructType:
        """The table's schema; fields have physical names only where these count."""
        return physical_schema(parse_schema(self.metadata.schema_string), self.mapping_mode)

    @cached_property
    def mapping_mode(self) -> str:
        """The column mapping mode: ``none``, ``name`` or ``id``.

        The data files decide where the property sets one that the protocol does not list.
        """
        mode = mapping_mode(self.metadata.configuration)
        if mode == NONE or names_column_mapping(self.protocol):
            return mode
        schema = parse_schema(self.metadata.schema_string)
        return mode if are_mapped(self.store, schema, self.metadata.partition_columns, self.files) else NONE

    @cached_property
    def clustered_by(self) -> tuple[tuple[str, ...], ...]:
        return clustered_by(self.domain_metadata, self.schema)

    def check_writable(self) -> None:
        """Refuse a table whose protocol cannot be written, or whose store takes no commits."""
        self.check_protocol()
        self.store.check_commits()

    def check_protocol(self) -> None:
        check_protocol_writable(self.protocol, self.metadata)

    def transactions_at(self, now_ms: int) -> dict[str, SetTransaction]:
        """Return the applications' transactions that have not expired. Delta: minSetTransactionRetentionTimestamp."""
        if _TRANSACTION_RETENTION not in self.metadata.configuration:
            return self.set_transactions
        oldest = now_ms - interval_ms(self.metadata, _TRANSACTION_RETENTION, "")
        return {name: each for name, each in self.set_transactions.items() if (each.last_updated or 0) > oldest}

    @property
    def state(self) -> VersionState:
        has_timestamp = self.segment.last_commit is not None and has_in_commit_timestamps(self.metadata)
        return VersionState(
            self.protocol,
            self.metadata,
            self.files,
            self.set_transactions,
            self.domain_metadata,
            self.timestamp_ms if has_timestamp else None,
        )

    def tombstones(self) -> pa.Table:
        """Read the tombstones from the log, whatever their age, as rows of `REMOVE_SCHEMA`."""
        try:
            return _read_tombstones(self.store, self.segment)
        except (FileNotFoundError, DeltaLogCorruptException) as error:
            # The log may have been cleaned up since; what is left still holds the same.
            path = error.parameters.get("path") if isinstance(error, DeltaLogCorruptException) else None
            unreadable = frozenset({path} if path else ())
            return _read_tombstones(self.store, find_segment(self.store, self.version, unreadable))


def _read_tombstones(store: Store, segment: LogSegment) -> pa.Table:
    base = None
    if segment.checkpoint is not None:
        found = read_checkpoint_actions(store, segment.checkpoint)
        base = read_checkpoint_files(store, segment.checkpoint, found, "remove")
    lines = _read_commits(store, segment.commits, segment.last_commit, REMOVE_SCHEMA)
    return tombstones(base, lines, store.root)


def table_exists(store: Store) -> bool:
    """Return whether there is a Delta table: a log with a commit or a checkpoint."""
    hint = read_last_checkpoint(store)
    # The end of a long log is listed faster than all of it.
    listings = (list_log(store, begin) for begin in ((hint, 0) if hint else (0,)))
    return any(listing.commits or listing.checkpoints for listing in listings)


def load_snapshot(store: Store, version: int | None = None, previous: Snapshot | None = None) -> Snapshot:
    """Read a version of a table.

    `version` is None for the latest. After `previous`, an earlier snapshot of the same table, only newer commits
    are read, unless the log was replaced or cleaned up in between.

    Raises:
        DeltaTableNotFoundException: There is no Delta table.
        DeltaTableException: There is no such version.
        DeltaLogCorruptException: The log has gaps or damaged files.
        DeltaUnsupportedFeatureException: The table needs a feature that is not implemented.
    """
    if previous is not None:
        # The store that the earlier one was read with may be reached with credentials that have expired since.
        known = previous if store.is_local else replace(previous, store=store)
        advanced = _advance(store, version, known)
        if advanced is not None:
            return advanced
    unreadable: frozenset[str] = frozenset()
    damage: DeltaLogCorruptException | None = None
    vanished = 0
    while True:
        try:
            segment = find_segment(store, version, unreadable)
        except DeltaTableException as error:
            raise (damage or error) from (error if damage else None)
        try:
            return _load(store, segment)
        except FileNotFoundError as error:
            # The log was cleaned up since it was listed: a new listing shows what holds now.
            vanished += 1
            if vanished == _ATTEMPTS:
                raise damaged(str(error.filename or error), "it was listed but does not exist") from error
        except DeltaLogCorruptException as error:
            path = error.parameters.get("path")
            if path is None or path not in _replaceable(segment):
                raise
            # Older checkpoints and plain commits may hold the same; the version must not become another.
            _LOGGER.warning("%s Trying without this file.", error.message)
            damage = damage or error
            version = segment.version
            unreadable |= {path}


def _replaceable(segment: LogSegment) -> frozenset[str]:
    checkpoint = () if segment.checkpoint is None else segment.checkpoint.files[:1]
    compacted = (item.file for item in segment.commits if item.end > item.start)
    return frozenset(file.path for file in (*checkpoint, *compacted))


def _load(store: Store, segment: LogSegment) -> Snapshot:
    state = TableState()
    if segment.checkpoint is not None:
        found = read_checkpoint_actions(store, segment.checkpoint)
        state = state.apply(found.actions)
    base = None
    with reading_checksum(store, segment.checksum) as checksum:
        lines = _read_commits(store, segment.commits, segment.last_commit)
        state = state.apply(lines.actions)
        checked = _checked(store, segment, state)
        if segment.checkpoint is not None:
            base = FileTable(read_checkpoint_files(store, segment.checkpoint, found, "add"))
    snapshot = _snapshot(store, segment, state, checked, lines, base, checksum)
    _check_partition_keys(snapshot, [lines.adds] if base is None else [lines.adds, base.arrow])
    _check_paths([snapshot.files.arrow], store)
    _check_state(snapshot, checksum)
    return snapshot


def _advance(store: Store, version: int | None, previous: Snapshot) -> Snapshot | None:
    """Return a snapshot advanced by the commits after it; None where the whole log must be read."""
    anchor = previous.segment.last_commit
    if anchor is None or (version is not None and version < previous.version):
        return None
    listing = list_log(store, previous.version)
    commits = [item for item in listing.commits if version is None or item.end <= version]
    ends = [item.version for item in listing.checkpoints]
    target = previous.version + len(commits) - 1
    same_log = bool(commits) and commits[0].file == anchor
    contiguous = bool(commits) and commits[-1].end == target
    if not same_log or not contiguous or (version is not None and version != target):
        return None
    if version is None and max(ends, default=target) > target:
        return None
    if target == previous.version:
        return previous
    new = tuple(commits[1:])
    segment = extended(previous.segment, target, new, listing)
    try:
        with reading_checksum(store, segment.checksum) as checksum:
            lines = _read_commits(store, new, segment.last_commit)
    except FileNotFoundError:
        return None
    state = TableState(previous.protocol, previous.metadata, previous.set_transactions, previous.domain_metadata)
    state = state.apply(lines.actions)
    checked = _checked(store, segment, state)
    if checked[1].id != previous.metadata.id:
        return None
    snapshot = _snapshot(store, segment, state, checked, lines, previous.files, checksum)
    is_partitioned_anew = snapshot.metadata.partition_columns != previous.metadata.partition_columns
    _check_partition_keys(snapshot, [lines.adds, *([previous.files.arrow] if is_partitioned_anew else [])])
    _check_paths([lines.adds], store)
    _check_state(snapshot, checksum)
    return snapshot


def _check_paths(added: Sequence[pa.Table], store: Store) -> None:
    """Refuse files that no writer names: a stranger's table must not make anybody read, or merge, what is beside it."""
    for table in added:
        paths = table.column("path")
        unusual = paths.filter(pc.match_substring_regex(paths, r"\.\.|\x00|%00|%2[eEfF]")) if len(paths) else paths
        for path in unusual.to_pylist():
            if names_no_file_of_table(path):
                raise damaged(
                    store.absolute(LOG_FOLDER), f"it names the file {path!r:.200}, which is not in the table's folder"
                )


def _check_state(snapshot: Snapshot, checksum: Sequence[bytes]) -> None:
    file = snapshot.segment.checksum
    if file is not None and checksum:
        check_state(snapshot.state, checksum[0], snapshot.store.absolute(file.path), snapshot.store.root)


def _read_commits(
    store: Store,
    commits: Sequence[CommitFile],
    last_commit: StoredFile | None,
    remove_schema: pa.Schema = REMOVE_KEY_SCHEMA,
) -> LogLines:
    wanted = frozenset() if last_commit is None else frozenset({last_commit.path})
    contents = (
        (path, filled(store, path, content) if path in wanted else content)
        for path, content in read_ahead(store, [item.file.path for item in commits])
    )
    return parse_log_files(contents, store.root, remove_schema=remove_schema, with_commit_info=wanted)


def _checked(store: Store, segment: LogSegment, state: TableState) -> tuple[Protocol, Metadata]:
    if state.protocol is None:
        raise _incomplete(store, segment, "protocol")
    if state.metadata is None:
        # The protocol may be why this library finds none.
        check_readable(state.protocol)
        raise _incomplete(store, segment, "metadata")
    check_readable(state.protocol, state.metadata)
    return state.protocol, state.metadata


def _incomplete(store: Store, segment: LogSegment, what: str) -> DeltaLogCorruptException:
    begin = "version 0" if segment.checkpoint is None else segment.checkpoint.files[0].name
    return DeltaLogCorruptException(
        "DELTA_STATE_RECOVER_ERROR",
        f"The {what} of the Delta table {store.root} could not be recovered while reconstructing version "
        f"{segment.version}: no {what} action from {begin} on. Did you manually delete files in "
        f"{store.absolute('_delta_log')}?",
        parameters={"operation": what, "version": str(segment.version)},
    )


def _snapshot(
    store: Store,
    segment: LogSegment,
    state: TableState,
    checked: tuple[Protocol, Metadata],
    lines: LogLines,
    base: FileTable | None,
    checksum: Sequence[bytes],
) -> Snapshot:
    protocol, metadata = checked
    return Snapshot(
        store=store,
        version=segment.version,
        timestamp_ms=_timestamp(store, segment, metadata, lines, checksum),
        protocol=protocol,
        metadata=metadata,
        files=live_files(base, lines, store.root),
        set_transactions=dict(state.set_transactions),
        domain_metadata=dict(state.domain_metadata),
        segment=segment,
    )


def _check_partition_keys(snapshot: Snapshot, added: Sequence[pa.Table]) -> None:
    """Check the live files where files that were added have keys that are not the partition columns'.

    Files of an earlier partitioning may have been removed since.
    """
    protocol, metadata = snapshot.protocol, snapshot.metadata
    names = set(metadata.partition_columns)
    if not names:
        return
    if mapping_mode(metadata.configuration) != NONE:
        fields = [f for f in parse_schema(metadata.schema_string).fields if f.name in names]
        physical = {physical_name(field) for field in fields}
        names = physical if names_column_mapping(protocol) else names | physical
    if any(not names.issuperset(partition_keys(adds)) for adds in added):
        check_partition_keys(snapshot.files.arrow, names, snapshot.store.root)


def _timestamp(
    store: Store, segment: LogSegment, metadata: Metadata, lines: LogLines, checksum: Sequence[bytes]
) -> int:
    last = segment.last_commit
    if last is None:
        recorded = recorded_timestamp(checksum) if has_in_commit_timestamps(metadata) else None
        if recorded is not None:
            return recorded
        # Besides, only the checkpoint of this version is left of it, which was not written before the version.
        return segment.checkpoint.files[0].modification_time if segment.checkpoint else 0
    if has_in_commit_timestamps(metadata):
        info = commit_info(lines) or first_of(
            CommitInfo, parse_actions(store.get(last.path), store.absolute(last.path))
        )
        if info is not None and info.in_commit_timestamp is not None:
            return info.in_commit_timestamp
    return last.modification_time
