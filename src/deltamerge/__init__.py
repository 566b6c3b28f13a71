"""Delta Lake's MERGE in plain PySpark: no JARs, on classic Spark and on Spark Connect."""

from deltamerge.builder import DeltaMergeBuilder
from deltamerge.report import MergeReport
from deltamerge.sql_entry import merge_sql
from deltamerge.tables import DeltaTable
from deltamerge.version import __version__
from deltamerge.writer import write_delta

__all__ = ["DeltaMergeBuilder", "DeltaTable", "MergeReport", "__version__", "merge_sql", "write_delta"]
