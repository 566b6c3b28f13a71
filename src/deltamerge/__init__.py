"""Delta Lake's MERGE in plain PySpark: no JARs, on classic Spark and on Spark Connect."""

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.merge_builder import DeltaMergeBuilder
from deltamerge.api.merge_sql import merge_sql, plan_sql
from deltamerge.api.report import MergePlanReport, MergeReport
from deltamerge.api.run_sql import sql
from deltamerge.api.write_delta import write_delta
from deltamerge.as_delta import configure_spark_with_delta_pip, install_as_delta
from deltamerge.as_jar.install import install_in_pyspark, register
from deltamerge.recipes.apply_changes import apply_changes, scd2
from deltamerge.recipes.upsert import upsert
from deltamerge.render.progress import show_progress
from deltamerge.version import __version__

__all__ = [
    "DeltaMergeBuilder",
    "DeltaTable",
    "MergePlanReport",
    "MergeReport",
    "__version__",
    "apply_changes",
    "configure_spark_with_delta_pip",
    "install_as_delta",
    "install_in_pyspark",
    "merge_sql",
    "plan_sql",
    "register",
    "scd2",
    "show_progress",
    "sql",
    "upsert",
    "write_delta",
]
