"""Real tables with deletion vectors read as delta-spark read them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from deltamerge import DeltaTable
from deltamerge.log.protocol import SUPPORTED_READER_FEATURES
from log.golden import FOLDER, manifest, require_golden_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANIFEST = manifest()
WITH_VECTORS = sorted(name for name, said in MANIFEST.items() if said.get("files", {}).get("deletionVectors"))
OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def test_golden_tables_are_there() -> None:
    require_golden_tables()


@pytest.mark.parametrize("name", WITH_VECTORS)
def test_rows(name: str, spark: SparkSession) -> None:
    if set(MANIFEST[name]["protocol"].get("readerFeatures", ())) - SUPPORTED_READER_FEATURES:
        pytest.skip("it needs another feature")
    frame = DeltaTable.forPath(spark, str(FOLDER / name)).toDF()
    lines = sorted(row[0] for row in frame.select(F.to_json(F.struct("*"), OPTIONS)).collect())
    said = MANIFEST[name]["rows"]
    assert [json.loads(line) for line in lines[: len(said.get("sample", ()))]] == [
        json.loads(line) if isinstance(line, str) else line for line in said.get("sample", ())
    ]
    checksum = hashlib.sha256("".join(line + "\n" for line in lines).encode()).hexdigest()
    assert (len(lines), checksum) == (said["count"], said["checksum"])
