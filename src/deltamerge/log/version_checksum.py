"""Version checksums: what a version's state adds up to, in a file beside its commit.

Source: Delta protocol, "Version Checksum File". The histograms, which nobody compares, are left out.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone
from typing import Any

import pyarrow.compute as pc

from deltamerge.exceptions import DeltaLogCorruptException
from deltamerge.log.actions import (
    AddFile,
    DomainMetadata,
    Json,
    Metadata,
    Protocol,
    SetTransaction,
    camel_case,
    from_json,
    to_json,
)
from deltamerge.log.commits import damaged
from deltamerge.log.file_table import FileTable
from deltamerge.log.paths import canonical_path
from deltamerge.log.properties import has_in_commit_timestamps, is_enabled
from deltamerge.log.protocol import features
from deltamerge.log.replay import TableState, commit_info, live_files, parse_log_files
from deltamerge.log.segment import LOG_FOLDER
from deltamerge.storage.store import Store, StoredFile
from deltamerge.storage.stored_file import absolute_path

_LOGGER = logging.getLogger(__name__)
# As delta-spark: more than these are not in the file, so that it stays small.
_MAX_FILES = 50
_MAX_SET_TRANSACTIONS = 100
_MAX_DOMAINS = 10
_SHOWN = 300
# What comes of reading a checksum file that is no such JSON.
_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
_FRACTION = re.compile(r"(\d\d:\d\d:\d\d)(?:\.0+|(\.\d*?[1-9])0*)(?=Z?\")")


_ZONED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?([+-]\d\d:\d\d)(?=\")")


@dataclass(frozen=True, eq=False)
class VersionState:
    """What a version's checksum is about; `in_commit_timestamp` is None for a table without those."""

    protocol: Protocol
    metadata: Metadata
    files: FileTable
    set_transactions: Mapping[str, SetTransaction] = field(repr=False)
    domain_metadata: Mapping[str, DomainMetadata] = field(repr=False)
    in_commit_timestamp: int | None


@dataclass(frozen=True)
class _Summary:
    """The fields of the file in its order; None for those that it does not have."""

    table_size_bytes: int | None
    num_files: int | None
    num_deleted_records_opt: int | None = None
    num_deletion_vectors_opt: int | None = None
    num_metadata: int | None = 1
    num_protocol: int | None = 1
    in_commit_timestamp_opt: int | None = None
    set_transactions: frozenset[SetTransaction] | None = None
    domain_metadata: frozenset[DomainMetadata] | None = None
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    all_files: tuple[AddFile, ...] | None = None


def state_after(before: VersionState | None, path: str, content: bytes, root: str) -> VersionState:
    """Return the state after one more commit.

    Args:
        before: The state before it; None where the commit makes the table.
        root: The table's, which relative paths of files are below.
    """
    lines = parse_log_files([(path, content)], root, with_commit_info=frozenset({path}))
    state = TableState()
    if before is not None:
        state = TableState(before.protocol, before.metadata, before.set_transactions, before.domain_metadata)
    state = state.apply(lines.actions)
    if state.protocol is None or state.metadata is None:
        raise damaged(absolute_path(root, path), "the table has no protocol or no metadata")
    info = commit_info(lines)
    return VersionState(
        state.protocol,
        state.metadata,
        live_files(None if before is None else before.files, lines, root),
        state.set_transactions,
        state.domain_metadata,
        info.in_commit_timestamp if info is not None and has_in_commit_timestamps(state.metadata) else None,
    )


def checksum_path(version: int) -> str:
    return f"{LOG_FOLDER}/{version:020d}.crc"


def checksum_content(state: VersionState, txn_id: str) -> bytes:
    summary = _summary(state)
    values = {camel_case(item.name): getattr(summary, item.name) for item in fields(_Summary)}
    found = {name: _plain(value) for name, value in values.items() if value is not None}
    return json.dumps({"txnId": txn_id, **found}, separators=(",", ":")).encode() + b"\n"


