"""The keys of very many rows as sorted numbers in a file, which tasks map into memory and search.

A number has a code of the key in its upper bits and the row in its lower ones. Whole numbers and dates whose ranges fit
are coded exactly, in their order; other keys are hashed, and what is found is compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.workers.files import Files
from deltamerge.workers.staged_rows import in_plain_numbers, taken

_Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
_Rows: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

_BITS = 64
_WORD = 8
_ROWS_AT_ONCE = 1 << 22
# Of the finalizer of splitmix64.
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True)
class Codes:
    """How keys become numbers.

    Args:
        bits: How many bits a row's number takes; a code has the others.
        lows: The least value of each key that is coded exactly; empty where keys are hashed.
        spans: How many values each of these may have.
    """

    bits: int
    lows: tuple[int, ...] = ()
    spans: tuple[int, ...] = ()

    @property
    def are_exact(self) -> bool:
        return bool(self.lows)

    def of(self, keys: pa.Table) -> tuple[_Numbers, _Rows]:
        """Return the codes of the rows that may equal one that is coded, in the upper bits, and these rows."""
        codes, may = np.zeros(len(keys), np.uint64), np.ones(len(keys), np.bool_)
        for place, column in enumerate(keys.columns):
            if column.null_count:
                may &= column.is_valid().to_numpy()
            if not self.are_exact:
                codes = _mixed(codes ^ _hashes(column))
                continue
            values = in_plain_numbers(column).fill_null(0).to_numpy().astype(np.int64, copy=False).view(np.uint64)
            # What is below the least value is, without a sign, above all others.
            above = values - np.int64(self.lows[place]).view(np.uint64)
            may &= above < np.uint64(self.spans[place])
            codes = codes * np.uint64(self.spans[place]) + above
        rows = np.arange(len(keys)) if may.all() else np.flatnonzero(may)
        wanted = codes if len(rows) == len(codes) else codes[rows]
        wanted = np.left_shift(wanted, np.uint64(self.bits)) if self.are_exact else np.bitwise_and(wanted, ~self.mask)
        return wanted, rows

    @property
    def mask(self) -> np.uint64:
        bits: np.uint64 = np.uint64((1 << self.bits) - 1)
        return bits


@dataclass(frozen=True)
class KeyIndex:
    """The keys of a source, sorted, in a file.

    Args:
        repeated: How many rows have the keys of another one before them.
        without_key: How many rows equal nothing.
    """

    path: str
    codes: Codes
    repeated: int
    without_key: int


Parts: TypeAlias = "Callable[[], Iterable[pa.Table]]"
"""Returns all keys by which rows are compared, part by part, each time anew; NULL equals nothing."""


def write_index(files: Files, path: str, rows: int, parts: Parts) -> KeyIndex:
    """Sort keys into a file, 8 bytes a row.

    Args:
        parts: The keys. All at a time are needed only where they are hashed, and some hashes are the same.

    Raises:
        ValueError: They are of a type that is not hashed.
    """
    codes = _codes_for(rows, parts)
    numbers, count, before = np.empty(rows, np.uint64), 0, 0
    for keys in parts():
        for first in range(0, len(keys), _ROWS_AT_ONCE):
            found, places = codes.of(keys.slice(first, _ROWS_AT_ONCE))
            numbers[count : count + len(places)] = found | (places + before + first).view(np.uint64)
            count += len(places)
        before += len(keys)
    if before != rows:
        raise ValueError(f"the source has {before} rows where it had {rows}")
    numbers = numbers[:count]
    numbers.sort()
    files.write_arrow(path, [pa.table({"key": numbers})])
    return KeyIndex(path, codes, _repeated(numbers, codes, parts), rows - len(numbers))


def _codes_for(rows: int, parts: Parts) -> Codes:
    bits = max(1, rows.bit_length())
    ranges: list[tuple[int, int] | None] = []
    for keys in parts():
        ranges = ranges or [None] * keys.num_columns
        for place, column in enumerate(keys.columns):
            kind = column.type
            if not (pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
                return Codes(bits)
            found = pc.min_max(in_plain_numbers(column)).as_py()
            if found["min"] is not None:
                low, high = ranges[place] or (found["min"], found["max"])
                ranges[place] = min(low, found["min"]), max(high, found["max"])
    lows = tuple(0 if found is None else found[0] for found in ranges)
    spans = tuple(1 if found is None else found[1] - found[0] + 1 for found in ranges)
    return Codes(bits, lows, spans) if math.prod(spans) <= 1 << (_BITS - bits) else Codes(bits)


def _repeated(numbers: _Numbers, codes: Codes, parts: Parts) -> int:
    bits = np.uint64(codes.bits)
    again = 0
    for first in range(0, len(numbers), _ROWS_AT_ONCE):
        part = numbers[first : first + _ROWS_AT_ONCE + 1] >> bits
        again += int((part[1:] == part[:-1]).sum())
    if codes.are_exact or not again:
        return again
    same = np.flatnonzero(np.diff(numbers >> bits) == 0)
    keys = pa.concat_tables(parts())
    some = keys.take(pa.array((numbers[np.union1d(same, same + 1)] & codes.mask).view(np.int64)))
    return len(some) - len(some.group_by(keys.column_names).aggregate([]))


class OpenedIndex:
    """An index that a task searches.

    Args:
        keys: The keys that it was made of, where they were hashed.
    """

    def __init__(self, files: Files, index: KeyIndex, keys: pa.Table | None) -> None:
        self._numbers: _Numbers = files.arrow(index.path)["key"].to_numpy()
        self._codes = index.codes
        self._is_unique = not index.repeated
        self._keys = keys

    def find(self, keys: pa.Table, most: int | None) -> tuple[_Rows, _Rows]:
        """Return the pairs of rows with equal keys: those of `keys`, and those that were sorted.

        Raises:
            ValueError: They are more than `most`, where that is given.
        """
        found, sources = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        pairs = 0
        for first in range(0, len(keys), self._rows_at_once):
            piece = keys.slice(first, self._rows_at_once)
            at, low, high = self._ranges(piece)
            pairs += int((high - low).sum())
            if most is not None and pairs > most:
                raise ValueError("few keys of many rows make very many pairs")
            each = at.repeat(high - low)
            ends = (high - low).cumsum()
            places = np.arange(len(each)) + (low - (ends - (high - low))).repeat(high - low)
            numbers = (self._numbers[places] & self._codes.mask).view(np.int64)
            equal = self._equal(piece, each, numbers)
            found.append(each[equal] + first)
            sources.append(numbers[equal])
        return np.concatenate(found), np.concatenate(sources)

    @property
    def _rows_at_once(self) -> int:
        # A row's number in a piece has the place of a source row's.
        return min(_ROWS_AT_ONCE, 1 << self._codes.bits)

    def _ranges(self, keys: pa.Table) -> tuple[_Rows, _Rows, _Rows]:
        """Return rows, and for each where the numbers with its code begin and end."""
        mask = self._codes.mask
        wanted, rows = self._codes.of(keys)
        # Keys in their order find their places much faster.
        wanted = np.sort(wanted | np.arange(len(rows)).view(np.uint64))
        rows, wanted = rows[(wanted & mask).view(np.int64)], wanted & ~mask
        low = np.searchsorted(self._numbers, wanted)
        inside = low < len(self._numbers)
        inside[inside] = (self._numbers[low[inside]] & ~mask) == wanted[inside]
        rows, low = rows[inside], low[inside]
        is_exact = self._is_unique and self._codes.are_exact
        high = low + 1 if is_exact else np.searchsorted(self._numbers, wanted[inside] | mask, side="right")
        return rows, low, high

    def _equal(self, keys: pa.Table, at: _Rows, sources: _Rows) -> _Rows | slice:
        if self._keys is None:
            return slice(None)
        equal = np.ones(len(at), np.bool_)
        for name in keys.column_names:
            equal &= pc.equal(taken(keys[name], at), taken(self._keys[name], sources)).to_numpy(zero_copy_only=False)
        return np.flatnonzero(equal)


def _hashes(column: Any) -> _Numbers:  # noqa: ANN401
    chunks = [_hashes_of(chunk) for chunk in column.chunks]
    return np.concatenate(chunks) if chunks else np.zeros(0, np.uint64)


def _hashes_of(values: Any) -> _Numbers:  # noqa: ANN401
    """Hash an array; values that are equal have the same hash, and NULL any."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hashes_of_bytes(values)
    if pa.types.is_decimal128(kind):
        words = np.frombuffer(values.buffers()[1], np.uint64)[2 * values.offset : 2 * (values.offset + len(values))]
        return _mixed(_mixed(words[::2].copy()) ^ words[1::2])
    if pa.types.is_boolean(kind):
        return _mixed(values.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64))
    numbers = in_plain_numbers(values)
    if not pa.types.is_integer(numbers.type):
        raise ValueError(f"keys of type {kind} are not hashed")
    return _mixed(numbers.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64))


def _hashes_of_bytes(values: Any) -> _Numbers:  # noqa: ANN401
    """Hash strings, eight bytes of all at a time."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    begins, lengths = offsets[:-1].astype(np.int64) - offsets[0], np.diff(offsets).astype(np.int64)
    bytes_of = np.frombuffer(values.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    padded = np.concatenate((bytes_of, np.zeros(_WORD, np.uint8)))
    words: _Numbers = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded.data, strides=(1,))
    hashes = _mixed(lengths.view(np.uint64))
    rows, done = np.flatnonzero(lengths > 0), 0
    while len(rows):
        word, left = words[begins[rows] + done], np.minimum(lengths[rows] - done, _WORD)
        word &= np.uint64((1 << _BITS) - 1) >> (_WORD * (_WORD - left)).view(np.uint64)
        hashes[rows] = _mixed(hashes[rows] ^ word)
        done += _WORD
        rows = rows[lengths[rows] > done]
    return hashes


def _mixed(numbers: _Numbers) -> _Numbers:
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _FACTORS[0]
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _FACTORS[1]
    mixed: _Numbers = numbers ^ (numbers >> np.uint64(31))
    return mixed
