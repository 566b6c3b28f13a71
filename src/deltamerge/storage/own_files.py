"""The files that are in a table's folder, and may be deleted with it."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltamerge.storage.store import Store, StoredFile


def own_files(store: Store) -> list[StoredFile]:
    """List the files of a table's folder, without those that a symbolic link shows of a folder elsewhere."""
    found = store.list()
    if not store.is_local:
        return found
    root = Path(store.root).resolve()
    folders = {posixpath.dirname(file.path) for file in found}
    own = {folder for folder in folders if (root / folder).resolve().is_relative_to(root)}
    return [file for file in found if posixpath.dirname(file.path) in own]
