"""A table in an object store, through obstore."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import IO, Any, TypeAlias, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError

from deltamerge.storage.first_contact import FirstContact
from deltamerge.storage.stored_file import SCHEME, StoredFile, StoredFiles
from deltamerge.storage.task_files import NotOpened
from deltamerge.workers.files import Files
from deltamerge.workers.ranged_file import open_ranges

NO_FILES = NotOpened("tasks do not open the table's store")

# obstore's stores, metadata and buffers have no public common type for all its versions.
_Inner: TypeAlias = Any
_Meta: TypeAlias = Any
_Answer = TypeVar("_Answer")


class ObjectStore:
    """A prefix in an object store; `inner` is obstore's store of the bucket or container."""

    is_local = False

    def __init__(
        self,
        root: str,
        inner: _Inner,
        prefix: str,
        files: Files | NotOpened = NO_FILES,
        first: FirstContact | None = None,
    ) -> None:
        self.root = root
        self.files = files
        self._inner = inner
        self._first = first
        self._prefix = prefix.strip("/")

    def list(self, prefix: str = "", start_after: str | None = None) -> StoredFiles:
        """List all files below a folder; see `Store.list`."""
        offset = None if start_after is None else self._key(start_after)

        def listed(inner: _Inner) -> list[_Meta]:
            batches = obstore.list(inner, prefix=self._key(prefix) or None, offset=offset)
            return [meta for batch in batches for meta in batch]

        return sorted(map(self._stored, self._asked(listed)), key=lambda f: f.path)

    def list_folder(self, folder: str, start_after: str | None = None) -> StoredFiles:
        """List the files directly in a folder; see `Store.list_folder`."""
        folder = folder.strip("/")
        if start_after is None:
            listed = self._asked(lambda inner: obstore.list_with_delimiter(inner, prefix=self._key(folder) or None))
            return sorted(map(self._stored, listed["objects"]), key=lambda f: f.path)
        return [file for file in self.list(folder, start_after) if file.path.rpartition("/")[0] == folder]

    def get(self, path: str) -> bytes:
        """Read a whole file; see `Store.get`."""
        return self._asked(lambda inner: bytes(obstore.get(inner, self._key(path)).bytes()))

    def put_if_absent(self, path: str, content: bytes) -> None:
        """Write a file unless it exists; see `Store.put_if_absent`."""
        try:
            obstore.put(self._inner, self._key(path), content, mode="create", use_multipart=False)
        except AlreadyExistsError as error:
            raise FileExistsError(f"{self.absolute(path)} exists") from error

    def put(self, path: str, content: bytes) -> None:
        """Write or replaces a file; see `Store.put`."""
        obstore.put(self._inner, self._key(path), content)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; see `Store.delete`."""
        keys = [self._key(path) for path in paths]
        if not keys:
            return
        try:
            obstore.delete(self._inner, keys)
        except FileNotFoundError:
            # Some stores stop at the first absent key.
            for key in keys:
                with contextlib.suppress(FileNotFoundError):
                    obstore.delete(self._inner, key)

    def make_folder(self, folder: str) -> None:
        """Do nothing: there are no folders; see `Store.make_folder`."""

    def delete_folder(self, folder: str) -> None:
        """Delete everything below a prefix; see `Store.delete_folder`."""
        self.delete([file.path for file in self.list(folder)])

    def rename(self, source: str, target: str) -> None:
        """Rename a file; see `Store.rename`."""
        obstore.rename(self._inner, self._key(source), self._key(target), overwrite=True)

    def exists(self, path: str) -> bool:
        """Return whether a file exists; see `Store.exists`."""
        try:
            obstore.head(self._inner, self._key(path))
        except FileNotFoundError:
            return False
        return True

    def absolute(self, path: str) -> str:
        """Return the URL; see `Store.absolute`."""
        if SCHEME.match(path) or path.startswith("/"):
            return path
        return f"{self.root}/{path}" if path else self.root

    def open_input(self, path: str) -> IO[bytes]:
        """Open a file for reading; see `Store.open_input`."""
        key = self._key(path)
        size = obstore.head(self._inner, key)["size"]
        return open_ranges(size, lambda first, end: obstore.get_range(self._inner, key, start=first, end=end))

    def _asked(self, request: Callable[[_Inner], _Answer]) -> _Answer:
        if self._first is None:
            return request(self._inner)
        # That a file is not found may mean that the bucket is not.
        answer = self._first.ask(request)
        self._first = None
        return answer

    def _key(self, path: str) -> str:
        if SCHEME.match(path):
            # An absolute path, as shallow clones have, is reachable where it is in the same bucket.
            bucket = self.root[: len(self.root) - len(self._prefix)] if self._prefix else self.root + "/"
            if not path.startswith(bucket):
                raise FileNotFoundError(f"{path} is not in the store of {self.root}")
            return path[len(bucket) :]
        if path.startswith("/"):
            return path.strip("/")
        return "/".join(part for part in (self._prefix, path.strip("/")) if part)

    def _stored(self, meta: _Meta) -> StoredFile:
        path = meta["path"]
        relative = path[len(self._prefix) :].lstrip("/") if self._prefix else path
        modified = int(meta["last_modified"].timestamp() * 1000)
        return StoredFile(relative, meta["size"], modified, meta["e_tag"])
