"""Small real tables, made and changed by transactions."""

from __future__ import annotations

import io
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltamerge.log.actions import Action, AddFile, Metadata, Protocol
from deltamerge.log.schema import PrimitiveType, StructField, StructType, schema_to_json
from deltamerge.log.snapshot import Snapshot, load_snapshot
from deltamerge.skipping.collect_statistics import parquet_statistics
from deltamerge.skipping.indexed import IndexedColumns
from deltamerge.storage.store import Store, open_store
from deltamerge.txn.prepared import CommitSettings
from deltamerge.txn.transaction import PreparedCommit, ReadSet, commit

SCHEMA = StructType((StructField("id", PrimitiveType("long")), StructField("part", PrimitiveType("string"))))
PROTOCOL = Protocol(1, 2)


def clock() -> int:
    return int(time.time() * 1000)


def metadata(partitioned: bool = False, **configuration: Any) -> Metadata:
    return Metadata(
        id=str(uuid.uuid4()),
        schema_string=schema_to_json(SCHEMA),
        partition_columns=("part",) if partitioned else (),
        configuration={f"delta.{name}": value for name, value in configuration.items()},
        created_time=clock(),
    )


def prepare(
    snapshot: Snapshot | Store, *actions: Action, read: ReadSet | None = None, **changes: Any
) -> PreparedCommit:
    """Gives a transaction: a blind append unless it says what was read."""
    prepared = PreparedCommit(
        snapshot=snapshot,
        actions=tuple(actions),
        read_set=read or ReadSet(),
        operation="MERGE",
        operation_parameters={"predicate": '["(id = id)"]'},
        operation_metrics={"numOutputRows": "1"},
        isolation_level="Serializable",
        is_blind_append=read is None,
        settings=CommitSettings(),
        txn_id=str(uuid.uuid4()),
    )
    return replace(prepared, **changes)


def create(root: Path, partitioned: bool = False, protocol: Protocol = PROTOCOL, **configuration: Any) -> Snapshot:
    """Creates an empty table and gives its snapshot."""
    store = open_store(str(root))
    actions = (protocol, metadata(partitioned, **configuration))
    prepared = replace(prepare(store, *actions), operation="CREATE TABLE", is_blind_append=False)
    return commit(prepared, clock).snapshot


def write_file(snapshot: Snapshot, ids: Sequence[int], part: str | None = None, **changes: Any) -> AddFile:
    """Writes a real data file and gives its action."""
    partitioned = bool(snapshot.metadata.partition_columns)
    columns = {"id": pa.array(ids, pa.int64())}
    if not partitioned:
        columns["part"] = pa.array([part] * len(ids), pa.string())
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    path = f"{uuid.uuid4()}.parquet"
    snapshot.store.put(path, buffer.getvalue())
    indexed = IndexedColumns.of(snapshot.schema, snapshot.metadata.partition_columns, snapshot.metadata.configuration)
    add = AddFile(
        path=path,
        partition_values={"part": part} if partitioned else {},
        size=len(buffer.getvalue()),
        modification_time=clock(),
        stats=parquet_statistics(pq.read_metadata(buffer), snapshot.schema, indexed),
    )
    return replace(add, **changes)


def append(snapshot: Snapshot, ids: Sequence[int], part: str | None = None) -> tuple[AddFile, Snapshot]:
    """Appends a file blindly and gives it with the new snapshot."""
    file = write_file(snapshot, ids, part)
    return file, commit(prepare(snapshot, file), clock).snapshot


def latest(snapshot: Any) -> Any:
    return load_snapshot(snapshot.store)
