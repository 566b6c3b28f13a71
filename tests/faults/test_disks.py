"""A disk that is full, and one that may only be read: an error, the table as it was, and no rest once that is over."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from combinations import some
from merge.tables import EXECUTOR, files_below, latest_version

from .test_killed_merge import CASES, NEW, OLD, merge, read, strays, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one MB, where the machine lets us mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root may mount")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("case", some(CASES, 2))
def test_full(spark: SparkSession, disk: Path, case: str) -> None:
    executor, properties = CASES[case]
    path = table(spark, disk / "t", properties)
    spark.conf.set(EXECUTOR, executor)
    filler = disk / "filler"
    with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with pytest.raises(Exception, match=r"(?i)no space left"):
        merge(spark, path).run()
    assert (read(path), latest_version(path)) == (OLD, 0)
    filler.unlink()
    assert not strays(path)
    merge(spark, path).run()
    assert read(path) == NEW
    assert not strays(path)


@pytest.mark.parametrize("case", ["vectors", "classic"])
def test_read_only(spark: SparkSession, disk: Path, case: str) -> None:
    executor, properties = CASES[case]
    path = table(spark, disk / "t", properties)
    spark.conf.set(EXECUTOR, executor)
    before = files_below(path)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(Exception, match=r"(?i)read-only|mkdirs|permission|cannot create"):
        merge(spark, path).run()
    subprocess.run(["mount", "-o", "remount,rw,size=1m", disk], check=True)
    assert (read(path), files_below(path)) == (OLD, before)
    merge(spark, path).run()
    assert read(path) == NEW
