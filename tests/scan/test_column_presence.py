"""A data file that holds none of the table's columns is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import AddFile
from deltamerge.scan import column_presence
from deltamerge.scan.column_presence import check_columns, check_footers, expected_columns
from deltamerge.spark.table import Table
from deltamerge.storage.store import open_store


def column(name: str, number: int | None = None) -> StructField:
    found = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{name}"}
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
        check_columns(table, expected_columns(PLAIN, ("p",), "none"), [file(table, "x", stats=stats)])
    assert raised.value.getCondition() == "DELTAMERGE_FILE_WITHOUT_COLUMNS"


@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_file_that_has_only_logical_names(mode: str, table: Table) -> None:
    with pytest.raises(DeltaTableException, match="DELTAMERGE_FILE_WITHOUT_COLUMNS"):
        check_columns(table, expected_columns(MAPPED, ("p",), mode), [file(table, "a", "b", stats=["a", "b"])])


@pytest.mark.parametrize("names", [("b", "other"), ("A",), ("b",)])
def test_one_column_is_enough(names: tuple[str, ...], table: Table) -> None:
    """Whatever its statistics name: the file was written before the other columns were added."""
    for stats in (None, ["other"], list(names)):
        check_columns(table, expected_columns(PLAIN, ("p",), "none"), [file(table, *names, stats=stats)])


def test_where_all_old_columns_were_dropped(table: Table) -> None:
    left = StructType([column("p", 1), column("b", 3)])
    check_columns(table, expected_columns(left, ("p",), "name"), [file(table, "col-a", stats=["col-a"])])
    added_later = StructType([column("p", 1), column("a", 2), column("c", 4)])
    with pytest.raises(DeltaTableException, match="DELTAMERGE_FILE_WITHOUT_COLUMNS"):
        check_columns(table, expected_columns(added_later, ("p",), "name"), [file(table, "x", stats=["x"])])


def test_a_table_of_partition_columns(table: Table) -> None:
    check_columns(table, expected_columns(StructType([column("p")]), ("p",), "none"), [file(table, "x")])


def test_footers_are_read_only_of_suspicious_files(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    footer = column_presence._footer

    def recorded(table: Table, file: AddFile) -> pa.Schema:
        read.append(file.path)
        return footer(table, file)

    monkeypatch.setattr(column_presence, "_footer", recorded)
    sound = file(table, "a", "b", stats=["a"])
    without = [file(table, "a", "c"), file(table, "a", "d")]
    check_columns(table, expected_columns(PLAIN, ("p",), "none"), [sound, *without])
    assert read == []
    check_columns(table, expected_columns(PLAIN, ("p",), "none"), without)
    assert read == ["a-c.parquet"]
    check_footers(table, expected_columns(PLAIN, ("p",), "none"), without)
    assert read[1:] == ["a-c.parquet", "a-d.parquet"]


def test_missing_and_damaged_files_are_left_to_who_reads_them(table: Table) -> None:
    damaged = file(table, "x")
    Path(table.store.root, damaged.path).write_bytes(b"PAR1")
    for found in (damaged, AddFile("gone.parquet", {}, 1, 1, True)):
        check_columns(table, expected_columns(PLAIN, ("p",), "none"), [found])
