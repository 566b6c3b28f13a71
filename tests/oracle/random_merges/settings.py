"""Spark's settings for tables of a few rows: planning and compiling take the time, so there is little of that."""

from __future__ import annotations

SMALL = {
    "spark.master": "local[1]",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # delta-spark's VACUUM lists folders by so many tasks.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC",
}
