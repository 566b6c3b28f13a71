"""A table in an object store, through obstore."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import IO, TYPE_CHECKING, Any, TypeAlias, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from deltamerge.storage.first_contact import FirstContact
from deltamerge.storage.stored_file import SCHEME, StoredFile, StoredFiles, absolute_path, is_in_store_of
from deltamerge.storage.task_files import NotOpened
from deltamerge.workers.files import Files
from deltamerge.workers.obstore_client import reason_of
from deltamerge.workers.ranged_file import open_ranges
from deltamerge.workers.request_counter import RequestCounter, RequestCounts

if TYPE_CHECKING:
    from deltamerge.storage.store import Store

# What the stores return or delete by one request.
_LISTED_AT_ONCE = 1_000
_DELETED_AT_ONCE = 1_000
# A larger file is sent in parts.
_ONE_REQUEST_BYTES = 64 << 20
NO_FILES = NotOpened("tasks do not open the table's store")

# obstore's stores, metadata and buffers have no public common type for all its versions.
_Inner: TypeAlias = Any
_Meta: TypeAlias = Any
_Answer = TypeVar("_Answer")


class ObjectStore:
    """A prefix in an object store, see `Store`; `inner` is obstore's store of the bucket or container.

    Args:
        requests: Counts the requests; None where nobody asks for them.
    """

    is_local = False

    def __init__(
        self,
        root: str,
        inner: _Inner,
        prefix: str,
        files: Files | NotOpened = NO_FILES,
        first: FirstContact | None = None,
        requests: RequestCounter | None = None,
    ) -> None:
        self.root = root
        self.files = files
        self.requests = requests
        self._inner = inner
        self._first = first
        self._prefix = prefix.strip("/")

    def list(self, prefix: str = "") -> StoredFiles:
        return self._listed(prefix, None)

    def _listed(self, prefix: str, offset: str | None) -> StoredFiles:
        def listed(inner: _Inner) -> list[_Meta]:
            batches = obstore.list(inner, prefix=self._key(prefix) or None, offset=offset)
            return [meta for batch in batches for meta in batch]

        found = self._asked(listed)
        self._count(requests=max(0, len(found) - 1) // _LISTED_AT_ONCE)
        return self._files(found, prefix)

    def list_folder(self, folder: str, start_after: str | None = None) -> StoredFiles:
        folder = folder.strip("/")
        if start_after is None:
            listed = self._asked(lambda inner: obstore.list_with_delimiter(inner, prefix=self._key(folder) or None))
            return self._files(listed["objects"], folder)
        found = self._listed(folder, self._key(start_after))
        return [file for file in found if file.path.rpartition("/")[0] == folder]

    def get(self, path: str) -> bytes:
        content = self._asked(lambda inner: bytes(obstore.get(inner, self._key(path)).bytes()))
        self._count(read=len(content))
        return content

    def put_if_absent(self, path: str, content: bytes) -> None:
        try:
            with self._request():
                obstore.put(self._inner, self._key(path), content, mode="create", use_multipart=False)
        except AlreadyExistsError as error:
            raise FileExistsError(f"{self.absolute(path)} exists") from error
        self._count(written=len(content))

    def check_commits(self) -> None:
        """Do nothing: these stores create a file only where there is none."""

    def put(self, path: str, content: bytes) -> None:
        with self._request():
            obstore.put(self._inner, self._key(path), content, use_multipart=len(content) > _ONE_REQUEST_BYTES)
        self._count(written=len(content))

    def delete(self, paths: Iterable[str]) -> None:
        keys = [self._key(path) for path in paths]
        if not keys:
            return
        try:
            with self._request(-(-len(keys) // _DELETED_AT_ONCE)):
                obstore.delete(self._inner, keys)
        except FileNotFoundError:
            # Some stores stop at the first absent key.
            for key in keys:
                with contextlib.suppress(FileNotFoundError), self._request():
                    obstore.delete(self._inner, key)

    def make_folder(self, folder: str) -> None:
        """Do nothing: there are no folders; see `Store.make_folder`."""

    def delete_folder(self, folder: str) -> None:
        self.delete([file.path for file in self.list(folder)])

    def rename(self, source: str, target: str) -> None:
        with self._request(2):
            obstore.rename(self._inner, self._key(source), self._key(target), overwrite=True)

    def exists(self, path: str) -> bool:
        try:
            with self._request():
                obstore.head(self._inner, self._key(path))
        except FileNotFoundError:
            return False
        return True

    def absolute(self, path: str) -> str:
        return absolute_path(self.root, path)

    def open_input(self, path: str) -> IO[bytes]:
        key = self._key(path)
        with self._request():
            size = obstore.head(self._inner, key)["size"]

        def read(first: int, end: int) -> Any:  # noqa: ANN401
            self._count(read=end - first)
            with self._request():
                return obstore.get_range(self._inner, key, start=first, end=end)

        return open_ranges(size, read)

    def counting(self) -> ObjectStore:
        """Return this store with a count of its own, of requests by this object and by its `files` in this process."""
        requests = RequestCounter()
        files = self.files if isinstance(self.files, NotOpened) else self.files.counted_by(requests)
        return ObjectStore(self.root, self._inner, self._prefix, files, self._first, requests)

    def _asked(self, request: Callable[[_Inner], _Answer]) -> _Answer:
        with self._request():
            if self._first is None:
                return request(self._inner)
            # That a file is not found may mean that the bucket is not.
            answer = self._first.ask(request)
        self._first = None
        return answer

    @contextmanager
    def _request(self, number: int = 1) -> Iterator[None]:
        """Make requests; an error is obstore's, without what may be secret."""
        with nullcontext() if self.requests is None else self.requests.request(number):
            try:
                yield
            except BaseError as error:
                raise type(error)(reason_of(error)) from None

    def _count(self, *, requests: int = 0, read: int = 0, written: int = 0) -> None:
        if self.requests is not None:
            self.requests.add(requests=requests, read=read, written=written)

    def _key(self, path: str) -> str:
        if SCHEME.match(path):
            # An absolute path, as shallow clones have, is reachable where it is in the same bucket.
            if not is_in_store_of(self.root, path):
                raise FileNotFoundError(f"{path} is not in the store of {self.root}")
            return path.partition("://")[2].partition("/")[2]
        if path.startswith("/"):
            return path.strip("/")
        return "/".join(part for part in (self._prefix, path.strip("/")) if part)

    def _files(self, found: Iterable[_Meta], folder: str) -> StoredFiles:
        """Return what was found in a folder by path, without the markers of folders with files.

        S3's console and S3A leave an empty object with a slash at its end, and obstore shows its key without the slash.
        """
        files = sorted(map(self._stored, found), key=lambda f: f.path)
        if all(file.size for file in files):
            return files
        folders = {folder.strip("/")}
        for file in files:
            parent = file.path.rpartition("/")[0]
            while parent not in folders:
                folders.add(parent)
                parent = parent.rpartition("/")[0]
        return [file for file in files if file.size or file.path not in folders]

    def _stored(self, meta: _Meta) -> StoredFile:
        path = meta["path"]
        relative = path[len(self._prefix) :].lstrip("/") if self._prefix else path
        modified = int(meta["last_modified"].timestamp() * 1000)
        return StoredFile(relative, meta["size"], modified, meta["e_tag"])


def counting(store: Store) -> Store:
    return store.counting() if isinstance(store, ObjectStore) else store


def counted(store: Store) -> RequestCounts | None:
    return None if not isinstance(store, ObjectStore) or store.requests is None else store.requests.counts
