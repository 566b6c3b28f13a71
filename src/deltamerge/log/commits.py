"""Single commits: reading their actions, and their lines for replay."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from deltamerge.exceptions import DeltaLogCorruptException
from deltamerge.log.actions import Action, CommitInfo, first_of, from_json
from deltamerge.log.segment import commit_path
from deltamerge.storage.store import Store

_AHEAD = 16


@dataclass(frozen=True)
class Commit:
    """One version's actions: all that this library knows, in the file's order."""

    version: int
    actions: tuple[Action, ...]

    @property
    def info(self) -> CommitInfo | None:
        return first_of(CommitInfo, self.actions)


# How long is waited before an empty commit file is read again.
_EMPTY_SECONDS = (0.1, 0.3, 1.0)


def read_commit(store: Store, version: int) -> Commit:
    """Read one commit with all its actions, as conflict checks need it.

    Raises:
        DeltaLogCorruptException: Also where it stays empty: what it changes is not known.
    """
    path = commit_path(version)
    content = filled(store, path, store.get(path))
    if not content.strip():
        raise damaged(store.absolute(path), "it is empty, so that what it changes is not known")
    return Commit(version, tuple(parse_actions(content, store.absolute(path))))


def filled(store: Store, path: str, content: bytes) -> bytes:
    """Return a commit's content, read again where it is empty.

    Where a file is not created atomically, its writer may be about to fill it.
    """
    for seconds in _EMPTY_SECONDS:
        if content.strip():
            break
        time.sleep(seconds)
        content = store.get(path)
    return content


def parse_actions(content: bytes, where: str) -> Iterator[Action]:
    """Parse all lines of a commit (or of a V2 checkpoint's JSON file).

    `where` is the file's path, for messages.
    """
    for number, line in enumerate(content.split(b"\n"), 1):
        if line and not line.isspace():
            action = parse_action(line, where, number)
            if action is not None:
                yield action


NO_ACTION = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What comes of making an action of other JSON."""


def parse_action(line: bytes, where: str, number: int) -> Action | None:
    try:
        return from_json(json.loads(line))
    except NO_ACTION as error:
        raise damaged(where, f"line {number} is no action ({error!r})") from error


def damaged(where: str, why: str) -> DeltaLogCorruptException:
    return DeltaLogCorruptException(
        "DELTA_STATE_RECOVER_ERROR",
        f"The log file {where} is damaged: {why}. Restore it from a backup.",
        parameters={"operation": where},
    )


def read_ahead(
    store: Store, paths: Iterable[str], read: Callable[[str], bytes] | None = None
) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of files in order, some read at the same time, as object stores answer slowly.

    Args:
        read: Reads what is wanted of a file; None for all of it.
    """
    read = read or store.get
    remaining = iter(paths)
    first = list(islice(remaining, _AHEAD))
    if len(first) < 2 or store.is_local:
        for path in (*first, *remaining):
            yield path, read(path)
        return
    with ThreadPoolExecutor(_AHEAD, thread_name_prefix="deltamerge-log") as pool:
        window = first
        while window:
            yield from zip(window, pool.map(read, window), strict=True)
            window = list(islice(remaining, _AHEAD))
