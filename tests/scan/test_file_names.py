"""Data files whose names Spark spells otherwise, or passes over."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltamerge import DeltaTable, write_delta
from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import AddFile
from deltamerge.scan.missing_files import refuse_hidden_files, refuse_other_spelling
from deltamerge.storage.hadoop_store import HadoopStore
from deltamerge.storage.task_files import NotOpened


@pytest.mark.quick
def test_hidden_names(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would read them as if they had no rows."""
    write_delta(spark.range(3).coalesce(1), str(tmp_path))
    log = tmp_path / "_delta_log" / "00000000000000000000.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    add = next(line["add"] for line in lines if "add" in line)
    (tmp_path / add["path"]).rename(tmp_path / "_part-1.parquet")
    add["path"] = "_part-1.parquet"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for crc in log.parent.glob("*.crc"):
        crc.unlink()
    table = DeltaTable.forPath(spark, str(tmp_path))
    with pytest.raises(DeltaTableException, match="Spark reads no file whose name"):
        table.toDF()
    for name, is_hidden in ((".a.parquet", True), ("a._COPYING_", True), ("_a=b.parquet", False), ("a.parquet", False)):
        files = [AddFile(f"folder/{name}", {}, 1, 1, data_change=True)]
        if is_hidden:
            with pytest.raises(DeltaTableException):
                refuse_hidden_files(table.table, files)
        else:
            refuse_hidden_files(table.table, files)


@pytest.mark.quick
def test_another_host(spark: SparkSession, tmp_path: Path) -> None:
    """What belongs to a file finds its rows by its name, in which Spark may have another host."""
    write_delta(spark.range(3).coalesce(1), str(tmp_path))
    table = DeltaTable.forPath(spark, str(tmp_path)).table
    files, frame = list(table.snapshot().files.add_files()), DeltaTable.forPath(spark, str(tmp_path)).toDF()
    system: Any = None
    for root, is_refused in ((f"hdfs://nn{tmp_path}", True), (f"file://{tmp_path}", False)):
        store = HadoopStore(root, system, NotOpened("not needed"))
        if is_refused:
            with pytest.raises(DeltaTableException, match="hdfs://nn/… was"):
                refuse_other_spelling(replace(table, store=store), frame, files)
        else:
            refuse_other_spelling(replace(table, store=store), frame, files)
