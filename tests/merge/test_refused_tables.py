"""Tables that this library must not touch: each is refused by name, and stays as it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltamerge import DeltaTable, merge_sql, write_delta
from deltamerge.exceptions import DeltaUnsupportedFeatureException

from .tables import commit, files_below, people, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = "delta.universalFormat.enabledFormats"

# What a table's protocol and properties are, and the name that the error gives.
NOT_WRITABLE: tuple[tuple[list[str], dict[str, str], str], ...] = (
    (["icebergCompatV1"], {"delta.enableIcebergCompatV1": "true"}, "icebergCompatV1"),
    (["icebergCompatV2"], {"delta.enableIcebergCompatV2": "true"}, "icebergCompatV2"),
    (["icebergCompatV3"], {"delta.enableIcebergCompatV3": "true"}, "icebergCompatV3"),
    (["icebergCompatV2"], {"delta.enableIcebergCompatV2": "true", FORMATS: "iceberg"}, "icebergCompatV2"),
    ([], {FORMATS: "iceberg"}, f"{FORMATS}=iceberg"),
    ([], {FORMATS: "hudi"}, f"{FORMATS}=hudi"),
    (["coordinatedCommits-preview"], {}, "coordinatedCommits-preview"),
    (["somethingNew"], {}, "somethingNew"),
)
NOT_READABLE = ("catalogManaged", "catalogOwned-preview", "somethingNew")


def requiring(path: Path, readers: list[str], writers: list[str], configuration: dict[str, str]) -> str:
    """Commits another protocol and other properties to a table."""
    (metadata,) = [action["metaData"] for action in commit(path, 0) if "metaData" in action]
    actions: list[dict[str, Any]] = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": readers,
                "writerFeatures": ["appendOnly", "invariants", *writers],
            }
        },
        {"metaData": {**metadata, "configuration": configuration}},
    ]
    text = "".join(json.dumps(action) + "\n" for action in actions)
    Path(path, "_delta_log", f"{2:020d}.json").write_text(text)
    return str(path)


def writes(spark: SparkSession, path: str) -> dict[str, Callable[[], object]]:
    """Gives every way to write a table."""
    merge = f"MERGE INTO delta.`{path}` t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    three = spark.range(3)
    return {
        "merge": lambda: merge_sql(spark, merge),
        "append": lambda: write_delta(three, path, mode="append"),
        "overwrite": lambda: write_delta(three, path, mode="overwrite"),
        "overwrite_schema": lambda: write_delta(three, path, mode="overwrite", overwrite_schema=True),
        "replace": lambda: DeltaTable.replace(spark).location(path).addColumn("x", "INT").execute(),
    }


@pytest.mark.quick
def test_tables_that_are_only_read(spark: SparkSession, tmp_path: Path) -> None:
    made = people(spark, tmp_path / "t")
    for number, (features, configuration, name) in enumerate(NOT_WRITABLE):
        copy = tmp_path / f"t{number}"
        shutil.copytree(made, copy)
        path = requiring(copy, [], features, configuration)
        before = files_below(path)
        for what, write in writes(spark, path).items():
            with pytest.raises(DeltaUnsupportedFeatureException) as raised:
                write()
            assert raised.value.getCondition() == "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", what
            assert name in raised.value.getMessageParameters()["unsupported"], what
            assert name in str(raised.value), what
        assert files_below(path) == before
        if number == 0:
            assert len(rows(DeltaTable.forPath(spark, path).toDF())) == 3


def test_features_that_only_the_properties_name(spark: SparkSession, tmp_path: Path) -> None:
    path = requiring(
        Path(people(spark, tmp_path / "t")),
        [],
        [],
        {"delta.enableChangeDataFeed": "true", "delta.constraints.c": "id > 0"},
    )
    before = files_below(path)
    for what, write in writes(spark, path).items():
        with pytest.raises(DeltaUnsupportedFeatureException) as raised:
            write()
        assert raised.value.getCondition() == "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH", what
        assert raised.value.getMessageParameters() == {"features": "changeDataFeed, checkConstraints"}, what
    assert files_below(path) == before
    assert len(rows(DeltaTable.forPath(spark, path).toDF())) == 3


@pytest.mark.parametrize("feature", NOT_READABLE)
def test_tables_that_are_not_even_read(feature: str, spark: SparkSession, tmp_path: Path) -> None:
    path = requiring(Path(people(spark, tmp_path / "t")), [feature], [feature], {})
    before = files_below(path)
    ways = {"read": lambda: DeltaTable.forPath(spark, path).toDF(), **writes(spark, path)}
    for what, way in ways.items():
        with pytest.raises(DeltaUnsupportedFeatureException) as raised:
            way()
        assert raised.value.getCondition() == "DELTA_UNSUPPORTED_FEATURES_FOR_READ", what
        assert raised.value.getMessageParameters() == {"unsupported": feature}, what
    assert files_below(path) == before


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"delta.enableIcebergCompatV1": "true"}, "icebergCompatV1"),
        ({"delta.enableIcebergCompatV2": "TRUE"}, "icebergCompatV2"),
        ({FORMATS: "iceberg,hudi"}, f"{FORMATS}=hudi, {FORMATS}=iceberg"),
        ({"delta.feature.catalogManaged": "supported"}, "catalogManaged"),
        ({"delta.feature.somethingNew": "supported"}, "somethingNew"),
    ],
)
def test_no_table_is_made_so(properties: dict[str, str], name: str, spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DeltaUnsupportedFeatureException) as raised:
        write_delta(spark.range(3), str(tmp_path / "new"), properties=properties)
    assert raised.value.getMessageParameters() == {"unsupported": name}
    assert not (tmp_path / "new").exists()
    path = people(spark, tmp_path / "t")
    before = files_below(path)
    for replaced in (False, True):
        with pytest.raises(DeltaUnsupportedFeatureException):
            write_delta(spark.range(3), path, "overwrite", None, properties, overwrite_schema=replaced)
    assert files_below(path) == before
