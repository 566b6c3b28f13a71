"""Keys sorted into a file: a search finds the same pairs as a comparison of each with each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from deltamerge.workers import key_index
from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.key_index import KeyIndex, OpenedIndex, write_index

ROWS = 3_000
KINDS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "small": (pa.int32(), lambda n: n - 400),
    "wide": (pa.int64(), lambda n: (n - 400) * (1 << 50)),
    "date": (pa.date32(), lambda n: date.fromordinal(700_000 + n)),
    "timestamp": (pa.timestamp("us"), lambda n: datetime(1970, 1, 1 + n % 28, n % 24, 0, 0, n)),
    "string": (pa.string(), lambda n: "é" * (n % 12) + str(n // 12)),
    "binary": (pa.binary(), lambda n: b"\0" * (n % 20)),
    "decimal": (pa.decimal128(38, 2), lambda n: Decimal(n - 400) * 10**20),
    "boolean": (pa.bool_(), lambda n: n % 2 == 0),
}


def keys_of(numbers: np.ndarray[Any, Any], *kinds: str, nulls: bool = True) -> pa.Table:
    columns = {}
    for place, kind in enumerate(kinds):
        data_type, make = KINDS[kind]
        values = [None if nulls and n % 97 == 0 else make(int(n) // (place + 1)) for n in numbers]
        half = len(values) // 2
        columns[f"k{place}"] = pa.chunked_array([values[:half], values[half:]], data_type)
    return pa.table(columns)


def expected(target: pa.Table, source: pa.Table) -> list[tuple[int, int]]:
    places: dict[tuple[Any, ...], list[int]] = {}
    for row, values in enumerate(zip(*source.to_pydict().values(), strict=True)):
        if None not in values:
            places.setdefault(values, []).append(row)
    found = enumerate(zip(*target.to_pydict().values(), strict=True))
    return [(at, row) for at, values in found for row in places.get(values, ())]


def indexed(path: str, keys: pa.Table) -> KeyIndex:
    """Sorts keys, given in three parts."""
    ends = [0, len(keys) // 3, len(keys) // 2, len(keys)]
    parts = [keys.slice(first, end - first) for first, end in pairwise(ends)]
    return write_index(LOCAL_FILES, path, len(keys), lambda: parts)


def look_up(folder: Path, target: pa.Table, source: pa.Table, most: int | None = None) -> list[tuple[int, int]]:
    index = indexed(f"{folder}/keys", source)
    keys = None if index.codes.are_exact else source
    at, sources = OpenedIndex(LOCAL_FILES, index, keys).find(target, most)
    return sorted(zip(at.tolist(), sources.tolist(), strict=True))


@pytest.mark.parametrize("kinds", [*((kind,) for kind in KINDS), ("small", "date"), ("string", "wide", "decimal")])
def test_pairs_of_equal_keys(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    rng = np.random.default_rng(1)
    source = keys_of(rng.choice(900, 200), *kinds)
    target = keys_of(rng.choice(1_000, ROWS), *kinds)
    found = look_up(tmp_path, target, source)
    assert found == expected(target, source)
    assert found


@pytest.mark.parametrize("kinds", [("small",), ("string",), ("small", "string")])
def test_counts_of_rows_without_a_key_and_with_the_key_of_another(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    source = keys_of(np.random.default_rng(2).choice(300, 500), *kinds)
    index = indexed(f"{tmp_path}/keys", source)
    rows = [values for values in zip(*source.to_pydict().values(), strict=True) if None not in values]
    assert (index.without_key, index.repeated) == (len(source) - len(rows), len(rows) - len(set(rows)))
    assert index.without_key
    assert index.repeated


@pytest.mark.parametrize("kinds", [("string",), ("wide", "string")])
def test_keys_with_the_same_hash_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...]
) -> None:
    monkeypatch.setattr(key_index, "_mixed", lambda numbers: (numbers % np.uint64(3)) << np.uint64(60))
    rng = np.random.default_rng(3)
    source, target = keys_of(rng.choice(300, 90), *kinds), keys_of(rng.choice(300, 200), *kinds)
    assert look_up(tmp_path, target, source) == expected(target, source)
    repeated = indexed(f"{tmp_path}/again", source).repeated
    rows = [values for values in zip(*source.to_pydict().values(), strict=True) if None not in values]
    assert repeated == len(rows) - len(set(rows))


def test_more_rows_than_are_searched_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "_ROWS_AT_ONCE", 64)
    rng = np.random.default_rng(4)
    for kind in ("small", "string"):
        source, target = keys_of(rng.choice(900, 300), kind), keys_of(rng.choice(900, 500), kind)
        assert look_up(tmp_path, target, source) == expected(target, source)


def test_extreme_numbers(tmp_path: Path) -> None:
    ends = [-(1 << 63), -1, 0, (1 << 63) - 1]
    for values in (ends, [ends[0]], [ends[-1]], [0, 1]):
        source = pa.table({"k0": pa.chunked_array([values], pa.int64())})
        target = pa.table({"k0": pa.chunked_array([[*ends, 1, None]], pa.int64())})
        assert look_up(tmp_path, target, source) == expected(target, source)


def test_no_row_has_a_key(tmp_path: Path) -> None:
    source = pa.table({"k0": pa.chunked_array([[None, None]], pa.int64())})
    assert look_up(tmp_path, pa.table({"k0": pa.chunked_array([[0, None]], pa.int64())}), source) == []


def test_very_many_pairs_are_refused(tmp_path: Path) -> None:
    keys = pa.table({"k0": pa.chunked_array([[7] * 100], pa.int64())})
    assert len(look_up(tmp_path, keys, keys, most=10_000)) == 10_000
    with pytest.raises(ValueError, match="very many pairs"):
        look_up(tmp_path, keys, keys, most=9_999)


def test_keys_that_are_not_hashed_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="double"):
        indexed(f"{tmp_path}/keys", pa.table({"k0": pa.chunked_array([[1.0]], pa.float64())}))
