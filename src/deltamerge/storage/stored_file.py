"""Files as the listings of a store show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class StoredFile:
    """A file as a listing shows it.

    Args:
        path: Relative to the table's root, decoded.
        size: Bytes.
        modification_time: Milliseconds since the epoch.
        e_tag: Differs where a file of the same name was replaced; None where the store has no such thing.
    """

    path: str
    size: int
    modification_time: int
    e_tag: str | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


# The stores' methods are called `list`, which hides the type's name inside their classes.
StoredFiles: TypeAlias = list[StoredFile]
