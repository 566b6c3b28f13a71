"""Tables that only take appends (``delta.appendOnly``)."""

from __future__ import annotations

from deltamerge.exceptions import DeltaUnsupportedOperationException
from deltamerge.log.properties import is_enabled
from deltamerge.log.snapshot import Snapshot


def refuse_append_only(snapshot: Snapshot, name: str, why: str) -> None:
    """Refuse to delete rows of a table that only takes appends. Protocol: Append-only Tables."""
    if is_enabled(snapshot.metadata.configuration, "delta.appendOnly"):
        raise DeltaUnsupportedOperationException(
            "DELTA_CANNOT_MODIFY_APPEND_ONLY",
            f"This table is configured to only allow appends, and {why}. Nothing was changed. To permit it: ALTER "
            "TABLE … SET TBLPROPERTIES (delta.appendOnly=false).",
            parameters={"table_name": snapshot.metadata.name or name, "config": "delta.appendOnly"},
        )
