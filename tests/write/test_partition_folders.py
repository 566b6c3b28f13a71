"""Partition values that names of folders may lose: on disks that ignore case, in a Java that does not spell UTF-8."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable as DeltaRsTable
from pyspark.sql import SparkSession

from deltamerge import DeltaTable, write_delta
from deltamerge.exceptions import DeltaTableException
from deltamerge.storage.store import LocalStore
from deltamerge.write.partition_folders import PartitionFolders, folders_in, values_in, values_written
from storage.s3 import with_settings

VALUES = ["DE", "de", "Zürich", "zürich", "!4445", "a/b=c", "", "東京 100%", "?"]


def rows(folder: Path) -> set[tuple[int, str | None]]:
    table = DeltaRsTable(folder).to_pyarrow_table().to_pylist()
    return {(row["id"], row["p"]) for row in table}


@pytest.mark.sessions
@pytest.mark.parametrize("tell_case", [True, False])
def test_values(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tell_case: bool) -> None:
    monkeypatch.setattr("deltamerge.write.data_files.folders_in", lambda *_: PartitionFolders(tell_case))
    schema = "id BIGINT, p STRING"
    frame = spark.createDataFrame(list(enumerate(VALUES)), schema)
    write_delta(frame, str(tmp_path), partition_by="p", properties={"delta.enableChangeDataFeed": "true"})
    expected = {(number, value or None) for number, value in enumerate(VALUES)}
    assert rows(tmp_path) == expected
    folders = {folder.name for folder in tmp_path.glob("*/p=*")}
    assert {"p=DE", "p=!2134343435", "p=Zürich"} <= folders if tell_case else all(map(str.isascii, folders))
    assert tell_case or len(folders) == len({folder.lower() for folder in folders})
    source = frame.selectExpr("id + 5 AS id", "concat(p, 'Ü') AS p")
    merge = DeltaTable.forPath(spark, str(tmp_path)).alias("t").merge(source.alias("s"), "t.id = s.id")
    with with_settings(spark, {"spark.deltamerge.merge.executor": "classic"}):
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    expected = {(number, value or None) for number, value in enumerate(VALUES) if number < 5}
    expected |= {(number + 5, f"{value}Ü") for number, value in enumerate(VALUES)}
    assert rows(tmp_path) == expected


def test_names_of_folders() -> None:
    assert values_in("f/p=!41/a=x%2F/x.parquet", ["p", "a"]) == {"p": "!41", "a": "x/"}
    assert values_written("f/p=!41/a=x%2F/x.parquet", ["p", "a"]) == {"p": "A", "a": "x/"}
    assert values_written("x.parquet", []) == {}


@pytest.mark.parametrize("path", ["f/p=Z?rich/x.parquet", "f/p=Z\udcfcrich/x.parquet"])
def test_a_name_that_java_has_lost(path: str) -> None:
    with pytest.raises(DeltaTableException, match=r"LC_ALL=C\.UTF-8"):
        values_written(path, ["p"])


def test_a_disk_that_ignores_case(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    assert folders_in(store, "new-aB1") == PartitionFolders()
    (tmp_path / "NEW-Ab1").mkdir()
    assert folders_in(store, "new-aB1") == PartitionFolders(tell_case=False)
