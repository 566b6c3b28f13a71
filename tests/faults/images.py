"""What a process that is killed leaves of a table: a copy of its folder at every step and around every write."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deltamerge.storage.local_store import LocalStore

WRITES = ("put_if_absent", "put", "delete", "delete_folder", "rename", "make_folder")


@dataclass
class Images:
    """Copies of a table's folder, by what was being done.

    Args:
        where: The folder for the copies.
    """

    table: Path
    where: Path
    taken: dict[str, Path] = field(default_factory=dict)

    def take(self, what: str) -> None:
        name = f"{len(self.taken):03d}-{what}"
        self.taken[name] = self.where / f"{len(self.taken):03d}"
        shutil.copytree(self.table, self.taken[name])

    def step(self, name: str, description: str) -> None:
        """Is told of a merge's steps."""
        self.take(name)


@contextmanager
def around_writes(do: Callable[[str], None]) -> Iterator[None]:
    """Calls something before and after each call that changes files of a table, with what is being done."""

    def wrapped(name: str) -> Callable[..., Any]:
        original = getattr(LocalStore, name)

        def call(store: LocalStore, *arguments: Any) -> Any:
            what = arguments[0] if isinstance(arguments[0], str) else "files"
            do(f"before {name} {what}")
            result = original(store, *arguments)
            do(f"after {name} {what}")
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in WRITES:
            patch.setattr(LocalStore, name, wrapped(name))
        yield
