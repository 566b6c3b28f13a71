"""Small tables for tests, and what can be seen of them from outside."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable as DeltaRs

from deltamerge import write_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONNECT = os.environ.get("DELTAMERGE_TEST_MODE") == "connect"
EXECUTOR = "spark.deltamerge.merge.executor"
# Of how many bytes merges are done by the driver alone.
DRIVER_BYTES = "spark.deltamerge.merge.driverBytes"
_MADE: dict[str, TemporaryDirectory[str]] = {}
VECTORS = {"delta.enableDeletionVectors": "true"}


def made_once(path: Path, made: str, make: Callable[[str], object]) -> str:
    """Makes a table the first time that a process wants it, and copies it from then on.

    A Delta log names its files relative to the table, so a copy of the folder is a table.

    Args:
        path: Where the table is wanted.
        made: Tells it from all other tables.
        make: Makes it in a folder.
    """
    if made not in _MADE:
        _MADE[made] = TemporaryDirectory(prefix="deltamerge-table-")
        make(_MADE[made].name)
    return str(shutil.copytree(_MADE[made].name, path))


def people(spark: SparkSession, path: Path, **options: Any) -> str:
    """Makes a table of three people in two files, ids 1 to 3."""
    schema = "id INT, name STRING, age INT"

    def make(folder: str) -> None:
        first = spark.createDataFrame([(1, "ann", 30), (2, "bob", 40)], schema)
        write_delta(first.coalesce(1), folder, **options)
        write_delta(spark.createDataFrame([(3, "cy", 50)], schema).coalesce(1), folder, mode="append")

    return made_once(path, f"people {options}", make)


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Gives a frame's rows in order."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def files_below(path: str | Path) -> set[str]:
    """Gives every file below a table's folder, the log's too."""
    return {str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_file()}


def folders_below(path: str | Path) -> set[str]:
    """Gives every folder below a table's folder."""
    return {str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_dir()}


def commit(path: str | Path, version: int) -> list[dict[str, Any]]:
    """Reads the actions of a commit."""
    text = Path(path, "_delta_log", f"{version:020d}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def commit_info(path: str | Path, version: int | None) -> dict[str, Any]:
    """Reads the commitInfo of a commit."""
    assert version is not None
    return next(action["commitInfo"] for action in commit(path, version) if "commitInfo" in action)


def actions(path: str | Path, version: int | None, kind: str) -> list[dict[str, Any]]:
    """Reads the actions of one kind of a commit."""
    assert version is not None
    return [action[kind] for action in commit(path, version) if kind in action]


def edited(path: str | Path, version: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrites the adds of a commit, as another writer might have written them."""
    file = Path(path, "_delta_log", f"{version:020d}.json")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            change(line["add"])
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    delete_checksums(path)


def delete_checksums(path: str | Path) -> None:
    """Deletes the version checksums, with which an edited log does not agree."""
    for file in Path(path, "_delta_log").glob("[0-9]*.crc"):
        file.unlink()


def claim_rows(path: str | Path, version: int, rows: int) -> None:
    """Makes the log say of the files that a commit added that they have so many rows."""
    edited(
        path,
        version,
        lambda add: add.update(stats=json.dumps({**json.loads(add["stats"]), "numRecords": rows})),
    )


def latest_version(path: str | Path) -> int:
    """Gives the number of the newest commit."""
    return max(int(name.stem) for name in Path(path, "_delta_log").glob(f"{'[0-9]' * 20}.json"))


def frame(spark: SparkSession, schema: str, values: Iterable[tuple[Any, ...]]) -> DataFrame:
    """Makes a frame of one partition."""
    return spark.createDataFrame(list(values), schema)


def changes(path: str | Path, version: int | None) -> list[dict[str, Any]]:
    """Reads the change data of a version as delta-rs reads it."""
    assert version is not None
    return pa.table(DeltaRs(str(path)).load_cdf(starting_version=version).read_all()).to_pylist()
