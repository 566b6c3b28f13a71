"""For Structured Streaming: functions that ``foreachBatch`` takes."""

from deltamerge.recipes.foreach_batch import upsert_into

__all__ = ["upsert_into"]
