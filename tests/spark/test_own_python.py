"""Tasks run in the Python of the script where its environment is not activated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from pyspark.sql import SparkSession
import deltamerge

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
deltamerge.register(spark)
path = sys.argv[1]
deltamerge.write_delta(spark.range(3), path)
stream = spark.readStream.format("delta").load(path).writeStream.format("memory").queryName("seen")
stream.trigger(availableNow=True).start().awaitTermination()
spark.conf.set("spark.deltamerge.merge.executor", "key_lookup")
spark.conf.set("spark.deltamerge.merge.driverBytes", "0")
table = deltamerge.DeltaTable.forPath(spark, path)
merge = table.alias("t").merge(spark.range(2, 5).alias("s"), "t.id = s.id")
merge.whenMatchedDelete().whenNotMatchedInsertAll().execute()
spark.conf.set("spark.deltamerge.storage.logAccess", "server")
assert deltamerge.DeltaTable.forPath(spark, path).toDF().columns == ["id"]
print(sorted(row.id for row in spark.table("seen").collect()), sorted(row.id for row in table.toDF().collect()))
assert spark.sparkContext.pythonExec == "python3"
"""


@pytest.mark.slow
def test_an_environment_that_is_not_activated(tmp_path: Path) -> None:
    """The Python that PATH has first does not run at all."""
    (tmp_path / "bin").mkdir()
    other = tmp_path / "bin" / "python3"
    other.write_text("#!/bin/sh\nexit 3\n")
    other.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    environment |= {"PATH": f"{tmp_path / 'bin'}:{environment['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "t")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "[0, 1, 2] [0, 1, 3, 4]"
