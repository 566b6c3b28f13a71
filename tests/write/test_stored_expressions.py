"""A table whose log holds code: no write evaluates it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltamerge import DeltaTable, write_delta
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.log.segment import commit_path
from merge.tables import delete_checksums

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODE = "java_method('java.lang.System', 'setProperty', 'deltamerge.ran', 'yes')"
SCHEMA = "id BIGINT, v STRING"


def hostile(spark: SparkSession, path: Path, where: str) -> str:
    """Makes a table, and puts code into its first commit."""
    write_delta(spark.createDataFrame([(1, "a")], SCHEMA), str(path))
    commit = path / commit_path(0)
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    if where == "constraint":
        metadata["configuration"]["delta.constraints.c"] = f"{CODE} IS NULL"
    else:
        schema = json.loads(metadata["schemaString"])
        key = "delta.generationExpression" if where == "generated" else "CURRENT_DEFAULT"
        schema["fields"][1]["metadata"][key] = CODE
        metadata["schemaString"] = json.dumps(schema)
    features = {"constraint": "checkConstraints", "generated": "generatedColumns", "default": "allowColumnDefaults"}
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", features[where]]}
    actions = [{"protocol": protocol} if "protocol" in action else action for action in actions]
    copy = path.parent / "hostile"
    path.rename(copy)
    (copy / commit_path(0)).write_text("".join(json.dumps(action) + "\n" for action in actions))
    delete_checksums(copy)
    return str(copy)


@pytest.mark.parametrize("executor", ["auto", "low_shuffle", "classic"])
@pytest.mark.parametrize("where", ["constraint", "generated", "default"])
def test_it_is_not_run(spark: SparkSession, tmp_path: Path, where: str, executor: str) -> None:
    path = hostile(spark, tmp_path / "t", where)
    spark.conf.set("spark.deltamerge.merge.executor", executor)
    source = spark.createDataFrame([(1,), (2,)], "id BIGINT").alias("s")
    merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
    with pytest.raises(DeltaAnalysisException, match=r"DELTA_UNSUPPORTED_EXPRESSION.*java_method"):
        merge.whenMatchedUpdate(set={"id": "s.id + 1"}).whenNotMatchedInsert(values={"id": "s.id"}).execute()
    ran = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'deltamerge.ran') AS found").collect()[0]
    assert ran.found == "null"
    assert sorted(row.id for row in DeltaTable.forPath(spark, path).toDF().collect()) == [1]
