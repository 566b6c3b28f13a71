"""Manifests of a table's files, by which engines without Delta read it (``_symlink_format_manifest``).

Delta: GenerateSymlinkManifest, which brings them up to date after each commit where the table's property asks for it.
"""

from __future__ import annotations

from collections import defaultdict

from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import Action, AddFile, Metadata, RemoveFile
from deltamerge.log.features.column_mapping import NONE
from deltamerge.log.paths import decode_path
from deltamerge.log.properties import is_enabled
from deltamerge.log.snapshot import Snapshot
from deltamerge.storage.stored_file import uri_of
from deltamerge.workers.partition_names import partition_folder

FOLDER = "_symlink_format_manifest"
WITH_VECTORS = "delta.enableDeletionVectors"
ENABLED = "delta.compatibility.symlinkFormatManifest.enabled"


def check_manifests(metadata: Metadata, read: Snapshot | None) -> None:
    """Refuse metadata that asks for manifests of a table whose files have deletion vectors, or may get some.

    Raises:
        DeltaTableException: Readers of manifests would see the deleted rows.
            Delta: Protocol.assertTablePropertyConstraintsSatisfied.
    """
    if not is_enabled(metadata.configuration, ENABLED):
        return
    if is_enabled(metadata.configuration, WITH_VECTORS):
        raise DeltaTableException(
            "DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED.PERSISTENT_DELETION_VECTORS_WITH_INCREMENTAL_MANIFEST_GENERATION",
            f"Symlink manifests that every commit brings up to date ({ENABLED}) and deletion vectors ({WITH_VECTORS}) "
            "are mutually exclusive. Set one of the two to false.",
        )
    if read is not None and read.files.has_deletion_vectors and not is_enabled(read.metadata.configuration, ENABLED):
        raise DeltaTableException(
            "DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED.EXISTING_DELETION_VECTORS_WITH_INCREMENTAL_MANIFEST_GENERATION",
            f"Symlink manifests ({ENABLED}) are not supported while files have deletion vectors. Purge them first: "
            "REORG TABLE … APPLY (PURGE).",
        )


def asks_for_manifests(metadata: Metadata, actions: tuple[Action, ...]) -> bool:
    """Return whether a commit is one after which the manifests are to be written."""
    changes = any(isinstance(action, (AddFile, RemoveFile, Metadata)) for action in actions)
    return changes and is_enabled(metadata.configuration, ENABLED)


def write_manifests(snapshot: Snapshot) -> None:
    """Write the manifests of a version, and delete those of partitions that it no longer has.

    Raises:
        DeltaTableException: The version has deletion vectors or column mapping, which readers of manifests do not know.
    """
    if snapshot.files.has_deletion_vectors:
        raise DeltaTableException(
            "DELTA_UNSUPPORTED_GENERATE_WITH_DELETION_VECTORS",
            "The 'GENERATE symlink_format_manifest' command is not supported on table versions with deletion vectors. "
            "If you need to generate manifests, purge them first: optimize().executeCompaction() after setting "
            "delta.enableDeletionVectors = false.",
        )
    if snapshot.mapping_mode != NONE:
        raise DeltaTableException(
            "DELTA_UNSUPPORTED_MANIFEST_GENERATION_WITH_COLUMN_MAPPING",
            "Manifest generation is not supported for tables that leverage column mapping, as external readers cannot "
            "read these Delta tables.",
        )
    store, columns = snapshot.store, snapshot.metadata.partition_columns
    wanted: dict[str, list[str]] = defaultdict(list)
    if not columns:
        wanted[""] = []
    for file in snapshot.files.add_files():
        location = uri_of(store.absolute(decode_path(file.path)))
        folders = "".join(f"{partition_folder(name, file.partition_values.get(name))}/" for name in columns)
        wanted[folders].append(location)
    before = {file.path for file in store.list(FOLDER)}
    written = {f"{FOLDER}/{folders}manifest": paths for folders, paths in wanted.items()}
    for path, locations in written.items():
        store.put(path, "".join(f"{location}\n" for location in locations).encode())
    store.delete(path for path in before - written.keys() if path.endswith("/manifest"))
