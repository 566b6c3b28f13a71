"""Writing checkpoints: one classic file, or a V2 checkpoint with its files in sidecars.

Source: Delta protocol, "Checkpoints", "V2 Spec", "Sidecar Files", "Last Checkpoint File".
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltamerge.log.actions import Action, Sidecar, camel_case, compact_json, to_json
from deltamerge.log.file_actions import ADD_SCHEMA, DELETION_VECTOR, REMOVE_SCHEMA, STRING_MAP
from deltamerge.log.properties import interval_ms
from deltamerge.log.protocol import features
from deltamerge.log.segment import LAST_CHECKPOINT, LOG_FOLDER, SIDECAR_FOLDER, list_log
from deltamerge.log.snapshot import Snapshot

_ROWS_IN_SIDECAR = 1 << 20


_ROW_GROUP = 1 << 16
_LONG, _STRING = pa.int64(), pa.string()
_STRINGS = pa.list_(pa.field("element", _STRING))


def _has_v2_policy(snapshot: Snapshot) -> bool:
    policy = snapshot.metadata.configuration.get("delta.checkpointPolicy", "classic").lower()
    return policy == "v2" and "v2Checkpoint" in features(snapshot.protocol)


def write_checkpoint(snapshot: Snapshot, now_ms: int) -> str:
    """Write a checkpoint, of the kind that the table asks for, and the log's pointer to it; return its path.

    Tombstones older than the table's ``delta.deletedFileRetentionDuration`` are left out; a pointer to a newer
    checkpoint stays as it is.
    """
    retention = interval_ms(snapshot.metadata, "delta.deletedFileRetentionDuration", "interval 1 week")
    removes = snapshot.tombstones()
    times = pc.fill_null(removes.column("deletion_timestamp"), 0)
    removes = removes.filter(pc.greater(times, now_ms - retention)).drop_columns(["stats"])
    files = snapshot.files.num_files
    if _has_v2_policy(snapshot):
        path, pointer = _write_v2(snapshot, removes, now_ms)
    else:
        path, pointer = _write_classic(snapshot, removes, now_ms)
    store = snapshot.store
    if not any(item.version > snapshot.version for item in list_log(store, snapshot.version).checkpoints):
        pointer = {"version": snapshot.version, **pointer, "numOfAddFiles": files}
        store.put(LAST_CHECKPOINT, compact_json(pointer).encode())
    return path


def _write_classic(snapshot: Snapshot, removes: pa.Table, now_ms: int) -> tuple[str, dict[str, Any]]:
    others = as_table(state_rows(snapshot, now_ms), CHECKPOINT_SCHEMA)
    content = _parquet(
        CHECKPOINT_SCHEMA,
        *others.to_batches(),
        *file_batches("add", snapshot.files.arrow, CHECKPOINT_SCHEMA),
        *file_batches("remove", removes, CHECKPOINT_SCHEMA),
    )
    path = f"{LOG_FOLDER}/{snapshot.version:020d}.checkpoint.parquet"
    snapshot.store.put(path, content)
    size = others.num_rows + snapshot.files.num_files + removes.num_rows
    return path, {"size": size, "sizeInBytes": len(content)}


def _write_v2(snapshot: Snapshot, removes: pa.Table, now_ms: int) -> tuple[str, dict[str, Any]]:
    # The top-level file comes last: a checkpoint exists only when all of it does.
    sidecars = [
        _write_sidecar(snapshot, action, table.slice(begin, _ROWS_IN_SIDECAR), now_ms)
        for action, table in (("add", snapshot.files.arrow), ("remove", removes))
        for begin in range(0, table.num_rows, _ROWS_IN_SIDECAR)
    ]
    pointer = ("checkpointMetadata", {"version": snapshot.version})
    rows = [pointer, *state_rows(snapshot, now_ms), *map(to_json, sidecars)]
    content = _parquet(V2_SCHEMA, *as_table(rows, V2_SCHEMA).to_batches())
    name = f"{snapshot.version:020d}.checkpoint.{uuid.uuid4()}.parquet"
    path = f"{LOG_FOLDER}/{name}"
    snapshot.store.put(path, content)
    return path, {
        "size": len(rows) + snapshot.files.num_files + removes.num_rows,
        "sizeInBytes": len(content) + sum(sidecar.size_in_bytes for sidecar in sidecars),
        "v2Checkpoint": {"path": name, "sizeInBytes": len(content), "modificationTime": now_ms},
    }


def _write_sidecar(snapshot: Snapshot, action: str, table: pa.Table, now_ms: int) -> Sidecar:
    content = _parquet(SIDECAR_SCHEMA, *file_batches(action, table, SIDECAR_SCHEMA))
    name = f"{uuid.uuid4()}.parquet"
    snapshot.store.put(f"{SIDECAR_FOLDER}/{name}", content)
    return Sidecar(name, len(content), now_ms)


def _parquet(schema: pa.Schema, *batches: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, compression="snappy", write_page_checksum=True) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


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


def state_rows(snapshot: Snapshot, now_ms: int) -> Rows:
    """Return all actions of a version but its files and expired transactions, each by its name in the log."""
    actions: list[Action] = [snapshot.protocol, snapshot.metadata]
    actions += [*snapshot.transactions_at(now_ms).values()]
    actions += [*snapshot.domain_metadata.values()]
    return [to_json(action) for action in actions]


def as_table(rows: Rows, schema: pa.Schema) -> pa.Table:
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
