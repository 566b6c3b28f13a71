"""MergeIntoCommand: a merge to run, and what may begin before it runs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from deltamerge.log.snapshot import Snapshot
from deltamerge.merge.executors.merge_changes import AppendedRows
from deltamerge.merge.planning.plan import Alternative
from deltamerge.merge.statement import MergeStatement
from deltamerge.spark.config import MergeConf
from deltamerge.spark.table import Table
from deltamerge.storage.store import Store
from deltamerge.txn.application import ApplicationTransaction, NoTransaction
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


@dataclass(frozen=True)
class MergeIntoCommand:
    """A merge to run.

    Args:
        timestamp: The value of ``current_timestamp()`` in it, microseconds since 1970; None for its start.
        ruled_out: Operators that are not to be used, each with the reason.
        transaction: The application's transaction; None for the session's, if it has one, `NO_TRANSACTION` for none.
        user_metadata: The commit's ``userMetadata``; None for the session's.
        snapshot: The version that the source was computed from: the merge reads it too, and every later commit that
            changes rows conflicts. None for the newest version.
        returns_changes: Whether the changed rows are asked for, so that they are written as change data.
        appended: Rows to commit besides.
        begun: What was begun of the merge before it runs; None for nothing.
    """

    table: Table
    statement: MergeStatement
    timestamp: int | None = None
    ruled_out: tuple[Alternative, ...] = ()
    transaction: ApplicationTransaction | NoTransaction | None = None
    user_metadata: str | None = None
    snapshot: Snapshot | None = None
    returns_changes: bool = False
    appended: AppendedRows | None = None
    begun: Begun | None = None

    def conf_over(self, session: MergeConf) -> MergeConf:
        """Return the session's settings with what was asked for at the call."""
        conf = session
        if self.user_metadata is not None:
            conf = replace(conf, user_metadata=self.user_metadata)
        if not self.table.reaches_files:
            conf = replace(conf, driver_bytes=0)
        if self.transaction is None:
            return conf
        named = None if isinstance(self.transaction, NoTransaction) else self.transaction
        app_id, version = (None, None) if named is None else (named.app_id, named.version)
        # The session's own number is not used up.
        return replace(conf, txn_app_id=app_id, txn_version=version, txn_version_auto_reset=False)
