"""Structures of Parquet's footers: what is read is written again byte for byte, and damage is an error."""

from __future__ import annotations

import contextlib
import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamerge.workers.thrift_compact import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    SET,
    STRUCT,
    TRUE,
    Field,
    Struct,
    read_struct,
    write_struct,
)

INTEGERS = {I16: 15, I32: 31, I64: 63}


def fields(kinds: st.SearchStrategy[Field]) -> st.SearchStrategy[Struct]:
    return st.dictionaries(st.integers(1, 300), kinds, max_size=5).map(lambda found: dict(sorted(found.items())))


SCALARS = st.one_of(
    *(st.tuples(st.just(kind), st.integers(-(1 << bits), (1 << bits) - 1)) for kind, bits in INTEGERS.items()),
    st.binary(max_size=300).map(lambda content: (BINARY, content)),
    st.floats(allow_nan=False).map(lambda number: (DOUBLE, number)),
    st.integers(0, 255).map(lambda byte: (BYTE, byte)),
    st.sampled_from([(TRUE, None), (FALSE, None)]),
)
LISTS = st.one_of(
    st.lists(st.integers(0, 9), max_size=40).map(lambda values: (LIST, (I64, values))),
    st.lists(st.sampled_from([1, 2]), max_size=40).map(lambda values: (SET, (TRUE, values))),
    st.lists(fields(SCALARS), max_size=20).map(lambda values: (LIST, (STRUCT, values))),
)


@given(fields(st.one_of(SCALARS, LISTS, fields(SCALARS).map(lambda found: (STRUCT, found)))))
def test_what_is_written_is_read(struct: Struct) -> None:
    assert read_struct(write_struct(struct)) == struct


def footer() -> bytes:
    sink = io.BytesIO()
    rows = pa.table(
        {"a": [1, 2, None], "s": [{"x": "é", "y": [1.5]}, None, {"x": None, "y": []}], "b": [True, None, False]}
    )
    pq.write_table(rows, sink, write_page_index=True, sorting_columns=[pq.SortingColumn(0)])
    content = sink.getvalue()
    length = int.from_bytes(content[-8:-4], "little")
    return content[-8 - length : -8]


def test_a_footer_of_another_library_byte_for_byte() -> None:
    assert write_struct(read_struct(footer())) == footer()


def test_damage_is_a_value_error() -> None:
    whole, chance = footer(), random.Random(7)
    for _ in range(3_000):
        place = chance.randrange(len(whole))
        damaged = whole[:place] + bytes([chance.randrange(256)]) + whole[place + 1 :]
        damaged = damaged[: chance.randrange(len(whole))] if chance.random() < 0.3 else damaged
        with contextlib.suppress(ValueError):
            read_struct(damaged)


@pytest.mark.parametrize(
    "content", [b"", b"\x1c" * 10_000, b"\x19\xfc\xff\xff\xff\xff\x0f", b"\x1b\x01\x55\x02\x02\x00"]
)
def test_what_no_footer_has(content: bytes) -> None:
    with pytest.raises(ValueError, match="footer"):
        read_struct(content)
