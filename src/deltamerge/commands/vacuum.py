"""VACUUM: deletes files below a table's folder that no version within the retention refers to."""

from __future__ import annotations

import math
import os
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

from deltamerge.commands.committing import commit_command
from deltamerge.exceptions import DeltaIllegalArgumentException
from deltamerge.log.actions import AddCDCFile, DeletionVectorDescriptor, RemoveFile
from deltamerge.log.commits import parse_actions, read_ahead
from deltamerge.log.features.column_mapping import physical_name
from deltamerge.log.features.deletion_vectors import vector_path
from deltamerge.log.paths import decode_path, is_absolute
from deltamerge.log.properties import interval_ms
from deltamerge.log.segment import list_log
from deltamerge.log.snapshot import Snapshot
from deltamerge.spark.config import CommandConf
from deltamerge.spark.session import session_conf
from deltamerge.spark.table import Table
from deltamerge.storage.store import StoredFile, own_files, without_markers
from deltamerge.storage.stored_file import SCHEME, uri_of
from deltamerge.storage.task_files import store_kind
from deltamerge.txn.transaction import now_ms
from deltamerge.write.layout import is_data_folder

Kind: TypeAlias = Literal["FULL", "LITE"]
RETENTION = "delta.deletedFileRetentionDuration"
_HOUR = 3_600_000
# Of stores where a file that exists is not overwritten unseen delta-spark logs what VACUUM did.
_LOGGED = frozenset({"wasbs", "wasbss", "abfs", "abfss", "adl", "gs", "file", "hdfs"})


@dataclass(frozen=True)
class Garbage:
    """What a VACUUM deletes.

    Args:
        folders: How many folders the table's files lie in, the table's own among them.
    """

    snapshot: Snapshot
    files: tuple[StoredFile, ...]
    folders: int
    retention_ms: int | None


def find_garbage(table: Table, retention_hours: float | None, conf: CommandConf, kind: Kind | None = None) -> Garbage:
    """Return the files that may be deleted.

    Args:
        kind: ``FULL`` for all that no version refers to, ``LITE`` for those of them that the log names; None for the
            one that the session has set.
    """
    snapshot = table.snapshot()
    snapshot.check_protocol()
    own = interval_ms(snapshot.metadata, RETENTION, "interval 1 week")
    retention = None if retention_hours is None else whole_hours(retention_hours) * _HOUR
    if retention and conf.ignore_vacuum_retention:
        retention = None
    _check_retention(retention, own, conf)
    before = now_ms() - (own if retention is None else retention)
    kept = _kept_paths(snapshot, before)
    listed = without_markers(table.store, own_files(table.store))
    found = [file for file in listed if not _is_hidden(file.path, snapshot)]
    folders = {PurePosixPath("."), *(parent for file in found for parent in PurePosixPath(file.path).parents)}
    old = [file for file in found if file.modification_time < before and posixpath.normpath(file.path) not in kept]
    if kind == "LITE" or (kind is None and conf.vacuum_lite):
        removed = _removed_names(snapshot)
        old = [file for file in old if posixpath.normpath(file.path) in removed]
    return Garbage(snapshot, tuple(old), len(folders), retention)


def _removed_names(snapshot: Snapshot) -> frozenset[str]:
    """Return the names below the table's folder of all files that commits in the log removed, and of change files."""
    removed: list[str] = []
    commits = (commit.file.path for commit in list_log(snapshot.store).commits)
    for path, content in read_ahead(snapshot.store, commits):
        for action in parse_actions(content, snapshot.store.absolute(path)):
            if isinstance(action, (RemoveFile, AddCDCFile)):
                removed.append(decode_path(action.path))
            vector = action.deletion_vector if isinstance(action, RemoveFile) else None
            stored = None if vector is None else vector_path(vector)
            removed += [] if stored is None else [stored]
    return frozenset(names_below(snapshot.store.root, removed))


def whole_hours(hours: float) -> int:
    """Round to whole hours; only 0 itself becomes 0, which asks for no retention at all."""
    whole = math.floor(hours + 0.5)
    return whole if whole or not hours else int(math.copysign(1, hours))


def garbage_paths(table: Table, retention_hours: float | None, kind: Kind | None = None) -> list[str]:
    """Return the URIs of the files that may be deleted, as Hadoop writes them."""
    garbage = find_garbage(table, retention_hours, session_conf(table.spark, CommandConf), kind)
    return [uri_of(table.store.absolute(file.path)) for file in garbage.files]


def vacuum(table: Table, retention_hours: float | None, kind: Kind | None = None) -> None:
    """Delete what no version within the retention refers to. Delta: VacuumCommand.gc."""
    conf = session_conf(table.spark, CommandConf)
    garbage = find_garbage(table, retention_hours, conf, kind)
    if not _is_logged(table, conf):
        table.store.delete(file.path for file in garbage.files)
        return
    _log_start(table, garbage, conf)
    try:
        table.store.delete(file.path for file in garbage.files)
    except Exception:
        # Whatever fails, the table's history says so.
        _log_end(table, "FAILED", None)
        raise
    _log_end(table, "COMPLETED", garbage)


