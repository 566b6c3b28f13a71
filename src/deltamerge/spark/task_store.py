"""A table's folder that Spark's tasks read and write for a client that does not reach it: each call is one task."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import IO, Any, TypeAlias

import pyarrow as pa
import pyarrow.fs as pafs
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import deltamerge.exceptions
import deltamerge.storage
from deltamerge.exceptions import DeltaTableException
from deltamerge.spark.own_python import map_in_arrow
from deltamerge.spark.session import SPARK_ERRORS
from deltamerge.spark.tasks import PythonWorkersUnfit, python_workers
from deltamerge.storage.calls import SCHEMA, Call, answering, raise_error
from deltamerge.storage.store import open_store
from deltamerge.storage.stored_file import SCHEME, StoredFile, StoredFiles, absolute_path
from deltamerge.storage.task_files import NotOpened, store_kind
from deltamerge.workers.files import Files
from deltamerge.workers.ranged_file import open_ranges

# The store's methods hide the type's name.
_Rows: TypeAlias = list[Any]

# Executors need not have this package; they need obstore, or hdfs-native, for stores that are not folders.
cloudpickle.register_pickle_by_value(deltamerge.storage)  # type: ignore[no-untyped-call]
cloudpickle.register_pickle_by_value(deltamerge.exceptions)  # type: ignore[no-untyped-call]

_LOCAL = NotOpened("the table is on a disk of the tasks' machines, where the client does not look for staged rows")
_WHOLE_BYTES = 32 << 20
# Of data files only footers are read through tasks.
_FOOTER_BYTES = 64 << 10
# What is kept of files that were opened goes once it takes more.
_MOST_AHEAD_BYTES = 64 << 20
_OBJECT_STORES = ("s3", "gs", "az")


class TaskStore:
    """A store as tasks reach it, with their environment's credentials where none are given; see `Store`.

    Args:
        options: Returns the options that were given, with credentials that are valid now.
        defaults: The session's settings.
    """

    is_local = False

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        files: Files | NotOpened,
        options: Callable[[], Mapping[str, str]],
        defaults: Mapping[str, str],
    ) -> None:
        self.root = _root_of(path)
        scheme = SCHEME.match(self.root)
        self._has_folders = scheme is None or store_kind(scheme.group(1)) not in _OBJECT_STORES
        self.files: Files | NotOpened = _LOCAL if scheme is None else files_through(self, files)
        self._spark = spark
        self._options = options
        self._defaults = dict(defaults)
        # What the last listing of a folder brought of its files: size, and the bytes at the end.
        self._ahead: dict[str, tuple[int, bytes]] = {}
        self._lock = Lock()

    def list(self, prefix: str = "") -> StoredFiles:
        return self._listed(Call("list", (prefix,)))

    def list_folder(self, folder: str, start_after: str | None = None) -> StoredFiles:
        return self._listed(Call("list_folder", (folder, start_after)))

    def get(self, path: str) -> bytes:
        size, content = self._ahead.get(path, (-1, b""))
        # An empty file may be one that is still being written.
        return content if content and size == len(content) else self._content(Call("get", (path,)))

    def put_if_absent(self, path: str, content: bytes) -> None:
        self._change("put_if_absent", path, content)

    def check_commits(self) -> None:
        """Do nothing: tasks open only stores that create a file atomically."""

    def put(self, path: str, content: bytes) -> None:
        self._change("put", path, content)

    def delete(self, paths: Iterable[str]) -> None:
        if found := [*paths]:
            self._change("delete", found)

    def make_folder(self, folder: str) -> None:
        if self._has_folders:
            self._change("make_folder", folder)

    def delete_folder(self, folder: str) -> None:
        self._change("delete_folder", folder)

    def rename(self, source: str, target: str) -> None:
        self._change("rename", source, target)

    def exists(self, path: str) -> bool:
        return bool(self._rows(Call("exists", (path,)))[0]["size"])

    def absolute(self, path: str) -> str:
        return absolute_path(self.root, path)

    def open_input(self, path: str, most: int = _WHOLE_BYTES) -> IO[bytes]:
        """Open a file, of which so many bytes at the end come at once."""
        size, end = self.end(path, most)
        start = size - len(end)

        def read(first: int, last: int) -> bytes:
            if first >= start:
                return end[first - start : last - start]
            return self._content(Call("read", (path, first, last)))

        return open_ranges(size, read)

    def end(self, path: str, most: int) -> tuple[int, bytes]:
        """Return a file's size and its last bytes.

        Args:
            most: How many of them are read, unless the last listing of its folder brought them.
        """
        found = self._ahead.get(path)
        if found is None:
            rows = self._rows(Call("end", (path, most)))
            found = rows[0]["size"], _joined(rows)
            with self._lock:
                if sum(len(content) for _, content in self._ahead.values()) > _MOST_AHEAD_BYTES:
                    self._ahead = {}
                self._ahead[path] = found
        return found

    def _listed(self, call: Call) -> StoredFiles:
        rows = self._rows(call)
        ahead = {row["path"]: (row["size"], bytes(row["content"])) for row in rows if row["content"] is not None}
        folder = call.arguments[0].strip("/") + "/"
        with self._lock:
            self._ahead = {path: kept for path, kept in self._ahead.items() if not path.startswith(folder)} | ahead
        return [StoredFile(row["path"], row["size"], row["modified"], row["tag"]) for row in rows]

    def _change(self, method: str, *arguments: object) -> None:
        with self._lock:
            self._ahead = {}
        self._rows(Call(method, arguments))

    def _content(self, call: Call) -> bytes:
        return _joined(self._rows(call))

    def _rows(self, call: Call) -> _Rows:
        work = answering(self.root, self._options(), self._defaults, call)
        try:
            with python_workers():
                rows = map_in_arrow(self._spark.range(0, 1, 1, 1), work, SCHEMA).collect()
        except PythonWorkersUnfit as error:
            raise self._unfit(str(error)) from error
        except SPARK_ERRORS as error:
            if "No module named 'obstore'" in str(error):
                raise self._unfit("the executors' Python has no obstore") from None
            raise
        for row in rows:
            if row["error"] is not None:
                raise_error(row["error"])
        return rows

    def _unfit(self, reason: str) -> DeltaTableException:
        return DeltaTableException(
            "FAILED_READ_FILE.STORE_NOT_REACHED",
            f"Spark's tasks do not reach the store of '{self.root}' for this client: {reason}.",
            parameters={"path": self.root},
        )


@dataclass(frozen=True)
class _FilesThroughTasks(Files):
    """Files that this process opens through tasks, and tasks as they do.

    Args:
        sent: What tasks get.
        system: The store, as a file system of PyArrow's.
    """

    sent: Files = field(default_factory=Files, repr=False, compare=False)
    system: _System | None = field(default=None, repr=False, compare=False)

    def for_tasks(self) -> Files:
        return self.sent.for_tasks()

    @property
    def _system(self) -> Any:  # noqa: ANN401
        return self.system

    def _key(self, url: str) -> str:
        return url

    def reaches(self, _: str) -> bool:
        """Return that a source's files are not read in place: each range would be a task of its own."""
        return False


