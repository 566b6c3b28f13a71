"""A data file that holds none of the table's columns is an error."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import AddFile, Metadata
from deltamerge.log.features.column_mapping import MAX_COLUMN_ID
from deltamerge.scan import column_presence
from deltamerge.scan.column_presence import check_columns, check_footers, expected_columns
from deltamerge.spark.table import Table
from deltamerge.storage.store import open_store


def physical(name: str) -> str:
    return f"col-{uuid.uuid5(uuid.NAMESPACE_URL, name)}"


def of_table(*partition_columns: str, last_id: int = 0) -> Metadata:
    return Metadata("t", partition_columns=partition_columns, configuration={MAX_COLUMN_ID: str(last_id)})


def column(name: str, number: int | None = None) -> StructField:
    found = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical(name)}
    return StructField(name, IntegerType(), True, {} if number is None else found)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(cast(Any, None), open_store(str(tmp_path)), "the table")


def file(table: Table, *names: str, stats: list[str] | None = None) -> AddFile:
    path = "-".join(names) + ".parquet"
    pq.write_table(pa.table({name: pa.array([1], pa.int32()) for name in names}), Path(table.store.root) / path)
    counts = None if stats is None else json.dumps({"numRecords": 1, "nullCount": dict.fromkeys(stats, 0)})
    return AddFile(path, {}, 1, 1, True, stats=counts)


PLAIN = StructType([column("a"), column("b"), column("p")])
MAPPED = StructType([column("p", 1), column("a", 2), column("b", 3)])


@pytest.mark.parametrize("stats", [["x"], None])
def test_a_file_without_any_column(stats: list[str] | None, table: Table) -> None:
    with pytest.raises(DeltaTableException, match=r"x\.parquet has none of .* `a`, `b`.* columns are `x`") as raised:
        check_columns(table, expected_columns(PLAIN, of_table("p"), "none"), [file(table, "x", stats=stats)])
    assert raised.value.getCondition() == "DELTAMERGE_FILE_WITHOUT_COLUMNS"


@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_file_that_has_only_logical_names(mode: str, table: Table) -> None:
    with pytest.raises(DeltaTableException, match="DELTAMERGE_FILE_WITHOUT_COLUMNS"):
        check_columns(table, expected_columns(MAPPED, of_table("p"), mode), [file(table, "a", "b", stats=["a", "b"])])


@pytest.mark.parametrize("names", [("b", "other"), ("A",), ("b",)])
def test_one_column_is_enough(names: tuple[str, ...], table: Table) -> None:
    """Whatever its statistics name: the file was written before the other columns were added."""
    for stats in (None, ["other"], list(names)):
        check_columns(table, expected_columns(PLAIN, of_table("p"), "none"), [file(table, *names, stats=stats)])


def test_where_all_old_columns_were_dropped(table: Table) -> None:
    left = StructType([column("p", 1), column("b", 3)])
    check_columns(
        table, expected_columns(left, of_table("p"), "name"), [file(table, physical("a"), stats=[physical("a")])]
    )
    added_later = StructType([column("p", 1), column("a", 2), column("c", 4)])
    with pytest.raises(DeltaTableException, match="DELTAMERGE_FILE_WITHOUT_COLUMNS"):
        check_columns(table, expected_columns(added_later, of_table("p"), "name"), [file(table, "x", stats=["x"])])


def test_ids_of_columns_from_before_the_mapping() -> None:
    """They say nothing about the age of these columns, but that those which came later are younger."""

    def expected(*ids: int, last_id: int = 3) -> tuple[str, ...]:
        before = {"delta.columnMapping.physicalName": "a"}
        of_upgrade = StructField("a", IntegerType(), True, {"delta.columnMapping.id": ids[0], **before})
        later = [column(str(number), number) for number in ids[1:]]
        return expected_columns(StructType([of_upgrade, *later]), of_table(last_id=last_id), "name")

    assert expected(1, last_id=2) == expected(2) == expected(2, 3) == ()
    assert expected(1, last_id=1) == ("a",)
    assert expected(1, 2) == ("a", physical("2"))


def test_a_table_of_partition_columns(table: Table) -> None:
    check_columns(table, expected_columns(StructType([column("p")]), of_table("p"), "none"), [file(table, "x")])


def test_footers_are_read_only_of_suspicious_files(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    footer = column_presence._footer

    def recorded(table: Table, file: AddFile) -> pa.Schema:
        read.append(file.path)
        return footer(table, file)

    monkeypatch.setattr(column_presence, "_footer", recorded)
    sound = file(table, "a", "b", stats=["a"])
    without = [file(table, "a", "c"), file(table, "a", "d")]
    check_columns(table, expected_columns(PLAIN, of_table("p"), "none"), [sound, *without])
    assert read == []
    check_columns(table, expected_columns(PLAIN, of_table("p"), "none"), without)
    assert read == ["a-c.parquet"]
    spaced = replace(sound, stats='{"numRecords": 1, "nullCount" : {"a" : 0, "c" : 1}}')
    check_columns(table, expected_columns(PLAIN, of_table("p"), "none"), [spaced])
    assert read == ["a-c.parquet"]
    check_footers(table, expected_columns(PLAIN, of_table("p"), "none"), without)
    assert read[1:] == ["a-c.parquet", "a-d.parquet"]


def test_missing_and_damaged_files_are_left_to_who_reads_them(table: Table) -> None:
    damaged = file(table, "x")
    Path(table.store.root, damaged.path).write_bytes(b"PAR1")
    for found in (damaged, AddFile("gone.parquet", {}, 1, 1, True)):
        check_columns(table, expected_columns(PLAIN, of_table("p"), "none"), [found])
