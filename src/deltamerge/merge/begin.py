"""What may begin of a merge before its source is known: loading the table's log."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from deltamerge.log.snapshot import Snapshot
from deltamerge.spark.table import Table
from deltamerge.storage.store import Store
from deltamerge.workers.files import Files


@dataclass(frozen=True)
class Begun:
    """A merge whose table is looked at while Spark looks at its source.

    Args:
        snapshot: Returns the table's newest version as it was then.
        opened: How tasks open the table's files, with those that were opened; None where they do not.
    """

    snapshot: Callable[[], Snapshot]
    opened: Files | None


def begin(table: Table) -> Begun:
    """Begin a merge into a table: load its log, in another thread if the table is remote."""
    opened = files_of_a_run(table.store)
    if table.store.is_local:
        snapshot = table.snapshot()
        return Begun(lambda: snapshot, opened)
    pool = ThreadPoolExecutor(1, "deltamerge-log")
    loading = pool.submit(table.snapshot)
    pool.shutdown(wait=False)
    return Begun(loading.result, opened)


def files_of_a_run(store: Store) -> Files | None:
    """Return how tasks open a store's files, with nothing opened yet; None where they do not."""
    return store.files.for_one_run() if isinstance(store.files, Files) else None
