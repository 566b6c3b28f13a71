"""The names that VACUUM keeps, and how it rounds the retention."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any, cast

import pytest

from deltamerge.commands.vacuum import find_garbage, names_below, whole_hours
from deltamerge.spark.config import CommandConf
from deltamerge.spark.table import Table
from txn.tables import append, create


@pytest.mark.parametrize(
    ("root", "path", "name"),
    [
        ("/t", "p=1//a.parquet", "p=1/a.parquet"),
        ("/t", "./p=1/./a.parquet", "p=1/a.parquet"),
        ("/t", "/t//p=1/a.parquet", "p=1/a.parquet"),
        ("/t", "p=a:/a.parquet", "p=a:/a.parquet"),
        ("/t", "a:/a.parquet", "a:/a.parquet"),
        ("s3://b/t", "s3a://b/t/a.parquet", "a.parquet"),
        ("s3a://b/t", "s3n://b//t/./a.parquet", "a.parquet"),
        ("s3a://b", "s3://b/a.parquet", "a.parquet"),
        ("s3a://b/t", "/t/a.parquet", "a.parquet"),
        ("hdfs://nn:8020/t", "hdfs://nn/t/a.parquet", "a.parquet"),
        ("hdfs://nn/t", "hdfs:/t/a.parquet", "a.parquet"),
        ("viewfs:///t", "viewfs://cluster/t/a.parquet", "a.parquet"),
        ("/t", "file:/t/a.parquet", "a.parquet"),
        ("/t", "file:///t//a.parquet", "a.parquet"),
        ("abfss://c@n.dfs.core.windows.net/t", "abfs://c@n.dfs.core.windows.net/t/a.parquet", "a.parquet"),
        ("abfss://c@n.dfs.core.windows.net/t", "wasbs://c@n.blob.core.windows.net/t/a.parquet", "a.parquet"),
    ],
)
def test_kept_names(root: str, path: str, name: str) -> None:
    """However the log spells a live file, its name in a listing is kept."""
    assert name in set(names_below(root, [path]))


def test_a_folder_with_two_paths(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for root, other in (("link", "real"), ("real", "link")):
        for scheme in ("", "file:", "file://"):
            assert "a.parquet" in set(names_below(str(tmp_path / root), [f"{scheme}{tmp_path}/{other}/a.parquet"]))


def test_other_places() -> None:
    """Files of the same name elsewhere keep nothing."""
    paths = ["s3://other/t/a.parquet", "s3://b/t2/a.parquet", "/u/t/a.parquet"]
    assert "a.parquet" not in set(names_below("s3://b/t", paths))


def test_whole_hours() -> None:
    hours = (0, 0.1, 0.5, 1.5, 2.5, 168, -0.1, -0.5, -2)
    assert [whole_hours(hour) for hour in hours] == [0, 1, 1, 2, 3, 168, -1, -1, -2]


def test_what_a_killed_write_left(tmp_path: Path) -> None:
    """In a write's own folder hidden files are garbage, too; elsewhere, and checksums, they are not."""
    _, snapshot = append(create(tmp_path), [1])
    folder = f"deltamerge-{uuid.uuid4()}"
    left = {
        f"{folder}/part-0.parquet",
        f"{folder}/_staged/pairs-1.arrow",
        f"{folder}/_temporary/0/task_1/part-1.parquet",
        f"{folder}/.half.deltamerge.tmp",
        f"{folder}-source/staged-0.arrow",
        f"p0/{folder}/_staged/x",
        f"_change_data/{folder}/cdc-0.parquet",
    }
    others = {f"{folder}/.part-0.parquet.crc", "_mine/x.parquet", ".mine", "deltamerge-notes/_hidden"}
    for name in left | others:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, (1, 1))
    table = Table(cast("Any", None), snapshot.store, str(tmp_path))
    assert {file.path for file in find_garbage(table, None, CommandConf()).files} == left
