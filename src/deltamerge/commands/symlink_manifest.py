"""Manifests of a table's files, by which engines without Delta read it (``_symlink_format_manifest``)."""

from __future__ import annotations

from collections import defaultdict

from deltamerge.exceptions import DeltaIllegalArgumentException, DeltaTableException
from deltamerge.log.features.column_mapping import NONE
from deltamerge.log.paths import decode_path
from deltamerge.spark.table import Table
from deltamerge.storage.stored_file import SCHEME
from deltamerge.write.layout import partition_folders

FOLDER = "_symlink_format_manifest"
MODE = "symlink_format_manifest"


def generate(table: Table, mode: str) -> None:
    """Write the manifests of the table's newest version. Delta: GenerateSymlinkManifest.generateFullManifest."""
    if mode.lower() != MODE:
        raise DeltaIllegalArgumentException(
            "DELTA_MODE_NOT_SUPPORTED",
            f"Specified mode '{mode}' is not supported. Supported modes are: {MODE}.",
            parameters={"mode": mode, "supportedModes": MODE},
        )
    snapshot = table.snapshot()
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
    columns = snapshot.metadata.partition_columns
    wanted: dict[str, list[str]] = defaultdict(list)
    if not columns:
        wanted[""] = []
    for file in snapshot.files.add_files():
        location = table.store.absolute(decode_path(file.path))
        location = location if SCHEME.match(location) else f"file:{location}"
        wanted[partition_folders(columns, file.partition_values)].append(location)
    before = {file.path for file in table.store.list(FOLDER)}
    written = {f"{FOLDER}/{folders}manifest": paths for folders, paths in wanted.items()}
    for path, locations in written.items():
        table.store.put(path, "".join(f"{location}\n" for location in locations).encode())
    table.store.delete(path for path in before - written.keys() if path.endswith("/manifest"))
