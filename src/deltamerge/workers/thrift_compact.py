"""Structures in Thrift's compact protocol, in which Parquet's footers are: whatever fields they have is kept.

Spark's Python workers have no Thrift library. Source: Thrift compact protocol encoding; Parquet, ``parquet.thrift``.
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, _MAP, STRUCT = range(1, 13)
# Parquet's own structures have half as many levels.
_MOST_LEVELS = 24


# Plain tuples: footers of wide tables have a hundred thousand of them.
Field: TypeAlias = tuple[int, Any]
"""A value's type, and the value; of a TRUE and a FALSE the type is the value."""
Items: TypeAlias = tuple[int, list[Any]]
"""The value of a LIST: its items' type, and the items."""
Struct: TypeAlias = dict[int, Field]
"""The fields of a structure by their ids, in ascending order."""


def read_struct(data: bytes, last: int | None = None) -> Struct:
    """Read the structure at the beginning of some bytes.

    Args:
        last: The field that is read last; None for all.

    Raises:
        ValueError: There is none, or one that Parquet does not have.
    """
    try:
        return _Reader(data).struct(0, last)
    except (IndexError, struct.error) as error:
        raise ValueError("a structure of the file's footer ends too early") from error


def write_struct(value: Struct) -> bytes:
    out = bytearray()
    _write_struct(out, value)
    return bytes(out)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, level: int, last: int | None = None) -> Struct:
        if level > _MOST_LEVELS:
            raise ValueError("a structure of the file's footer is nested too deep")
        found: Struct = {}
        number, data = 0, self._data
        while True:
            header = data[self._at]
            self._at += 1
            if not header:
                return found
            kind = header & 15
            number = number + (header >> 4) if header > 15 else self._integer()
            found[number] = kind, self._value(kind, level)
            if number == last:
                return found

    def _unsigned(self) -> int:
        data, at = self._data, self._at
        found = data[at]
        if found > 127:
            found, shift = found & 127, 7
            while (byte := data[at := at + 1]) > 127:
                found |= (byte & 127) << shift
                shift += 7
            found |= byte << shift
        self._at = at + 1
        return found

    def _integer(self) -> int:
        found = self._unsigned()
        return (found >> 1) ^ -(found & 1)

    def _bytes(self, length: int) -> bytes:
        first, self._at = self._at, self._at + length
        if self._at > len(self._data):
            raise ValueError("a string of the file's footer ends too early")
        return self._data[first : self._at]

    def _value(self, kind: int, level: int) -> Any:  # noqa: ANN401
        if I16 <= kind <= I64:
            return self._integer()
        if kind == BINARY:
            return self._bytes(self._unsigned())
        if kind == STRUCT:
            return self.struct(level + 1)
        if kind in (LIST, SET):
            return self._items(level)
        if kind in (TRUE, FALSE):
            return None
        if kind == BYTE:
            return self._bytes(1)[0]
        if kind == DOUBLE:
            return struct.unpack("<d", self._bytes(8))[0]
        raise ValueError(f"the file's footer has a value of the Thrift type {kind}")

    def _items(self, level: int) -> Items:
        header = self._bytes(1)[0]
        kind = header & 15
        count = header >> 4 if header >> 4 < 15 else self._unsigned()
        if kind in (TRUE, FALSE):
            return kind, list(self._bytes(count))
        return kind, [self._value(kind, level) for _ in range(count)]


def _write_struct(out: bytearray, value: Struct) -> None:
    last = 0
    for number, (kind, content) in value.items():
        step = number - last
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _write_integer(out, number)
        _write_value(out, kind, content)
        last = number
    out.append(0)


def _write_unsigned(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _write_integer(out: bytearray, value: int) -> None:
    _write_unsigned(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _write_value(out: bytearray, kind: int, value: Any) -> None:  # noqa: ANN401
    if kind in (I16, I32, I64):
        _write_integer(out, value)
    elif kind == BINARY:
        _write_unsigned(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        _write_items(out, value)
    elif kind == BYTE:
        out.append(value)
    elif kind == DOUBLE:
        out += struct.pack("<d", value)


def _write_items(out: bytearray, items: Items) -> None:
    kind, values = items
    out.append(min(len(values), 15) << 4 | kind)
    if len(values) >= 15:
        _write_unsigned(out, len(values))
    if kind in (TRUE, FALSE):
        out += bytes(values)
        return
    for value in values:
        _write_value(out, kind, value)
