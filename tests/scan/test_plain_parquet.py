"""Sources that are Parquet files in place, and why others are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.log.schema import PrimitiveType, StructField, StructType
from deltamerge.scan.plain_parquet import NotPlain, PlainParquet, plain_parquet
from deltamerge.skipping.collect_statistics import parquet_statistics
from deltamerge.skipping.indexed import IndexedColumns
from deltamerge.workers.files import LOCAL_FILES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TYPES = {"k": pa.int64(), "v": pa.string()}


def source(spark: SparkSession, folder: Path, **write: bool) -> DataFrame:
    folder.mkdir()
    rows = pa.table({"k": pa.array([3, 1, 2], pa.int64()), "v": ["c", "a", "b"]})
    pq.write_table(rows, folder / "rows.parquet", **write)
    return spark.read.parquet(str(folder))


@pytest.mark.quick
def test_a_scan_of_local_files_is_plain(spark: SparkSession, tmp_path: Path) -> None:
    found = plain_parquet(source(spark, tmp_path / "s"), TYPES, ["k"], LOCAL_FILES, "/nowhere")
    assert isinstance(found, PlainParquet)
    assert (found.groups, found.ranges, found.is_whole) == (((3,),), ((1, 3),), True)


def test_strings_whose_writer_ordered_them_by_length(spark: SparkSession, tmp_path: Path) -> None:
    plain = source(spark, tmp_path / "s")
    path = tmp_path / "s" / "rows.parquet"
    own = pq.read_metadata(path).created_by.encode()
    path.write_bytes(path.read_bytes().replace(own, b"parquet-rs version 5.1.0".ljust(len(own))))
    found = plain_parquet(plain, TYPES, ["v"], LOCAL_FILES, "/nowhere")
    assert isinstance(found, NotPlain)
    assert "may have wrong statistics of the key v, as files of parquet-rs version 5.1.0" in found.reason
    assert isinstance(plain_parquet(plain, TYPES, ["k"], LOCAL_FILES, "/nowhere"), PlainParquet)
    schema = StructType(tuple(StructField(n, PrimitiveType(t)) for n, t in (("k", "long"), ("v", "string"))))
    told = json.loads(parquet_statistics(pq.read_metadata(path), schema, IndexedColumns.of(schema, (), {})))
    assert (told["minValues"], told["maxValues"]) == ({"k": 1}, {"k": 3})


@pytest.mark.quick
def test_keys_beside_other_columns(spark: SparkSession, tmp_path: Path) -> None:
    pair = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    for number, kind in enumerate((pa.list_(pair, 2), pa.list_view(pair), pa.large_list(pair))):
        folder = tmp_path / str(number)
        folder.mkdir()
        boxes = pa.array([[{"x": 1, "y": 2}, {"x": 3, "y": 4}]] * 3, kind)
        pq.write_table(pa.table({"box": boxes, "k": [1000, 3000, 2000], "v": ["a"] * 3}), folder / "rows.parquet")
        found = plain_parquet(spark.read.parquet(str(folder)), TYPES, ["k"], LOCAL_FILES, "/nowhere")
        assert isinstance(found, PlainParquet)
        assert found.ranges == ((1000, 3000),)


@pytest.mark.quick
def test_reasons_against_a_source(spark: SparkSession, tmp_path: Path) -> None:
    plain = source(spark, tmp_path / "s")
    path = tmp_path / "s" / "rows.parquet"
    without_statistics = source(spark, tmp_path / "without", write_statistics=False)
    in_partition = source(spark, tmp_path / "k=7")
    cases = [
        (plain.where("k > 1"), TYPES, "the source's plan is not a single scan of Parquet files: "),
        (spark.range(3), TYPES, "the source's plan is not a single scan of Parquet files: "),
        (plain, {**TYPES, "v": pa.int32()}, f"the source's file {path} has no column v of type int32"),
        (
            without_statistics,
            TYPES,
            f"the source's file {tmp_path}/without/rows.parquet has no statistics of the key k",
        ),
        (in_partition, TYPES, "the source's column k is the name of a folder of its files"),
    ]
    for frame, types, reason in cases:
        found = plain_parquet(frame, types, ["k"], LOCAL_FILES, "/nowhere")
        assert isinstance(found, NotPlain)
        assert found.reason.startswith(reason), found.reason
