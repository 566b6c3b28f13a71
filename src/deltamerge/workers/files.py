"""Files of a store, opened by whoever has PyArrow: paths of this machine, and URLs of object stores."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from deltamerge.workers.file_systems import connect, key_of
from deltamerge.workers.ranged_parquet import column_ranges, fetched, in_python

_Item = TypeVar("_Item")
_Done = TypeVar("_Done")

# A request to a store takes long, whatever it asks for.
_REQUESTS_IN_FLIGHT = 16
# A file of this size is read whole: its footer alone would take as long.
_SMALL_BYTES = 1 << 20
# So much of a file, without decoding, is in memory as long as a task works on it.
_WHOLE_BYTES = 256 << 20
# Of more files the footers of those that were opened first are read again.
_MOST_OPENED = 1_000


@dataclass(frozen=True)
class Files:
    """How the files of a store are opened; it travels with the work of tasks.

    Args:
        kind: The store that URLs name; see `connect`. Empty where there are paths of this machine only.
        options: The arguments of its file system. They may be secret.
    """

    kind: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    # A connection does not travel, and is made when a URL is opened for the first time.
    _connected: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    _opened: dict[str, tuple[Any, Any]] = field(default_factory=dict, repr=False, compare=False)
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {"kind": self.kind, "options": dict(self.options)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _connected={}, _opened={}, _lock=Lock())

    def parquet(self, path: str, int96: str | None = None) -> pq.ParquetFile:
        """Open a Parquet file; what is read of a remote one is requested in few ranges at once.

        Args:
            int96: The unit of the file's INT96 timestamps; by default nanoseconds, which lack the years after 2262.
        """
        if _is_local(path):
            return pq.ParquetFile(path, memory_map=True, coerce_int96_timestamp_unit=int96)
        source, metadata = self._open_parquet(path)
        return _parquet(source, metadata, int96)

    def parquet_columns(self, path: str, names: Sequence[str], groups: Sequence[int] | None = None) -> pq.ParquetFile:
        """Open a Parquet file of which only some columns are read; those of a remote one are requested at once.

        Args:
            groups: The row groups that are read; None for all.
        """
        if _is_local(path):
            return self.parquet(path)
        source, metadata = self._open_parquet(path)
        ranges = column_ranges(metadata, names, range(metadata.num_row_groups) if groups is None else groups)
        if isinstance(source, pa.BufferReader) or sum(end - first for first, end in ranges) > _WHOLE_BYTES:
            return _parquet(source, metadata)
        return fetched(source, metadata, ranges)

    def whole_parquet(self, path: str) -> pq.ParquetFile:
        """Open a Parquet file all of which is read; a remote one of moderate size is requested in parallel."""
        if _is_local(path):
            return self.parquet(path)
        source, metadata = self._open_parquet(path)
        size = source.size()
        if isinstance(source, pa.BufferReader) or size > _WHOLE_BYTES:
            return _parquet(source, metadata)
        return fetched(source, metadata, [(0, size)])

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
        with Output(self, path) as output:
            with pa.ipc.new_file(output.stream, first.schema) as writer:
                writer.write_table(first)
                for table in waiting:
                    writer.write_table(table)
            output.keep()

    def mark(self, path: str) -> None:
        """Make an empty file."""
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
        return [info.base_name for info in self._system.get_file_info(selector)]

    def version(self, path: str) -> tuple[int, int]:
        """Return a file's size in bytes and when it was changed, nanoseconds since 1970."""
        if _is_local(path):
            status = Path(path).stat()
            return status.st_size, status.st_mtime_ns
        info = self._system.get_file_info(self._key(path))
        if info.type != pafs.FileType.File:
            raise FileNotFoundError(path)
        return info.size, info.mtime_ns

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
        """Return whether a URL of this kind of store is opened; one of HDFS must be of the same name node."""
        return self.kind != "hdfs" or url.startswith(f"{self.options['url']}/")

    def _open_parquet(self, path: str) -> tuple[Any, Any]:
        if path in self._opened:
            return self._opened[path]
        file = self._system.open_input_file(self._key(path))
        source = pa.BufferReader(file.read_buffer()) if file.size() <= _SMALL_BYTES else file
        found = source, _parquet(source).metadata
        with self._lock:
            if len(self._opened) >= _MOST_OPENED:
                del self._opened[next(iter(self._opened))]
            self._opened[path] = found
        return found

    def _open_output(self, path: str) -> Any:  # noqa: ANN401
        return self._system.open_output_stream(self._key(path))

    def _remove(self, path: str) -> None:
        # What was not there is as good as removed.
        with contextlib.suppress(FileNotFoundError):
            self._system.delete_file(self._key(path))


LOCAL_FILES = Files()


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
        if _is_local(path):
            place = Path(path)
            self._hidden = place.with_name(f".{place.name}.{uuid.uuid4().hex}.deltamerge.tmp")
            self.stream = pa.OSFile(str(self._hidden), "wb")
        else:
            self.stream = files._open_output(path)

    def keep(self) -> None:
        self._is_kept = True

    def __enter__(self) -> Output:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        is_kept = self._is_kept and kind is None
        try:
            self.stream.close()
            if is_kept and self._hidden is not None:
                self._hidden.replace(self._path)
        finally:
            if self._hidden is not None:
                self._hidden.unlink(missing_ok=True)
            elif not is_kept:
                # PyArrow completes an upload as it closes the stream.
                self._files._remove(self._path)


def _parquet(source: Any, metadata: Any = None, int96: str | None = None) -> pq.ParquetFile:  # noqa: ANN401
    file = source if isinstance(source, pa.NativeFile) else in_python(source)
    return pq.ParquetFile(file, metadata=metadata, pre_buffer=True, coerce_int96_timestamp_unit=int96)


def _is_local(path: str) -> bool:
    return path.startswith("/")
