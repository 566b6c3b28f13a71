"""Whether a commit that came first conflicts with a transaction: one function per rule.

The rules are those of delta-spark's ``ConflictChecker``, with two differences that only see fewer conflicts:
appended files are held against everything that is known of the read rows (also key ranges, not partitions
alone), and files that only hold rows of other files in a new layout (``dataChange`` false) are no appends: who
read one of those others conflicts with its removal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
)
from deltamerge.log.commits import Commit
from deltamerge.log.features.column_mapping import physical_name
from deltamerge.log.features.row_tracking import high_water_mark
from deltamerge.log.file_table import FileTable
from deltamerge.log.paths import canonical_path
from deltamerge.log.snapshot import Snapshot
from deltamerge.skipping.pruning import files_that_may_match
from deltamerge.txn.prepared import PreparedCommit

SQLSTATE = "2D521"
AGAIN = "This transaction was not committed; run it again on the new version."


@dataclass(frozen=True)
class WinningCommit:
    """What matters of a commit that another writer made first.

    Args:
        protocol: The protocol it sets, as `metadata`.
        app_ids: The applications whose transactions it records.
        domains: The domains whose metadata it sets.
        row_id_high_water_mark: The highest row id that it assigned, where it assigned any.
    """

    version: int
    info: CommitInfo | None
    protocol: Protocol | None
    metadata: Metadata | None
    added: tuple[AddFile, ...]
    removed: tuple[RemoveFile, ...]
    app_ids: frozenset[str]
    domains: frozenset[str]
    row_id_high_water_mark: int | None

    @staticmethod
    def of(commit: Commit) -> WinningCommit:
        """Sum up a commit."""
        actions = commit.actions
        return WinningCommit(
            version=commit.version,
            info=commit.info,
            protocol=next((action for action in actions if isinstance(action, Protocol)), None),
            metadata=next((action for action in actions if isinstance(action, Metadata)), None),
            added=tuple(action for action in actions if isinstance(action, AddFile)),
            removed=tuple(action for action in actions if isinstance(action, RemoveFile)),
            app_ids=frozenset(action.app_id for action in actions if isinstance(action, SetTransaction)),
            domains=frozenset(action.domain for action in actions if isinstance(action, DomainMetadata)),
            row_id_high_water_mark=high_water_mark(a for a in actions if isinstance(a, DomainMetadata)),
        )

    @property
    def is_blind_append(self) -> bool:
        """Whether its writer read nothing; without the flag it may have."""
        return self.info is not None and self.info.values.get("isBlindAppend") is True

    @property
    def txn_id(self) -> object:
        """The id its writer gave it."""
        return None if self.info is None else self.info.values.get("txnId")

    @property
    def in_commit_timestamp(self) -> int | None:
        """Its in-commit timestamp, milliseconds since the epoch."""
        value = None if self.info is None else self.info.values.get("inCommitTimestamp")
        return value if isinstance(value, int) else None


def check_conflicts(prepared: PreparedCommit, winner: WinningCommit) -> None:
    """Raise a DeltaConcurrentModificationException where a commit conflicts with a transaction."""
    check_protocol(prepared, winner)
    check_metadata(prepared, winner)
    check_domain_metadata(prepared, winner)
    check_application_transactions(prepared, winner)
    check_appended_files(prepared, winner)
    check_deleted_read_files(prepared, winner)
    check_deleted_twice(prepared, winner)


def check_protocol(prepared: PreparedCommit, winner: WinningCommit) -> None:
    """Refuse a protocol other than the one that was read; two transactions cannot both set it."""
    if winner.protocol is None:
        return
    read = prepared.read_snapshot
    if read is None:
        raise _conflict(
            ProtocolChangedException,
            "DELTA_PROTOCOL_CHANGED",
            prepared,
            winner,
            "ProtocolChangedException: The table was created by a concurrent update while this transaction "
            "wanted to create it. Nothing was written; open the table that is there now.",
        )
    if prepared.new_protocol is not None or winner.protocol != read.protocol:
        raise _conflict(
            ProtocolChangedException,
            "DELTA_PROTOCOL_CHANGED",
            prepared,
            winner,
            "ProtocolChangedException: The protocol version of the Delta table has been changed by a "
            f"concurrent update. {AGAIN}",
        )


def check_metadata(prepared: PreparedCommit, winner: WinningCommit) -> None:
    """Refuse metadata other than what was read; two transactions cannot both set it."""
    read = prepared.read_snapshot
    if winner.metadata is None:
        return
    if prepared.new_metadata is None and read is not None and winner.metadata == read.metadata:
        return
    raise _conflict(
        MetadataChangedException,
        "DELTA_METADATA_CHANGED",
        prepared,
        winner,
        f"MetadataChangedException: The metadata of the Delta table {prepared.store.root} has been changed by "
        f"a concurrent update. {AGAIN}",
    )


def check_domain_metadata(prepared: PreparedCommit, winner: WinningCommit) -> None:
    """Refuse a domain that both set."""
    own = {action.domain for action in prepared.actions if isinstance(action, DomainMetadata)}
    both = sorted(own & winner.domains)
    if both:
        raise _conflict(
            ConcurrentTransactionException,
            "DELTA_CONCURRENT_TRANSACTION",
            prepared,
            winner,
            f"ConcurrentTransactionException: A conflicting metadata domain {', '.join(both)} is added. {AGAIN}",
        )


def check_application_transactions(prepared: PreparedCommit, winner: WinningCommit) -> None:
    """Refuse an application whose transactions both record."""
    own = {action.app_id for action in prepared.actions if isinstance(action, SetTransaction)}
    both = sorted(own & winner.app_ids)
    if both:
        raise _conflict(
            ConcurrentTransactionException,
            "DELTA_CONCURRENT_TRANSACTION",
            prepared,
            winner,
            f"ConcurrentTransactionException: The application transaction {', '.join(both)} was committed by "
            "another writer: is the same job or streaming query running twice? This transaction was not "
            "committed; stop the other one, then run it again.",
        )


def check_appended_files(prepared: PreparedCommit, winner: WinningCommit) -> None:
    """Refuse a file that the transaction would have read, had it existed.

    Under WriteSerializable blind appends do not count: their writer read nothing, so they may be taken to have come
    later; but where the transaction changes the metadata they do.
    """
    serializable = prepared.isolation_level == "Serializable" or prepared.new_metadata is not None
    if winner.is_blind_append and not serializable:
        return
    appended = [file for file in winner.added if file.data_change]
    file = _first_file_to_read(prepared, appended)
    if file is not None:
        raise _conflict(
            ConcurrentAppendException,
            "DELTA_CONCURRENT_APPEND",
            prepared,
            winner,
            f"Transaction conflict detected. A concurrent {_operation(winner)} added data to table "
            f"{prepared.store.root} committed at version {winner.version}:"
            f"{_where(prepared, file.path, file.partition_values)}, which this transaction should have read. "
            f"{AGAIN}",
            file.path,
        )


def check_deleted_read_files(prepared: PreparedCommit, winner: WinningCommit) -> None:
    """Refuse the removal of a file that the transaction read."""
    root = prepared.store.root
    for file in winner.removed:
        if prepared.read_set.whole_table or canonical_path(file.path, root) in prepared.read_paths:
            raise _conflict(
                ConcurrentDeleteReadException,
                "DELTA_CONCURRENT_DELETE_READ",
                prepared,
                winner,
                f"Transaction conflict detected, a concurrent {_operation(winner)} deleted data from table "
                f"{root} (committed at version {winner.version}) that this transaction read: it removed"
                f"{_where(prepared, file.path, file.partition_values)}. {AGAIN}",
                file.path,
            )


def check_deleted_twice(prepared: PreparedCommit, winner: WinningCommit) -> None:
    """Refuse a file that both remove."""
    root = prepared.store.root
    for file in winner.removed:
        if canonical_path(file.path, root) in prepared.removed_paths:
            raise _conflict(
                ConcurrentDeleteDeleteException,
                "DELTA_CONCURRENT_DELETE_DELETE",
                prepared,
                winner,
                f"Transaction conflict detected, a concurrent {_operation(winner)} deleted data from table "
                f"{root} (committed at version {winner.version}) that this transaction attempted to delete: "
                f"it removed{_where(prepared, file.path, file.partition_values)}. {AGAIN}",
                file.path,
            )


def _first_file_to_read(prepared: PreparedCommit, files: list[AddFile]) -> AddFile | None:
    if not files:
        return None
    read = prepared.read_snapshot
    if prepared.read_set.whole_table or read is None:
        return files[0] if prepared.read_set.whole_table else None
    table = FileTable.from_add_files(files)
    for predicate in prepared.read_set.predicates:
        mask = files_that_may_match(
            predicate,
            table,
            read.schema,
            read.metadata.partition_columns,
            prepared.session_time_zone,
        )
        if mask.any():
            return files[int(mask.argmax())]
    return None


def _operation(winner: WinningCommit) -> str:
    operation = None if winner.info is None else winner.info.values.get("operation")
    return operation if isinstance(operation, str) else "operation of another writer"


def _where(prepared: PreparedCommit, path: str, values: Mapping[str, str | None] | None) -> str:
    partition = "" if prepared.read_snapshot is None else _partition(prepared.read_snapshot, values or {})
    return f" the file {path}" + (f" in the partition {partition}" if partition else "")


def _partition(read: Snapshot, values: Mapping[str, str | None]) -> str:
    parts = []
    for name in read.metadata.partition_columns:
        field = read.schema.find(name)
        value = values.get(name if field is None else physical_name(field))
        parts.append(f"{name}={'null' if value is None else value}")
    return f"[{', '.join(parts)}]" if parts and values else ""


def _conflict(
    kind: type[DeltaConcurrentModificationException],
    error_class: str,
    prepared: PreparedCommit,
    winner: WinningCommit,
    message: str,
    path: str | None = None,
) -> DeltaConcurrentModificationException:
    values = {} if winner.info is None else winner.info.values
    by = [f"{name} {values[key]}" for key, name in _WRITER if values.get(key)]
    writer = f" (by {', '.join(by)})" if by else ""
    parameters = {
        "tableName": prepared.store.root,
        "version": str(winner.version),
        "operation": _operation(winner),
        "readVersion": str(prepared.read_version),
    }
    if path is not None:
        parameters["path"] = path
    return kind(
        error_class,
        f"{message} Conflicting commit: version {winner.version}, {_operation(winner)}{writer}; this "
        f"transaction ({prepared.operation}) had read version {prepared.read_version}.",
        sqlstate=SQLSTATE,
        parameters=parameters,
    )


_WRITER = (("userName", "user"), ("engineInfo", "engine"), ("txnId", "transaction"))
