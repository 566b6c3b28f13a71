"""A file written again: what does not change is copied, byte for byte, and every reader finds the same rows."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from deltamerge.workers.files import LOCAL_FILES, WholeParquet
from deltamerge.workers.nan_columns import nan_columns
from deltamerge.workers.parquet_footer import MAGIC, ChunkFile, Footer, footer_of, is_of_known_writer
from deltamerge.workers.parquet_patch import opened_writer, own_metadata
from deltamerge.workers.patched_file import Changed, PatchedFile
from deltamerge.workers.thrift_compact import BINARY, STRUCT, Struct, read_struct, write_struct

from .test_parquet_patch import ROWS, write

GROUP = 300
OPTIONS: list[dict[str, Any]] = [
    {},
    {"store_decimal_as_integer": True, "compression": {"id": "snappy", "text": "gzip"}},
    {"store_schema": True, "write_page_index": True, "compression": "none", "data_page_size": 500},
    {"column_encoding": {"id": "DELTA_BINARY_PACKED", "x": "BYTE_STREAM_SPLIT"}, "data_page_version": "2.0"},
]


def chunk_bytes(path: Path, group: int, name: str) -> list[bytes]:
    content = path.read_bytes()
    row_group, found = pq.ParquetFile(path).metadata.row_group(group), []
    for index in range(row_group.num_columns):
        column = row_group.column(index)
        if column.path_in_schema.partition(".")[0] == name:
            start = column.data_page_offset
            if column.has_dictionary_page:
                start = min(start, column.dictionary_page_offset)
            found.append(content[start : start + column.total_compressed_size])
    return found


def rewritten(source: Path, target: Path, changes: dict[int, pa.Table]) -> PatchedFile:
    """Writes a file again: of some row groups columns are others, and the last one loses its first row."""
    with LOCAL_FILES.whole_parquet(str(source)) as whole:
        schema, groups = whole.file.schema_arrow, whole.file.num_row_groups
        changed: list[Changed] = [changes[n].column_names if n in changes else () for n in range(groups - 1)]
        with opened_writer(LOCAL_FILES, str(target), schema, whole, [*changed, None]) as writer:
            for number in range(groups):
                rows = whole.file.read_row_group(number)
                for name in changes[number].column_names if number in changes else ():
                    place = schema.get_field_index(name)
                    rows = rows.set_column(place, schema.field(place), changes[number].column(name))
                names = writer.columns(number)
                writer.write_group(number, rows.slice(1) if number == groups - 1 else rows.select(names))
    return writer


def checked_pages(path: Path) -> int:
    """Returns how many pages the offset indexes name, each of which is where they say."""
    content, pages = path.read_bytes(), 0
    footer = Footer(lambda _: lambda first, end: content[first:end], len(content))
    for group in footer.content[4][1][1]:
        for column in group[1][1][1]:
            if 4 not in column:
                continue
            index = read_struct(content[column[4][1] : column[4][1] + column[5][1]])
            for location in index[1][1][1]:
                header = read_struct(content[location[1][1] : location[1][1] + 100_000])
                assert header[1][1] in (0, 3)
                length = location[2][1]
                assert header[3][1] < length <= header[3][1] + 200
                pages += 1
    return pages


@pytest.mark.parametrize("options", OPTIONS)
def test_columns_that_do_not_change_are_copied(tmp_path: Path, options: dict[str, Any]) -> None:
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    write(source, **options)
    ids = pa.table({"id": pa.array(range(5_000, 5_000 + GROUP), pa.int64())})
    writer = rewritten(source, target, {1: ids})
    old, new = pq.ParquetFile(source), pq.ParquetFile(target, page_checksum_verification=True)
    expected = old.read().to_pylist()
    for row, number in zip(expected[GROUP : 2 * GROUP], range(5_000, 5_000 + GROUP), strict=True):
        row["id"] = number
    del expected[3 * GROUP]
    assert list(map(repr, new.read().to_pylist())) == list(map(repr, expected))
    assert (writer.rows, writer.size) == (ROWS - 1, target.stat().st_size)
    assert new.schema.equals(old.schema)
    assert own_metadata(new) == own_metadata(old)
    assert (b"ARROW:schema" in new.metadata.metadata) == (b"ARROW:schema" in old.metadata.metadata)
    footer = pq.read_metadata(pa.BufferReader(writer.footer))
    assert footer.equals(new.metadata)
    for group in (0, 1):
        for name in old.schema_arrow.names:
            # NaN is in x, whose bounds then mean something only as PyArrow writes them.
            is_copied = name != "x" and (group, name) != (1, "id")
            assert (chunk_bytes(target, group, name) == chunk_bytes(source, group, name)) is is_copied, (group, name)
        for index in range(old.metadata.num_columns):
            before, after = (file.metadata.row_group(group).column(index) for file in (old, new))
            assert after.statistics is None or group == 1 or after.statistics.equals(before.statistics)
            assert after.has_column_index == before.has_column_index == after.has_offset_index
    assert (checked_pages(target) > 10) is bool(options.get("write_page_index"))
    # PyArrow's data set reader filters by the statistics, DuckDB by statistics and page indexes.
    found = pads.dataset(target).to_table(filter=pads.field("id") == 5_007)
    assert found.num_rows == 1
    with duckdb.connect() as connection:
        ids_of = connection.execute(f"SELECT id, small FROM '{target}' WHERE id BETWEEN 5003 AND 5004").fetchall()
        assert sorted(ids_of) == [(row["id"], row["small"]) for row in expected if row["id"] in (5_003, 5_004)]
        (count,) = connection.execute(f"SELECT count(text) FROM '{target}'").fetchone() or ()
        assert count == sum(row["text"] is not None for row in expected)


def test_columns_that_come_and_widen(tmp_path: Path) -> None:
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    pq.write_table(pa.table({"a": pa.array(range(1_000), pa.int32()), "b": ["x"] * 1_000}), source, row_group_size=400)
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.date32())])
    with (
        LOCAL_FILES.whole_parquet(str(source)) as whole,
        opened_writer(LOCAL_FILES, str(target), schema, whole, [()] * 3) as writer,
    ):
        for group in range(3):
            assert writer.columns(group) == ["a", "c"]
            rows = whole.file.read_row_group(group, ["a"])
            wide = pa.table([rows.column("a").cast(pa.int64()), pa.nulls(len(rows), pa.date32())], names=["a", "c"])
            writer.write_group(group, wide)
    assert chunk_bytes(target, 2, "b") == chunk_bytes(source, 2, "b")
    expected = [{"a": n, "b": "x", "c": None} for n in range(1_000)]
    assert pq.read_table(target).to_pylist() == expected
    assert pq.read_schema(target).types == schema.types


@pytest.mark.parametrize("numbers", [[1.5, math.nan, -2.0], [1.5, 0.25, None], [None, None, None]])
@pytest.mark.parametrize("bounds", [True, False])
def test_floating_point_numbers_need_bounds_that_hold(
    tmp_path: Path, numbers: list[float | None], bounds: bool
) -> None:
    """Statistics of the log are made of the new footer, which must not mix what writers make of NaN."""
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    rows = pa.table({"id": [1, 2, 3] * 2, "x": pa.array(numbers * 2, pa.float64())})
    pq.write_table(rows, source, row_group_size=3, write_statistics=True if bounds else ["id"])
    rewritten(source, target, {0: pa.table({"id": [7, 8, 9]})})
    has_nan = any(number is not None and math.isnan(number) for number in numbers)
    assert nan_columns(pq.read_metadata(target).metadata) == {("x",): has_nan}
    is_copied = bounds and not has_nan
    assert (chunk_bytes(target, 0, "x") == chunk_bytes(source, 0, "x")) is is_copied
    assert is_copied or pq.read_metadata(target).row_group(0).column(1).statistics.has_null_count
    assert list(map(repr, pq.read_table(target).column("x").to_pylist())) == list(map(repr, [*numbers, *numbers[1:]]))


@pytest.mark.parametrize("created_by", [b"parquet-mr version 1.8.1 (b 12)", b"impala version 2.2", b"somebody"])
def test_writers_whose_files_readers_treat_in_their_own_way(tmp_path: Path, created_by: bytes) -> None:
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}), sink, compression="none")
    own = pq.read_metadata(sink).created_by.encode()
    source.write_bytes(sink.getvalue().replace(own, created_by.ljust(len(own))))
    with (
        LOCAL_FILES.whole_parquet(str(source)) as whole,
        opened_writer(LOCAL_FILES, str(target), whole.file.schema_arrow, whole, [["id"]]) as writer,
    ):
        assert writer.columns(0) == ["id", "v"]
        writer.write_group(0, whole.file.read().set_column(0, "id", pa.array([4, 5, 6])))
    assert pq.read_table(target).to_pydict() == {"id": [4, 5, 6], "v": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("created_by", "is_known"),
    [
        ("parquet-mr version 1.15.2 (build 8e3e1c8)", True),
        ("parquet-mr version 1.10.0", True),
        ("parquet-mr version 1.9.0", False),
        ("parquet-mr version 1.8", False),
        ("parquet-cpp-arrow version 26.0.1", True),
        ("parquet-cpp version 1.5.1", False),
        ("delta-rs version py-1.6.6", True),
        ("parquet-mr compatible Photon version 0.2 (build 16.4)", True),
        ("parquet-rs version 5.1.0", False),
        ("parquet-rs version 0.17.0", False),
        ("parquet-rs version 56.2.0", True),
        ("impala version 4.0", False),
        ("", False),
        (None, False),
    ],
)
def test_known_writers(created_by: str | None, is_known: bool) -> None:
    assert is_of_known_writer(created_by) is is_known


def test_columns_whose_values_were_not_all_counted(tmp_path: Path) -> None:
    """Their counts would be those of a file that another version has written."""
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    kind = pa.list_(pa.struct([("a", pa.int64())]))
    rows = pa.table({"id": [1, 2], "s": pa.array([None, []], kind), "x": [[1], None], "t": [[{"a": "b"}], None]})
    pq.write_table(rows, source, store_schema=False)
    own = pq.read_metadata(source).created_by.encode()
    source.write_bytes(source.read_bytes().replace(own, b"parquet-cpp-arrow version 25.0.1".ljust(len(own))))
    with (
        LOCAL_FILES.whole_parquet(str(source)) as whole,
        opened_writer(LOCAL_FILES, str(target), whole.file.schema_arrow, whole, [["id"]]) as writer,
    ):
        assert writer.columns(0) == ["id", "s"]
        writer.write_group(0, pa.table({"id": [3, 4], "s": rows.column("s")}))
    assert pq.read_table(target).to_pylist() == [{**row, "id": row["id"] + 2} for row in rows.to_pylist()]


def test_names_with_dots_and_of_parts(tmp_path: Path) -> None:
    """A column may have the name of another one's field."""
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    rows = pa.table({"a": [1, 2], "a.b": ["x", "y"], "s": [{"b": 1}, None], "s.b": [5, 6], "list.element": [[1], []]})
    pq.write_table(rows, source, row_group_size=1)
    writer = rewritten(source, target, {0: pa.table({"s.b": [9]})})
    assert writer.rows == 1
    assert pq.read_table(target).to_pylist() == [{"a": 1, "a.b": "x", "s": {"b": 1}, "s.b": 9, "list.element": [1]}]


