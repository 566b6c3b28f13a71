"""Writing checkpoints: one classic file, or a V2 checkpoint with its files in sidecars.

Source: Delta protocol, "Checkpoints", "V2 Spec", "Sidecar Files", "Last Checkpoint File".
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltamerge.log.actions import Sidecar
from deltamerge.log.checkpoint.rows import (
    CHECKPOINT_SCHEMA,
    SIDECAR_SCHEMA,
    V2_SCHEMA,
    as_table,
    file_batches,
    kept_tombstones,
    state_rows,
    v2_rows,
)
from deltamerge.log.properties import interval_ms
from deltamerge.log.protocol import features
from deltamerge.log.segment import LAST_CHECKPOINT, LOG_FOLDER, SIDECAR_FOLDER, list_log
from deltamerge.log.snapshot import Snapshot

_ROWS_IN_SIDECAR = 1 << 20


def _has_v2_policy(snapshot: Snapshot) -> bool:
    policy = snapshot.metadata.configuration.get("delta.checkpointPolicy", "classic").lower()
    return policy == "v2" and "v2Checkpoint" in features(snapshot.protocol)


def write_checkpoint(snapshot: Snapshot, now_ms: int) -> str:
    """Write a checkpoint, of the kind that the table asks for, and the log's pointer to it; return its path.

    Tombstones older than the table's ``delta.deletedFileRetentionDuration`` are left out; a pointer to a newer
    checkpoint stays as it is.
    """
    retention = interval_ms(snapshot.metadata, "delta.deletedFileRetentionDuration", "interval 1 week")
    removes = kept_tombstones(snapshot.tombstones(), now_ms - retention)
    files = snapshot.files.num_files
    if _has_v2_policy(snapshot):
        path, pointer = _write_v2(snapshot, removes, now_ms)
    else:
        path, pointer = _write_classic(snapshot, removes)
    store = snapshot.store
    if not any(item.version > snapshot.version for item in list_log(store, snapshot.version).checkpoints):
        pointer = {"version": snapshot.version, **pointer, "numOfAddFiles": files}
        store.put(LAST_CHECKPOINT, json.dumps(pointer, separators=(",", ":")).encode())
    return path


def _write_classic(snapshot: Snapshot, removes: pa.Table) -> tuple[str, dict[str, Any]]:
    others = as_table(state_rows(snapshot), CHECKPOINT_SCHEMA)
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
    rows = v2_rows(snapshot, sidecars)
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
