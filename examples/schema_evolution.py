"""Schema evolution: the source has a column that the table lacks, and the merge adds it.

Run it with: python examples/schema_evolution.py
"""

from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from deltamerge import DeltaTable, write_delta

spark = SparkSession.builder.master("local[2]").getOrCreate()

with TemporaryDirectory() as folder:
    path = f"{folder}/sensors"
    write_delta(spark.createDataFrame([(1, 20.5), (2, 21.0)], "id BIGINT, celsius DOUBLE"), path)

    # Newer devices also report their battery.
    readings = spark.createDataFrame([(2, 22.5, 80), (3, 19.0, 95)], "id BIGINT, celsius DOUBLE, battery INT")
    merge = (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(readings.alias("s"), "t.id = s.id")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
    )

    # Without withSchemaEvolution() the stars would leave `battery` out. Builders are values: `merge` is unchanged.
    print(merge.withSchemaEvolution().run())

    table = DeltaTable.forPath(spark, path).toDF().orderBy("id")
    table.show()
    assert table.columns == ["id", "celsius", "battery"]
    assert [tuple(row) for row in table.collect()] == [(1, 20.5, None), (2, 22.5, 80), (3, 19.0, 95)]

    # Earlier versions keep their schema.
    assert DeltaTable.forPath(spark, path).at(version=0).columns == ["id", "celsius"]

spark.stop()
