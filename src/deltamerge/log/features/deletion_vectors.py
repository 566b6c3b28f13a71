"""Deletion vectors: descriptors and files into bitmaps of row positions, and back.

Source: Delta protocol, "Deletion Vector Descriptor Schema".
"""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from operator import or_

from pyroaring import BitMap64

from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import AddFile, DeletionVectorDescriptor
from deltamerge.log.add_file_stats import footer_rows, record_count
from deltamerge.log.paths import decode_path, names_no_file_of_table
from deltamerge.storage.store import Store, in_parallel
from deltamerge.storage.stored_file import is_in_store_of
from deltamerge.workers.vector_format import (
    FILE_FORMAT_VERSION,
    ChecksumMismatchError,
    SizeMismatchError,
    checked_data,
    deserialize,
    serialize,
    stored_size,
)

# As many rows take 16 MiB as bits.
_MOST_CLAIMED = 1 << 27
# Base85 in ZeroMQ's alphabet (RFC 32), as the names of vector files and inline vectors are encoded.
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_DIGITS = {char: digit for digit, char in enumerate(_Z85)}
_UUID_LENGTH = 20


def vector_file_name(file_id: uuid.UUID) -> str:
    return f"deletion_vector_{file_id}.bin"


def relative_descriptor(
    folder: str, file_id: uuid.UUID, place: tuple[int, int], cardinality: int
) -> DeletionVectorDescriptor:
    """Describe a vector in a file below the table's root.

    `folder` is the file's, relative to the root; `place` is the vector's offset and size.
    """
    return DeletionVectorDescriptor("u", folder + z85_encode(file_id.bytes), *place, cardinality)


def vector_path(vector: DeletionVectorDescriptor) -> str | None:
    """Return the real name of the file that holds a vector; None for an inline vector."""
    kind, encoded = vector.storage_type, vector.path_or_inline_dv
    if kind == "i":
        return None
    if kind == "p":
        return decode_path(encoded)
    if kind != "u":
        raise _unreadable(vector, f"its storage type is {kind!r}; known are u, p and i")
    if names_no_file_of_table(encoded[:-_UUID_LENGTH]):
        raise _unreadable(vector, "its file is not in the table's folder")
    try:
        return _decoded_path(encoded)
    except ValueError as error:
        raise _unreadable(vector, str(error)) from error


def _decoded_path(encoded: str) -> str:
    prefix, file_id = encoded[:-_UUID_LENGTH], encoded[-_UUID_LENGTH:]
    name = vector_file_name(uuid.UUID(bytes=z85_decode(file_id)))
    return f"{prefix}/{name}" if prefix else name


def read_deletion_vectors(store: Store, vectors: Iterable[DeletionVectorDescriptor]) -> dict[str, BitMap64]:
    """Return the deleted positions by the descriptors' `unique_id`; each file is opened once."""
    by_path: dict[str | None, dict[str, DeletionVectorDescriptor]] = defaultdict(dict)
    for vector in vectors:
        by_path[vector_path(vector)][vector.unique_id] = vector
    found = {key: parse_vector(_inline_data(vector), vector) for key, vector in by_path.pop(None, {}).items()}

    def read(item: tuple[str | None, dict[str, DeletionVectorDescriptor]]) -> dict[str, BitMap64]:
        path, wanted = item
        assert path is not None
        if not is_in_store_of(store.root, path):
            raise _in_another_store(store, path)
        return _read_file(store, path, wanted)

    return reduce(or_, in_parallel(read, by_path.items()), found)


def deleted_rows(store: Store, files: Iterable[AddFile]) -> dict[str, BitMap64]:
    """Return the deleted positions of files that have a deletion vector; see `read_deletion_vectors`.

    Raises:
        DeltaTableException: A vector is damaged, or deletes rows that its file does not have: in a bitmap of ten bytes
            there may be billions, which nobody may expand.
    """
    with_vectors = [(file, file.deletion_vector) for file in files if file.deletion_vector is not None]
    found = read_deletion_vectors(store, (vector for _, vector in with_vectors))
    for file, vector in with_vectors:
        positions = found[vector.unique_id]
        if len(positions) and positions.max() >= (rows := checked_rows(store, file, positions.max())):
            raise _corrupt(
                "DELTA_DELETION_VECTOR_INVALID_ROW_INDEX",
                f"Deletion vector integrity check failed: {_name(vector)} deletes row {positions.max()} of "
                f"{file.path}, which has {rows} rows.",
            )
    return found


def checked_rows(store: Store, file: AddFile, last: int = 0) -> int:
    """Return the rows of a data file; by its footer where the log claims very many, or none at position `last`."""
    rows = record_count(file)
    return footer_rows(store, file) if rows is None or rows > _MOST_CLAIMED or last >= rows else rows


def parse_vector(data: bytes, vector: DeletionVectorDescriptor) -> BitMap64:
    """Return the deleted positions of a vector.

    `data` has magic number and bitmap, without length and checksum.
    """
    try:
        positions = deserialize(data)
    except (ValueError, IndexError, struct.error) as error:
        raise _unreadable(vector, str(error)) from error
    if len(positions) != vector.cardinality:
        raise _corrupt(
            "DELTA_DELETION_VECTOR_CARDINALITY_MISMATCH",
            f"Deletion vector integrity check failed: {_name(vector)} deletes {len(positions)} rows, in the log "
            f"{vector.cardinality}.",
        )
    return positions


def deleted_positions(file: AddFile, vectors: Mapping[str, BitMap64]) -> BitMap64:
    return BitMap64() if file.deletion_vector is None else vectors[file.deletion_vector.unique_id]


