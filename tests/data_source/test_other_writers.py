"""Logs and files such as other writers make them, read without a session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltamerge.data_source.reading import plan_read, schema_of
from deltamerge.log.change_feed import ENABLED
from log.logs import PROTOCOL, Log, add, metadata, remove


def read(path: Path, **options: str) -> list[dict[str, Any]]:
    given = {"path": str(path), **options}
    schema, version = schema_of(given, {})
    rows, plan = plan_read(given, {}, schema, version)
    return [row for parts in plan([]) for batch in rows.read(parts) for row in batch.to_pylist()]


def test_a_removed_file_of_unknown_size(tmp_path: Path) -> None:
    """The protocol lets a remove leave it out."""
    pq.write_table(pa.table({"id": [7], "part": ["a"]}), tmp_path / "f")
    log = Log(tmp_path)
    log.commit(PROTOCOL, metadata(configuration={ENABLED: "true"}), add("f", size=(tmp_path / "f").stat().st_size))
    log.commit(remove("f", partitionValues={}))
    (row,) = read(tmp_path, readchangefeed="true", startingversion="1")
    assert (row["id"], row["_change_type"]) == (7, "delete")


def test_columns_found_by_ids_alone(tmp_path: Path) -> None:
    """Files of a table that was converted keep their names."""
    field = pa.field("old name", pa.int64(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([pa.array([7])], schema=pa.schema([field])), tmp_path / "f")
    mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "id"}
    column = {"name": "id", "type": "long", "nullable": True, "metadata": mapped}
    of_table = metadata(
        schemaString=json.dumps({"type": "struct", "fields": [column]}),
        configuration={"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "1"},
    )
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    Log(tmp_path).commit(protocol, of_table, add("f", size=(tmp_path / "f").stat().st_size))
    assert read(tmp_path) == [{"id": 7}]