def test_a_thousand_columns(tmp_path: Path) -> None:
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    rows = pa.table({f"c{n}": np.arange(200) + n for n in range(1_000)})
    pq.write_table(rows, source, row_group_size=100, write_page_index=True)
    rewritten(source, target, {0: pa.table({"c5": np.zeros(100, np.int64)})})
    expected = rows.set_column(5, "c5", pa.array(np.concatenate([np.zeros(100, np.int64), np.arange(100, 200) + 5])))
    assert pq.read_table(target).equals(
        pa.concat_tables([expected.slice(0, 100), expected.slice(101)]).combine_chunks()
    )
    assert checked_pages(target) == 2_000


def test_a_file_that_ends_too_early(tmp_path: Path) -> None:
    """Its footer names bytes that are not there: an error, and nothing is left."""
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    pq.write_table(pa.table({"id": range(1_000), "v": ["a"] * 1_000}), source)
    content = source.read_bytes()
    source.write_bytes(content[:200] + content[-8 - int.from_bytes(content[-8:-4], "little") :])

    def patch() -> None:
        with (
            LOCAL_FILES.whole_parquet(str(source)) as whole,
            opened_writer(LOCAL_FILES, str(target), whole.file.schema_arrow, whole, [["id"]]) as writer,
        ):
            writer.write_group(0, pa.table({"id": range(1_000)}))

    with pytest.raises(ValueError, match="behind the end"):
        patch()
    assert list(tmp_path.iterdir()) == [source]


