"""Mutations of data files, read by Arrow: the right rows, or an error that names the file."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from deltamerge.workers.file_columns import read_columns, read_row_groups
from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.parquet_patch import row_groups
from deltamerge.workers.staged_rows import StagedFile, StagedRows, open_staged
from deltamerge.workers.table_columns import Part, Shape
from deltamerge.workers.table_rows import FilePart, RowsOfTable
from deltamerge.workers.table_writer import TableWriter
from faults.mutations import damaged

MUTATIONS = int(os.environ.get("DELTAMERGE_MUTATIONS", "300"))
ROWS = 2_000
# Parquet has no checksum of its footer: of a flipped bit there one of so many changes what is read.
MOST_SILENT_IN_FOOTERS = 0.02
SLOW_SECONDS = 5.0


def table() -> pa.Table:
    start = dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc)
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "v": [f"value {i % 7}" for i in range(ROWS)],
            "unlike": [f"row {i * 7919}" for i in range(ROWS)],
            "x": [None if i % 5 == 0 else i / 3 for i in range(ROWS)],
            "d": pa.array([Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(9, 2)),
            "at": pa.array([start + dt.timedelta(hours=i) for i in range(ROWS)], pa.timestamp("us", tz="UTC")),
            "l": pa.array([[i, None] for i in range(ROWS)], pa.list_(pa.int32())),
            "s": pa.array([{"a": i, "b": "x"} for i in range(ROWS)], pa.struct({"a": pa.int32(), "b": pa.string()})),
        }
    )


def written(path: Path, rows: pa.Table, codec: str) -> bytes:
    """Writes a data file as merges write it, in two row groups."""
    options = {"compression": codec, "store_schema": False, "write_page_index": True, "use_dictionary": ["v"]}
    with TableWriter(LOCAL_FILES, str(path), rows.schema, options, {}) as writer:
        writer.write(rows.slice(0, ROWS // 2))
        writer.write(rows.slice(ROWS // 2))
    return path.read_bytes()


def reader(rows: pa.Table) -> RowsOfTable:
    columns = tuple(Part(field.name, shape_of(field.type)) for field in rows.schema)
    return RowsOfTable(LOCAL_FILES, "t", rows.schema, columns, tuple(rows.column_names), ROWS)


def shape_of(kind: pa.DataType) -> Shape:
    if pa.types.is_struct(kind):
        return Shape(kind, tuple(Part(field.name, shape_of(field.type)) for field in kind))
    if pa.types.is_list(kind):
        return Shape(kind, (Part("element", shape_of(kind.value_type)),))
    return Shape(kind)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["snappy", "none", "zstd"])
def test_mutations(tmp_path: Path, codec: str) -> None:
    """Damage outside of the footer is never believed; in the footer seldom, and the log's size is compared first."""
    file, rows = tmp_path / "part.parquet", table()
    content = written(file, rows, codec)
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    read = reader(rows)
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    for seed in range(MUTATIONS):
        changed = damaged(content, seed, is_json=False)
        file.write_bytes(changed)
        before_footer = changed[footer:] == content[footer:] or len(changed) != len(content)
        began = time.monotonic()
        try:
            found = pa.Table.from_batches(read.read([FilePart(str(file), size=len(content))]), rows.schema)
            outcome = "right" if found.equals(rows) else "silent in pages" if before_footer else "silent in the footer"
        except ValueError as error:
            outcome = "refused"
            if str(file) not in str(error):
                failures.append(f"seed {seed}: the file is not named: {error!s:.300}")
        outcomes[outcome] += 1
        if outcome == "silent in pages":
            failures.append(f"seed {seed}: read as something else")
        if time.monotonic() - began > SLOW_SECONDS:
            failures.append(f"seed {seed}: took {time.monotonic() - began:.0f} s")
    print(f"{codec}, {MUTATIONS} mutations: {dict(outcomes)}")
    assert not failures, "\n".join([f"{len(failures)} failures", *failures[:40]])
    assert outcomes["silent in the footer"] <= MOST_SILENT_IN_FOOTERS * MUTATIONS


def test_every_page_has_a_checksum(tmp_path: Path) -> None:
    """Of each column a byte in the middle of its pages changes, which no decoder of plain values would notice."""
    file, rows = tmp_path / "part.parquet", table()
    content = written(file, rows, "none")
    metadata = LOCAL_FILES.parquet(str(file)).metadata
    read = reader(rows)
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(index)
            at = chunk.data_page_offset + chunk.total_compressed_size // 2
            file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            with pytest.raises(ValueError, match=r"part\.parquet .*checksum"):
                list(read.read([FilePart(str(file))]))


# Of the header of a page of data: the place of its kind, and what an index's is.
KIND_AT, INDEX_PAGE = 1, 2


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_page_that_seems_to_be_of_another_kind(tmp_path: Path, codec: str) -> None:
    """PyArrow passes over such a page, as if its rows were not there; it is no part of what has a checksum."""
    file, rows = tmp_path / "part.parquet", table()
    content = written(file, rows, codec)
    metadata = LOCAL_FILES.parquet(str(file)).metadata
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(index)
            at = chunk.data_page_offset + KIND_AT
            assert content[at] == 0
            file.write_bytes(content[:at] + bytes([INDEX_PAGE]) + content[at + 1 :])
            name = chunk.path_in_schema.partition(".")[0]
            asked = {name: (name, rows.schema.field(name).type)}
            reads: dict[str, Callable[[], object]] = {
                "rows of a table": lambda: list(reader(rows).read([FilePart(str(file))])),
                "rows of one column": lambda name=name: list(  # type: ignore[misc]
                    reader(rows.select([name])).read([FilePart(str(file))])
                ),
                "columns": lambda asked=asked: read_columns(LOCAL_FILES, str(file), {}, asked),  # type: ignore[misc]
                "row groups": lambda asked=asked: list(  # type: ignore[misc]
                    read_row_groups(LOCAL_FILES, str(file), {}, asked, lambda *_: True)
                ),
                "patch": lambda: list(
                    row_groups(str(file), LOCAL_FILES.parquet(str(file)), [rows.schema.names] * metadata.num_row_groups)
                ),
                "source": lambda name=name: open_staged(  # type: ignore[misc]
                    LOCAL_FILES,
                    StagedRows((StagedFile(str(file), len(rows), *LOCAL_FILES.version(str(file))),)),
                    [name],
                ),
            }
            for what, read in reads.items():
                try:
                    read()
                except (ValueError, OSError, pa.ArrowException):
                    continue
                pytest.fail(f"{what}, {chunk.path_in_schema}: no error")


@pytest.mark.parametrize("change", [lambda content: content[:-1], lambda content: content + b"x"])
def test_a_file_of_another_size_than_in_the_log(tmp_path: Path, change: object) -> None:
    file, rows = tmp_path / "part.parquet", table()
    content = written(file, rows, "snappy")
    assert callable(change)
    file.write_bytes(change(content))
    with pytest.raises(ValueError, match=r"part\.parquet .* by the log"):
        list(reader(rows).read([FilePart(str(file), size=len(content))]))
