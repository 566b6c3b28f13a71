"""Deletion vectors' names, files and bitmaps; vectors of real tables and damaged ones."""

from __future__ import annotations

import json
import struct
import tracemalloc
import uuid
import zlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore
from pyroaring import BitMap, BitMap64

from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import AddFile, DeletionVectorDescriptor
from deltamerge.log.add_file_stats import with_wide_bounds
from deltamerge.log.features.deletion_vectors import (
    deleted_rows,
    parse_vector,
    read_deletion_vectors,
    relative_descriptor,
    vector_changes,
    vector_file_name,
    vector_path,
    with_only,
    z85_decode,
    z85_encode,
)
from deltamerge.storage.local_store import LocalStore
from deltamerge.storage.object_store import ObjectStore
from deltamerge.workers.row_blocks import BLOCK_ROWS
from deltamerge.workers.vector_blocks import blocks_of
from deltamerge.workers.vector_format import NATIVE_MAGIC, deserialize, pack_vectors, serialize

FILE_ID = uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")


def stored(folder: Path, *vectors: BitMap64) -> list[DeletionVectorDescriptor]:
    """Writes a file of vectors."""
    packed = pack_vectors([serialize(vector) for vector in vectors])
    (folder / vector_file_name(FILE_ID)).write_bytes(packed.content)
    return [
        relative_descriptor("", FILE_ID, place, len(vector))
        for place, vector in zip(packed.places, vectors, strict=True)
    ]


def read(folder: Path, vector: DeletionVectorDescriptor) -> list[int]:
    return list(read_deletion_vectors(LocalStore(str(folder)), [vector])[vector.unique_id])


def refused(folder: Path, vector: DeletionVectorDescriptor) -> str:
    with pytest.raises(DeltaTableException) as caught:
        read(folder, vector)
    return str(caught.value.getCondition())


def test_names_are_those_of_the_protocol() -> None:
    # The protocol's own examples.
    vector = DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6)
    assert vector_path(vector) == f"ab/deletion_vector_{FILE_ID}.bin"
    assert vector.unique_id == "uab^-aqEH.-t@S}K{vb[*k^@4"
    assert z85_encode(FILE_ID.bytes) == "^-aqEH.-t@S}K{vb[*k^"
    absolute = DeletionVectorDescriptor("p", "s3://mytable/deletion_vector_x%20y.bin", 4, 40, 6)
    assert vector_path(absolute) == "s3://mytable/deletion_vector_x y.bin"


@pytest.mark.parametrize("path", ["s3://elsewhere/x.bin", "hdfs://node/x.bin"])
def test_a_vector_in_another_store(tmp_path: Path, path: str) -> None:
    vector = DeletionVectorDescriptor("p", path, 1, 34, 2)
    for store in (LocalStore(str(tmp_path)), ObjectStore("s3://bucket/t", MemoryStore(), "t")):
        with pytest.raises(DeltaTableException, match="another bucket or file system") as caught:
            read_deletion_vectors(store, [vector])
        assert caught.value.error_class == "FAILED_READ_FILE.UNSUPPORTED_FILE_SYSTEM"


def test_inline_vector_is_that_of_the_protocol(tmp_path: Path) -> None:
    text = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    assert read(tmp_path, DeletionVectorDescriptor("i", text, None, 40, 6)) == [3, 4, 7, 11, 18, 29]


@given(st.binary(max_size=40).map(lambda data: data + b"x" * (-len(data) % 4)))
def test_base85_there_and_back(data: bytes) -> None:
    assert z85_decode(z85_encode(data)) == data


@given(st.uuids())
def test_uuids_there_and_back(value: uuid.UUID) -> None:
    descriptor = relative_descriptor("", value, (1, 2), 3)
    assert len(descriptor.path_or_inline_dv) == 20
    assert vector_path(descriptor) == vector_file_name(value)