def test_what_is_requested_of_a_large_remote_file(tmp_path: Path) -> None:
    """The footer, all indexes at once, and the chunks of a row group at once."""
    sink = io.BytesIO()
    rows = pa.table({f"c{n}": np.arange(1_000) for n in range(30)})
    pq.write_table(rows, sink, row_group_size=500, write_page_index=True)
    content, alone = sink.getvalue(), list[tuple[int, int]]()

    def reader(spans: Sequence[tuple[int, int]]) -> Callable[[int, int], bytes]:
        def read(first: int, end: int) -> bytes:
            if not any(start <= first and end <= stop for start, stop in spans):
                alone.append((first, end))
            return content[first:end]

        return read

    whole = WholeParquet(pq.ParquetFile(sink), len(content), reader)
    with opened_writer(LOCAL_FILES, str(tmp_path / "new"), rows.schema, whole, [["c7"], ()]) as writer:
        for group in range(2):
            writer.write_group(group, whole.file.read_row_group(group, writer.columns(group)))
    assert len(alone) == 2
    assert pq.read_table(tmp_path / "new").equals(rows)


def patched(source: Path, target: Path, rows: pa.Table, schema: pa.Schema | None = None) -> PatchedFile:
    """Writes a file of one row group again, some columns of which change; gives what has written it."""
    with (
        LOCAL_FILES.whole_parquet(str(source)) as whole,
        opened_writer(
            LOCAL_FILES, str(target), schema or whole.file.schema_arrow, whole, [rows.column_names]
        ) as writer,
    ):
        own = whole.file.read()
        for name in set(writer.columns(0)).difference(rows.column_names):
            rows = rows.append_column(name, own.column(name))
        writer.write_group(0, rows)
    return writer