@contextmanager
def reading_checksum(store: Store, file: StoredFile | None) -> Iterator[list[bytes]]:
    """Read a checksum file while the body reads the log; after it the list has the content, where there is one."""
    found: list[bytes] = []
    if file is None:
        yield found
        return
    with ThreadPoolExecutor(1, thread_name_prefix="deltamerge-checksum") as pool:
        content = pool.submit(_content, store, file.path)
        yield found
        found.extend(content.result())


def _content(store: Store, path: str) -> list[bytes]:
    try:
        return [store.get(path)]
    except Exception:
        # Whatever fails: the file is optional, and without it the log is read as if it had none.
        _LOGGER.info("The version checksum %s was not read", path, exc_info=True)
        return []


def recorded_timestamp(content: Sequence[bytes]) -> int | None:
    """Return the in-commit timestamp of a checksum file, as `reading_checksum` has it; None where it has none."""
    try:
        return next((_parse(json.loads(each)).in_commit_timestamp_opt for each in content), None)
    except _DAMAGED:
        # Who compares the version with it says so.
        return None


def check_state(state: VersionState, content: bytes, path: str, root: str) -> None:
    """Compare a version's state, as the log has it, with its checksum file; a file that is damaged is passed over.

    Args:
        path: The checksum file's, for messages.
        root: The table's, which relative paths of files are below.
    """
    try:
        recorded = _parse(json.loads(content))
    except _DAMAGED as error:
        _LOGGER.warning("The version checksum %s cannot be read, so the version is not compared: %r", path, error)
        return
    computed = _summary(state)
    for item in fields(_Summary):
        expected, found = getattr(recorded, item.name), getattr(computed, item.name)
        # As delta-spark, which takes the timestamp from either.
        if expected is None or found is None or item.name == "in_commit_timestamp_opt":
            continue
        # A checkpoint leaves out transactions that have expired.
        if item.name == "set_transactions" and found <= expected:
            continue
        if item.name == "all_files":
            expected, found = _first_difference(expected, found, state.metadata, root)
        if expected != found:
            raise _differs(path, camel_case(item.name), expected, found)


def _summary(state: VersionState) -> _Summary:
    files = state.files
    vectors = files.arrow.column("deletion_vector")
    has_vectors = "deletionVectors" in features(state.protocol)
    deleted = pc.sum(pc.struct_field(vectors, "cardinality")).as_py() or 0
    # How long transactions are kept is then a matter of the clock. Delta: incrementallyComputeSetTransactions.
    expire = "delta.setTransactionRetentionDuration" in state.metadata.configuration
    return _Summary(
        table_size_bytes=files.size_in_bytes,
        num_files=files.num_files,
        num_deleted_records_opt=deleted if has_vectors else None,
        num_deletion_vectors_opt=len(vectors) - vectors.null_count if has_vectors else None,
        in_commit_timestamp_opt=state.in_commit_timestamp,
        set_transactions=_few(state.set_transactions, 0 if expire else _MAX_SET_TRANSACTIONS),
        domain_metadata=_few(state.domain_metadata, _MAX_DOMAINS),
        metadata=state.metadata,
        protocol=_normal(state.protocol),
        all_files=tuple(_as_replayed(file) for file in files.add_files()) if files.num_files <= _MAX_FILES else None,
    )


def _as_replayed(file: AddFile) -> AddFile:
    # Delta: InMemoryLogReplay.
    return replace(file, data_change=False)


def _few(actions: Mapping[str, Any], most: int) -> frozenset[Any] | None:
    return frozenset(actions.values()) if len(actions) <= most else None


def _parse(content: Json) -> _Summary:
    names = [item.name for item in fields(_Summary) if "int" in str(item.type)]
    counts: dict[str, Any] = {name: content.get(camel_case(name)) for name in names}
    for name, count in counts.items():
        if type(count) is not int and not (count is None and name.endswith("_opt")):
            raise TypeError(f"{camel_case(name)} is {count!r:.80}")
    protocol = _action("protocol", content.get("protocol"))
    return _Summary(
        **counts,
        set_transactions=_actions("txn", content.get("setTransactions")),
        domain_metadata=_actions("domainMetadata", content.get("domainMetadata")),
        metadata=_action("metaData", content.get("metadata")),
        protocol=None if protocol is None else _normal(protocol),
        all_files=None if (files := content.get("allFiles")) is None else tuple(_action("add", file) for file in files),
    )


