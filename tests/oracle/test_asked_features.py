"""Tables whose metadata asks for features that their protocol lacks: refused by delta-spark, read-only here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltamerge import DeltaTable, merge_sql
from deltamerge.exceptions import DeltaUnsupportedFeatureException
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.store import open_store

from .client import LineProcess, RequestFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.oracle

BASE = ("appendOnly", "invariants", "vacuumProtocolCheck")
NO_BASE = ("vacuumProtocolCheck",)
LISTED = re.compile(r"\[DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH\][^:]*: ([^.]*)\.")


def field(name: str, kind: Any = "integer", nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


INVARIANT: dict[str, Any] = {"delta.invariants": json.dumps({"expression": {"expression": "x > 0"}})}
IDENTITY: dict[str, Any] = {
    "delta.identity.start": 1,
    "delta.identity.step": 1,
    "delta.identity.allowExplicitInsert": True,
}
GENERATED: dict[str, Any] = {"delta.generationExpression": "k + 1"}

# Properties, columns, the features that the protocol lists besides.
TABLES: dict[str, tuple[dict[str, str], list[dict[str, Any]], tuple[str, ...]]] = {
    "deletion vectors": ({"delta.enableDeletionVectors": "true"}, [], BASE),
    "row tracking": ({"delta.enableRowTracking": "true"}, [], BASE),
    "row tracking without domains": ({}, [], (*BASE, "rowTracking")),
    "clustering without domains": ({}, [], (*BASE, "clustering")),
    "change data": ({"delta.enableChangeDataFeed": "TRUE"}, [], BASE),
    "type widening": ({"delta.enableTypeWidening": "true"}, [], BASE),
    "type widening's preview": ({"delta.enableTypeWidening": "true"}, [], (*BASE, "typeWidening-preview")),
    "in-commit timestamps": ({"delta.enableInCommitTimestamps": "true"}, [], BASE),
    "checkpoints": ({"delta.checkpointPolicy": "v2"}, [], BASE),
    "classic checkpoints": ({"delta.checkpointPolicy": "classic"}, [], BASE),
    "CHECK": ({"Delta.Constraints.c": "k > 0"}, [], BASE),
    "column mapping": ({"delta.columnMapping.mode": "name"}, [], BASE),
    "append only": ({"delta.appendOnly": "true"}, [], NO_BASE),
    "shredding": ({"delta.enableVariantShredding": "true"}, [], BASE),
    "shredding without variants": ({}, [], (*BASE, "variantShredding")),
    "Iceberg": ({"delta.enableIcebergCompatV2": "true"}, [], BASE),
    "Iceberg 3": ({"delta.enableIcebergCompatV3": "true"}, [], BASE),
    "partition columns": ({"delta.enableMaterializePartitionColumnsFeature": "true"}, [], BASE),
    "generated": ({}, [field("g", **GENERATED)], BASE),
    "generated in a struct": ({}, [field("s", struct(field("g", **GENERATED)))], BASE),
    "identity": ({}, [field("i", "long", **IDENTITY)], BASE),
    "default": ({}, [field("x", CURRENT_DEFAULT="7")], BASE),
    "local time": ({}, [field("x", array(struct(field("y", "timestamp_ntz"))))], BASE),
    "variant": ({}, [field("x", "variant")], BASE),
    "variant's preview": ({}, [field("x", "variant")], (*BASE, "variantType-preview")),
    "invariant": ({}, [field("s", struct(field("x", **INVARIANT)))], NO_BASE),
    "invariant in an array": ({}, [field("s", array(struct(field("x", **INVARIANT))))], NO_BASE),
    "NOT NULL in an array": ({}, [field("s", array(struct(field("x", nullable=False))))], NO_BASE),
    "nothing": ({}, [], NO_BASE),
}
READER_FEATURES = {"vacuumProtocolCheck", "typeWidening-preview", "variantType-preview", "variantShredding"}


def made(path: Path, properties: dict[str, str], columns: list[dict[str, Any]], features: tuple[str, ...]) -> str:
    """Makes a table without rows."""
    schema = struct(field("k"), *columns)
    actions: list[dict[str, Any]] = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": [name for name in features if name in READER_FEATURES],
                "writerFeatures": list(features),
            }
        },
        {
            "metaData": {
                "id": "a",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": [],
                "configuration": properties,
                "createdTime": 1,
            }
        },
    ]
    (path / "_delta_log").mkdir(parents=True)
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (path / "_delta_log" / f"{0:020d}.json").write_text(text)
    return str(path)


@pytest.mark.parametrize("name", TABLES)
def test_features_that_the_protocol_lacks(name: str, oracle: LineProcess, tmp_path: Path) -> None:
    path = made(tmp_path / "t", *TABLES[name])
    try:
        oracle.ask("sql", statements=[f"DESCRIBE DETAIL delta.`{path}`"])
        refused = set()
    except RequestFailed as error:
        found = LISTED.search(str(error))
        assert found is not None, str(error)
        refused = set(found.group(1).split(", "))
    snapshot = load_snapshot(open_store(path))
    if not refused:
        snapshot.check_writable()
        return
    with pytest.raises(DeltaUnsupportedFeatureException) as raised:
        snapshot.check_writable()
    assert raised.value.getCondition() == "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH"
    assert set(raised.value.getMessageParameters()["features"].split(", ")) == refused


def test_a_new_table_lists_what_its_features_need(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    builder = DeltaTable.create(spark).location(path).addColumn("k", "INT")
    builder.property("delta.enableVariantShredding", "true").property("delta.enableRowTracking", "true").execute()
    merge_sql(
        spark,
        f"MERGE INTO delta.`{path}` t USING (SELECT 1 AS k) s ON t.k = s.k WHEN NOT MATCHED THEN INSERT *",
    )
    assert oracle.ask("lines", path=path) == ['{"k":1}']
