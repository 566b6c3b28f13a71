"""RESTORE: makes an earlier version of a table the newest one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from deltamerge.commands.alter_properties import EVERYTHING_READ
from deltamerge.commands.committing import commit_command
from deltamerge.exceptions import DeltaAnalysisException, DeltaIllegalArgumentException
from deltamerge.log.actions import Action, AddFile
from deltamerge.log.cleanup import protection_kept
from deltamerge.log.features.clustering import clustering_change
from deltamerge.log.features.deletion_vectors import vector_path
from deltamerge.log.features.row_tracking import DOMAIN as ROW_TRACKING
from deltamerge.log.features.row_tracking import high_water_mark
from deltamerge.log.paths import canonical_path, decode_path
from deltamerge.log.snapshot import Snapshot
from deltamerge.spark.config import CommandConf
from deltamerge.spark.file_stores import file_stores
from deltamerge.spark.session import session_conf
from deltamerge.spark.table import Table
from deltamerge.storage.store import in_parallel
from deltamerge.txn.transaction import now_ms
from deltamerge.write.append_only import refuse_append_only
from deltamerge.write.identity_columns import with_furthest_marks
from deltamerge.write.table_features import upgraded

_TIMES = {
    "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION": "DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER",
    "DELTA_TIMESTAMP_GREATER_THAN_COMMIT": "DELTA_CANNOT_RESTORE_TIMESTAMP_GREATER",
}
_SHOWN = 100

METRICS = (
    "tableSizeAfterRestore",
    "numOfFilesAfterRestore",
    "numRemovedFiles",
    "numRestoredFiles",
    "removedFilesSize",
    "restoredFilesSize",
)


def restore_to_version(table: Table, version: int, timestamp: str | None = None) -> dict[str, int]:
    """Restore a version and return its `METRICS`; none, and no commit, for the latest. Delta: RestoreTableCommand.

    Args:
        timestamp: The timestamp that a user named the version by.
    """
    latest = table.snapshot_to_write()
    if version > latest.version:
        raise DeltaAnalysisException(
            "DELTA_CANNOT_RESTORE_TABLE_VERSION",
            f"Cannot restore table {table.name} to version {version}: the latest version is {latest.version}. Nothing "
            "was changed.",
            parameters={"version": str(version), "startVersion": "0", "endVersion": str(latest.version)},
        )
    if version == latest.version:
        return {}
    wanted = table.snapshot(version)
    wanted.check_writable()
    now, present = now_ms(), latest.files.add_files()
    keys, before = _keys(latest, present), wanted.files.add_files()
    kept = _keys(wanted, before)
    added = [replace(file, data_change=True) for key, file in kept.items() if key not in keys]
    removed = [file for key, file in keys.items() if key not in kept]
    if removed:
        refuse_append_only(latest, table.name, "the restore deletes rows")
    conf = session_conf(table.spark, CommandConf)
    if not conf.ignore_missing_files:
        _check_files(table, wanted.version, added)
    protocol = wanted.protocol if conf.restore_protocol_downgrade else upgraded(latest.protocol, wanted.protocol)
    configuration = {**wanted.metadata.configuration, **protection_kept(protocol, latest, wanted)}
    metadata = replace(
        wanted.metadata,
        schema_string=with_furthest_marks(wanted.metadata.schema_string, latest.metadata.schema_string),
        configuration=configuration,
    )
    # Files that are in both versions may have lost their row ids in between.
    actions: list[Action] = [protocol, metadata, *added, *(file.remove(now) for file in removed)]
    actions += [replace(file, data_change=False) for key, file in kept.items() if _lacks_ids(file, keys.get(key))]
    actions += _domains(wanted, latest)
    sizes = (sum(file.size for file in files) for files in (removed, added))
    counted = (wanted.files.size_in_bytes, wanted.files.num_files, len(removed), len(added), *sizes)
    metrics = dict(zip(METRICS, counted, strict=True))
    by = {"version": version if timestamp is None else None, "timestamp": timestamp}
    commit_command(table, latest, "RESTORE", by, actions, metrics=metrics, read=EVERYTHING_READ)
    return metrics


def _lacks_ids(wanted: AddFile, present: AddFile | None) -> bool:
    """Return whether a file has lost the row ids that it had; those that it got since stay."""
    if present is None or wanted.base_row_id is None:
        return False
    ids = wanted.base_row_id, wanted.default_row_commit_version
    return ids != (present.base_row_id, present.default_row_commit_version)


def version_of(table: Table, milliseconds: int) -> int:
    try:
        return table.version_at(milliseconds)
    except DeltaAnalysisException as error:
        found = _TIMES.get(error.error_class)
        if found is None:
            raise
        raise DeltaAnalysisException(
            found, f"Cannot restore the table. {error.message}", parameters=error.parameters
        ) from error


def _keys(snapshot: Snapshot, files: Iterable[AddFile]) -> dict[tuple[str, str | None], AddFile]:
    root = snapshot.store.root
    return {
        (canonical_path(f.path, root), None if f.deletion_vector is None else f.deletion_vector.unique_id): f
        for f in files
    }


def _check_files(table: Table, version: int, files: list[AddFile]) -> None:
    store_of = file_stores(table)

    def is_missing(file: AddFile) -> bool:
        vector = None if file.deletion_vector is None else vector_path(file.deletion_vector)
        if not store_of(file.path).exists(decode_path(file.path)):
            return True
        return vector is not None and not store_of(vector).exists(vector)

    missing = [file.path for file, gone in zip(files, in_parallel(is_missing, files), strict=True) if gone]
    if missing:
        listed = "\n".join(islice(missing, _SHOWN))
        raise DeltaIllegalArgumentException(
            "DELTA_CANNOT_RESTORE_MISSING_FILES",
            f"Not all files from version {version} are available in file system. Missed files (top {_SHOWN} "
            f"files): {listed}. Please use more recent version or timestamp for restoring. To disable check update "
            "option spark.sql.files.ignoreMissingFiles.",
            parameters={"version": str(version), "missedFiles": listed},
        )


def _domains(wanted: Snapshot, latest: Snapshot) -> list[Action]:
    """Return the domains to restore; row ids that were ever assigned are never assigned again.

    Domains of other applications stay as they are. Delta: DomainMetadataUtils.handleDomainMetadataForRestoreTable.
    """
    mark, latest_mark = (high_water_mark(of.domain_metadata.values()) for of in (wanted, latest))
    was_higher = mark is not None and (latest_mark is None or mark > latest_mark)
    marks = [wanted.domain_metadata[ROW_TRACKING]] if was_higher else []
    return [*marks, *clustering_change(wanted.domain_metadata, latest.domain_metadata)]