def _action(name: str, content: Json | None) -> Any:  # noqa: ANN401 an action of that name
    return None if content is None else from_json({name: content})


def _actions(name: str, contents: list[Json] | None) -> frozenset[Any] | None:
    return None if contents is None else frozenset(_action(name, content) for content in contents)


def _normal(protocol: Protocol) -> Protocol:
    """Return a protocol whose features are None where there are none, which writers spell in two ways."""
    return replace(
        protocol,
        reader_features=protocol.reader_features or None,
        writer_features=protocol.writer_features or None,
    )


def _plain(value: object) -> object:
    if isinstance(value, (Protocol, Metadata)):
        return to_json(value)[1]
    if isinstance(value, (frozenset, tuple)):
        return sorted((to_json(action)[1] for action in value), key=json.dumps)
    return value


def _first_difference(
    recorded: tuple[AddFile, ...], computed: tuple[AddFile, ...], metadata: Metadata, root: str
) -> tuple[object, object]:
    """Return what the checksum and the log have of the first file that is not the same in both; equal if all are."""
    # Else a checkpoint may have the statistics as columns, and writers spell these differently.
    has_stats = is_enabled(metadata.configuration, "delta.checkpoint.writeStatsAsJson", default=True)
    expected, found = (_by_file(files, root, has_stats) for files in (recorded, computed))
    for key in sorted(expected.keys() | found.keys()):
        if expected.get(key) != found.get(key):
            return expected.get(key, f"no file {key}"), found.get(key, f"no file {key}")
    return None, None


def _by_file(files: Iterable[AddFile], root: str, has_stats: bool) -> dict[str, Json]:
    """Return what decides about rows of each file, by path and deletion vector."""
    found = {}
    for file in files:
        path = canonical_path(file.path, root)
        vector = file.deletion_vector
        found[path if vector is None else f"{path} {vector.unique_id}"] = {
            "size": file.size,
            "modificationTime": file.modification_time,
            "partitionValues": {name: value for name, value in file.partition_values.items() if value is not None},
            "deletionVector": vector,
            "baseRowId": file.base_row_id,
            "defaultRowCommitVersion": file.default_row_commit_version,
            "stats": _parsed(file.stats) if has_stats else None,
        }
    return found


def _parsed(stats: str | None) -> object:
    try:
        # Writers spell one time with three digits of a second, with six or with none, and in their own time zone.
        return json.loads(_FRACTION.sub(r"\1\2", _ZONED.sub(_in_utc, stats))) if stats else None
    except ValueError:
        return stats


def _in_utc(time: re.Match[str]) -> str:
    seconds, fraction, zone = time.groups()
    try:
        # Python 3.10 reads three digits of a second, or six.
        utc = datetime.fromisoformat(f"{seconds}.{(fraction or '')[:6]:0<6}{zone}").astimezone(timezone.utc)
    except (ValueError, OverflowError):
        # A string that looks like a time, or the end of the calendar.
        return time.group()
    return utc.replace(tzinfo=None).isoformat() + "Z"


def _differs(path: str, name: str, expected: object, found: object) -> DeltaLogCorruptException:
    version = path.rpartition("/")[2].removesuffix(".crc").lstrip("0") or "0"
    return DeltaLogCorruptException(
        "DELTA_TXN_LOG_FAILED_INTEGRITY",
        f"The transaction log has failed integrity checks: the {name} of version {version} is {_short(expected)} by "
        f"its checksum {path}, but {_short(found)} by the log. One of the two was changed or damaged: restore it from "
        "a backup, or, if the log is right, delete the checksum.",
        parameters={"version": version, "field": name, "mismatch": f"{_short(expected)} and {_short(found)}"},
    )


def _short(value: object) -> str:
    shown = str(sorted(map(str, value)) if isinstance(value, frozenset) else value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
