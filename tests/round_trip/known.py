"""Cells that are known to fail, as data: what the failure says, and what the matrix shows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .features import DELTA_RS

READ_THEIRS, OVER_THEIRS = "we read theirs", "merge over theirs"
READ_OURS, OVER_OURS = "they read ours", "theirs over ours"
DIRECTIONS = (READ_THEIRS, READ_OURS, OVER_THEIRS, OVER_OURS)


@dataclass(frozen=True)
class Known:
    """A known failure.

    Args:
        says: What its message says, as a regular expression.
        shown: What the matrix shows.
    """

    says: str
    shown: str

    def tells(self, failure: Exception) -> bool:
        """Tells whether a failure is this one."""
        return re.search(self.says, str(failure)) is not None


_WRITES = (READ_THEIRS, OVER_THEIRS, OVER_OURS)
"""The ways in which the other engine writes."""

_REFUSED_BY_DELTA_RS = {
    "row tracking": ("RowTracking", "rowTracking", _WRITES),
    "in-commit timestamps": ("InCommitTimestamp", "inCommitTimestamp", _WRITES),
    "identity columns": ("IdentityColumns", "identityColumns", _WRITES),
    "column defaults": ("AllowColumnDefaults", "allowColumnDefaults", _WRITES),
    "type widening": ("TypeWidening", "typeWidening", DIRECTIONS),
    "clustered tables": ("ClusteredTable", "clustering", _WRITES),
}
"""By the feature's name: what delta-rs calls it, what the protocol does, and where delta-rs refuses it."""

KNOWN: dict[tuple[str, str, str], Known] = (
    {
        (feature, DELTA_RS, direction): Known(
            rf"Unsupported table features required: .*\b{said}\b", f"refuses: {shown}"
        )
        for feature, (said, shown, directions) in _REFUSED_BY_DELTA_RS.items()
        for direction in directions
    }
    | {
        ("special characters: partition values", DELTA_RS, direction): Known(
            """delta-rs reads .*"k":6,"v":"f","p":"".* where the table holds .*"k":6,"v":"f","p":null""",
            "reads its own '' as '', others NULL",
        )
        for direction in (READ_THEIRS,)
    }
    | {
        ("special characters: path with %20", DELTA_RS, direction): Known(
            r"File not found: .*a b/_delta_log", "does not find the table"
        )
        for direction in DIRECTIONS
    }
)
"""By feature, peer and direction."""
