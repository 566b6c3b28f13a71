"""Files of a store, opened by whoever has PyArrow: paths of this machine, and URLs of object stores."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from deltamerge.workers.file_systems import account_of, connect, key_of
from deltamerge.workers.first_contact import opening
from deltamerge.workers.obstore_client import ObstoreClient, obstore_client
from deltamerge.workers.remote_file import RemoteFile, column_ranges
from deltamerge.workers.remote_ranges import HDFS_GAP, STORE_GAP, ArrowRanges, Ranges, StoreRanges
from deltamerge.workers.remote_upload import StoreUpload
from deltamerge.workers.request_counter import RequestCounter
from deltamerge.workers.sealed import Sealed

_Item = TypeVar("_Item")
_Done = TypeVar("_Done")

# A request to a store takes long, whatever it asks for.
_REQUESTS_IN_FLIGHT = 16
# Of files that are written once and read once, in a store: what takes little work makes them smaller.
_ROW_GROUPS: Mapping[str, Any] = {"compression": "lz4", "use_dictionary": False, "write_statistics": False}
# PyArrow splits larger ones.
_MOST_ROWS_OF_A_GROUP = 1 << 26
# So much of a file, without decoding, is in memory as long as a task works on it.
_WHOLE_BYTES = 256 << 20
# PyArrow sends a file in parts of this size.
_ARROW_PART_BYTES = 10 << 20
# Rows of which no nested column has strings of 2 GiB.
_ROWS_OF_A_PIECE = 4096
# Of more files the footers of those that were opened first are read again.
_MOST_OPENED = 1_000


@dataclass(frozen=True)
class WholeParquet:
    """A Parquet file all of which is read.

    Args:
        size: Its bytes.
        reader: Returns, of ranges that are going to be read, the function that returns the file's bytes from a place
            on and before another.
    """

    file: pq.ParquetFile
    size: int
    reader: Callable[[Sequence[tuple[int, int]]], Callable[[int, int], Any]]


@dataclass(frozen=True)
class Files:
    """How the files of a store are opened; it travels with the work of tasks.

    Args:
        kind: The store that URLs name; see `connect`. Empty where there are paths of this machine only.
        options: The arguments of its file system. They may be secret.
        ranged: The arguments of obstore's store, by which ranges are read where a process has obstore; they may be
            secret. None where PyArrow's file system reads them, too.
        requests: Counts the requests of this process.
        put: Writes a whole file, by its key, where this process has a faster way than the tasks; it does not travel.
    """

    kind: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    ranged: Mapping[str, Any] | None = field(default=None, repr=False)
    requests: RequestCounter | None = field(default=None, repr=False, compare=False)
    put: Callable[[str, bytes], object] | None = field(default=None, repr=False, compare=False)
    # A connection does not travel, and is made when a URL is opened for the first time.
    _connected: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    _opened: dict[str, RemoteFile] = field(default_factory=dict, repr=False, compare=False)
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.for_tasks().parts

    def parquet(self, path: str, int96: str | None = None, *, memory_map: bool = True) -> pq.ParquetFile:
        """Open a Parquet file; of a remote one with its footer in memory.

        Args:
            int96: The unit of the file's INT96 timestamps; by default nanoseconds, which lack the years after 2262.
            memory_map: Whether a local one is mapped into memory. Not one that others may make shorter: the system ends
                a process that reads what is no longer there.
        """
        if _is_local(path):
            return pq.ParquetFile(
                path, memory_map=memory_map, coerce_int96_timestamp_unit=int96, page_checksum_verification=True
            )
        return self._remote(path).parquet(int96=int96)

    def parquet_columns(
        self,
        path: str,
        names: Sequence[str],
        groups: Sequence[int] | None = None,
        *,
        memory_map: bool = True,
        keep: bool = False,
    ) -> pq.ParquetFile:
        """Open a Parquet file of which only some columns are read; those of a remote one are requested at once.

        Args:
            groups: The row groups that are read; None for all.
            memory_map: See `parquet`.
            keep: Whether what is requested stays in memory as long as this object.
        """
        if _is_local(path):
            return self.parquet(path, memory_map=memory_map)
        file = self._remote(path)
        ranges = column_ranges(file.metadata, names, range(file.metadata.num_row_groups) if groups is None else groups)
        if sum(end - first for first, end in ranges) > _WHOLE_BYTES:
            return file.parquet()
        return file.parquet(ranges, keep=keep)

    @contextmanager
    def whole_parquet(self, path: str) -> Iterator[WholeParquet]:
        """Open a Parquet file all of which is read; a remote one of moderate size is requested in parallel."""
        if _is_local(path):
            with pa.memory_map(path) as mapped, self.parquet(path) as file:
                content = mapped.read_buffer()
                yield WholeParquet(file, content.size, lambda _: lambda first, end: content[first:end])
            return
        remote = self._remote(path)
        is_kept = remote.size <= _WHOLE_BYTES
        read = remote.reader([(0, remote.size)] if is_kept else [])
        with remote.opened(read, pre_buffer=not is_kept) as file:
            yield WholeParquet(file, remote.size, (lambda _: read) if is_kept else remote.reader)

    def footer_bytes(self, path: str) -> int:
        """Return how many bytes a Parquet file's footer has, by what is written at the file's end."""
        if _is_local(path):
            with pa.OSFile(path, "rb") as file:
                return int.from_bytes(file.read_at(4, file.size() - 8), "little")
        return self._remote(path).footer_bytes

    def for_tasks(self) -> Files:
        """Return the files as tasks open them."""
        return self

    @property
    def parts(self) -> tuple[Any, ...]:
        """What makes the same files in another process."""
        return Files, (self.kind, Sealed(self.options), None if self.ranged is None else Sealed(self.ranged))

    def counted_by(self, requests: RequestCounter) -> Files:
        """Return these files, opened anew, whose requests are counted as far as obstore makes them."""
        return replace(self, requests=requests, _connected={}, _opened={})

    def for_one_run(self) -> Files:
        """Return these files, opened anew: what is opened stays open, with its footer, as long as the result."""
        return replace(self, _opened={})

    def arrow(self, path: str) -> pa.Table:
        """Return a file of Arrow's; a local one is mapped into memory."""
        if _is_local(path):
            return pa.ipc.open_file(pa.memory_map(path)).read_all()
        with self._system.open_input_file(self._key(path)) as file:
            return pa.ipc.open_file(file.read_buffer()).read_all()

    def write_arrow(self, path: str, tables: Iterable[pa.Table]) -> None:
        """Write tables of one schema into a file of Arrow's; without tables there is no file."""
        waiting = iter(tables)
        first = next(waiting, None)
        if first is None:
            return
        # What is mapped into memory is read without decompressing it.
        options = pa.ipc.IpcWriteOptions(compression=None if _is_local(path) else "lz4")
        with Output(self, path) as output:
            with pa.ipc.new_file(output.stream, first.schema, options=options) as writer:
                writer.write_table(first)
                for table in waiting:
                    writer.write_table(table)
            output.keep()

    def write_row_groups(self, path: str, tables: Iterable[pa.Table]) -> None:
        """Write tables of one schema into a Parquet file, each a row group; without tables there is no file."""
        waiting = iter(tables)
        first = next(waiting, None)
        if first is None:
            return
        with Output(self, path) as output:
            with pq.ParquetWriter(output.stream, first.schema, **_ROW_GROUPS) as writer:
                for table in chain((first,), waiting):
                    if len(table) > _MOST_ROWS_OF_A_GROUP:
                        raise ValueError(f"{path} would have a row group of {len(table)} rows")
                    writer.write_table(table, row_group_size=max(1, len(table)))
            output.keep()

    def mark(self, path: str) -> None:
        with Output(self, path) as output:
            output.keep()

    def attempt_path(self, path: str) -> str:
        """Return the path of a file that a task writes: where nothing is renamed, one that no other attempt has."""
        if _is_local(path):
            return path
        stem, dot, suffix = path.rpartition(".")
        return f"{stem}-{uuid.uuid4().hex}{dot}{suffix}"

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; none where it does not exist."""
        if _is_local(folder):
            return [path.name for path in Path(folder).glob("*")]
        selector = pafs.FileSelector(self._key(folder), allow_not_found=True)
        with opening(is_first=not self._opened):
            return [info.base_name for info in self._system.get_file_info(selector)]

    def version(self, path: str) -> tuple[int, int]:
        """Return a Parquet file's size in bytes and when it was changed, nanoseconds since 1970.

        Of a remote one: as it was when it was opened.
        """
        if _is_local(path):
            status = Path(path).stat()
            return status.st_size, status.st_mtime_ns
        return self._remote(path).version

    def ahead(
        self,
        work: Callable[[_Item], _Done],
        items: Iterable[_Item],
        paths: Iterable[str],
        at_once: int = _REQUESTS_IN_FLIGHT,
    ) -> Iterator[_Done]:
        """Work on items in their order; where one of the paths is remote, on several at a time.

        Args:
            paths: What the work opens.
            at_once: The most that it works on at a time.
        """
        if all(map(_is_local, paths)):
            yield from map(work, items)
            return
        waiting = iter(items)
        with ThreadPoolExecutor(at_once) as pool:
            flying: list[Future[_Done]] = [pool.submit(work, each) for each in islice(waiting, at_once)]
            while flying:
                done = flying.pop(0).result()
                flying += [pool.submit(work, each) for each in islice(waiting, 1)]
                yield done

    @property
    def _system(self) -> Any:  # noqa: ANN401
        if self.kind not in self._connected:
            self._connected[self.kind] = connect(self.kind, self.options)
        return self._connected[self.kind]

    def _key(self, url: str) -> str:
        return key_of(self.kind, url)

    def reaches(self, url: str) -> bool:
        """Return whether a URL of this kind of store is opened: of the same name node, or the same Azure account."""
        if self.kind == "az":
            account = account_of(url)
            return account is None or account == self.options.get("account_name")
        return self.kind != "hdfs" or url.startswith(f"{self.options['url']}/")

    def _remote(self, path: str) -> RemoteFile:
        if path in self._opened:
            return self._opened[path]
        found = RemoteFile(self._ranges(path))
        with self._lock:
            if len(self._opened) >= _MOST_OPENED:
                del self._opened[next(iter(self._opened))]
            # Of threads that opened it at the same time all take one, which has what is kept of it.
            return self._opened.setdefault(path, found)

    def _ranges(self, path: str) -> Ranges:
        client, key = self._client_of(path)
        if client is None:
            with opening(is_first=not self._opened):
                return ArrowRanges(self._system, self._key(path), HDFS_GAP if self.kind == "hdfs" else STORE_GAP)
        # Azure has no requests for a file's end.
        return StoreRanges(client, key, has_suffixes=self.kind != "az")

    def _client_of(self, url: str) -> tuple[ObstoreClient | None, str]:
        """Return the bucket of a URL by obstore, None where this process has none, and the URL's key in it."""
        scheme, _, rest = url.partition("://")
        authority, _, key = rest.partition("/")
        if self.ranged is None:
            return None, key
        bucket = f"{scheme}://{authority}"
        if bucket not in self._connected:
            self._connected[bucket] = obstore_client(bucket, self.ranged, self.requests)
        return self._connected[bucket], key

    def _upload(self, path: str) -> StoreUpload | None:
        client, key = self._client_of(path)
        if client is not None:
            return StoreUpload(partial(client.put, key), partial(self._open_output, path))
        if self.put is not None:
            return StoreUpload(partial(self.put, self._key(path)), partial(self._open_output, path))
        return None

    def _open_output(self, path: str) -> Any:  # noqa: ANN401
        with opening(is_first=not self._opened):
            return self._system.open_output_stream(self._key(path))

    def _remove(self, path: str) -> None:
        # What was not there is as good as removed.
        with contextlib.suppress(FileNotFoundError):
            self._system.delete_file(self._key(path))


