# A notebook, exported as a script; its tables are in the session's catalog.

# %%
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit

import deltamerge
from deltamerge.tables import DeltaTable

spark = SparkSession.builder.getOrCreate()
deltamerge.register(spark)

# %% [markdown]
# ## Set up

# %%
spark.sql("CREATE DATABASE IF NOT EXISTS notebook_db")
spark.sql("DROP TABLE IF EXISTS notebook_db.people")
spark.sql(
    """
    CREATE TABLE notebook_db.people (id BIGINT, name STRING, born INT COMMENT 'the year')
    USING DELTA
    COMMENT 'for the notebook'
    """,
)

# %%
people = spark.createDataFrame([(1, "Ann", 1970), (2, "Bob", 1980)], ["id", "name", "born"])
people.createOrReplaceTempView("new_people")
spark.sql("INSERT INTO notebook_db.people SELECT id, name, CAST(born AS INT) FROM new_people")

# %%
table = DeltaTable.forName(spark, "notebook_db.people")
table.toDF().show()

# %% [markdown]
# ## Upsert

# %%
updates = spark.createDataFrame([(2, "Bobby", 1980), (3, "Cid", 1990)], ["id", "name", "born"])
updates.createOrReplaceTempView("updates")
spark.sql(
    """
    MERGE INTO notebook_db.people p
    USING updates u
    ON p.id = u.id
    WHEN MATCHED THEN UPDATE SET name = u.name
    WHEN NOT MATCHED THEN INSERT *
    """,
).show()

# %%
table.update(col("id") == 1, {"name": lit("Anna")})

# %% [markdown]
# ## Look back

# %%
spark.sql("DESCRIBE HISTORY notebook_db.people").select("version", "operation").show()
spark.sql("SELECT * FROM notebook_db.people VERSION AS OF 1 ORDER BY id").show()
table.history().select("version", "operationMetrics").show(truncate=False)
