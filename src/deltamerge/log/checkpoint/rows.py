"""The rows of a checkpoint: all of a version's state under the protocol's names.

Source: Delta protocol, "Checkpoint Schema".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.log.actions import Action, Sidecar, camel_case, to_json
from deltamerge.log.file_actions import ADD_SCHEMA, DELETION_VECTOR, REMOVE_SCHEMA, STRING_MAP
from deltamerge.log.snapshot import Snapshot

_ROW_GROUP = 1 << 16
_LONG, _STRING = pa.int64(), pa.string()
_STRINGS = pa.list_(pa.field("element", _STRING))


def _camel(schema: Iterable[pa.Field]) -> list[pa.Field]:
    return [
        pa.field(
            camel_case(item.name),
            pa.struct(_camel(DELETION_VECTOR)) if item.type == DELETION_VECTOR else item.type,
        )
        for item in schema
    ]


def _struct(**kinds: pa.DataType) -> pa.StructType:
    return pa.struct(list(kinds.items()))


_FORMAT = _struct(provider=_STRING, options=STRING_MAP)
_METADATA = _struct(
    id=_STRING,
    name=_STRING,
    description=_STRING,
    format=_FORMAT,
    schemaString=_STRING,
    partitionColumns=_STRINGS,
    configuration=STRING_MAP,
    createdTime=_LONG,
)
_PROTOCOL = _struct(
    minReaderVersion=pa.int32(), minWriterVersion=pa.int32(), readerFeatures=_STRINGS, writerFeatures=_STRINGS
)

CHECKPOINT_SCHEMA = pa.schema(
    [
        ("txn", _struct(appId=_STRING, version=_LONG, lastUpdated=_LONG)),
        ("add", pa.struct(_camel(ADD_SCHEMA))),
        ("remove", pa.struct(_camel(item for item in REMOVE_SCHEMA if item.name != "stats"))),
        ("metaData", _METADATA),
        ("protocol", _PROTOCOL),
        ("domainMetadata", _struct(domain=_STRING, configuration=_STRING, removed=pa.bool_())),
    ]
)
"""The columns of a classic checkpoint, as delta-spark names and orders them."""

SIDECAR_SCHEMA = pa.schema([CHECKPOINT_SCHEMA.field("add"), CHECKPOINT_SCHEMA.field("remove")])
"""The columns of a V2 checkpoint's sidecar."""

_SIDECAR = _struct(path=_STRING, sizeInBytes=_LONG, modificationTime=_LONG, tags=STRING_MAP)
V2_SCHEMA = pa.schema(
    [
        *CHECKPOINT_SCHEMA,
        pa.field("checkpointMetadata", _struct(version=_LONG, tags=STRING_MAP)),
        pa.field("sidecar", _SIDECAR),
    ]
)
"""The columns of a V2 checkpoint's top-level file."""

Rows: TypeAlias = "list[tuple[str, dict[str, Any]]]"


def kept_tombstones(removes: pa.Table, expired_ms: int) -> pa.Table:
    """Return the tombstones that are later than `expired_ms`, without statistics."""
    times = pc.fill_null(removes.column("deletion_timestamp"), 0)
    return removes.filter(pc.greater(times, expired_ms)).drop_columns(["stats"])


def state_rows(snapshot: Snapshot) -> Rows:
    """Return all actions of a version but its files, each by its name in the log."""
    actions: list[Action] = [snapshot.protocol, snapshot.metadata]
    actions += [*snapshot.set_transactions.values()]
    actions += [*snapshot.domain_metadata.values()]
    return [to_json(action) for action in actions]


def v2_rows(snapshot: Snapshot, sidecars: Iterable[Sidecar]) -> Rows:
    """Return the actions of a V2 checkpoint's top-level file."""
    pointer = ("checkpointMetadata", {"version": snapshot.version})
    return [pointer, *state_rows(snapshot), *(to_json(sidecar) for sidecar in sidecars)]


def as_table(rows: Rows, schema: pa.Schema) -> pa.Table:
    """Return actions in the columns of a checkpoint, one a row."""
    columns = [
        pa.array([values if name == field.name else None for name, values in rows], field.type) for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def file_batches(action: str, table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield file actions in the columns of a checkpoint.

    `action` is ``add`` or ``remove``, `table` has rows of `ADD_SCHEMA`, or of `REMOVE_SCHEMA` without statistics.
    """
    wanted = schema.field(action).type
    for batch in table.to_batches(max_chunksize=_ROW_GROUP):
        arrays = []
        for field in batch.schema:
            array = batch.column(field.name)
            if field.name == "data_change":
                # A checkpoint changes no data (Protocol: Checkpoint Schema).
                array = pa.array([False] * len(array), pa.bool_())
            elif field.name == "deletion_vector":
                array = _camel_structs(array)
            arrays.append(array)
        structs = pa.StructArray.from_arrays(arrays, fields=list(wanted))
        columns = [structs if field.name == action else pa.nulls(len(structs), field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _camel_structs(vectors: pa.StructArray) -> pa.StructArray:
    children = [pc.struct_field(vectors, [index]) for index in range(vectors.type.num_fields)]
    return pa.StructArray.from_arrays(children, fields=_camel(DELETION_VECTOR), mask=vectors.is_null())
