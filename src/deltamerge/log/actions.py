"""The actions of a commit, as frozen values, and their JSON.

Source: Delta protocol, "Actions". Fields have the protocol's names in snake_case and its order; how a value differs
from its JSON is in the field's metadata. Paths keep the log's URI spelling; `paths.decode_path` returns real names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar, cast

from deltamerge.exceptions import DeltaLogCorruptException

Json: TypeAlias = dict[str, Any]
_Kind = TypeVar("_Kind")


def _read_as(convert: Callable[[Any], object]) -> dict[str, Any]:
    """Return the metadata of a field whose value `convert` makes from its JSON, or from None where that is absent."""
    return {"convert": convert}


def _optional(convert: Callable[[Any], object]) -> dict[str, Any]:
    return _read_as(lambda content: None if content is None else convert(content))


def _listed(content: Any) -> Iterable[Any]:  # noqa: ANN401 parsed JSON
    if isinstance(content, (str, dict)):
        raise TypeError(f"{content!r:.80} is no list")
    found: Iterable[Any] = content
    return found


# Arrow has maps as lists of pairs.
_MAP = _read_as(lambda content: dict(content or ()))
_OPTIONAL_MAP = _optional(dict)
# To delta-spark a property that is null has no value.
_PROPERTIES = _read_as(lambda content: {key: value for key, value in dict(content or ()).items() if value is not None})


@dataclass(frozen=True)
class Protocol:
    """What a reader and a writer of the table must know; features are None where versions imply them."""

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str] | None = field(
        default=None, metadata=_optional(lambda content: frozenset(_listed(content)))
    )
    writer_features: frozenset[str] | None = field(
        default=None, metadata=_optional(lambda content: frozenset(_listed(content)))
    )


@dataclass(frozen=True)
class Format:
    provider: str = field(default="parquet", metadata=_read_as(lambda content: content or "parquet"))
    options: Mapping[str, str] = field(default_factory=dict, hash=False, metadata=_MAP)


@dataclass(frozen=True)
class Metadata:
    id: str
    name: str | None = None
    description: str | None = None
    format: Format = field(
        default_factory=Format, metadata=_read_as(lambda content: _from_fields(Format, content or {}))
    )
    schema_string: str | None = None
    partition_columns: tuple[str, ...] = field(
        default=(), metadata=_read_as(lambda content: tuple(_listed(content or ())))
    )
    configuration: Mapping[str, str] = field(default_factory=dict, hash=False, metadata=_PROPERTIES)
    created_time: int | None = None


@dataclass(frozen=True)
class DeletionVectorDescriptor:
    """Where the deleted row positions of a file are stored.

    `storage_type` is ``u`` (a file named by a UUID), ``p`` (an absolute path) or ``i`` (inline); `size_in_bytes` is
    without checksum and length.
    """

    storage_type: str
    path_or_inline_dv: str
    offset: int | None = field(metadata=_read_as(lambda content: content))
    size_in_bytes: int
    cardinality: int

    @property
    def unique_id(self) -> str:
        """The id that, with the path, identifies a logical file (Protocol: Deletion Vector Descriptor)."""
        at = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{at}"


_VECTOR = _optional(lambda content: _from_fields(DeletionVectorDescriptor, content))


@dataclass(frozen=True)
class RemoveFile:
    """A file that is no longer part of the table, kept as a tombstone until its retention ends."""

    path: str
    deletion_timestamp: int | None = None
    data_change: bool = True
    extended_file_metadata: bool | None = None
    partition_values: Mapping[str, str | None] | None = field(default=None, hash=False, metadata=_OPTIONAL_MAP)
    size: int | None = None
    tags: Mapping[str, str | None] | None = field(default=None, hash=False, metadata=_OPTIONAL_MAP)
    deletion_vector: DeletionVectorDescriptor | None = field(default=None, metadata=_VECTOR)
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    stats: str | None = None


@dataclass(frozen=True)
class AddFile:
    """A data file of the table; `data_change` is False where only the layout changed.

    Args:
        partition_values: Column (its physical name under column mapping) to serialized value.
        modification_time: Milliseconds since the epoch.
    """

    path: str
    partition_values: Mapping[str, str | None] = field(hash=False, metadata=_MAP)
    size: int
    modification_time: int
    data_change: bool = True
    stats: str | None = None
    tags: Mapping[str, str | None] | None = field(default=None, hash=False, metadata=_OPTIONAL_MAP)
    deletion_vector: DeletionVectorDescriptor | None = field(default=None, metadata=_VECTOR)
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None

    def remove(self, deletion_timestamp: int, data_change: bool = True) -> RemoveFile:
        """Return the tombstone of this file; `data_change` is False where another file holds the same rows."""
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
    """A file with change data of this commit only, so it never changes the table's data (Protocol: Add CDC File)."""

    path: str
    partition_values: Mapping[str, str | None] = field(hash=False, metadata=_MAP)
    size: int
    tags: Mapping[str, str | None] | None = field(default=None, hash=False, metadata=_OPTIONAL_MAP)
    data_change: bool = field(default=False, init=False)


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
    configuration: str = field(metadata=_read_as(lambda content: content or ""))
    removed: bool = field(default=False, metadata=_read_as(bool))

    def read(self, convert: Callable[[Any], _Kind]) -> _Kind:
        """Return the value that `convert` makes of the parsed configuration."""
        try:
            return convert(json.loads(self.configuration))
        except (ValueError, KeyError, TypeError) as error:
            raise DeltaLogCorruptException(
                "DELTA_STATE_RECOVER_ERROR",
                f"The domain metadata {self.domain} cannot be read: {self.configuration!r}.",
            ) from error


