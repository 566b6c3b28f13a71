"""A table in a file system of Hadoop's, such as HDFS."""

from __future__ import annotations

import contextlib
import posixpath
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Protocol

from deltamerge.storage.local_store import TEMP_SUFFIX
from deltamerge.storage.stored_file import SCHEME, StoredFile, StoredFiles, not_atomic
from deltamerge.storage.task_files import NotOpened
from deltamerge.workers.files import Files
from deltamerge.workers.ranged_file import open_ranges

# Here a rename fails where the target exists, and is atomic: what Delta's HDFSLogStore and AzureLogStore build on.
_LISTINGS = 3
ATOMIC_RENAME = frozenset({"hdfs", "viewfs", "abfs", "abfss", "wasb", "wasbs", "adl"})
"""The schemes of such file systems."""


@dataclass(frozen=True)
class FoundFile:
    """A file as Hadoop lists it.

    Args:
        path: Without scheme and authority, not percent-encoded.
        modification_time: Milliseconds since the epoch.
    """

    path: str
    size: int
    modification_time: int


class HadoopFiles(Protocol):
    """A file system of Hadoop's. Paths begin with a slash, without scheme and authority, and are not percent-encoded.

    Where a file or folder does not exist, a method raises FileNotFoundError, unless it says otherwise.

    Attributes:
        url: The file system's, with the authority that a path may leave out: Spark's names of files have it.
    """

    url: str

    def files(self, folder: str, *, recursive: bool, after: str = "") -> Iterator[FoundFile]:
        """Return the files in a folder; of one that is not searched below only paths greater than `after`."""

    def size(self, path: str) -> int:
        """Return a file's size in bytes; a folder does not exist as a file."""

    def read(self, path: str, start: int, length: int) -> bytes:
        """Read a range of a file."""

    def create(self, path: str, content: bytes) -> None:
        """Write a new file, with the folders above it."""

    def rename(self, before: str, after: str, *, overwrite: bool) -> None:
        """Rename a file.

        Raises:
            FileExistsError: There is a file of this name, and it is not to be replaced.
        """

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it, if it exists."""

    def make_folder(self, path: str) -> None:
        """Make a folder with all above it."""


class HadoopStore:
    """A folder in a file system of Hadoop's; see `Store`.

    Args:
        root: The table's URL, without a last slash.
        system: The file system that the URL names.
        has_single_writer: Whether the user says that nobody else writes into the table.
    """

    is_local = False

    def __init__(
        self, root: str, system: HadoopFiles, files: Files | NotOpened, *, has_single_writer: bool = False
    ) -> None:
        self.root = root
        self.files: Files | NotOpened = files
        self._system = system
        self._is_atomic = root.partition(":")[0].lower() in ATOMIC_RENAME
        self._has_single_writer = has_single_writer
        self._prefix = _path_of(root).rstrip("/")

    def list(self, prefix: str = "") -> StoredFiles:
        return self._listed(prefix, recursive=True)

    def list_folder(self, folder: str, start_after: str | None = None) -> StoredFiles:
        return self._listed(folder, recursive=False, after="" if start_after is None else self._key(start_after))

    def get(self, path: str) -> bytes:
        key = self._key(path)
        return self._system.read(key, 0, self._system.size(key))

    def put_if_absent(self, path: str, content: bytes) -> None:
        """Write a file under another name and rename it, which is atomic; see `Store.put_if_absent`."""
        self.check_commits()
        self._put(path, content, overwrite=False)

    def check_commits(self) -> None:
        if not self._is_atomic and not self._has_single_writer:
            scheme = self.root.partition(":")[0]
            raise not_atomic(f"it is not known that {scheme} creates a file atomically", self.root)

    def put(self, path: str, content: bytes) -> None:
        self._put(path, content, overwrite=True)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._system.delete(self._key(path))

    def make_folder(self, folder: str) -> None:
        self._system.make_folder(self._key(folder))

    def delete_folder(self, folder: str) -> None:
        self._system.delete(self._key(folder))

    def rename(self, source: str, target: str) -> None:
        self._system.make_folder(posixpath.dirname(self._key(target)))
        self._system.rename(self._key(source), self._key(target), overwrite=True)

    def exists(self, path: str) -> bool:
        try:
            self._system.size(self._key(path))
        except FileNotFoundError:
            return False
        return True

    def absolute(self, path: str) -> str:
        if SCHEME.match(path):
            return path
        if path.startswith("/"):
            return self.root[: len(self.root) - len(self._prefix)] + path
        return f"{self.root}/{path}" if path else self.root

    def open_input(self, path: str) -> IO[bytes]:
        key = self._key(path)
        return open_ranges(self._system.size(key), lambda first, end: self._system.read(key, first, end - first))

    def _put(self, path: str, content: bytes, *, overwrite: bool) -> None:
        key = self._key(path)
        folder, name = posixpath.split(key)
        temporary = f"{folder}/.{name}.{uuid.uuid4().hex}{TEMP_SUFFIX}"
        try:
            self._system.create(temporary, content)
            self._system.rename(temporary, key, overwrite=overwrite)
        except BaseException:
            # The first error is the one to report, whatever goes wrong after it.
            with contextlib.suppress(Exception):
                self._system.delete(temporary)
            raise

    def _listed(self, folder: str, *, recursive: bool, after: str = "") -> StoredFiles:
        key, failure = self._key(folder), None
        for _ in range(_LISTINGS):
            try:
                found = [self._stored(each) for each in self._system.files(key, recursive=recursive, after=after)]
                return sorted(found, key=lambda file: file.path)
            except FileNotFoundError as error:
                # A folder below it may have gone meanwhile, such as one of a Spark task that another one replaces.
                if not recursive or not self._has_folder(key):
                    return []
                failure = error
        assert failure is not None
        raise failure

    def _has_folder(self, key: str) -> bool:
        try:
            next(iter(self._system.files(key, recursive=False)), None)
        except FileNotFoundError:
            return False
        return True

    def _stored(self, file: FoundFile) -> StoredFile:
        relative = file.path[len(self._prefix) :].lstrip("/")
        tag = f"{file.modification_time:x}-{file.size:x}"
        return StoredFile(relative, file.size, file.modification_time, tag)

    def _key(self, path: str) -> str:
        if SCHEME.match(path):
            # An absolute path, as shallow clones have, is reachable where it is in the same file system.
            system = self.root[: len(self.root) - len(self._prefix)]
            if not path.startswith(system + "/"):
                raise FileNotFoundError(f"{path} is not in the file system of {self.root}")
            return path[len(system) :]
        if path.startswith("/"):
            return path
        return "/".join(part for part in (self._prefix, path.strip("/")) if part) or "/"


def _path_of(url: str) -> str:
    return "/" + url.partition(":")[2].removeprefix("//").partition("/")[2].lstrip("/")
