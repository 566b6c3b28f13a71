"""Table properties that random tables may have: to switch a feature on, give it a share."""

from __future__ import annotations

from dataclasses import dataclass

from .merge import Pairs


@dataclass(frozen=True)
class Feature:
    """A feature of tables.

    Args:
        name: Its name.
        properties: What a table with it has.
        share: How many of all tables have it, from 0 to 1; 0 where deltamerge does not have the feature yet.
    """

    name: str
    properties: Pairs
    share: float


FEATURES = (
    Feature("change data feed", (("delta.enableChangeDataFeed", "true"),), 0.5),
    Feature("append only", (("delta.appendOnly", "true"),), 0.02),
    Feature("few statistics", (("delta.dataSkippingNumIndexedCols", "1"),), 0.05),
    Feature("no statistics", (("delta.dataSkippingNumIndexedCols", "0"),), 0.03),
    Feature("checkpoints", (("delta.checkpointInterval", "2"),), 0.1),
    Feature("type widening", (("delta.enableTypeWidening", "true"),), 0.08),
    Feature("column mapping", (("delta.columnMapping.mode", "name"),), 0.12),
    Feature("column mapping by id", (("delta.columnMapping.mode", "id"),), 0.08),
    Feature("deletion vectors", (("delta.enableDeletionVectors", "true"),), 0.3),
    Feature("row tracking", (("delta.enableRowTracking", "true"),), 0.15),
)
