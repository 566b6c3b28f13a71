"""CLONE: a table of its own whose first version refers to another table's files."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from deltamerge.commands.committing import commit_command
from deltamerge.exceptions import DeltaAnalysisException, DeltaUnsupportedOperationException
from deltamerge.log.actions import Action, AddFile
from deltamerge.log.features.clustering import clustering_change
from deltamerge.log.features.column_mapping import mapping_mode
from deltamerge.log.features.deletion_vectors import vector_path
from deltamerge.log.features.row_tracking import COLUMN_NAMES, with_column_names
from deltamerge.log.paths import decode_path, encode_path
from deltamerge.log.snapshot import Snapshot, table_exists
from deltamerge.spark.config import CommandConf
from deltamerge.spark.session import session_conf
from deltamerge.spark.table import Table, spark_schema
from deltamerge.storage.store import Store
from deltamerge.storage.stored_file import is_in_store_of, uri_of
from deltamerge.txn.prepared import ReadSet
from deltamerge.txn.transaction import now_ms
from deltamerge.write.identity_columns import with_furthest_marks
from deltamerge.write.property_names import named_properties
from deltamerge.write.table_features import protocol_for, stored_properties, upgraded

METRICS = (
    "sourceTableSize",
    "sourceNumOfFiles",
    "numRemovedFiles",
    "numCopiedFiles",
    "removedFilesSize",
    "copiedFilesSize",
)
"""Delta's metrics of a clone, in the order of the columns that it returns."""


def shallow_clone(
    source: Table, version: int | None, target: Table, properties: Mapping[str, str], *, replaces: bool
) -> dict[str, int]:
    """Make a table of a version of another one, without copying files. Delta: CloneTableCommand.

    Args:
        properties: Properties of the clone on top of the source's.
        replaces: Whether the target may be a table, which must be empty.

    Returns:
        Delta's metrics of it.
    """
    properties = named_properties(properties, any_name=session_conf(target.spark, CommandConf).any_property)
    snapshot = source.snapshot(version)
    snapshot.check_protocol()
    target.store.check_commits()
    before = target.snapshot_to_write() if table_exists(target.store) else None
    if before is not None and not replaces:
        raise DeltaAnalysisException(
            "DELTA_PATH_EXISTS",
            f"Cannot write to already existent path {target.name} without setting OVERWRITE = 'true'.",
            parameters={"path": target.name},
        )
    if before is not None and before.files.num_files:
        raise DeltaAnalysisException(
            "DELTA_UNSUPPORTED_CLONE_REPLACE_SAME_TABLE",
            f"You tried to REPLACE an existing table ({target.name}) with CLONE, and it holds rows. Delete them first, "
            "or choose another target.",
            parameters={"tableName": target.name},
        )
    files = [_absolute(source.store, file) for file in snapshot.files.add_files()]
    _check_vectors(source, target, files)
    named = ".".join(source.entry) or f"delta.`{source.location}`"
    parameters = {"source": named, "sourceVersion": snapshot.version}
    found = {"sourceTableSize": snapshot.files.size_in_bytes, "sourceNumOfFiles": snapshot.files.num_files}
    metrics = {**dict.fromkeys(METRICS, 0), **found}
    actions = [*_table_actions(snapshot, before, properties), *files]
    read = ReadSet(whole_table=before is not None)
    commit_command(target, before, "CLONE", parameters, actions, metrics=metrics, read=read)
    return metrics


def _check_vectors(source: Table, target: Table, files: Iterable[AddFile]) -> None:
    """Refuse deletion vectors in another bucket than the clone's, where nothing reads them for it."""
    vectors = (file.deletion_vector for file in files)
    paths = (path for vector in vectors if vector is not None and (path := vector_path(vector)) is not None)
    if not all(is_in_store_of(target.store.root, uri_of(path)) for path in paths):
        raise DeltaUnsupportedOperationException(
            "DELTAMERGE_CLONE_IN_ANOTHER_STORE",
            f"Table {source.name} has deletion vectors, which its clone {target.name} could not read from another "
            "bucket or file system. Remove them with REORG TABLE … APPLY (PURGE), clone within the bucket, or copy "
            "the rows.",
            parameters={"source": source.name, "target": target.name},
        )


def _table_actions(snapshot: Snapshot, before: Snapshot | None, properties: Mapping[str, str]) -> list[Action]:
    own = snapshot.metadata
    configuration = _configuration(own.configuration, before, properties)
    if mapping_mode(configuration) != snapshot.mapping_mode:
        raise DeltaAnalysisException(
            "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE",
            f"Changing column mapping mode from '{snapshot.mapping_mode}' to '{mapping_mode(configuration)}' is not "
            "supported.",
            parameters={"oldMode": snapshot.mapping_mode, "newMode": mapping_mode(configuration)},
        )
    needed = protocol_for(spark_schema(snapshot), {**configuration, **properties})
    protocol = upgraded(snapshot.protocol, needed)
    schema = (
        own.schema_string if before is None else with_furthest_marks(own.schema_string, before.metadata.schema_string)
    )
    metadata = replace(
        own,
        schema_string=schema,
        id=str(uuid.uuid4()) if before is None else before.metadata.id,
        name=None if before is None else before.metadata.name,
        description=None if before is None else before.metadata.description,
        configuration=configuration,
        created_time=now_ms() if before is None else before.metadata.created_time,
    )
    if before is not None:
        protocol = upgraded(before.protocol, protocol)
    changed = before is None or before.protocol != protocol
    # Domains of other applications are not copied. Delta: METADATA_DOMAIN_TO_COPY_FOR_CLONE_TABLE.
    clustering = clustering_change(snapshot.domain_metadata, {} if before is None else before.domain_metadata)
    return [*((protocol,) if changed else ()), metadata, *clustering]


def _configuration(source: Mapping[str, str], before: Snapshot | None, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the clone's properties; its rows get ids of their own, which are not in the source's hidden columns."""
    replaced = {} if before is None else before.metadata.configuration
    return with_column_names({
        **{key: value for key, value in source.items() if key not in COLUMN_NAMES},
        **stored_properties(properties),
        **{key: value for key, value in replaced.items() if key in COLUMN_NAMES},
    })  # fmt: skip


def _absolute(store: Store, file: AddFile) -> AddFile:
    vector = file.deletion_vector
    if vector is not None and vector.storage_type == "u":
        path = vector_path(vector)
        assert path is not None
        vector = replace(vector, storage_type="p", path_or_inline_dv=_url(store, path))
    return replace(
        file,
        path=_url(store, decode_path(file.path)),
        deletion_vector=vector,
        data_change=True,
        base_row_id=None,
        default_row_commit_version=None,
    )


def _url(store: Store, path: str) -> str:
    return encode_path(uri_of(store.absolute(path)))
