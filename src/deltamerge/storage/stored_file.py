"""Files as the listings of a store show them, how their paths begin, and the option of a single writer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from deltamerge.exceptions import DeltaTableException
from deltamerge.storage.task_files import store_kind

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):/")
"""A scheme counts only with a slash behind it: 'part:1.parquet' is a relative name."""


def absolute_path(root: str, path: str) -> str:
    if SCHEME.match(path) or path.startswith("/"):
        return path
    return f"{root}/{path}" if path else root


def uri_of(path: str) -> str:
    """Return the URI of an absolute local path or a URL, not percent-encoded.

    To Spark a path without a scheme is one of Hadoop's default file system.
    """
    return path if SCHEME.match(path) else f"file:{path}"


def is_in_store_of(root: str, path: str) -> bool:
    """Return whether a path in a table's log is relative, or names the bucket or file system of the table's root."""
    return SCHEME.match(path) is None or place_of(root) == place_of(path)


def place_of(url: str) -> tuple[str, str]:
    """Return a URL's kind of store, which several schemes name, and its bucket or file system."""
    scheme = SCHEME.match(url)
    if scheme is None or scheme.group(1).lower() == "file":
        return "file", ""
    name = scheme.group(1)
    return store_kind(name) or name.lower(), url.partition("://")[2].partition("/")[0]


@dataclass(frozen=True)
class StoredFile:
    """A file as a listing shows it; `path` is relative to the table's root, decoded.

    Args:
        modification_time: Milliseconds since the epoch.
        e_tag: Differs where a file of the same name was replaced; None where the store has no tags.
    """

    path: str
    size: int
    modification_time: int
    e_tag: str | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


# The stores' methods are called `list`, which hides the type's name inside their classes.
StoredFiles: TypeAlias = list[StoredFile]


SINGLE_WRITER = "single_writer"


def has_single_writer(options: Mapping[str, object]) -> bool:
    """Return whether a table's options say that nobody else writes into it."""
    return str(options.get(SINGLE_WRITER, "false")).lower() == "true"


NOT_ATOMIC = "DELTA_UNSUPPORTED_ATOMIC_WRITE"


def not_atomic(why: str, root: str) -> DeltaTableException:
    """Return the error of a write that two writers might both take for theirs."""
    return DeltaTableException(
        NOT_ATOMIC,
        f"Nothing was written: {why}, so that two writers could both commit the same version. If nobody else ever "
        f"writes into the table, set the option {SINGLE_WRITER}=true where you open it.",
        parameters={"path": root},
    )
