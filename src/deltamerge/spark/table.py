"""A Delta table, seen from a Spark session."""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from deltamerge.exceptions import DeltaTableException
from deltamerge.log.commit_times import CommitTimes, version_at
from deltamerge.log.segment import LAST_CHECKPOINT
from deltamerge.log.snapshot import Snapshot, load_snapshot
from deltamerge.spark.config import wrong_value
from deltamerge.spark.default_file_system import in_default_file_system
from deltamerge.spark.hadoop_files import JvmFiles
from deltamerge.spark.length_limits import gathered_limits
from deltamerge.spark.session import conf_value, is_connect
from deltamerge.spark.store_options import session_store_options
from deltamerge.spark.task_store import TaskStore
from deltamerge.storage.credentials import StoreOptions, current_options
from deltamerge.storage.object_store import counting
from deltamerge.storage.store import Store, open_store
from deltamerge.storage.stored_file import SCHEME, uri_of
from deltamerge.storage.task_files import NotOpened
from deltamerge.workers.files import Files

logger = logging.getLogger("deltamerge.spark.table")

LOG_ACCESS = "spark.deltamerge.storage.logAccess"
"""The setting that says who reads and writes tables' logs: this process (``client``) or Spark's tasks (``server``)."""


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
        entry: Its whole name in the session's catalog; no parts where it was opened by its path.
    """

    spark: SparkSession
    store: Store
    name: str
    opened_schema: str | None = None
    options: StoreOptions = field(default_factory=dict, repr=False, compare=False)
    entry: tuple[str, ...] = ()

    @property
    def location(self) -> str:
        """The table's folder as a URL."""
        return uri_of(self.store.absolute(""))

    @property
    def reaches_files(self) -> bool:
        """Whether this process opens the table's files itself."""
        return not isinstance(self.store, TaskStore)

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Load the state at a version, the latest by default, and refuse what cannot be read."""
        return SNAPSHOTS.load(self.store, version)

    def snapshot_to_write(self) -> Snapshot:
        snapshot = self.snapshot()
        snapshot.check_writable()
        return snapshot

    def version_at(self, milliseconds: int) -> int:
        return version_at(CommitTimes.of(self.snapshot()), milliseconds)


def open_table(spark: SparkSession, path: str, options: StoreOptions | None = None, name: str | None = None) -> Table:
    """Return the table at a path or a URL, whether or not there is one yet.

    An option that is given wins over the session's setting, this one over what the environment has.
    """
    shown, path = name or path, in_default_file_system(spark, path)
    given, defaults = options or {}, session_store_options(spark, path)
    access = _log_access(spark)
    if access == "server":
        store: Store = _by_tasks(spark, path, given, defaults)
    elif is_connect(spark) and access == "auto" and SCHEME.match(path):
        store = _reached(spark, path, given, defaults)
    else:
        hadoop = None if is_connect(spark) else partial(JvmFiles, spark)
        store = open_store(path, options, defaults, hadoop)
    return Table(spark, store, shown, options=dict(given))


def _log_access(spark: SparkSession) -> str:
    value = (conf_value(spark, LOG_ACCESS) or "auto").lower()
    if value not in ("auto", "client", "server"):
        raise wrong_value(LOG_ACCESS, value, "one of auto, client, server")
    return value


def _reached(spark: SparkSession, path: str, options: StoreOptions, defaults: Mapping[str, str]) -> Store:
    """Return a store that this client reaches, or else one that tasks reach."""
    try:
        store = open_store(path, options, defaults)
        with suppress(FileNotFoundError):
            store.get(LAST_CHECKPOINT)
    except (DeltaTableException, OSError) as error:
        logger.info("Spark's tasks read the log in %s: this client does not. %s", path, error)
        return _by_tasks(spark, path, options, defaults)
    return store


def _by_tasks(spark: SparkSession, path: str, options: StoreOptions, defaults: Mapping[str, str]) -> TaskStore:
    scheme = SCHEME.match(path)
    current = current_options(options, path, "" if scheme is None else scheme.group(1))
    return TaskStore(spark, path, _files_of(path, options, defaults), current, defaults)


def _files_of(path: str, options: StoreOptions, defaults: Mapping[str, str]) -> Files | NotOpened:
    try:
        return open_store(path, options, defaults).files
    except DeltaTableException as error:
        return NotOpened(error.message)


def counting_requests(table: Table) -> Table:
    return replace(table, store=counting(table.store))


def spark_schema(snapshot: Snapshot) -> StructType:
    schema_json: dict[str, Any] = json.loads(snapshot.metadata.schema_string or '{"type":"struct","fields":[]}')
    schema = StructType.fromJson(schema_json)
    return gathered_limits(schema)