def limit_row_groups(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Makes PyArrow cut row groups as it does above 64 Mi rows."""
    write_table = pq.ParquetWriter.write_table

    def limited(writer: pq.ParquetWriter, table: pa.Table, row_group_size: int) -> None:
        write_table(writer, table, row_group_size=min(row_group_size, most))

    monkeypatch.setattr(pq.ParquetWriter, "write_table", limited)


def test_more_rows_than_a_row_group_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    pq.write_table(pa.table({"id": range(300), "v": range(300)}), source)
    changed = pa.table({"id": range(300, 600)})
    limit_row_groups(monkeypatch, 200)
    with pytest.raises(ValueError, match=r"300 rows became row groups of \[200, 100\]"):
        patched(source, target, changed)
    assert list(tmp_path.iterdir()) == [source]
    for module in ("patched_file", "table_writer"):
        monkeypatch.setattr(f"deltamerge.workers.{module}.MOST_ROWS", 200)
    assert patched(source, target, changed).rows == 300
    assert chunk_bytes(target, 0, "v") != chunk_bytes(source, 0, "v")
    assert pq.read_table(target).to_pydict() == {"id": [*range(300, 600)], "v": [*range(300)]}


def test_rows_of_another_schema_than_the_file(tmp_path: Path) -> None:
    """The levels of values depend on whether they may be NULL, so that readers would take them for others."""
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
    pq.write_table(pa.table({"id": [1], "v": [2]}, schema=schema), source)
    with pytest.raises(ValueError, match="columns id: int64, not id: int64 not null"):
        patched(source, target, pa.table({"id": [3]}))


def with_footer(path: Path, change: Callable[[Struct], Struct]) -> None:
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    footer = write_struct(change(read_struct(content[-8 - length : -8])))
    path.write_bytes(content[: -8 - length] + footer + len(footer).to_bytes(4, "little") + MAGIC)


def with_column_field(number: int, field: tuple[int, Any]) -> Callable[[Struct], Struct]:
    def change(footer: Struct) -> Struct:
        footer[4][1][1][0][1][1][1][1] |= {number: field}
        return footer

    return change


@pytest.mark.parametrize(
    "change",
    [
        with_column_field(8, (STRUCT, {1: (STRUCT, {})})),
        with_column_field(9, (BINARY, b"x")),
        with_column_field(99, (BINARY, b"x")),
        lambda footer: {**footer, 9: (BINARY, b"x")},
        lambda footer: {**footer, 8: (STRUCT, {1: (STRUCT, {})})},
    ],
)
def test_encrypted_columns_are_not_copied(tmp_path: Path, change: Callable[[Struct], Struct]) -> None:
    """Nor those of which the footer has more than is known: it might be needed to read them."""
    source = tmp_path / "old.parquet"
    pq.write_table(pa.table({"id": [1, 2], "v": ["a", "b"]}), source)
    content = pa.py_buffer(source.read_bytes())
    assert footer_of(content).has_plain_chunks
    with_footer(source, change)
    content = pa.py_buffer(source.read_bytes())
    assert not footer_of(content).has_plain_chunks


def test_columns_of_which_a_footer_has_more(tmp_path: Path) -> None:
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    pq.write_table(pa.table({"id": [1, 2], "v": ["a", "b"]}), source)
    with_footer(source, with_column_field(99, (BINARY, b"x")))
    with (
        LOCAL_FILES.whole_parquet(str(source)) as whole,
        opened_writer(LOCAL_FILES, str(target), whole.file.schema_arrow, whole, [["id"]]) as writer,
    ):
        assert writer.columns(0) == ["id", "v"]


def test_row_groups_that_were_written_leave_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of them only their page indexes are needed at the end."""
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    numbers = np.random.default_rng(1).integers(0, 1 << 60, 100_000)
    rows = pa.table({"id": numbers, "v": numbers % 3})
    pq.write_table(rows, source, row_group_size=10_000, write_page_index=True, compression="none")
    monkeypatch.setattr("deltamerge.workers.parquet_footer._WRITTEN_BYTES", 0)
    pool, kept = pa.default_memory_pool(), list[int]()
    with (
        LOCAL_FILES.whole_parquet(str(source)) as whole,
        opened_writer(LOCAL_FILES, str(target), rows.schema, whole, [["id"]] * 10) as writer,
    ):
        for group in range(10):
            ids = pa.table({"id": numbers[group * 10_000 : (group + 1) * 10_000]})
            before = pool.bytes_allocated()
            writer.write_group(group, ids)
            kept.append(pool.bytes_allocated() - before)
    assert sum(kept) < numbers.nbytes // 10
    assert pq.read_table(target).equals(rows)


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.struct([("x", pa.int32()), ("y", pa.int32())]), 2), pa.list_view(pa.struct([("x", pa.int32())]))],
)
def test_arrays_of_every_type(tmp_path: Path, kind: pa.DataType) -> None:
    source, target = tmp_path / "old.parquet", tmp_path / "new.parquet"
    one = [{"x": 1, "y": 2}, {"x": 3, "y": 4}] if pa.types.is_fixed_size_list(kind) else [{"x": 1}]
    rows = pa.table({"id": [1, 2], "v": pa.array([one, one], kind), "n": [5, 6]})
    pq.write_table(rows, source)
    writer = rewritten(source, target, {})
    assert writer.rows == 1
    assert pq.read_table(target).to_pylist() == rows.slice(1).to_pylist()


def test_row_groups_that_lack_a_column() -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema).close()
    with pytest.raises(ValueError, match="a row group has 0 column chunks, and its file 2 columns"):
        ChunkFile(io.BytesIO(), footer_of(sink.getvalue())).add(1, [])
