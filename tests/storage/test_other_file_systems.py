"""File systems of which it is not known whether a rename is atomic; here Hadoop shows a folder as one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from conftest import CONNECT
from deltamerge import write_delta
from deltamerge.exceptions import DeltaTableException
from deltamerge.tables import DeltaTable

from .s3 import with_settings

_VIEW = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"


@pytest.fixture
def url(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "tables").mkdir()
    settings = {
        "fs.oss.impl": _VIEW,
        "fs.viewfs.overload.scheme.target.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "fs.viewfs.mounttable.bucket.link./tables": f"file:{tmp_path}/tables",
        "fs.viewfs.rename.strategy": "SAME_FILESYSTEM_ACROSS_MOUNTPOINT",
    }
    with with_settings(spark, settings):
        yield "oss://bucket/tables/t"


def files(tmp_path: Path) -> set[str]:
    return {path.name for path in tmp_path.rglob("*") if path.is_file()}


if not CONNECT:

    def test_nothing_is_computed_for_a_table_that_is_not_written(
        spark: SparkSession, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(DeltaTableException, match="single_writer=true"):
            write_delta(spark.range(3), url)
        assert files(tmp_path) == set()
        write_delta(spark.range(3), url, options={"single_writer": "true"})
        before = files(tmp_path)
        table = DeltaTable.forPath(spark, url)
        assert table.toDF().count() == 3
        source = spark.range(2, 5).selectExpr("id", "raise_error('computed') AS x")
        writes: list[Any] = [
            table.alias("t").merge(source.alias("s"), "t.id = s.id").whenNotMatchedInsert(values={"id": "x"}).execute,
            lambda: table.delete("id = raise_error('computed')"),
            lambda: write_delta(source.selectExpr("CAST(x AS LONG) AS id"), url, mode="append"),
        ]
        for write in writes:
            with pytest.raises(DeltaTableException, match="single_writer=true"):
                write()
        assert files(tmp_path) == before
