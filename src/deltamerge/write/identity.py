"""Identity columns: numbers that the table gives to its rows (Protocol: Identity Columns)."""

from __future__ import annotations

from typing import Any

IDENTITY = "delta.identity."
START = "delta.identity.start"
STEP = "delta.identity.step"
HIGH_WATER_MARK = "delta.identity.highWaterMark"
ALLOW_EXPLICIT_INSERT = "delta.identity.allowExplicitInsert"


def identity_metadata(start: int, step: int, *, allow_explicit_insert: bool) -> dict[str, Any]:
    """Gives the field metadata of a new identity column.

    Args:
        start: The first value.
        step: The difference between one value and the next.
        allow_explicit_insert: Whether an INSERT may give values.

    Returns:
        The metadata; there is no high water mark before the first value.

    Raises:
        ValueError: The step is 0.
    """
    if step == 0:
        raise ValueError("column identity generation requires step to be non-zero")
    return {START: start, STEP: step, ALLOW_EXPLICIT_INSERT: allow_explicit_insert}
