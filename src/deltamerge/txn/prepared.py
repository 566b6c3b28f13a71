"""What a transaction read and wants to commit, as frozen values."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from deltamerge.log.actions import Action, Metadata, Protocol, RemoveFile, first_of
from deltamerge.log.paths import canonical_path
from deltamerge.log.snapshot import Snapshot, load_snapshot
from deltamerge.skipping.predicates import Predicate
from deltamerge.storage.store import Store

IsolationLevel: TypeAlias = Literal["Serializable", "WriteSerializable", "SnapshotIsolation"]


def isolation_level(configuration: Mapping[str, str]) -> IsolationLevel:
    """Read a table's level, which other writers may have spelled in any case; the stricter one where in doubt."""
    level = configuration.get("delta.isolationLevel", "Serializable")
    return "WriteSerializable" if level.lower() == "writeserializable" else "Serializable"


@dataclass(frozen=True)
class ReadSet:
    """What a transaction really read of the table; `files` are in the log's spelling.

    Args:
        predicates: A row that any of these is TRUE for would have been read; none for a blind append.
    """

    predicates: tuple[Predicate, ...] = ()
    files: frozenset[str] = frozenset()
    whole_table: bool = False


@dataclass(frozen=True)
class CommitSettings:
    """What a session says of all its commits.

    Args:
        user_metadata: The commit's ``userMetadata``.
        session_time_zone: ``spark.sql.session.timeZone``, which partition values may be in.
        records_metrics: Whether the commit has ``operationMetrics``.
        writes_checksum: Whether the new version gets a checksum file.
    """

    user_metadata: str | None = None
    session_time_zone: str = "UTC"
    records_metrics: bool = True
    writes_checksum: bool = True


@dataclass(frozen=True)
class PreparedCommit:
    """A transaction that is ready to be committed; `actions` are without a commitInfo.

    Args:
        snapshot: The version that was read, or the store of a table that does not exist yet.
        is_blind_append: Whether only files were added, and none were read.
        shows_no_version: Whether the history has -1 as the version that was read of a table that did not exist.
    """

    snapshot: Snapshot | Store
    actions: tuple[Action, ...]
    read_set: ReadSet
    operation: str
    operation_parameters: Mapping[str, object] = field(hash=False)
    operation_metrics: Mapping[str, str] = field(hash=False)
    isolation_level: IsolationLevel
    is_blind_append: bool
    settings: CommitSettings
    shows_no_version: bool = False
    txn_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def read_snapshot(self) -> Snapshot | None:
        """The version that was read; None where the commit creates the table."""
        return self.snapshot if isinstance(self.snapshot, Snapshot) else None

    @property
    def store(self) -> Store:
        return self.snapshot.store if isinstance(self.snapshot, Snapshot) else self.snapshot

    @property
    def read_version(self) -> int:
        """The version that was read; -1 where the commit creates the table."""
        return self.snapshot.version if isinstance(self.snapshot, Snapshot) else -1

    @property
    def new_metadata(self) -> Metadata | None:
        return first_of(Metadata, self.actions)

    @property
    def new_protocol(self) -> Protocol | None:
        return first_of(Protocol, self.actions)

    @property
    def metadata(self) -> Metadata | None:
        """The metadata that holds after the commit."""
        read = self.read_snapshot
        return self.new_metadata or (None if read is None else read.metadata)

    @property
    def protocol(self) -> Protocol | None:
        """The protocol that holds after the commit."""
        read = self.read_snapshot
        return self.new_protocol or (None if read is None else read.protocol)

    @property
    def counts_blind_appends(self) -> bool:
        """Whether rows of a writer that read nothing conflict.

        Under WriteSerializable they may be taken to have come later; but not where the commit changes the metadata.
        """
        return self.isolation_level == "Serializable" or self.new_metadata is not None

    @cached_property
    def read_paths(self) -> frozenset[str]:
        """The files that were read, in canonical form."""
        return frozenset(canonical_path(path, self.store.root) for path in self.read_set.files)

    @cached_property
    def removed_paths(self) -> frozenset[str]:
        """The files that the commit removes, in canonical form."""
        removed = (action.path for action in self.actions if isinstance(action, RemoveFile))
        return frozenset(canonical_path(path, self.store.root) for path in removed)


@dataclass(frozen=True, eq=False)
class Committed:
    """A commit that landed; `read` is the snapshot that the transaction had read."""

    version: int
    store: Store = field(repr=False)
    read: Snapshot | None = field(repr=False)

    @cached_property
    def snapshot(self) -> Snapshot:
        """The table at the new version, read when first asked for."""
        return load_snapshot(self.store, self.version, self.read)
