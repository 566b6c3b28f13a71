"""Which names count in a table's files, where protocol and properties leave it open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltamerge.exceptions import DeltaLogCorruptException, DeltaUnsupportedFeatureException
from deltamerge.log.snapshot import load_snapshot

from .logs import Log, add, metadata

MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}


def schema(**physical: str) -> str:
    fields = [
        {
            "name": name,
            "type": "long",
            "nullable": True,
            "metadata": {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": stored},
        }
        for number, (name, stored) in enumerate(physical.items(), start=1)
    ]
    return json.dumps({"type": "struct", "fields": fields})


def protocol(reader: int, writer: int, readers: list[str] | None, writers: list[str] | None) -> dict[str, Any]:
    lists = {"readerFeatures": readers, "writerFeatures": writers}
    present = {key: value for key, value in lists.items() if value is not None}
    return {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer, **present}}


def log_with(tmp_path: Path, of: dict[str, Any], *files: list[str], **changes: Any) -> Log:
    log = Log(tmp_path)
    log.folder.mkdir(parents=True)
    adds = []
    for number, names in enumerate(files):
        pq.write_table(pa.table({name: [1] for name in names}), tmp_path / f"{number}.parquet")
        adds.append(add(f"{number}.parquet"))
    content = {"schemaString": schema(a="col-a", b="col-b"), "configuration": MAPPED, **changes}
    log.commit(of, metadata(**content), *adds)
    return log


@pytest.mark.parametrize(
    "of",
    [
        protocol(3, 7, [], ["columnMapping", "invariants"]),
        protocol(3, 7, ["columnMapping"], ["invariants"]),
        protocol(2, 5, None, None),
    ],
)
def test_a_feature_that_either_list_names_is_on(of: dict[str, Any], tmp_path: Path) -> None:
    snapshot = load_snapshot(log_with(tmp_path, of).store)
    assert snapshot.mapping_mode == "name"
    snapshot.check_writable()


@pytest.mark.parametrize("of", [protocol(1, 2, None, None), protocol(1, 5, None, None), protocol(3, 7, [], [])])
@pytest.mark.parametrize(("names", "mode"), [(["col-a", "col-b"], "name"), (["a", "b"], "none"), (None, "none")])
def test_files_decide_where_no_list_names_it(
    of: dict[str, Any], names: list[str] | None, mode: str, tmp_path: Path
) -> None:
    snapshot = load_snapshot(log_with(tmp_path, of, *([] if names is None else [names])).store)
    assert snapshot.mapping_mode == mode
    with pytest.raises(DeltaUnsupportedFeatureException, match="columnMapping"):
        snapshot.check_writable()


@pytest.mark.parametrize(("names", "mode"), [("col-b", "name"), ("b", "none")])
def test_files_with_columns_older_than_the_mapping(names: str, mode: str, tmp_path: Path) -> None:
    log = log_with(tmp_path, protocol(3, 7, [], []), ["a"], ["a", names], schemaString=schema(a="a", b="col-b"))
    assert load_snapshot(log.store).mapping_mode == mode


@pytest.mark.parametrize("files", [[["a", "b"], ["col-a", "col-b"]], [["x"]]])
def test_files_that_do_not_decide_refuse_the_table(files: list[list[str]], tmp_path: Path) -> None:
    snapshot = load_snapshot(log_with(tmp_path, protocol(3, 7, [], []), *files).store)
    with pytest.raises(DeltaUnsupportedFeatureException, match="names of") as raised:
        _ = snapshot.mapping_mode
    assert raised.value.getCondition() == "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH"


def test_files_of_an_earlier_partitioning(tmp_path: Path) -> None:
    log = log_with(tmp_path, protocol(1, 2, None, None), ["a"], partitionColumns=["b"])
    log.commit(add("before", partitionValues={"old": "1"}))
    log.commit({"remove": {"path": "before", "dataChange": True}})
    assert "before" not in [file.path for file in load_snapshot(log.store).files.add_files()]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("configuration", "key", "right"),
    [(MAPPED, "b", "col-b"), ({}, "col-b", "b"), ({}, "B", "b")],
)
def test_partition_values_of_other_columns_are_refused(
    configuration: dict[str, str], key: str, right: str, later: bool, tmp_path: Path
) -> None:
    of = protocol(2, 5, None, None)
    log = log_with(tmp_path, of, ["a"], partitionColumns=["b"], configuration=configuration)
    log.commit(add("right", partitionValues={right: None}))
    previous = load_snapshot(log.store) if later else None
    log.commit(add("wrong", partitionValues={key: "1"}))
    with pytest.raises(DeltaLogCorruptException, match=f"values of {key} for the file wrong") as raised:
        load_snapshot(log.store, previous=previous)
    assert raised.value.getCondition() == "DELTAMERGE_UNKNOWN_PARTITION_COLUMN"
