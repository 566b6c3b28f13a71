"""The actions of a commit, as frozen values, and their JSON.

Source: Delta protocol, "Actions". Fields have the protocol's names in snake_case. Paths keep the log's
URI spelling; `paths.decode_path` gives real names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Protocol:
    """What a reader and a writer of the table must know; features are None where versions imply them."""

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str] | None = None
    writer_features: frozenset[str] | None = None


@dataclass(frozen=True)
class Metadata:
    """The table's identity, schema, partitioning and properties."""

    id: str
    name: str | None = None
    description: str | None = None
    format_provider: str = "parquet"
    schema_string: str | None = None
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict, hash=False)
    created_time: int | None = None
    format_options: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class DeletionVectorDescriptor:
    """Where the deleted row positions of a file are stored.

    Args:
        storage_type: ``u`` (file named by a UUID), ``p`` (absolute path) or ``i`` (inline).
        path_or_inline_dv: The encoded UUID, the path, or the vector itself in Base85.
        offset: Bytes from the start of the file; None for inline vectors.
        size_in_bytes: The vector's size without checksum and length.
        cardinality: How many rows are deleted.
    """

    storage_type: str
    path_or_inline_dv: str
    offset: int | None
    size_in_bytes: int
    cardinality: int

    @property
    def unique_id(self) -> str:
        """The id that, with the path, identifies a logical file (Protocol: Deletion Vector Descriptor)."""
        at = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{at}"


@dataclass(frozen=True)
class RemoveFile:
    """A file that is no longer part of the table, kept as a tombstone until its retention ends."""

    path: str
    deletion_timestamp: int | None = None
    data_change: bool = True
    extended_file_metadata: bool | None = None
    partition_values: Mapping[str, str | None] | None = field(default=None, hash=False)
    size: int | None = None
    tags: Mapping[str, str | None] | None = field(default=None, hash=False)
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    stats: str | None = None


@dataclass(frozen=True)
class AddFile:
    """A data file of the table.

    Args:
        path: The log's spelling, a URI.
        partition_values: Column (its physical name under column mapping) to serialized value.
        size: Bytes.
        modification_time: Milliseconds since the epoch.
        data_change: False where only the layout changed.
        stats: The statistics' JSON.
    """

    path: str
    partition_values: Mapping[str, str | None] = field(hash=False)
    size: int
    modification_time: int
    data_change: bool = True
    stats: str | None = None
    tags: Mapping[str, str | None] | None = field(default=None, hash=False)
    deletion_vector: DeletionVectorDescriptor | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None

    def remove(self, deletion_timestamp: int, data_change: bool = True) -> RemoveFile:
        """Return the action that removes this file.

        Returns:
            The tombstone, with all that is known of the file.
        """
        return RemoveFile(
            path=self.path,
            deletion_timestamp=deletion_timestamp,
            data_change=data_change,
            extended_file_metadata=True,
            partition_values=self.partition_values,
            size=self.size,
            tags=self.tags,
            deletion_vector=self.deletion_vector,
            base_row_id=self.base_row_id,
            default_row_commit_version=self.default_row_commit_version,
            stats=self.stats,
        )


@dataclass(frozen=True)
class AddCDCFile:
    """A file with change data of this commit only."""

    path: str
    partition_values: Mapping[str, str | None] = field(hash=False)
    size: int
    tags: Mapping[str, str | None] | None = field(default=None, hash=False)


@dataclass(frozen=True)
class SetTransaction:
    """How far an application has written, for exactly-once writes."""

    app_id: str
    version: int
    last_updated: int | None = None


@dataclass(frozen=True)
class DomainMetadata:
    """The configuration of a named domain; `removed` is a tombstone."""

    domain: str
    configuration: str
    removed: bool = False


@dataclass(frozen=True)
class CommitInfo:
    """Who did what in a commit; free-form, so kept as the JSON object it is."""

    values: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True)
class Sidecar:
    """A file with the file actions of a V2 checkpoint; its path is relative to ``_sidecars`` or absolute."""

    path: str
    size_in_bytes: int
    modification_time: int


