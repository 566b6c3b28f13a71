"""How random histories are searched: few examples by default, more by ``DELTAMERGE_RECIPE_EXAMPLES``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, settings

from corpus.deltamerge_engine import is_ci

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXAMPLES = int(os.environ.get("DELTAMERGE_RECIPE_EXAMPLES", "2"))
SMALL = {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}

searching = settings(
    max_examples=EXAMPLES,
    derandomize=is_ci() or EXAMPLES <= 4,
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink) if EXAMPLES > 50 else (Phase.generate,),
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)