@dataclass(frozen=True)
class CommitInfo:
    """Who did what in a commit; free-form, so kept as the JSON object it is."""

    values: Mapping[str, Any] = field(hash=False)

    @property
    def in_commit_timestamp(self) -> int | None:
        """Milliseconds since the epoch."""
        timestamp = self.values.get("inCommitTimestamp")
        return timestamp if isinstance(timestamp, int) else None


@dataclass(frozen=True)
class Sidecar:
    """A file with the file actions of a V2 checkpoint; its path is relative to ``_sidecars`` or absolute."""

    path: str
    size_in_bytes: int
    modification_time: int


Action: TypeAlias = (
    Protocol | Metadata | AddFile | RemoveFile | AddCDCFile | SetTransaction | DomainMetadata | CommitInfo | Sidecar
)


def first_of(kind: type[_Kind], actions: Iterable[Action]) -> _Kind | None:
    return next((action for action in actions if isinstance(action, kind)), None)


_KINDS = {
    "add": AddFile,
    "remove": RemoveFile,
    "cdc": AddCDCFile,
    "commitInfo": CommitInfo,
    "txn": SetTransaction,
    "metaData": Metadata,
    "protocol": Protocol,
    "domainMetadata": DomainMetadata,
    "sidecar": Sidecar,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def to_json(action: Action) -> tuple[str, Json]:
    """Return an action's name and JSON object; fields that are None are left out, as delta-spark does."""
    values = action.values if isinstance(action, CommitInfo) else _to_fields(action)
    return _NAMES[type(action)], dict(values)


def to_json_line(action: Action) -> str:
    return compact_json(dict([to_json(action)]))


def to_json_lines(actions: Iterable[Action]) -> bytes:
    return "".join(to_json_line(action) + "\n" for action in actions).encode()


def from_json(values: Json) -> Action | None:
    """Return the action of a parsed line such as ``{"add": {...}}``.

    None for one that this library does not know (Protocol: readers ignore those). Maps may be lists of pairs, as
    Arrow has them; a missing field that the action must have is a KeyError.
    """
    for name, kind in _KINDS.items():
        content = values.get(name)
        if content is not None:
            if kind is CommitInfo and not isinstance(content, dict):
                raise TypeError("commitInfo is no object")
            action: Action = kind(content) if kind is CommitInfo else _from_fields(kind, content)
            return action
    return None


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


@cache
def _named_fields(kind: Any) -> tuple[tuple[str, Field[Any]], ...]:  # noqa: ANN401 a dataclass
    return tuple((camel_case(item.name), item) for item in fields(kind))


def _to_fields(value: Any) -> Json:  # noqa: ANN401 a dataclass
    found = ((name, _plain(getattr(value, item.name))) for name, item in _named_fields(value.__class__))
    return {name: content for name, content in found if content is not None}


def _plain(value: object) -> object:
    if is_dataclass(value):
        return _to_fields(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, frozenset):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value


def _from_fields(kind: Callable[..., Any], content: Json) -> Any:  # noqa: ANN401 of that kind
    values: Json = {}
    for name, item in _named_fields(kind):
        if "convert" in item.metadata:
            values[item.name] = item.metadata["convert"](content.get(name))
        elif item.init and (name in content or (item.default is MISSING and item.default_factory is MISSING)):
            values[item.name] = content[name]
        if item.name in values and not _fits(values[item.name], item.type):
            raise TypeError(f"{name} is {values[item.name]!r:.80}")
    return kind(**values)


def _fits(value: object, annotation: object) -> bool:
    """Return whether a value is of the type that a field is annotated with, as far as JSON can be at odds with it."""
    words = str(annotation)
    if value is None:
        return words.endswith("| None")
    if isinstance(value, Mapping):
        strings = all(isinstance(v, str) or (v is None and "str | None]" in words) for v in value.values())
        return words.startswith("Mapping") and strings and all(isinstance(key, str) for key in value)
    if isinstance(value, (tuple, frozenset)):
        return all(isinstance(part, str) for part in value)
    expected = _JSON_TYPES.get(words.removesuffix(" | None"))
    return expected is None or (type(value) is expected and (expected is not int or abs(cast("int", value)) < 1 << 63))


_JSON_TYPES: dict[str, type] = {"int": int, "str": str, "bool": bool}


def compact_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
