"""A process that merges with deltamerge or delta-rs, behind JSON lines.

Its arguments are the engine's name and Spark's settings as JSON.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from oracle.lines import answers, serve


class Deltamerge:
    """Merges with deltamerge in a session of its own.

    Args:
        settings: Spark's settings; None leaves one at Spark's default.
    """

    def __init__(self, settings: dict[str, str | None]) -> None:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName("deltamerge")
        for name, value in settings.items():
            builder = builder if value is None else builder.config(name, value)
        self._spark = builder.getOrCreate()

    def merge(self, statement: str, queries: dict[str, str]) -> dict[str, Any]:
        """Merge and take the time; return which executor ran, how long each step took and what jobs there were."""
        from deltamerge import merge_sql

        for name, query in queries.items():
            self._spark.sql(query).createOrReplaceTempView(name)
        jobs = self._jobs()
        start = time.perf_counter()
        report = merge_sql(self._spark, statement)
        seconds = time.perf_counter() - start
        jobs = self._jobs() - jobs
        outcome = report.outcome
        steps = {step.name: step.milliseconds for step in outcome.steps}
        return {
            "seconds": seconds,
            "executor": outcome.executor,
            "steps": steps,
            "files_before": report.metrics["numTargetFilesBeforeSkipping"],
            "files_scanned": report.metrics["numTargetFilesAfterSkipping"],
            "jobs": jobs,
            "job_seconds": self._job_seconds(),
            # Files that are mapped into memory count, too.
            "memory": _most_memory(),
        }

    def run(self, statement: str) -> dict[str, Any]:
        """Run any statement and take the time."""
        import deltamerge

        start = time.perf_counter()
        deltamerge.sql(self._spark, statement).collect()
        return {"seconds": time.perf_counter() - start}

    def _jobs(self) -> int:
        """Count the Spark jobs so far."""
        return len(self._spark.sparkContext.statusTracker().getJobIdsForGroup(None))

    def _job_seconds(self) -> float:
        """Take the time of a job that does next to nothing."""
        start = time.perf_counter()
        self._spark.range(1).collect()
        return time.perf_counter() - start

    def close(self) -> None:
        """End the session."""
        self._spark.stop()


def _most_memory() -> int:
    """Return the most bytes of memory that this process had; what getrusage returns begins with its parent's."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


class DeltaRs:
    """Merges with delta-rs."""

    def __init__(self, options: dict[str, str]) -> None:
        """Keep the options of the store."""
        self._options = options

    def merge(self, target: str, source: str, on: str, clauses: list[list[str | None]]) -> dict[str, Any]:
        """Merge a Parquet folder into a table and take the time.

        The source is handed over as a table, not as a stream: only then can delta-rs skip files by its keys.
        """
        import pyarrow.parquet as pq
        from deltalake import DeltaTable

        start = time.perf_counter()
        rows = pq.read_table(source.partition("://")[2] or source, filesystem=self._files())
        table = DeltaTable(target, storage_options=self._options)
        merger = table.merge(rows, predicate=on, source_alias="s", target_alias="t", streamed_exec=False)
        for kind, condition in clauses:
            add: dict[str | None, Callable[..., Any]] = {
                "update": merger.when_matched_update_all,
                "delete": merger.when_matched_delete,
                "insert": merger.when_not_matched_insert_all,
            }
            merger = add[kind](predicate=condition)
        merger.execute()
        return {"seconds": time.perf_counter() - start}

    def _files(self) -> Any:
        import pyarrow.fs as pafs

        if not self._options:
            return None
        return pafs.S3FileSystem(
            access_key=self._options["access_key_id"],
            secret_key=self._options["secret_access_key"],
            region=self._options["region"],
            scheme="http",
            endpoint_override=self._options["endpoint"].removeprefix("http://"),
        )

    def close(self) -> None:
        """Has nothing to end."""


def main() -> None:
    """Answers until the input ends."""
    engines: dict[str, type[Deltamerge | DeltaRs]] = {"deltamerge": Deltamerge, "delta-rs": DeltaRs}
    engine = engines[sys.argv[1]]
    with answers() as answer:
        requests = engine(json.loads(sys.argv[2]))
        serve(requests, answer)
        requests.close()


if __name__ == "__main__":
    main()