@pytest.mark.parametrize("text", ["abcd", "~~~~~", "####A", "#####"])
def test_what_is_no_base85(text: str) -> None:
    with pytest.raises(ValueError, match=r"Base85|four bytes"):
        z85_decode(text)


def test_vectors_of_one_file(tmp_path: Path) -> None:
    vectors = [BitMap64([0]), BitMap64(range(100_000)), BitMap64([5, 2**32 + 1, 2**33])]
    described = stored(tmp_path, *vectors)
    found = read_deletion_vectors(LocalStore(str(tmp_path)), reversed(described))
    assert [found[vector.unique_id] for vector in described] == vectors
    assert described[0].offset == 1


def test_native_serialization(tmp_path: Path) -> None:
    parts = [BitMap([1, 70_000]), BitMap(), BitMap([3])]
    data = struct.pack("<II", NATIVE_MAGIC, len(parts))
    for part in parts:
        data += struct.pack("<I", len(part.serialize())) + part.serialize()
    vector = DeletionVectorDescriptor("u", z85_encode(FILE_ID.bytes), 1, len(data), 3)
    (tmp_path / vector_file_name(FILE_ID)).write_bytes(pack_vectors([data]).content)
    assert read(tmp_path, vector) == [1, 70_000, 2 * 2**32 + 3]


def test_rows_between_two_vectors(tmp_path: Path) -> None:
    old, new = stored(tmp_path, BitMap64([1, 5]), BitMap64([5, 7, 8]))
    file = AddFile("f", {}, 1, 1, stats='{"numRecords":10}')
    before, after = replace(file, deletion_vector=old), replace(file, deletion_vector=new)
    found = vector_changes(LocalStore(str(tmp_path)), before, after)
    left = {}
    for change_type, changed in found:
        assert changed.deletion_vector is not None
        left[change_type] = sorted({*range(10)} - {*read(tmp_path, changed.deletion_vector)})
    assert left == {"delete": [7, 8], "insert": [1]}
    store = LocalStore(str(tmp_path))
    assert [kind for kind, _ in vector_changes(store, file, after)] == ["delete"]
    assert vector_changes(store, after, after) == []


def test_damaged_files(tmp_path: Path) -> None:
    (vector,) = stored(tmp_path, BitMap64([1, 2, 3]))
    file = tmp_path / vector_file_name(FILE_ID)
    content = file.read_bytes()
    mismatch = "DELTA_DELETION_VECTOR_{}_MISMATCH"
    assert refused(tmp_path, replace(vector, cardinality=4)) == mismatch.format("CARDINALITY")
    assert refused(tmp_path, replace(vector, size_in_bytes=8)) == mismatch.format("SIZE")
    file.write_bytes(content[:-6] + b"\x00" + content[-5:])
    assert refused(tmp_path, vector) == mismatch.format("CHECKSUM")
    file.write_bytes(content[:-5])
    assert refused(tmp_path, vector) == mismatch.format("SIZE")
    file.write_bytes(b"\x07" + content[1:])
    assert refused(tmp_path, vector) == "DELTA_CANNOT_RECONSTRUCT_DELETION_VECTOR"
    file.write_bytes(b"")
    assert refused(tmp_path, vector) == "DELTA_CANNOT_RECONSTRUCT_DELETION_VECTOR"
    file.unlink()
    assert refused(tmp_path, vector) == "FAILED_READ_FILE.FILE_NOT_EXIST"


@pytest.mark.parametrize("data", [b"", b"abc", b"abcd", struct.pack("<II", NATIVE_MAGIC, 9), b"\xd1\xd39d\xff"])
def test_bytes_that_are_no_bitmap(data: bytes) -> None:
    with pytest.raises(DeltaTableException, match="cannot be read"):
        parse_vector(data, DeletionVectorDescriptor("i", "", None, len(data), 1))