class _System:
    """What `Files` asks of one of PyArrow's file systems."""

    def __init__(self, store: TaskStore) -> None:
        self._store = store

    def open_input_file(self, path: str) -> Any:  # noqa: ANN401
        return pa.PythonFile(self._store.open_input(path, _FOOTER_BYTES), mode="r")

    def open_output_stream(self, path: str) -> Any:  # noqa: ANN401
        return pa.PythonFile(_Upload(self._store, path), mode="w")

    def get_file_info(self, asked: Any) -> Any:  # noqa: ANN401
        """Return what is known of a path, or of the files that a selector finds in a folder."""
        if not isinstance(asked, str):
            found = self._store.list_folder(asked.base_dir)
            return [pafs.FileInfo(file.path, pafs.FileType.File, size=file.size) for file in found]
        try:
            size, _ = self._store.end(asked, _FOOTER_BYTES)
        except FileNotFoundError:
            return pafs.FileInfo(asked, pafs.FileType.NotFound)
        return pafs.FileInfo(asked, pafs.FileType.File, size=size, mtime_ns=0)

    def delete_file(self, path: str) -> None:
        self._store.delete([path])


class _Upload(io.BytesIO):
    """A new file, which is written as it is closed."""

    def __init__(self, store: TaskStore, path: str) -> None:
        super().__init__()
        self._store = store
        self._path = path

    def close(self) -> None:
        if not self.closed:
            content = self.getvalue()
            super().close()
            self._store.put(self._path, content)


def files_through(store: TaskStore, sent: Files | NotOpened) -> Files | NotOpened:
    """Return how tasks open a store's files, and this process through them."""
    if isinstance(sent, NotOpened):
        return sent
    return _FilesThroughTasks(sent.kind, sent.options, sent=sent, system=_System(store))


def _joined(rows: Iterable[Any]) -> bytes:
    return b"".join(bytes(row["content"]) for row in rows)


def _root_of(path: str) -> str:
    scheme = SCHEME.match(path)
    if scheme is None or scheme.group(1).lower() == "file":
        return open_store(path).root
    authority, _, rest = path[scheme.end() :].lstrip("/").partition("/")
    return f"{scheme.group(1)}://{authority}{posixpath.normpath('/' + rest)}".rstrip("/")
