"""HDFS without a JVM, by `hdfs-native`: what `files` asks of one of PyArrow's file systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs


class HdfsInput:
    """A file that threads read at once, by ranges: it has no position."""

    def __init__(self, reader: Any) -> None:  # noqa: ANN401
        self._reader = reader
        self._size = len(reader)

    def size(self) -> int:
        return self._size

    def read_at(self, length: int, start: int) -> bytes:
        return bytes(self._reader.read_range(start, length))

    def read_buffer(self) -> pa.Buffer:
        return pa.py_buffer(self.read_at(self._size, 0))

    def __enter__(self) -> HdfsInput:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()


class HdfsSystem:
    """HDFS, or mounts of it.

    Args:
        url: The name node's or name service's.
        config: Hadoop's settings, for what HADOOP_CONF_DIR does not give.
    """

    def __init__(self, url: str, config: Mapping[str, str]) -> None:
        import hdfs_native  # noqa: PLC0415  Executors may lack it; what is in other stores does not need it.

        self._options = hdfs_native.WriteOptions
        self._client = hdfs_native.Client(url, dict(config))

    def open_input_file(self, path: str) -> HdfsInput:
        return HdfsInput(self._client.read(path))

    def open_output_stream(self, path: str) -> Any:  # noqa: ANN401
        return pa.PythonFile(self._client.create(path, self._options(overwrite=True)), mode="w")

    def get_file_info(self, asked: Any) -> Any:  # noqa: ANN401
        """Return what is known of a path, or of all that a selector finds in a folder."""
        if isinstance(asked, str):
            try:
                return _info(self._client.get_file_info(asked))
            except FileNotFoundError:
                return pafs.FileInfo(asked, pafs.FileType.NotFound)
        try:
            return [_info(status) for status in self._client.list_status(asked.base_dir, asked.recursive)]
        except FileNotFoundError:
            return []

    def delete_file(self, path: str) -> None:
        self._client.delete(path, False)


def _info(status: Any) -> pafs.FileInfo:  # noqa: ANN401
    if status.isdir:
        return pafs.FileInfo(status.path, pafs.FileType.Directory)
    return pafs.FileInfo(
        status.path, pafs.FileType.File, size=status.length, mtime_ns=status.modification_time * 1_000_000
    )
