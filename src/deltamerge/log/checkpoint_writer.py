"""Writing checkpoints: one classic Parquet file that holds a version's whole state.

Source: Delta protocol, "Checkpoints", "Checkpoint Schema", "Last Checkpoint File".
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltamerge.log.actions import Metadata, Protocol
from deltamerge.log.file_actions import ADD_SCHEMA, DELETION_VECTOR, REMOVE_SCHEMA, STRING_MAP, camel_case
from deltamerge.log.properties import interval_ms
from deltamerge.log.segment import LAST_CHECKPOINT, LOG_FOLDER, list_log
from deltamerge.log.snapshot import Snapshot

_ROW_GROUP = 1 << 16
_STRINGS = pa.list_(pa.field("element", pa.string()))


def _camel(schema: Iterable[pa.Field]) -> list[pa.Field]:
    return [
        pa.field(
            camel_case(item.name),
            pa.struct(_camel(DELETION_VECTOR)) if item.type == DELETION_VECTOR else item.type,
        )
        for item in schema
    ]


CHECKPOINT_SCHEMA = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])),
        ("add", pa.struct(_camel(ADD_SCHEMA))),
        ("remove", pa.struct(_camel(item for item in REMOVE_SCHEMA if item.name != "stats"))),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", STRING_MAP)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", _STRINGS),
                    ("configuration", STRING_MAP),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", _STRINGS),
                    ("writerFeatures", _STRINGS),
                ]
            ),
        ),
        (
            "domainMetadata",
            pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
        ),
    ]
)
"""The columns of a checkpoint, as delta-spark names and orders them."""


def write_checkpoint(snapshot: Snapshot, now_ms: int) -> str:
    """Writes a classic checkpoint of a snapshot, and the log's pointer to it.

    Args:
        snapshot: The version to write; its tombstones are read from the log.
        now_ms: Milliseconds since the epoch: tombstones that are older than the table's
            ``delta.deletedFileRetentionDuration`` before it are left out.

    Returns:
        The checkpoint's path. A pointer to a newer checkpoint stays as it is.
    """
    store = snapshot.store
    retention = interval_ms(snapshot.metadata, "delta.deletedFileRetentionDuration", "interval 1 week")
    removes = _kept_tombstones(snapshot.tombstones(), now_ms - retention)
    others = _other_actions(snapshot)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, CHECKPOINT_SCHEMA, compression="snappy") as writer:
        writer.write_table(others)
        _write_files(writer, "add", snapshot.files.arrow)
        _write_files(writer, "remove", removes)
    content = sink.getvalue().to_pybytes()
    path = f"{LOG_FOLDER}/{snapshot.version:020d}.checkpoint.parquet"
    store.put(path, content)
    newer = any(item.version > snapshot.version for item in list_log(store, snapshot.version).checkpoints)
    if not newer:
        pointer = {
            "version": snapshot.version,
            "size": others.num_rows + snapshot.files.num_files + removes.num_rows,
            "sizeInBytes": len(content),
            "numOfAddFiles": snapshot.files.num_files,
        }
        store.put(LAST_CHECKPOINT, json.dumps(pointer, separators=(",", ":")).encode())
    return path


def _kept_tombstones(removes: pa.Table, expired_ms: int) -> pa.Table:
    times = pc.fill_null(removes.column("deletion_timestamp"), 0)
    return removes.filter(pc.greater(times, expired_ms)).drop_columns(["stats"])


def _other_actions(snapshot: Snapshot) -> pa.Table:
    rows: list[tuple[str, dict[str, Any]]] = [
        ("protocol", _protocol(snapshot.protocol)),
        ("metaData", _metadata(snapshot.metadata)),
    ]
    rows.extend(
        ("txn", {"appId": item.app_id, "version": item.version, "lastUpdated": item.last_updated})
        for item in snapshot.set_transactions.values()
    )
    rows.extend(
        (
            "domainMetadata",
            {"domain": item.domain, "configuration": item.configuration, "removed": False},
        )
        for item in snapshot.domain_metadata.values()
    )
    columns = [
        pa.array([values if name == field.name else None for name, values in rows], field.type)
        for field in CHECKPOINT_SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=CHECKPOINT_SCHEMA)


def _protocol(protocol: Protocol) -> dict[str, Any]:
    reader, writer = protocol.reader_features, protocol.writer_features
    return {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "readerFeatures": None if reader is None else sorted(reader),
        "writerFeatures": None if writer is None else sorted(writer),
    }


def _metadata(metadata: Metadata) -> dict[str, Any]:
    return {
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "format": {
            "provider": metadata.format_provider,
            "options": list(metadata.format_options.items()),
        },
        "schemaString": metadata.schema_string,
        "partitionColumns": list(metadata.partition_columns),
        "configuration": list(metadata.configuration.items()),
        "createdTime": metadata.created_time,
    }


def _write_files(writer: pq.ParquetWriter, action: str, table: pa.Table) -> None:
    wanted = CHECKPOINT_SCHEMA.field(action).type
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
        columns = [
            structs if field.name == action else pa.nulls(len(structs), field.type)
            for field in CHECKPOINT_SCHEMA
        ]
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=CHECKPOINT_SCHEMA))


def _camel_structs(vectors: pa.StructArray) -> pa.StructArray:
    children = [pc.struct_field(vectors, [index]) for index in range(vectors.type.num_fields)]
    return pa.StructArray.from_arrays(children, fields=_camel(DELETION_VECTOR), mask=vectors.is_null())
