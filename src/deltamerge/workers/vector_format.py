"""The bytes of deletion vectors: bitmaps serialized, and packed into files with their lengths and checksums.

Source: Delta protocol, "Deletion Vector Format"; the older of the two serializations ("native") is delta-spark's
``NativeRoaringBitmapArraySerializationFormat``. Spark's Python workers run this module by value, so it imports nothing
of this package.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from pyroaring import BitMap64

FILE_FORMAT_VERSION = 1
PORTABLE_MAGIC = 1681511377
NATIVE_MAGIC = 1681511376

# Formats, not `struct.Struct`, which cannot travel to the workers.
_LITTLE_ENDIAN, _BIG_ENDIAN = "<I", ">I"
_NUMBER_BYTES = 4


class SizeMismatchError(ValueError):
    """A vector has another size than in its descriptor.

    Args:
        found: The bytes that it has.
    """

    def __init__(self, found: int) -> None:
        super().__init__(f"it has {found} bytes, but another number in the log")
        self.found = found


class ChecksumMismatchError(ValueError):
    def __init__(self) -> None:
        super().__init__("CRC checksum verification failed")


@dataclass(frozen=True)
class PackedVectors:
    """The content of a deletion vector file.

    Args:
        places: For each bitmap its offset in the file and its size, in bytes.
    """

    content: bytes
    places: tuple[tuple[int, int], ...]


def serialize(positions: BitMap64) -> bytes:
    """Return a vector's bytes: magic number and bitmap, in the portable serialization."""
    positions.run_optimize()
    return struct.pack(_LITTLE_ENDIAN, PORTABLE_MAGIC) + positions.serialize()


def deserialize(data: bytes) -> BitMap64:
    """Read a vector's bytes, in either serialization.

    Raises:
        ValueError, IndexError, struct.error: The bytes are no bitmap.
    """
    (magic,) = struct.unpack_from(_LITTLE_ENDIAN, data)
    if magic == PORTABLE_MAGIC:
        return BitMap64.deserialize(data[_NUMBER_BYTES:])
    for number in (_LITTLE_ENDIAN, _BIG_ENDIAN):
        if struct.unpack_from(number, data)[0] == NATIVE_MAGIC:
            return _deserialize_native(data, number)
    raise ValueError(f"the magic number is {magic}")


def _deserialize_native(data: bytes, number: str) -> BitMap64:
    """Read a count and for each upper half of the positions, from 0 on, a size and a 32-bit bitmap.

    Its numbers are in little-endian order; those of the protocol's own example of an inline vector are not.
    """
    (count,) = struct.unpack_from(number, data, _NUMBER_BYTES)
    at = 2 * _NUMBER_BYTES
    bitmaps = []
    for _ in range(count):
        (size,) = struct.unpack_from(number, data, at)
        at += _NUMBER_BYTES
        if at + size > len(data):
            raise ValueError("it ends within a bitmap")
        bitmaps.append(data[at : at + size])
        at += size
    # Only put together in another way: a bitmap of ten bytes may have billions of positions.
    with_keys = (struct.pack(_LITTLE_ENDIAN, upper) + bitmap for upper, bitmap in enumerate(bitmaps))
    return BitMap64.deserialize(struct.pack("<Q", count) + b"".join(with_keys))


def pack_vectors(vectors: Sequence[bytes]) -> PackedVectors:
    """Put vectors into the content of one file.

    Args:
        vectors: Bytes of `serialize`.

    Returns:
        Version, then for each vector its length, its bytes and their CRC-32. Protocol: Deletion Vector File Storage
        Format.
    """
    content, places = bytearray([FILE_FORMAT_VERSION]), []
    for data in vectors:
        places.append((len(content), len(data)))
        content += struct.pack(_BIG_ENDIAN, len(data)) + data + struct.pack(_BIG_ENDIAN, zlib.crc32(data))
    return PackedVectors(bytes(content), tuple(places))


def stored_size(size: int) -> int:
    """Return the bytes that a vector takes in a file, length and checksum included."""
    return _NUMBER_BYTES + size + _NUMBER_BYTES


def checked_data(stored: bytes, size: int) -> bytes:
    """Return a vector's own bytes.

    Args:
        stored: What is in the file at the vector's offset, `stored_size` bytes or more.

    Raises:
        SizeMismatchError: The file has another size, or ends too early.
        ChecksumMismatchError: The bytes were changed.
    """
    found = struct.unpack_from(_BIG_ENDIAN, stored)[0] if len(stored) >= _NUMBER_BYTES else 0
    if found != size or len(stored) < stored_size(size):
        raise SizeMismatchError(found)
    end = _NUMBER_BYTES + size
    data = stored[_NUMBER_BYTES:end]
    if zlib.crc32(data) != struct.unpack_from(_BIG_ENDIAN, stored, end)[0]:
        raise ChecksumMismatchError
    return data
