"""What Spark observed while it ran."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkAssertionError
from pyspark.sql import Observation


def observed(observation: Observation) -> dict[str, Any]:
    """Return what was observed in a frame's first action, by name.

    Nothing where Spark found out beforehand that no row can come of the frame, as from a condition that is never TRUE,
    and took the observation away with the rest of the plan.
    """
    try:
        return observation.get
    except PySparkAssertionError:
        return {}
    except Py4JJavaError as error:
        # PySpark fails on the empty row that the JVM returns then.
        if "toPyRow" in str(error):
            return {}
        raise
