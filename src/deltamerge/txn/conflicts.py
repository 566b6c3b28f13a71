"""Whether a commit that came first conflicts with a transaction: one function per rule.

The rules are those of delta-spark's ``ConflictChecker``, with two differences that see fewer conflicts: appended files
are compared with everything that is known of the read rows (also key ranges, not only partitions), and files that only
hold rows of other files in a new layout (``dataChange`` false) are no appends: who read one of those others conflicts
with its removal. One sees more: every change of protocol or metadata but for high water marks is a conflict, also where
it only enables a feature, and so is a change of clustering for who changes the metadata; a merge runs again after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from deltamerge.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from deltamerge.log.actions import (
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    first_of,
)
from deltamerge.log.commits import Commit
from deltamerge.log.features.clustering import DOMAIN as CLUSTERING
from deltamerge.log.features.column_mapping import physical_name
from deltamerge.log.features.identity_marks import moves_marks_only
from deltamerge.log.features.row_tracking import high_water_mark
from deltamerge.log.file_table import FileTable
from deltamerge.log.paths import canonical_path
from deltamerge.log.snapshot import Snapshot
from deltamerge.skipping.pruning import files_that_may_match
from deltamerge.txn.prepared import PreparedCommit

AGAIN = "This transaction was not committed; run it again on the new version."
_WRITER = (("userName", "user"), ("engineInfo", "engine"), ("txnId", "transaction"))


@dataclass(frozen=True)
class WinningCommit:
    """What matters of a commit that another writer made first.

    `info` is empty where it has none; `row_id_high_water_mark` is None where it assigned no row ids.
    """

    version: int
    info: CommitInfo
    protocol: Protocol | None
    metadata: Metadata | None
    added: tuple[AddFile, ...]
    removed: tuple[RemoveFile, ...]
    app_ids: frozenset[str]
    domains: frozenset[str]
    row_id_high_water_mark: int | None

    @staticmethod
    def of(commit: Commit) -> WinningCommit:
        actions = commit.actions
        return WinningCommit(
            version=commit.version,
            info=commit.info or CommitInfo({}),
            protocol=first_of(Protocol, actions),
            metadata=first_of(Metadata, actions),
            added=tuple(action for action in actions if isinstance(action, AddFile)),
            removed=tuple(action for action in actions if isinstance(action, RemoveFile)),
            app_ids=frozenset(action.app_id for action in actions if isinstance(action, SetTransaction)),
            domains=frozenset(action.domain for action in actions if isinstance(action, DomainMetadata)),
            row_id_high_water_mark=high_water_mark(a for a in actions if isinstance(a, DomainMetadata)),
        )

    @property
    def is_blind_append(self) -> bool:
        """Whether its writer read nothing; without the flag it may have."""
        return self.info.values.get("isBlindAppend") is True

    @property
    def txn_id(self) -> object:
        return self.info.values.get("txnId")

    @property
    def operation(self) -> str:
        """What it did, for messages."""
        operation = self.info.values.get("operation")
        return operation if isinstance(operation, str) else "operation of another writer"


@dataclass(frozen=True)
class _Found:
    """A conflict, and the file that it is about."""

    message: str
    file: AddFile | RemoveFile | None = None


def _protocol(prepared: PreparedCommit, winner: WinningCommit) -> _Found | None:
    """Compare the protocol with the one that was read; two transactions cannot both set it."""
    if winner.protocol is None:
        return None
    if prepared.read_snapshot is None:
        return _Found(
            "ProtocolChangedException: The table was created by a concurrent update while this transaction "
            "wanted to create it. Nothing was written; open the table that exists now."
        )
    if prepared.new_protocol is None and winner.protocol == prepared.read_snapshot.protocol:
        return None
    return _Found(
        "ProtocolChangedException: The protocol version of the Delta table has been changed by a "
        f"concurrent update. {AGAIN}"
    )


def _metadata(prepared: PreparedCommit, winner: WinningCommit) -> _Found | None:
    """Compare the metadata with what was read, but for high water marks; two transactions cannot both set it.

    Clustering belongs to it: its columns are chosen among the table's, which may be others afterwards.
    """
    read = prepared.read_snapshot
    if prepared.new_metadata is not None and CLUSTERING in winner.domains:
        return _Found(
            f"MetadataChangedException: The clustering columns of the Delta table {prepared.store.root} have been "
            f"changed by a concurrent update. {AGAIN}"
        )
    if winner.metadata is None:
        return None
    if (
        prepared.new_metadata is None
        and read is not None
        and (winner.metadata == read.metadata or moves_marks_only(read.metadata, winner.metadata))
    ):
        return None
    return _Found(
        f"MetadataChangedException: The metadata of the Delta table {prepared.store.root} has been changed by "
        f"a concurrent update. {AGAIN}"
    )


def _domain_metadata(prepared: PreparedCommit, winner: WinningCommit) -> _Found | None:
    own = {action.domain for action in prepared.actions if isinstance(action, DomainMetadata)}
    if both := sorted(own & winner.domains):
        return _Found(
            f"ConcurrentTransactionException: A conflicting metadata domain {', '.join(both)} is added. {AGAIN}"
        )
    return None


def _application_transactions(prepared: PreparedCommit, winner: WinningCommit) -> _Found | None:
    own = {action.app_id for action in prepared.actions if isinstance(action, SetTransaction)}
    if both := sorted(own & winner.app_ids):
        return _Found(
            f"ConcurrentTransactionException: The application transaction {', '.join(both)} was committed by "
            "another writer: is the same job or streaming query running twice? This transaction was not "
            "committed; stop the other one, then run it again."
        )
    return None


def _appended_files(prepared: PreparedCommit, winner: WinningCommit) -> _Found | None:
    """Look for a file that the transaction would have read, had it existed."""
    if winner.is_blind_append and not prepared.counts_blind_appends:
        return None
    found = files_to_read(prepared, [file for file in winner.added if file.data_change])
    if not found:
        return None
    file = found[0]
    return _Found(
        f"Transaction conflict detected. A concurrent {winner.operation} added data to table "
        f"{prepared.store.root} committed at version {winner.version}:{_where(prepared, file)}, which this "
        f"transaction should have read. {AGAIN}",
        file,
    )


def _deleted_read_files(prepared: PreparedCommit, winner: WinningCommit) -> _Found | None:
    if prepared.read_set.whole_table:
        return _deleted(prepared, winner, winner.removed, "read")
    return _deleted(prepared, winner, _among(prepared, winner, prepared.read_paths), "read")


def _deleted_twice(prepared: PreparedCommit, winner: WinningCommit) -> _Found | None:
    return _deleted(prepared, winner, _among(prepared, winner, prepared.removed_paths), "attempted to delete")


def _among(prepared: PreparedCommit, winner: WinningCommit, paths: frozenset[str]) -> Iterable[RemoveFile]:
    return (file for file in winner.removed if canonical_path(file.path, prepared.store.root) in paths)


def _deleted(prepared: PreparedCommit, winner: WinningCommit, files: Iterable[RemoveFile], own: str) -> _Found | None:
    file = next(iter(files), None)
    if file is None:
        return None
    return _Found(
        f"Transaction conflict detected, a concurrent {winner.operation} deleted data from table "
        f"{prepared.store.root} (committed at version {winner.version}) that this transaction {own}: it removed"
        f"{_where(prepared, file)}. {AGAIN}",
        file,
    )


def files_to_read(prepared: PreparedCommit, files: Sequence[AddFile]) -> list[AddFile]:
    """Return those files that a transaction would have read, had they existed, by what the log has of them."""
    read = prepared.read_snapshot
    if prepared.read_set.whole_table:
        return list(files)
    if read is None or not files:
        return []
    table, columns = FileTable.from_add_files(files), read.metadata.partition_columns
    masks = [
        files_that_may_match(predicate, table, read.schema, columns, prepared.settings.session_time_zone)
        for predicate in prepared.read_set.predicates
    ]
    return [file for i, file in enumerate(files) if any(mask[i] for mask in masks)]


def _where(prepared: PreparedCommit, file: AddFile | RemoveFile) -> str:
    read = prepared.read_snapshot
    partition = "" if read is None else _partition(read, file.partition_values or {})
    return f" the file {file.path}" + (f" in the partition {partition}" if partition else "")


def _partition(read: Snapshot, values: Mapping[str, str | None]) -> str:
    parts = []
    for name in read.metadata.partition_columns:
        field = read.schema.find(name)
        value = values.get(name if field is None else physical_name(field))
        parts.append(f"{name}={'null' if value is None else value}")
    return f"[{', '.join(parts)}]" if parts and values else ""


ROW_CONFLICTS = (ConcurrentAppendException, ConcurrentDeleteReadException, ConcurrentDeleteDeleteException)
"""Conflicts about files, whose rows may still be others."""

_Rule: TypeAlias = Callable[[PreparedCommit, WinningCommit], _Found | None]
_RULES: tuple[tuple[type[DeltaConcurrentModificationException], str, _Rule], ...] = (
    (ProtocolChangedException, "DELTA_PROTOCOL_CHANGED", _protocol),
    (MetadataChangedException, "DELTA_METADATA_CHANGED", _metadata),
    (ConcurrentTransactionException, "DELTA_CONCURRENT_TRANSACTION", _domain_metadata),
    (ConcurrentTransactionException, "DELTA_CONCURRENT_TRANSACTION", _application_transactions),
    (ConcurrentAppendException, "DELTA_CONCURRENT_APPEND", _appended_files),
    (ConcurrentDeleteReadException, "DELTA_CONCURRENT_DELETE_READ", _deleted_read_files),
    (ConcurrentDeleteDeleteException, "DELTA_CONCURRENT_DELETE_DELETE", _deleted_twice),
)


def check_conflicts(prepared: PreparedCommit, winner: WinningCommit) -> None:
    """Raise a DeltaConcurrentModificationException where a commit conflicts with a transaction."""
    for kind, error_class, rule in _RULES:
        found = rule(prepared, winner)
        if found is None:
            continue
        values = winner.info.values
        by = [f"{name} {values[key]}" for key, name in _WRITER if values.get(key)]
        writer = f" (by {', '.join(by)})" if by else ""
        parameters = {
            "tableName": prepared.store.root,
            "version": str(winner.version),
            "operation": winner.operation,
            "readVersion": str(prepared.read_version),
        }
        raise kind(
            error_class,
            f"{found.message} Conflicting commit: version {winner.version}, {winner.operation}{writer}; this "
            f"transaction ({prepared.operation}) had read version {prepared.read_version}.",
            parameters=parameters if found.file is None else {**parameters, "path": found.file.path},
        )
