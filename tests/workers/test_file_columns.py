"""Columns of Parquet files as a table has them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.workers.file_columns import Asked, read_columns, read_row_groups
from deltamerge.workers.files import LOCAL_FILES

ID, NAME = pa.struct([("id", pa.int64())]), pa.struct([("deep", pa.struct([("name", pa.string())]))])


@pytest.fixture
def path(tmp_path: Path) -> str:
    kind = pa.struct([("id", pa.int32()), ("deep", pa.struct([("name", pa.string()), ("rest", pa.string())]))])
    column = pa.array([{"id": 1, "deep": {"name": "a", "rest": "x" * 1000}}, None, {"id": 3, "deep": None}], kind)
    pq.write_table(pa.table({"k": column}), tmp_path / "a", compression="none")
    return str(tmp_path / "a")


@pytest.mark.quick
def test_of_a_struct_only_the_wanted_fields_are_read(path: str) -> None:
    footer = pq.read_metadata(path).row_group(0)
    (rest,) = (footer.column(at) for at in range(3) if footer.column(at).path_in_schema == "k.deep.rest")
    content = bytearray(Path(path).read_bytes())
    first = rest.dictionary_page_offset
    content[first : first + rest.total_compressed_size] = bytes(rest.total_compressed_size)
    Path(path).write_bytes(content)
    asked: Asked = {"id": ("k", ID), "name": ("k", NAME)}
    expected = {"id": [{"id": 1}, None, {"id": 3}], "name": [{"deep": {"name": "a"}}, None, {"deep": None}]}
    assert read_columns(LOCAL_FILES, path, {}, asked).to_pydict() == expected
    ((_, rows),) = read_row_groups(LOCAL_FILES, path, {}, asked, lambda *_: True)
    assert rows.to_pydict() == expected


@pytest.mark.quick
@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("id", pa.int64()), ("DEEP", pa.struct([("name", pa.string())]))]),
        pa.struct([("id", pa.int64()), ("deep", pa.struct([("name", pa.int64())]))]),
        pa.list_(pa.int64()),
    ],
)
def test_fields_that_are_not_the_tables(kind: pa.DataType, path: str) -> None:
    with pytest.raises(ValueError, match="its type is"):
        read_columns(LOCAL_FILES, path, {}, {"k": ("k", kind)})


@pytest.mark.quick
def test_fields_that_a_file_lacks(path: str) -> None:
    kind = pa.struct([("new", pa.int64())])
    found = read_columns(LOCAL_FILES, path, {}, {"k": ("k", kind)})
    assert found.to_pydict() == {"k": [{"new": None}, None, {"new": None}]}
