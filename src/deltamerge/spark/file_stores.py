"""The stores of a table's files: a shallow clone names files in its source's folder, which may be in another store."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TypeAlias

from deltamerge.spark.table import Table, open_table
from deltamerge.storage.store import Store
from deltamerge.storage.stored_file import is_in_store_of, place_of

StoreOf: TypeAlias = Callable[[str], Store]
"""Returns the store that has a file, by its path in the log."""


def file_stores(table: Table) -> StoreOf:
    """Return what opens the stores of a table's files, each once: its own, and others with the same options."""
    others: dict[tuple[str, str], Store] = {}
    lock = Lock()

    def store_of(path: str) -> Store:
        if is_in_store_of(table.store.root, path):
            return table.store
        place = place_of(path)
        with lock:
            if place not in others:
                others[place] = open_table(table.spark, "/".join(path.split("/")[:3]), table.options).store
            return others[place]

    return store_of
