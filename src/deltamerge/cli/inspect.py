"""A table's history and detail, read from its log without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from deltamerge.log.commit_times import datetime_of
from deltamerge.log.protocol import reader_features, writer_features
from deltamerge.log.schema import ArrayType, DataType, MapType, PrimitiveType, StructType
from deltamerge.log.snapshot import load_snapshot
from deltamerge.render.printable import count, duration, printable, size
from deltamerge.storage.store import Store

_SQL_NAMES = {"long": "BIGINT", "integer": "INT", "short": "SMALLINT", "byte": "TINYINT"}
_ROWS = (
    ("numTargetRowsInserted", "inserted"),
    ("numTargetRowsUpdated", "updated"),
    ("numUpdatedRows", "updated"),
    ("numTargetRowsDeleted", "deleted"),
    ("numDeletedRows", "deleted"),
)
# A BIGINT has no more digits.
_COUNT = re.compile(r"[0-9]{1,19}")


def detail_values(store: Store) -> dict[str, Any]:
    snapshot = load_snapshot(store)
    metadata, protocol = snapshot.metadata, snapshot.protocol
    return {
        "location": store.root,
        "version": snapshot.version,
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "created_at": datetime_of(metadata.created_time),
        "last_modified": datetime_of(snapshot.timestamp_ms),
        "num_files": snapshot.files.num_files,
        "size_in_bytes": snapshot.files.size_in_bytes,
        "columns": [
            {"name": field.name, "type": sql_type(field.data_type), "nullable": field.nullable}
            for field in snapshot.schema.fields
        ],
        "partition_columns": list(metadata.partition_columns),
        "properties": dict(sorted(metadata.configuration.items())),
        "min_reader_version": protocol.min_reader_version,
        "min_writer_version": protocol.min_writer_version,
        "reader_features": sorted(reader_features(protocol)),
        "writer_features": sorted(writer_features(protocol)),
    }


def sql_type(data_type: DataType) -> str:
    if isinstance(data_type, PrimitiveType):
        return _SQL_NAMES.get(data_type.name, data_type.name.upper())
    if isinstance(data_type, ArrayType):
        return f"ARRAY<{sql_type(data_type.element_type)}>"
    if isinstance(data_type, MapType):
        return f"MAP<{sql_type(data_type.key_type)}, {sql_type(data_type.value_type)}>"
    assert isinstance(data_type, StructType)
    return f"STRUCT<{', '.join(f'{f.name}: {sql_type(f.data_type)}' for f in data_type.fields)}>"


def render_detail(values: Mapping[str, Any]) -> RenderableType:
    values, grid = printable(values), _grid(2)
    partitioned = ", ".join(values["partition_columns"])
    facts = (
        ("Table", values["location"]),
        ("Name", values["name"]),
        ("Description", values["description"]),
        ("Version", f"{values['version']}, of {_when(values['last_modified'])}"),
        ("Files", f"{count(values['num_files'], 'file')} ({size(values['size_in_bytes'])})"),
        ("Partitioned by", partitioned or "no columns"),
        ("Readers need", _needs(values["min_reader_version"], values["reader_features"])),
        ("Writers need", _needs(values["min_writer_version"], values["writer_features"])),
    )
    for label, fact in facts:
        if fact:
            grid.add_row(Text(label, "dim"), Text(str(fact)))
    for number, (key, value) in enumerate(values["properties"].items()):
        grid.add_row(Text("" if number else "Properties", "dim"), Text(f"{key} = {value}"))
    columns = _grid(3)
    for column in values["columns"]:
        required = "" if column["nullable"] else "NOT NULL"
        columns.add_row(Text(column["name"], "bold"), Text(column["type"]), Text(required))
    return Group(grid, Text(), columns)


def render_history(commits: Sequence[Mapping[str, Any]]) -> RenderableType:
    grid = _grid(4)
    grid.columns[0].justify = "right"
    grid.add_row(*(Text(title, "dim") for title in ("version", "time (UTC)", "operation", "what it did")))
    for commit in map(printable, commits):
        grid.add_row(
            Text(str(commit["version"]), "bold"),
            Text(_when(commit["timestamp"])),
            Text(commit["operation"] or "?"),
            Text(what_it_did(commit)),
        )
    return grid


def what_it_did(commit: Mapping[str, Any]) -> str:
    """Return what a commit did, from its metrics; empty without them.

    Such as ``5 rows inserted, 2 rows updated; 3 files added, 1 file removed; 1.3 s``.
    """
    given = commit["operationMetrics"] or {}
    metrics = {name: int(value) for name, value in given.items() if value is not None and _COUNT.fullmatch(value)}
    rows = [(metrics[name], done) for name, done in _ROWS if name in metrics]
    changes = [f"{count(number, 'row')} {done}" for number, done in rows if number]
    if rows and not changes:
        changes = ["no row changed"]
    elif not rows and "numOutputRows" in metrics:
        changes = [f"{count(metrics['numOutputRows'], 'row')} written"]
    added = metrics.get("numTargetFilesAdded", metrics.get("numFiles", metrics.get("numAddedFiles")))
    removed = metrics.get("numTargetFilesRemoved", metrics.get("numRemovedFiles"))
    files = [f"{count(number, 'file')} {done}" for number, done in ((added, "added"), (removed, "removed")) if number]
    took = metrics.get("executionTimeMs")
    parts = [", ".join(changes), ", ".join(files), duration(took) if took else ""]
    return "; ".join(part for part in parts if part)


def _grid(columns: int) -> Table:
    grid = Table.grid(padding=(0, 2))
    for number in range(columns):
        grid.add_column(no_wrap=number == 0, overflow="fold")
    return grid


def _needs(version: int, features: Sequence[str]) -> str:
    return f"version {version}" + (f" with {', '.join(features)}" if features else "")


def _when(time: datetime | None) -> str:
    return "?" if time is None else time.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
