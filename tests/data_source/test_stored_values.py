"""What a frame's values become in a table: the values that are checked are those that are read then."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRs
from pyspark.sql.types import DataType, LongType, NullType, StringType, StructField, StructType

from deltamerge.data_source.file_parts import partition_value
from deltamerge.data_source.writing import commit_write, plan_write
from deltamerge.workers import table_files
from deltamerge.workers.data_source import TableWriter

SETTINGS = {"spark.version": "4.0.0", "spark.default.parallelism": "2"}
DIGITS = "234567890123456789012345678901234568"


def columns(p: DataType) -> StructType:
    return StructType([StructField("id", LongType()), StructField("p", p)])


def write(
    path: Path,
    values: list[Any],
    schema: StructType | None = None,
    overwrite: bool = False,
    settings: Mapping[str, str] = SETTINGS,
    **options: str,
) -> None:
    schema = columns(StringType()) if schema is None else schema
    writer = TableWriter(*plan_write({"path": str(path), **options}, settings, schema, overwrite))
    rows = pa.record_batch({"id": list(range(len(values))), "p": pa.array(values)})
    commit_write(writer._plan, settings, [writer.write(iter([rows]))])


def table(
    path: Path,
    nullable: bool = True,
    properties: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Makes a table without rows, partitioned by the string p."""
    p = {"name": "p", "type": "string", "nullable": nullable, "metadata": metadata or {}}
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}, p]
    made = {"id": "t", "format": {"provider": "parquet", "options": {}}, "partitionColumns": ["p"]}
    schema = json.dumps({"type": "struct", "fields": fields})
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}},
        {"metaData": {**made, "schemaString": schema, "configuration": properties or {}}},
    ]
    (path / "_delta_log").mkdir(parents=True)
    (path / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))


def partitions(path: Path) -> list[Any]:
    return sorted((value["p"] for value in DeltaRs(path).partitions()), key=str)


def test_an_empty_string_is_no_partition(tmp_path: Path) -> None:
    unchecked, required, checked = (tmp_path / name for name in ("unchecked", "required", "checked"))
    table(required, nullable=False)
    with pytest.raises(ValueError, match=r"DELTA_NOT_NULL_CONSTRAINT_VIOLATED.*column: p"):
        write(required, ["a", ""])
    table(checked, properties={"delta.constraints.known": "p IS NOT NULL"})
    with pytest.raises(ValueError, match=r"DELTA_VIOLATE_CONSTRAINT_WITH_VALUES.*known"):
        write(checked, ["a", ""])
    table(unchecked)
    write(unchecked, ["", "a"])
    with pytest.raises(ValueError, match="DELTA_REPLACE_WHERE_MISMATCH"):
        write(unchecked, [""], overwrite=True, replacewhere="p = ''")
    write(unchecked, ["", ""], overwrite=True, replacewhere="p IS NULL")
    assert partitions(unchecked) == [None, "a"]
    assert DeltaRs(unchecked).to_pyarrow_table().num_rows == 3


def test_char_is_padded(tmp_path: Path) -> None:
    plain, partitioned = tmp_path / "plain", tmp_path / "partitioned"
    char = {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}
    table(partitioned, properties={"delta.constraints.short": "p IS NULL OR p <= 'x'"}, metadata=char)
    write(partitioned, ["x", "a", "", None])
    assert partitions(partitioned) == ["   ", None, "a  ", "x  "]
    with pytest.raises(ValueError, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT"):
        write(partitioned, ["x   "])
    write(partitioned, ["a"], overwrite=True, replacewhere="p IN ('a', 'b')")
    assert partitions(partitioned) == ["   ", None, "a  ", "x  "]
    fields = [StructField("id", LongType()), StructField("p", StringType(), True, char)]
    write(plain, ["ä", None], StructType(fields))
    write(plain, [None, None], StructType([fields[0], StructField("p", NullType())]))
    assert sorted(DeltaRs(plain).to_pyarrow_table().column("p").to_pylist(), key=str) == [None, None, None, "ä  "]


@pytest.mark.parametrize(
    ("string", "kind", "value"),
    [
        ("12345678901234567890123456789012345678", pa.decimal128(38), Decimal(12345678901234567890123456789012345678)),
        ("-1.2345678901234567890123456789012345675", pa.decimal128(38, 36), Decimal("-1." + DIGITS)),
        ("1E+3", pa.decimal128(10, 2), Decimal("1000.00")),
        ("TRUE", pa.bool_(), True),
        ("f", pa.bool_(), False),
        ("2024-02-29", pa.date32(), date(2024, 2, 29)),
        ("", pa.bool_(), None),
    ],
)
def test_partition_values_are_read_as_spark_casts_them(string: str, kind: pa.DataType, value: object) -> None:
    assert partition_value(string, kind, "UTC").to_pylist() == [value]


@pytest.mark.parametrize(
    ("string", "kind"), [("maybe", pa.bool_()), ("soon", pa.date32()), ("1.5x", pa.decimal128(9, 2)), ("x", pa.int32())]
)
def test_other_partition_values_are_named(string: str, kind: pa.DataType) -> None:
    with pytest.raises(ValueError, match=re.escape(f"partition value '{string}' is no {kind}")):
        partition_value(string, kind, "UTC")


def test_definitions_of_new_tables_and_of_others(tmp_path: Path) -> None:
    settings = {**SETTINGS, "spark.databricks.delta.properties.defaults.checkpointInterval": "7"}
    old, new = tmp_path / "old", tmp_path / "new"
    for path, configuration in ((new, {"delta.checkpointInterval": "7"}), (old, {})):
        if path is old:
            write(path, ["a"])
        write(path, ["a"], overwrite=True, settings=settings, overwriteschema="true", partitionby="P")
        write(path, ["a"], partitionby="P")
        assert DeltaRs(path).metadata().partition_columns == ["p"]
        assert DeltaRs(path).metadata().configuration == configuration


def test_rows_of_many_partitions_wait_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most, waiting = 20_000, []
    monkeypatch.setattr(table_files, "_WAITING_BYTES", most)
    monkeypatch.setattr(table_files, "_MOST_OPEN", 3)
    add = table_files._OpenFiles.add

    def counted(opened: Any, *rows: Any) -> None:
        add(opened, *rows)
        pieces = [piece for each in opened._waiting.values() for piece in each.pieces]
        assert opened._bytes == sum(each.bytes for each in opened._waiting.values())
        assert opened._bytes == sum(piece.nbytes for piece in pieces)
        waiting.append(opened._bytes)

    monkeypatch.setattr(table_files._OpenFiles, "add", counted)
    table(tmp_path)
    writer = TableWriter(*plan_write({"path": str(tmp_path)}, SETTINGS, columns(StringType()), overwrite=False))
    rows = [(task * 100 + n, str(n * (task + 1) % 7) if n % 11 else None) for task in range(30) for n in range(100)]
    batches = [pa.record_batch(list(zip(*rows[at : at + 100], strict=True)), ["id", "p"]) for at in range(0, 3000, 100)]
    commit_write(writer._plan, SETTINGS, [writer.write(iter(batches))])
    assert most // 2 < max(waiting) < most
    found = DeltaRs(tmp_path).to_pyarrow_table().select(["id", "p"]).sort_by("id")
    assert found.to_pylist() == [{"id": number, "p": p} for number, p in rows]
