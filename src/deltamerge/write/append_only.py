"""Tables that only take appends (``delta.appendOnly``)."""

from __future__ import annotations

from deltamerge.errors import DeltaAnalysisException
from deltamerge.log.properties import is_enabled
from deltamerge.log.snapshot import Snapshot


def refuse_append_only(snapshot: Snapshot, why: str) -> None:
    """Refuses to take rows out of a table that only takes appends.

    Args:
        snapshot: The table.
        why: What would change its rows, for the message.

    Raises:
        DeltaAnalysisException: It only takes appends. Protocol: Append-only Tables.
    """
    if is_enabled(snapshot.metadata, "delta.appendOnly", default=False):
        raise DeltaAnalysisException(
            "DELTA_CANNOT_MODIFY_APPEND_ONLY",
            f"This table is configured to only allow appends, and {why}. Nothing was changed. To permit it: ALTER "
            "TABLE … SET TBLPROPERTIES (delta.appendOnly=false).",
            sqlstate="42809",
        )
