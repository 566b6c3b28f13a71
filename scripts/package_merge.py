"""One merge with the installed package, which `scripts/package.sh` runs in an environment of its own."""

from __future__ import annotations

import sys
from importlib.metadata import distribution, version
from importlib.resources import files

from pyspark.sql import SparkSession

import deltamerge

path, mode = sys.argv[1:]
package = distribution("deltamerge")
assert deltamerge.__version__ == package.version, (deltamerge.__version__, package.version)
assert "site-packages" in deltamerge.__file__, deltamerge.__file__
assert (files("deltamerge") / "py.typed").is_file()
assert any(file.name == "LICENSE" for file in package.files or ())

builder = SparkSession.builder.remote("local[2]") if mode == "connect" else SparkSession.builder.master("local[2]")
spark = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2").getOrCreate()
assert spark.version == version("pyspark"), (spark.version, version("pyspark"))
deltamerge.write_delta(spark.sql("SELECT id, 'open' AS state FROM range(100)"), path)
changes = spark.sql("SELECT * FROM VALUES (3L, 'paid'), (4L, 'cancelled'), (100L, 'open') AS v(id, state)")
merge = deltamerge.DeltaTable.forPath(spark, path).alias("t").merge(changes.alias("s"), "t.id = s.id")
merge = merge.whenMatchedDelete("s.state = 'cancelled'").whenMatchedUpdateAll().whenNotMatchedInsertAll()
assert merge.plan().plan.name
report = merge.run()
assert [clause.rows for clause in report.clauses] == [1, 1, 1], report
assert "</table>" in report.to_html()
rows = {tuple(row) for row in deltamerge.DeltaTable.forPath(spark, path).toDF().collect()}
wanted = {(number, "open") for number in range(101)} - {(3, "open"), (4, "open")} | {(3, "paid")}
assert rows == wanted, rows ^ wanted
spark.stop()