def vector_changes(store: Store, before: AddFile, after: AddFile) -> list[tuple[str, AddFile]]:
    """Return the rows that another deletion vector deletes from a file or restores.

    Returns:
        ``delete`` and ``insert``, where there are such rows, each with the file and an inline vector that leaves
        just these rows.
    """
    vectors = (file.deletion_vector for file in (before, after) if file.deletion_vector is not None)
    found = read_deletion_vectors(store, vectors)
    old, new = deleted_positions(before, found), deleted_positions(after, found)
    return [
        (change_type, with_only(store, after, rows))
        for change_type, rows in (("delete", new - old), ("insert", old - new))
        if rows
    ]


def with_only(store: Store, file: AddFile, positions: BitMap64) -> AddFile:
    """Return a file with an inline vector that leaves just some of its rows."""
    others = BitMap64(range(checked_rows(store, file))) - positions
    data = serialize(others)
    encoded = z85_encode(data + bytes(-len(data) % 4))
    return replace(file, deletion_vector=DeletionVectorDescriptor("i", encoded, None, len(data), len(others)))


def _inline_data(vector: DeletionVectorDescriptor) -> bytes:
    try:
        data = z85_decode(vector.path_or_inline_dv)
    except ValueError as error:
        raise _unreadable(vector, str(error)) from error
    # The vector was filled up to whole groups.
    if len(data) - 3 > vector.size_in_bytes or len(data) < vector.size_in_bytes:
        raise _size_mismatch(vector, len(data))
    return data[: vector.size_in_bytes]


def _read_file(store: Store, path: str, vectors: dict[str, DeletionVectorDescriptor]) -> dict[str, BitMap64]:
    try:
        with store.open_input(path) as file:
            version = file.read(1)
            if version != bytes([FILE_FORMAT_VERSION]):
                first = next(iter(vectors.values()))
                raise _unreadable(first, f"the file's format version is {version[0] if version else 'missing'}")
            found = {}
            for key, vector in sorted(vectors.items(), key=lambda item: item[1].offset or 1):
                file.seek(1 if vector.offset is None else vector.offset)
                stored = file.read(stored_size(vector.size_in_bytes))
                found[key] = parse_vector(_stored_data(stored, vector), vector)
            return found
    except FileNotFoundError as error:
        raise DeltaTableException(
            "FAILED_READ_FILE.FILE_NOT_EXIST",
            f"The deletion vector file {store.absolute(path)} does not exist. It may have been removed by a vacuum "
            "or by hand: which rows of its data files are deleted is lost with it. Restore it.",
            parameters={"path": store.absolute(path)},
        ) from error


def _in_another_store(store: Store, path: str) -> DeltaTableException:
    return DeltaTableException(
        "FAILED_READ_FILE.UNSUPPORTED_FILE_SYSTEM",
        f"The deletion vector file {path} is in another bucket or file system than its table {store.root}, from where "
        "it is not read. If the table is a shallow clone, clone its source again once REORG TABLE … APPLY (PURGE) has "
        "removed the source's deletion vectors, or clone it into the same bucket.",
        parameters={"path": path},
    )


def _stored_data(stored: bytes, vector: DeletionVectorDescriptor) -> bytes:
    try:
        return checked_data(stored, vector.size_in_bytes)
    except SizeMismatchError as error:
        raise _size_mismatch(vector, error.found) from error
    except ChecksumMismatchError as error:
        raise _corrupt(
            "DELTA_DELETION_VECTOR_CHECKSUM_MISMATCH",
            f"Could not verify deletion vector integrity, CRC checksum verification failed: {_name(vector)}.",
        ) from error


def _size_mismatch(vector: DeletionVectorDescriptor, found: int) -> DeltaTableException:
    return _corrupt(
        "DELTA_DELETION_VECTOR_SIZE_MISMATCH",
        f"Deletion vector integrity check failed: {_name(vector)} has {found} bytes, in the log "
        f"{vector.size_in_bytes}.",
    )


def _unreadable(vector: DeletionVectorDescriptor, why: str) -> DeltaTableException:
    return _corrupt("DELTA_CANNOT_RECONSTRUCT_DELETION_VECTOR", f"{_name(vector)} cannot be read: {why}.")


def _corrupt(error_class: str, message: str) -> DeltaTableException:
    return DeltaTableException(
        error_class,
        f"{message} Which rows are deleted is not known, so nothing was read; restore the vector's file, or the "
        "table to a version without it.",
    )


def _name(vector: DeletionVectorDescriptor) -> str:
    if vector.storage_type == "i":
        return f"the inline deletion vector {vector.path_or_inline_dv[:40]}"
    at = "" if vector.offset is None else f" at offset {vector.offset}"
    name = f"{vector.storage_type}:{vector.path_or_inline_dv}"
    if vector.storage_type == "u":
        with suppress(ValueError):
            name = _decoded_path(vector.path_or_inline_dv)
    return f"the deletion vector{at} of {name}"


def z85_encode(data: bytes) -> str:
    """Encode bytes, their number a multiple of 4, as five characters for every four."""
    numbers = (int.from_bytes(data[start : start + 4], "big") for start in range(0, len(data), 4))
    return "".join(_Z85[number // 85**power % 85] for number in numbers for power in (4, 3, 2, 1, 0))


def z85_decode(string: str) -> bytes:
    if len(string) % 5:
        raise ValueError(f"a Base85 string has groups of five characters, not {len(string)} characters")
    data = bytearray()
    for start in range(0, len(string), 5):
        number = 0
        for char in string[start : start + 5]:
            if char not in _Z85_DIGITS:
                raise ValueError(f"{char!r} is no character of Base85")
            number = number * 85 + _Z85_DIGITS[char]
        if number >> 32:
            raise ValueError(f"{string[start : start + 5]!r} is more than four bytes")
        data += number.to_bytes(4, "big")
    return bytes(data)
