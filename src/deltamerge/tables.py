"""The tables' API under the name of delta-spark's module: ``from deltamerge.tables import DeltaTable``.

That module has no list of its names, so that ``import *`` brings also those that it imports for itself, which scripts
use.
"""

from typing import Any, Dict, Iterable, List, NoReturn, Optional, Tuple, Union, cast, overload  # noqa: UP035

from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.types import DataType, StructField, StructType

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.merge_builder import DeltaMergeBuilder
from deltamerge.api.optimize_builder import DeltaOptimizeBuilder
from deltamerge.api.table_builder import DeltaTableBuilder, IdentityGenerator

__all__ = [
    "Any",
    "Column",
    "DataFrame",
    "DataType",
    "DeltaMergeBuilder",
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "Dict",
    "IdentityGenerator",
    "Iterable",
    "List",
    "NoReturn",
    "Optional",
    "SparkSession",
    "StructField",
    "StructType",
    "Tuple",
    "Union",
    "cast",
    "functions",
    "overload",
]