Action: TypeAlias = (
    Protocol
    | Metadata
    | AddFile
    | RemoveFile
    | AddCDCFile
    | SetTransaction
    | DomainMetadata
    | CommitInfo
    | Sidecar
)


def to_json_line(action: Action) -> str:
    """Return an action as one line of a commit, without the line feed.

    Returns:
        Compact JSON; fields that are None are left out, as delta-spark does.
    """
    name, values = _to_json(action)
    return json.dumps({name: values}, ensure_ascii=False, separators=(",", ":"))


def to_json_lines(actions: Iterable[Action]) -> bytes:
    """Return the content of a commit file.

    Returns:
        One line each, in UTF-8.
    """
    return "".join(to_json_line(action) + "\n" for action in actions).encode()


def from_json(values: Json) -> Action | None:
    """Read one action.

    Returns:
        The action, or None for one that this library does not know (Protocol: readers ignore those).

    Raises:
        KeyError: A field that an action must have is missing.
    """
    for name, read in _READERS.items():
        content = values.get(name)
        if content is not None:
            return read(content)
    return None


def _to_json(action: Action) -> tuple[str, Json]:
    if isinstance(action, AddFile):
        return "add", _present(
            path=action.path,
            partitionValues=dict(action.partition_values),
            size=action.size,
            modificationTime=action.modification_time,
            dataChange=action.data_change,
            stats=action.stats,
            tags=_plain(action.tags),
            deletionVector=_deletion_vector_json(action.deletion_vector),
            baseRowId=action.base_row_id,
            defaultRowCommitVersion=action.default_row_commit_version,
            clusteringProvider=action.clustering_provider,
        )
    if isinstance(action, RemoveFile):
        return "remove", _present(
            path=action.path,
            deletionTimestamp=action.deletion_timestamp,
            dataChange=action.data_change,
            extendedFileMetadata=action.extended_file_metadata,
            partitionValues=_plain(action.partition_values),
            size=action.size,
            tags=_plain(action.tags),
            deletionVector=_deletion_vector_json(action.deletion_vector),
            baseRowId=action.base_row_id,
            defaultRowCommitVersion=action.default_row_commit_version,
            stats=action.stats,
        )
    if isinstance(action, AddCDCFile):
        # A change data file never changes the table's data (Protocol: Add CDC File).
        return "cdc", _present(
            path=action.path,
            partitionValues=dict(action.partition_values),
            size=action.size,
            tags=_plain(action.tags),
            dataChange=False,
        )
    if isinstance(action, Metadata):
        return "metaData", _present(
            id=action.id,
            name=action.name,
            description=action.description,
            format={"provider": action.format_provider, "options": dict(action.format_options)},
            schemaString=action.schema_string,
            partitionColumns=list(action.partition_columns),
            configuration=dict(action.configuration),
            createdTime=action.created_time,
        )
    if isinstance(action, Protocol):
        return "protocol", _present(
            minReaderVersion=action.min_reader_version,
            minWriterVersion=action.min_writer_version,
            readerFeatures=_sorted(action.reader_features),
            writerFeatures=_sorted(action.writer_features),
        )
    if isinstance(action, SetTransaction):
        return "txn", _present(appId=action.app_id, version=action.version, lastUpdated=action.last_updated)
    if isinstance(action, DomainMetadata):
        return "domainMetadata", {
            "domain": action.domain,
            "configuration": action.configuration,
            "removed": action.removed,
        }
    if isinstance(action, Sidecar):
        return "sidecar", {
            "path": action.path,
            "sizeInBytes": action.size_in_bytes,
            "modificationTime": action.modification_time,
        }
    return "commitInfo", dict(action.values)


def _present(**values: object) -> Json:
    return {name: value for name, value in values.items() if value is not None}


def _plain(values: Mapping[str, str | None] | None) -> Json | None:
    return None if values is None else dict(values)


def _sorted(features: frozenset[str] | None) -> list[str] | None:
    return None if features is None else sorted(features)


