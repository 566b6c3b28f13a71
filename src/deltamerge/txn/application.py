"""An application's transaction: what it has written once, it does not write again.

Source: delta-spark's ``DeltaCommand.hasBeenExecuted``; protocol: Transaction Identifiers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from deltamerge.exceptions import DeltaIllegalArgumentException
from deltamerge.log.actions import SetTransaction
from deltamerge.log.snapshot import Snapshot
from deltamerge.spark.config import KEYS, MergeConf


@dataclass(frozen=True)
class ApplicationTransaction:
    """An application's name for a write, and its number, which grows with each write."""

    app_id: str
    version: int

    def is_in(self, snapshot: Snapshot) -> bool:
        """Return whether a table has the transaction already, or a later one."""
        seen = snapshot.transactions_at(int(time.time() * 1000)).get(self.app_id)
        return seen is not None and seen.version >= self.version

    def action(self, now: int) -> SetTransaction:
        """Return the action that records it; `now` is in milliseconds since the epoch."""
        return SetTransaction(self.app_id, self.version, now)


@dataclass(frozen=True)
class NoTransaction:
    """That a write is no application's transaction, also where the session names one."""


NO_TRANSACTION = NoTransaction()


def session_transaction(conf: MergeConf) -> ApplicationTransaction | None:
    """Return the transaction that the session's settings name; app id or version without the other is refused."""
    return _transaction(conf.txn_app_id, conf.txn_version, KEYS["txn_app_id"], KEYS["txn_version"])


def option_transaction(app_id: str | None, version: int | None) -> ApplicationTransaction | None:
    """Return the transaction that the options of a write name; app id or version without the other is refused."""
    if version is not None and version < 0:
        raise DeltaIllegalArgumentException(
            "DELTA_ILLEGAL_OPTION",
            f"Invalid value '{version}' for option 'txn_version', must be a non-negative integer",
            parameters={
                "input": str(version),
                "name": "txn_version",
                "explain": "must be a non-negative integer",
            },
        )
    return _transaction(app_id, version, "txn_app_id", "txn_version")


def _transaction(
    app_id: str | None, version: int | None, app_key: str, version_key: str
) -> ApplicationTransaction | None:
    if app_id is not None and version is not None:
        return ApplicationTransaction(app_id, version)
    if app_id is None and version is None:
        return None
    raise DeltaIllegalArgumentException(
        "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
        f"Invalid options for idempotent writes: both {app_key} and {version_key} must be set, or neither; "
        f"{app_key} is {_shown(app_id)} and {version_key} is {_shown(version)}.",
    )


def _shown(value: object) -> str:
    return "not set" if value is None else repr(value)