@pytest.mark.parametrize(
    ("vector", "error"),
    [
        (DeletionVectorDescriptor("x", "a", 1, 1, 1), "DELTA_CANNOT_RECONSTRUCT_DELETION_VECTOR"),
        (DeletionVectorDescriptor("u", "short", 1, 1, 1), "DELTA_CANNOT_RECONSTRUCT_DELETION_VECTOR"),
        (DeletionVectorDescriptor("i", "abc", None, 1, 1), "DELTA_CANNOT_RECONSTRUCT_DELETION_VECTOR"),
        (DeletionVectorDescriptor("i", "00000", None, 8, 1), "DELTA_DELETION_VECTOR_SIZE_MISMATCH"),
    ],
)
def test_bad_descriptors(vector: DeletionVectorDescriptor, error: str, tmp_path: Path) -> None:
    assert refused(tmp_path, vector) == error


def test_wide_bounds_keep_every_number_as_it_was() -> None:
    stats = '{"numRecords":3, "minValues":{"a":1.10,"b":1E+3,"c":"x,}\\""},"tightBounds":true ,"nullCount":{"a":0}}'
    wide = with_wide_bounds(stats, 9)
    assert '{"a":1.10,"b":1E+3,"c":"x,}\\""}' in wide
    assert json.loads(wide) == {**json.loads(stats), "tightBounds": False}


@pytest.mark.parametrize("stats", [None, "", "{}", '{"numRecords": null}', "[1]", "garbage"])
def test_wide_bounds_of_a_file_without_statistics(stats: str | None) -> None:
    assert json.loads(with_wide_bounds(stats, 7)) == {"numRecords": 7, "tightBounds": False}


def test_checksum_is_that_of_the_bitmap() -> None:
    data = serialize(BitMap64([1]))
    content = pack_vectors([data]).content
    assert content == b"\x01" + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))


def run_of(rows: int, upper: int = 0) -> BitMap64:
    """A bitmap of a few bytes with very many rows."""
    positions = BitMap64()
    positions.flip_inplace(upper << 32, (upper << 32) + rows)
    positions.run_optimize()
    return positions


def test_many_rows_in_few_bytes(tmp_path: Path) -> None:
    """What a bitmap claims takes no memory before its file is known to have as many rows."""
    store = LocalStore(str(tmp_path))
    pq.write_table(pa.table({"id": range(100)}), tmp_path / "f.parquet")
    claimed = 1 << 40
    (vector,) = stored(tmp_path, run_of(1 << 30))
    for number_of_records in (100, 1 << 30, claimed, None):
        stats = None if number_of_records is None else json.dumps({"numRecords": number_of_records})
        file = AddFile("f.parquet", {}, 1, 0, stats=stats, deletion_vector=vector)
        with pytest.raises(DeltaTableException, match=r"deletes row 1073741823 of f.parquet, which has 100 rows"):
            deleted_rows(store, [file])
    tracemalloc.start()
    left = with_only(store, AddFile("f.parquet", {}, 1, 0, stats=f'{{"numRecords": {claimed}}}'), BitMap64([3]))
    lower = BitMap()
    lower.flip_inplace(0, 1 << 30)
    lower.run_optimize()
    bitmap = lower.serialize()
    native = struct.pack("<II", NATIVE_MAGIC, 3) + 3 * (struct.pack("<I", len(bitmap)) + bitmap)
    assert len(deserialize(native)) == 3 << 30
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()
    assert left.deletion_vector is not None
    assert left.deletion_vector.cardinality == 99


def test_many_rows_as_blocks() -> None:
    rows = (1 << 23) + 5
    tracemalloc.start()
    numbers, words = blocks_of(run_of(rows, upper=1))
    # A position of eight bytes for each would take 64 MiB, and what is computed of them several times as much.
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()
    assert numbers.tolist() == list(range(1 << 20, (1 << 20) + rows // BLOCK_ROWS + 1))
    assert words[: rows // 64].tolist() == [-1] * (rows // 64)
    assert words[rows // 64] == 0b11111
    assert not words[rows // 64 + 1 :].any()
