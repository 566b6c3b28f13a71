"""Which files are of the partitions that a write has rows of, however their values are spelled."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.actions import AddFile
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.store import open_store
from deltamerge.write.data_files import WrittenFiles
from deltamerge.write.partition_overwrite import of_same_partitions, replaced_among
from log.logs import PROTOCOL, Log, add, metadata

CHAR = {"__CHAR_VARCHAR_TYPE_STRING": "char(4)"}


def replaced(
    path: Path,
    kind: str,
    before: list[str | None],
    now: str | None,
    of_column: Mapping[str, str] | None = None,
    *,
    keeps_null: bool = False,
) -> list[str | None]:
    field = {"name": "P", "type": kind, "nullable": True, "metadata": of_column or {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    table = {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
    actions: list[object] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {**table, "partitionColumns": ["P"], "configuration": {}}},
    ]
    for number, value in enumerate(before):
        file = {"path": str(number), "partitionValues": {"P": value}, "size": 1, "modificationTime": 1}
        actions.append({"add": {**file, "dataChange": True}})
    log = path / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    written = AddFile("new", {"P": now}, 1, 1, data_change=True)
    snapshot = load_snapshot(open_store(str(path)))
    among = of_same_partitions(snapshot, WrittenFiles((written,), (1,), ()), "Europe/Berlin", keeps_null=keeps_null)
    return [file.partition_values["P"] for file in replaced_among(snapshot, among).files.add_files()]


@pytest.mark.parametrize(
    ("kind", "same", "other", "now"),
    [
        (
            "timestamp",
            ["2024-01-01 01:00:00", "2024-01-01T00:00:00.000000Z", "2024-01-01 01:00:00.0"],
            ["2024-01-01 00:00:00", None],
            "2024-01-01T00:00:00.000000Z",
        ),
        ("timestamp_ntz", ["2024-01-01 00:00:00"], ["2024-01-01 01:00:00"], "2024-01-01 00:00:00.000000"),
        ("string", [None, ""], ["a"], None),
        ("string", ["a"], ["a ", "A", None], "a"),
        ("decimal(10,2)", ["1.5", "1.50", "01.500"], ["1.51"], "1.50"),
        ("boolean", ["TRUE", "true"], ["false"], "true"),
        ("double", ["1", "1.0", "1E0"], ["NaN"], "1.0"),
        ("binary", ["x"], ["y"], "x"),
    ],
)
def test_values_are_compared(
    tmp_path: Path, kind: str, same: list[str | None], other: list[str | None], now: str | None
) -> None:
    assert sorted(replaced(tmp_path, kind, [*same, *other], now), key=str) == sorted(same, key=str)


def test_padding_is_no_part_of_a_value(tmp_path: Path) -> None:
    assert replaced(tmp_path, "string", ["a", "a   ", "b"], "a   ", CHAR) == ["a", "a   "]


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeltaAnalysisException, match="'noon' of column P"):
        replaced(tmp_path, "timestamp", ["noon"], "2024-01-01T00:00:00.000000Z")


@pytest.mark.parametrize("keeps_null", [True, False])
def test_partitions_of_null_may_stay(tmp_path: Path, keeps_null: bool) -> None:
    found = replaced(tmp_path, "string", [None, "", "a"], None, keeps_null=keeps_null)
    assert found == ([] if keeps_null else [None, ""])


def test_each_partition_is_asked_for_once(tmp_path: Path) -> None:
    """Of files that the log spells alike one stands for all."""
    log, spelled = Log(tmp_path), [None, "", "a", "b", "a", None]
    of_parts = [add(str(number), partitionValues={"part": value}) for number, value in enumerate(spelled)]
    log.commit(PROTOCOL, metadata(partitionColumns=["part"]), *of_parts, add("6"))
    asked: list[AddFile] = []

    def among(files: Sequence[AddFile]) -> list[AddFile]:
        asked.extend(files)
        return [file for file in files if file.partition_values.get("part") in ("a", None)]

    found = replaced_among(load_snapshot(log.store), among)
    assert sorted(found.files.paths()) == ["0", "2", "4", "5", "6"]
    assert len(asked) == 4
    assert found.among is among