def _check_retention(retention: int | None, own: int, conf: CommandConf) -> None:
    if retention is not None and retention < 0:
        raise DeltaIllegalArgumentException(
            "DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE", "Retention for Vacuum can't be less than 0."
        )
    if retention is None or retention >= own or not conf.retention_check:
        return
    hours = -(-own // _HOUR)
    raise DeltaIllegalArgumentException(
        "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT",
        "Are you sure you would like to vacuum files with such a low retention period? If you have writers that are "
        "currently writing to this table, there is a risk that you may corrupt the state of your Delta table. If you "
        "are certain that there are no operations being performed on this table, such as insert/upsert/delete/"
        "optimize, then you may turn off this check by setting: "
        "spark.databricks.delta.retentionDurationCheck.enabled = false. If you are not sure, please use a value not "
        f'less than "{hours} hours".',
        parameters={"configuredRetentionHours": str(hours)},
    )


def _kept_paths(snapshot: Snapshot, before: int) -> frozenset[str]:
    """Return the real names below the table's folder of files that are live or were removed only lately."""
    removed = snapshot.tombstones().to_pylist()
    recent = [row for row in removed if (row["deletion_timestamp"] or 0) >= before]
    live = snapshot.files.add_files()
    kept = [decode_path(path) for path in (*(file.path for file in live), *(row["path"] for row in recent))]
    vectors = [file.deletion_vector for file in live if file.deletion_vector is not None]
    vectors += [DeletionVectorDescriptor(**row["deletion_vector"]) for row in recent if row["deletion_vector"]]
    kept += [path for vector in vectors if (path := vector_path(vector))]
    return frozenset(names_below(snapshot.store.root, kept))


def names_below(root: str, paths: Iterable[str]) -> Iterator[str]:
    """Yield the names below a folder that decoded paths of a log may mean, each as a listing spells it.

    One name too many keeps a file that could go; one too few deletes a live one.
    """
    folder = _place(root, root).rstrip("/") + "/"
    for path in paths:
        yield posixpath.normpath(path)
        if is_absolute(path) and (place := _place(path, root)).startswith(folder):
            yield place.removeprefix(folder)


def _place(path: str, root: str) -> str:
    """Return bucket or container and the path in it: one store has several schemes, such as s3, s3a and s3n.

    Name nodes have several names, and folders of this machine several paths.
    """
    kind, authority, place = _parts(path)
    if not kind:
        kind, authority, _ = _parts(root)
    if kind in ("", "file"):
        return os.path.realpath(place)
    is_bucket = store_kind(kind) in ("s3", "gs", "az") or kind.startswith("wasb")
    return (authority.partition("@")[0].lower() if is_bucket else "") + place


def _parts(path: str) -> tuple[str, str, str]:
    """Return a path's scheme, what is named behind it, and the path there."""
    scheme = SCHEME.match(path)
    if scheme is None:
        return "", "", posixpath.normpath("/" + path.lstrip("/"))
    rest = path[scheme.end() - 1 :]
    authority, _, folder = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    return scheme.group(1).lower(), authority, posixpath.normpath("/" + folder.lstrip("/"))


def _is_hidden(path: str, snapshot: Snapshot) -> bool:
    """Return whether a file is none of a table's data. Delta: DeltaTableUtils.isHiddenDirectory.

    In the folder of a write of this library's only Hadoop's checksums are, which go with their files: what a killed
    write has left there is found.
    """
    is_checksum = posixpath.basename(path).startswith(".") and path.endswith(".crc")
    fields = {name: snapshot.schema.find(name) for name in snapshot.metadata.partition_columns}
    names = [name if field is None else physical_name(field) for name, field in fields.items()]
    for part in path.split("/"):
        if is_data_folder(part):
            return is_checksum
        of_data = part.startswith(("_delta_index", "_change_data", *(f"{name}=" for name in names)))
        if part.startswith((".", "_")) and not of_data:
            return True
    return False


def _is_logged(table: Table, conf: CommandConf) -> bool:
    if conf.vacuum_logging is not None:
        return conf.vacuum_logging
    scheme = SCHEME.match(table.store.root)
    return scheme is None or scheme.group(1).lower() in _LOGGED


def _log_start(table: Table, garbage: Garbage, conf: CommandConf) -> None:
    parameters: dict[str, object] = {
        "retentionCheckEnabled": conf.retention_check,
        "defaultRetentionMillis": interval_ms(garbage.snapshot.metadata, RETENTION, "interval 1 week"),
    }
    if garbage.retention_ms is not None:
        parameters["specifiedRetentionMillis"] = garbage.retention_ms
    metrics = {
        "numFilesToDelete": len(garbage.files),
        "sizeOfDataToDelete": sum(file.size for file in garbage.files),
    }
    _log(table, "VACUUM START", parameters, metrics)


def _log_end(table: Table, status: str, garbage: Garbage | None) -> None:
    metrics = {}
    if garbage is not None:
        metrics = {"numDeletedFiles": len(garbage.files), "numVacuumedDirectories": garbage.folders}
    _log(table, "VACUUM END", {"status": status}, metrics)


def _log(table: Table, operation: str, parameters: dict[str, object], metrics: dict[str, int]) -> None:
    commit_command(table, table.snapshot(), operation, parameters, metrics=metrics, isolation="SnapshotIsolation")