def _deletion_vector_json(vector: DeletionVectorDescriptor | None) -> Json | None:
    if vector is None:
        return None
    return _present(
        storageType=vector.storage_type,
        pathOrInlineDv=vector.path_or_inline_dv,
        offset=vector.offset,
        sizeInBytes=vector.size_in_bytes,
        cardinality=vector.cardinality,
    )


def _deletion_vector(content: Json | None) -> DeletionVectorDescriptor | None:
    if content is None:
        return None
    return DeletionVectorDescriptor(
        storage_type=content["storageType"],
        path_or_inline_dv=content["pathOrInlineDv"],
        offset=content.get("offset"),
        size_in_bytes=content["sizeInBytes"],
        cardinality=content["cardinality"],
    )


def _optional_map(content: Json | list[tuple[str, Any]] | None) -> Json | None:
    return None if content is None else dict(content)


def _features(content: Iterable[str] | None) -> frozenset[str] | None:
    return None if content is None else frozenset(content)


def _read_add(content: Json) -> AddFile:
    return AddFile(
        path=content["path"],
        partition_values=_optional_map(content.get("partitionValues")) or {},
        size=content["size"],
        modification_time=content["modificationTime"],
        data_change=content.get("dataChange", True),
        stats=content.get("stats"),
        tags=_optional_map(content.get("tags")),
        deletion_vector=_deletion_vector(content.get("deletionVector")),
        base_row_id=content.get("baseRowId"),
        default_row_commit_version=content.get("defaultRowCommitVersion"),
        clustering_provider=content.get("clusteringProvider"),
    )


def _read_remove(content: Json) -> RemoveFile:
    return RemoveFile(
        path=content["path"],
        deletion_timestamp=content.get("deletionTimestamp"),
        data_change=content.get("dataChange", True),
        extended_file_metadata=content.get("extendedFileMetadata"),
        partition_values=_optional_map(content.get("partitionValues")),
        size=content.get("size"),
        tags=_optional_map(content.get("tags")),
        deletion_vector=_deletion_vector(content.get("deletionVector")),
        base_row_id=content.get("baseRowId"),
        default_row_commit_version=content.get("defaultRowCommitVersion"),
        stats=content.get("stats"),
    )


def _read_cdc(content: Json) -> AddCDCFile:
    return AddCDCFile(
        path=content["path"],
        partition_values=_optional_map(content.get("partitionValues")) or {},
        size=content["size"],
        tags=_optional_map(content.get("tags")),
    )


def _read_metadata(content: Json) -> Metadata:
    file_format = content.get("format") or {}
    return Metadata(
        id=content["id"],
        name=content.get("name"),
        description=content.get("description"),
        format_provider=file_format.get("provider") or "parquet",
        format_options=_optional_map(file_format.get("options")) or {},
        schema_string=content.get("schemaString"),
        partition_columns=tuple(content.get("partitionColumns") or ()),
        configuration=_optional_map(content.get("configuration")) or {},
        created_time=content.get("createdTime"),
    )


def _read_protocol(content: Json) -> Protocol:
    return Protocol(
        min_reader_version=content["minReaderVersion"],
        min_writer_version=content["minWriterVersion"],
        reader_features=_features(content.get("readerFeatures")),
        writer_features=_features(content.get("writerFeatures")),
    )


def _read_txn(content: Json) -> SetTransaction:
    return SetTransaction(content["appId"], content["version"], content.get("lastUpdated"))


def _read_domain(content: Json) -> DomainMetadata:
    return DomainMetadata(content["domain"], content.get("configuration") or "", bool(content.get("removed")))


def _read_sidecar(content: Json) -> Sidecar:
    return Sidecar(content["path"], content["sizeInBytes"], content["modificationTime"])


_READERS: dict[str, Callable[[Json], Action]] = {
    "add": _read_add,
    "remove": _read_remove,
    "cdc": _read_cdc,
    "commitInfo": CommitInfo,
    "txn": _read_txn,
    "metaData": _read_metadata,
    "protocol": _read_protocol,
    "domainMetadata": _read_domain,
    "sidecar": _read_sidecar,
}
