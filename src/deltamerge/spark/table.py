"""A Delta table, seen from a Spark session."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from deltamerge.log.snapshot import Snapshot, load_snapshot
from deltamerge.spark.hadoop_files import JvmFiles
from deltamerge.spark.session import is_connect
from deltamerge.spark.store_options import session_store_options
from deltamerge.storage.store import Store, open_store
from deltamerge.storage.stored_file import SCHEME


class SnapshotCache:
    """Keeps the newest snapshot of the `size` tables used last, so that a later load reads new commits only."""

    def __init__(self, size: int = 16) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._snapshots: OrderedDict[str, Snapshot] = OrderedDict()

    def load(self, store: Store, version: int | None = None) -> Snapshot:
        """Return the snapshot of a version, which is not kept; by default the newest."""
        if version is not None:
            return load_snapshot(store, version=version)
        with self._lock:
            previous = self._snapshots.get(store.root)
        snapshot = load_snapshot(store, previous=previous)
        with self._lock:
            self._snapshots[store.root] = snapshot
            self._snapshots.move_to_end(store.root)
            while len(self._snapshots) > self._size:
                self._snapshots.popitem(last=False)
        return snapshot


SNAPSHOTS = SnapshotCache()


@dataclass(frozen=True)
class Table:
    """A table's location, and the session that reads and writes its data.

    Args:
        name: The table's name in messages: its path, URL or catalog name.
        opened_schema: The schema, as JSON, that it had when a user opened it; None where nobody did.
    """

    spark: SparkSession
    store: Store
    name: str
    opened_schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def location(self) -> str:
        """The table's folder as a URL."""
        root = self.store.absolute("")
        return root if SCHEME.match(root) else f"file:{root}"

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Load the state at a version, the latest by default, and refuse what cannot be read.

        Raises:
            DeltaTableNotFoundException: There is no table, or no such version.
            DeltaLogCorruptException: The log has gaps or cannot be read.
            DeltaUnsupportedFeatureException: Reading needs a feature that is not implemented.
        """
        return SNAPSHOTS.load(self.store, version)


def open_table(
    spark: SparkSession, path: str, options: Mapping[str, str] | None = None, name: str | None = None
) -> Table:
    """Return the table at a local path or a URL, whether or not there is one yet.

    An option that is given wins over the session's setting, this one over what the environment has.
    """
    hadoop = None if is_connect(spark) else partial(JvmFiles, spark)
    store = open_store(path, options, session_store_options(spark, path), hadoop)
    return Table(spark, store, name or path, options=dict(options or {}))


def spark_schema(snapshot: Snapshot) -> StructType:
    """Return a snapshot's schema as Spark's type, with the columns' metadata."""
    schema_json: dict[str, Any] = json.loads(snapshot.metadata.schema_string or '{"type":"struct","fields":[]}')
    return StructType.fromJson(schema_json)
