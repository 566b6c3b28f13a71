"""One commit file: what is in it, and whether it landed: yes, no, or not known."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from obstore.exceptions import (
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from deltamerge.exceptions import CommitStateUnknownException, DeltaTableException
from deltamerge.log.actions import Action, CommitInfo, Metadata, to_json_lines
from deltamerge.log.cleanup import PROTECTED_BEFORE
from deltamerge.log.commit_times import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION
from deltamerge.log.features.identity_marks import moves_marks_only
from deltamerge.log.features.row_tracking import assign_row_ids, materialized_columns
from deltamerge.log.features.type_widening import with_version_of_changes
from deltamerge.log.properties import has_in_commit_timestamps
from deltamerge.log.schema import parse_schema, schema_to_json
from deltamerge.log.segment import commit_path
from deltamerge.storage.store import Store
from deltamerge.storage.stored_file import NOT_ATOMIC
from deltamerge.txn.prepared import PreparedCommit
from deltamerge.version import ENGINE_INFO

_LOGGER = logging.getLogger(__name__)
# How often the same bytes are offered for the same version while it is not known what became of them.
WRITE_ATTEMPTS = 3
# With these a store reports that it did not write.
_REFUSED = (PermissionError, InvalidPathError, NotSupportedError, PermissionDeniedError, UnauthenticatedError)
# With these a mounted network disk reports that its server has not answered: it may still write.
_NO_ANSWER = frozenset(
    {
        errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.ENOTCONN, errno.ECONNRESET, errno.ECONNABORTED, errno.EHOSTDOWN,
        errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.EPIPE, errno.ESHUTDOWN, errno.EINTR, None,
    }
)  # fmt: skip


def commit_content(
    prepared: PreparedCommit, version: int, timestamp_ms: int, row_id_high_water_mark: int = -1
) -> bytes:
    """Return a commit file's bytes: one action per line, commitInfo first (Protocol: In-Commit Timestamps).

    `row_id_high_water_mark` is the highest row id that the table has assigned, -1 for none.
    """
    info = CommitInfo(_commit_info(prepared, timestamp_ms))
    actions: Sequence[Action] = [
        _at_version(action, prepared, version, timestamp_ms) if isinstance(action, Metadata) else action
        for action in prepared.actions
    ]
    if prepared.protocol is not None and prepared.metadata is not None:
        protocol, metadata = prepared.protocol, prepared.metadata
        actions = assign_row_ids(actions, protocol, metadata, row_id_high_water_mark, version)
    return to_json_lines((info, *actions))


def _at_version(metadata: Metadata, prepared: PreparedCommit, version: int, timestamp_ms: int) -> Metadata:
    """Let the metadata name the version that they are committed as, which may be a later one than was assumed."""
    metadata = _enabling(metadata, prepared, version, timestamp_ms)
    return _protecting(_changing_types(metadata, prepared, version), prepared, version)


def _changing_types(metadata: Metadata, prepared: PreparedCommit, version: int) -> Metadata:
    """Name the version for types that it widens. Delta: ConflictChecker, type widening metadata."""
    assumed = prepared.read_version + 1
    if version == assumed or "tableVersion" not in (metadata.schema_string or ""):
        return metadata
    schema = with_version_of_changes(parse_schema(metadata.schema_string), assumed, version)
    return replace(metadata, schema_string=schema_to_json(schema))


def _protecting(metadata: Metadata, prepared: PreparedCommit, version: int) -> Metadata:
    """Name the version that drops a feature. Delta: ConflictChecker.checkProtocolCompatibility."""
    if metadata.configuration.get(PROTECTED_BEFORE) != str(prepared.read_version + 1):
        return metadata
    return replace(metadata, configuration={**metadata.configuration, PROTECTED_BEFORE: str(version)})


def commits_say_when(prepared: PreparedCommit) -> bool:
    """Return whether the table, as this commit leaves it, has in-commit timestamps."""
    return prepared.metadata is not None and has_in_commit_timestamps(prepared.metadata)


def _enabling(metadata: Metadata, prepared: PreparedCommit, version: int, timestamp_ms: int) -> Metadata:
    """Name the version since which a table that existed before has in-commit timestamps."""
    if not has_in_commit_timestamps(metadata):
        return metadata
    read = prepared.read_snapshot
    since = {ENABLEMENT_VERSION: str(version), ENABLEMENT_TIMESTAMP: str(timestamp_ms)}
    others = {key: value for key, value in metadata.configuration.items() if key not in since}
    if read is None:
        # A new table has them from its first version on, also where it is the copy of one that has not.
        return replace(metadata, configuration=others)
    if has_in_commit_timestamps(read.metadata):
        # Also where a new table takes its place, or an older version is restored.
        before = read.metadata.configuration
        since = {key: before[key] for key in since if key in before}
    return replace(metadata, configuration={**others, **since})


def _commit_info(prepared: PreparedCommit, timestamp_ms: int) -> dict[str, Any]:
    has_read = prepared.read_snapshot is not None
    values: dict[str, Any] = {
        "inCommitTimestamp": timestamp_ms if commits_say_when(prepared) else None,
        "timestamp": timestamp_ms,
        "operation": prepared.operation,
        "operationParameters": dict(prepared.operation_parameters),
        "readVersion": prepared.read_version if has_read or prepared.shows_no_version else None,
        "isolationLevel": prepared.isolation_level,
        "isBlindAppend": prepared.is_blind_append,
        "operationMetrics": dict(prepared.operation_metrics) if prepared.settings.records_metrics else None,
        "userMetadata": prepared.settings.user_metadata,
        "engineInfo": ENGINE_INFO,
        "tags": _tags(prepared) or None,
        "txnId": prepared.txn_id,
    }
    return {name: value for name, value in values.items() if value is not None}


def _tags(prepared: PreparedCommit) -> dict[str, str]:
    """Return delta-spark's tags: of rows that kept their ids, and of metadata that only move high water marks."""
    read, new, metadata = prepared.read_snapshot, prepared.new_metadata, prepared.metadata
    tags = {}
    if metadata is not None and materialized_columns(metadata) is not None:
        tags["delta.rowTracking.preserved"] = "true"
    if read is not None and new is not None and moves_marks_only(read.metadata, new):
        tags["delta.identity.schemaUpdate"] = "true"
    return tags


