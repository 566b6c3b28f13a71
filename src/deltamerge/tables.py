"""The tables' API under the name of delta-spark's module: ``from deltamerge.tables import DeltaTable``."""

from deltamerge.api.delta_table import DeltaTable
from deltamerge.api.merge_builder import DeltaMergeBuilder
from deltamerge.api.optimize_builder import DeltaOptimizeBuilder
from deltamerge.api.table_builder import DeltaTableBuilder, IdentityGenerator

__all__ = ["DeltaMergeBuilder", "DeltaOptimizeBuilder", "DeltaTable", "DeltaTableBuilder", "IdentityGenerator"]