LOCAL_FILES = Files()


SHARED = "deltamerge-shared"
"""How the names of threads begin that have the process's cores together, each for files of its own."""


def column_threads() -> int:
    """Return how many threads work on the columns of one file: PyArrow's, which are as many as a task has cores."""
    return 1 if threading.current_thread().name.startswith(SHARED) else int(pa.cpu_count())


def has_threads() -> bool:
    """Return whether PyArrow may decode columns side by side."""
    return column_threads() > 1


def read_rows(file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
    """Read row groups; a column that is too large for one array has several.

    Args:
        columns: The names of columns, or paths of fields; None for all.

    Raises:
        ValueError: There are other rows than by the footer.
    """
    try:
        table = file.read_row_groups(groups, columns, use_threads=has_threads())
    except pa.ArrowNotImplementedError:
        # Of a nested column PyArrow returns only one array, in which strings take up to 2 GiB.
        pieces = file.iter_batches(_ROWS_OF_A_PIECE, row_groups=groups, columns=columns, use_threads=has_threads())
        table = pa.Table.from_batches(pieces)
    check_rows(table.num_rows, sum(file.metadata.row_group(group).num_rows for group in groups))
    return table


def check_rows(found: int, rows: int) -> None:
    """Check that the rows that were read are as many as a file has by its footer.

    PyArrow passes over a page whose header says that it is of another kind, and checksums are of pages without headers.

    Raises:
        ValueError: They are others.
    """
    if found != rows:
        raise ValueError(f"it has {rows} rows by its footer, but {found} were read: its pages are damaged")


class Output:
    """A new file that is there whole once it was kept, and not at all otherwise.

    A local one has a hidden name until the end, since a task may run twice at a time. Its folder must be there: a task
    that still runs when its merge has failed, and its folder has been deleted, leaves nothing.
    """

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._is_kept = False
        self._hidden: Path | None = None
        self._upload: StoreUpload | None = None
        if _is_local(path):
            place = Path(path)
            self._hidden = place.with_name(f".{place.name}.{uuid.uuid4().hex}.deltamerge.tmp")
            self.stream = pa.OSFile(str(self._hidden), "wb")
            return
        self._upload = files._upload(path)
        self.stream = files._open_output(path) if self._upload is None else pa.PythonFile(self._upload, mode="w")

    def keep(self) -> None:
        self._is_kept = True

    def __enter__(self) -> Output:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        is_kept = self._is_kept and kind is None
        if self._upload is not None:
            self._upload.is_kept = is_kept
        try:
            self.stream.close()
            if is_kept and self._hidden is not None:
                self._hidden.replace(self._path)
        finally:
            if self._upload is not None and self._upload.has_begun and self._files.requests is not None:
                # It begins, it ends, and there are the parts.
                parts = -(-self._upload.tell() // _ARROW_PART_BYTES)
                self._files.requests.add(requests=2 + parts, written=self._upload.tell())
            if self._hidden is not None:
                self._hidden.unlink(missing_ok=True)
            elif not is_kept and (self._upload is None or self._upload.has_begun):
                # PyArrow completes an upload as it closes the stream.
                self._files._remove(self._path)


def _is_local(path: str) -> bool:
    return path.startswith("/")