def write_commit(store: Store, version: int, content: bytes, txn_id: str) -> bool:
    """Write a commit file unless its version is taken; return whether the version is this transaction's.

    A store may write and then fail to report it. The same bytes are then offered again: where the first offer
    landed after all, the version is taken, by this transaction. `content` holds the transaction's id.

    Raises:
        CommitStateUnknownException: It is not known whether the store wrote.
        Exception: The store did not write: its own error.
    """
    failure: Exception | None = None
    for attempt in range(WRITE_ATTEMPTS):
        outcome = _offer(store, version, content, txn_id, first=attempt == 0)
        if isinstance(outcome, bool):
            return outcome
        failure = outcome
    raise _unknown(store, version, txn_id, failure) from failure


def _offer(store: Store, version: int, content: bytes, txn_id: str, *, first: bool) -> bool | Exception:
    """Write once; return whether the version is this transaction's, or the error where that is not known."""
    path = commit_path(version)
    try:
        store.put_if_absent(path, content)
    except Exception as error:
        # A store may write and then fail in any way, and what exists may be what a request before was to write.
        is_taken = isinstance(error, FileExistsError)
        if not is_taken:
            _LOGGER.warning("Writing %s failed, looking whether it exists: %s", path, error)
        found = _read_back(store, version, content, txn_id)
        if isinstance(found, bool):
            return found
        # What an offer before this one asked for may land later.
        if first and not is_taken and isinstance(found, FileNotFoundError) and _is_final(store, error):
            raise
        return found if is_taken else error
    else:
        return True


def _read_back(store: Store, version: int, content: bytes, txn_id: str) -> bool | Exception:
    """Return whether a version is this transaction's or another's, or why that is not known."""
    try:
        return _is_own(store.get(commit_path(version)), content, txn_id)
    except Exception as error:
        # Whatever went wrong: it is not known whose the version is, and the write is tried again.
        _LOGGER.warning("Reading %s back failed", commit_path(version), exc_info=True)
        return error


def _is_final(store: Store, error: Exception) -> bool:
    """Return whether a write that failed, and left nothing so far, writes nothing later either."""
    if not store.is_local:
        is_not_atomic = isinstance(error, DeltaTableException) and error.error_class == NOT_ATOMIC
        return is_not_atomic or isinstance(error, _REFUSED)
    return not (isinstance(error, OSError) and error.errno in _NO_ANSWER)


def _is_own(found: bytes, content: bytes, txn_id: str) -> bool:
    """Return whether a commit file is this transaction's.

    Raises:
        ValueError: It is, but not all of it.
    """
    if found != content and _txn_id(found) == txn_id:
        raise ValueError("a part of this transaction's commit was written")
    return found == content


def _txn_id(content: bytes) -> object:
    for line in content.split(b"\n"):
        if line.startswith(b'{"commitInfo"'):
            return json.loads(line)["commitInfo"].get("txnId")
    return None


def _unknown(store: Store, version: int, txn_id: str, failure: Exception | None) -> CommitStateUnknownException:
    path = store.absolute(commit_path(version))
    renew = " The store refuses access: renew the credentials." if isinstance(failure, _REFUSED) else ""
    return CommitStateUnknownException(
        "DELTA_COMMIT_STATE_UNKNOWN",
        f"It is not known whether version {version} of {store.root} was written ({failure!r}).{renew} Look "
        f"before you retry: if {path} exists and its commitInfo has the txnId {txn_id}, this transaction was "
        "committed; if it exists with another txnId, it was not; if it does not exist, look again a little "
        "later. Until then do not delete the data files that this transaction wrote.",
        parameters={"version": str(version), "path": path, "txnId": txn_id, "tableName": store.root},
    )
