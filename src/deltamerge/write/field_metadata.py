"""The metadata of a frame's fields, which new columns keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE

# The value of a column in files from before it was added.
_OWN = frozenset({"EXISTS_DEFAULT"})


def without_sparks_own(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field's metadata without what Spark notes of the relation that it is read from.

    A column that kept ``__metadata_col``, which the fields of ``_metadata`` have, would be hidden in the new table.
    """
    return {k: v for k, v in metadata.items() if k == CHAR_VARCHAR_TYPE or not (k.startswith("__") or k in _OWN)}
