"""Bounds in footers whose writers compared values in another order than theirs: no statistics come of them."""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.log.schema import PrimitiveType, StructField, StructType
from deltamerge.scan.plain_parquet import PlainParquet, _looked_at
from deltamerge.skipping.collect_statistics import parquet_statistics
from deltamerge.skipping.indexed import IndexedColumns
from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.thrift_compact import BINARY, read_struct, write_struct

pytestmark = pytest.mark.quick
_HIGH, _LOW = 5, 6


def written(values: Sequence[Any], kind: pa.DataType, created_by: str, bounds: tuple[bytes, bytes]) -> bytes:
    """Gives a file of one column `a` as another writer made it, with the bounds that it put there."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array(values, kind)}), buffer)
    content = buffer.getvalue()
    length = int.from_bytes(content[-8:-4], "little")
    footer = read_struct(content[-8 - length : -8])
    footer[6] = (BINARY, created_by.encode())
    for column in footer[4][1][1][0][1][1][1]:
        statistics = column[3][1][12][1]
        statistics[_LOW], statistics[_HIGH] = ((BINARY, bound) for bound in bounds)
        column[3][1][12] = (column[3][1][12][0], dict(sorted(statistics.items())))
    described = write_struct(dict(sorted(footer.items())))
    return content[: -8 - length] + described + len(described).to_bytes(4, "little") + b"PAR1"


def told(content: bytes, type_name: str) -> tuple[Any, Any]:
    """Gives the bounds that are collected of a file."""
    schema = StructType((StructField("a", PrimitiveType(type_name)),))
    found = parquet_statistics(pq.read_metadata(io.BytesIO(content)), schema, IndexedColumns.of(schema, (), {}))
    stats = json.loads(found, parse_float=Decimal)
    return stats["minValues"].get("a"), stats["maxValues"].get("a")


def decimal(unscaled: int) -> bytes:
    return unscaled.to_bytes(16, "big", signed=True)


@pytest.mark.parametrize(
    ("created_by", "is_right"),
    [
        ("Polars", False),
        ("Arrow2 - Native Rust implementation of Arrow", False),
        ("parquet-cpp-arrow version 3.0.0", False),
        ("parquet-cpp-arrow version 4.0.1", True),
        ("parquet-cpp-arrow version 26.0.0", True),
        ("parquet-cpp version 1.5.1-SNAPSHOT", False),
        ("parquet-mr version 1.8.3 (build x)", False),
        ("parquet-mr version 1.10.1 (build x)", True),
        ("parquet-rs version 9.0.2", False),
        ("parquet-rs version 57.1.0", True),
        ("delta-rs version py-1.6.6", True),
        ("DuckDB version v1.2.0 (build x)", True),
        ("somebody version 7", False),
        ("", False),
    ],
)
def test_decimals_in_bytes(tmp_path: Path, created_by: str, is_right: bool) -> None:
    kind, values = pa.decimal128(38, 2), [Decimal("0.01"), Decimal("3.83"), Decimal("3.84")]
    # 3.83 is 0x017F and 3.84 is 0x0180, whose last byte is negative where each byte has a sign.
    bounds = decimal(1), decimal(384 if is_right else 383)
    content = written(values, kind, created_by, bounds)
    assert told(content, "decimal(38,2)") == ((values[0], values[-1]) if is_right else (None, None))
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    found = _looked_at(LOCAL_FILES, str(path), {"a": kind}, ["a"])
    if is_right:
        assert isinstance(found, PlainParquet)
        assert found.ranges == ((values[0], values[-1]),)
    else:
        assert isinstance(found, str)
        assert "may have wrong statistics of the key a" in found


def test_a_minimum_above_the_maximum(tmp_path: Path) -> None:
    content = written([1, 2], pa.int64(), "somebody version 7", (struct.pack("<q", 2), struct.pack("<q", 1)))
    assert told(content, "long") == (None, None)
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    assert _looked_at(LOCAL_FILES, str(path), {"a": pa.int64()}, ["a"]) == "has no statistics of the key a"


@pytest.mark.parametrize(
    ("values", "bounds", "minor", "expected"),
    [
        ([math.nan, 1.0, 2.0], (math.nan, math.nan), 8, (None, None)),
        ([1.0, math.nan, 2.0], (1.0, 2.0), 8, (1, None)),
        ([1.0, math.nan, 2.0], (1.0, math.nan), 10, (1, "NaN")),
        ([1.0, 2.0], (1.0, 2.0), 17, (1, 2)),
        ([1.0, 2.0], (1.0, 2.0), 18, (1, None)),
    ],
)
def test_nan_in_files_of_parquet_mr(
    values: list[float], bounds: tuple[float, float], minor: int, expected: tuple[Any, Any]
) -> None:
    low, high = (struct.pack("<d", bound) for bound in bounds)
    content = written(values, pa.float64(), f"parquet-mr version 1.{minor}.3 (build x)", (low, high))
    assert told(content, "double") == expected


@pytest.mark.parametrize("type_name", ["double", "string", "date", "decimal(10,2)"])
def test_columns_of_another_type_have_no_bounds(type_name: str) -> None:
    one, two = (struct.pack("<i", number) for number in (1, 2))
    assert told(written([1, 2], pa.int32(), "parquet-mr version 1.13.1", (one, two)), type_name) == (None, None)
