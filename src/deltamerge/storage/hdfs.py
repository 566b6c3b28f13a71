"""HDFS without a JVM, by `hdfs-native`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from deltamerge.exceptions import DeltaTableException
from deltamerge.storage.hadoop_store import FoundFile

HDFS_SCHEMES = frozenset({"hdfs", "viewfs"})
PACKAGE = "hdfs-native (pip install 'deltamerge[hdfs]')"


def is_installed() -> bool:
    return find_spec("hdfs_native") is not None


class NativeHdfs:
    """HDFS as the driver reads and writes it where it has no JVM; see `HadoopFiles`.

    Args:
        url: The name node's or name service's.
        config: Hadoop's settings, for what HADOOP_CONF_DIR does not give.
    """

    def __init__(self, url: str, config: Mapping[str, str]) -> None:
        if not is_installed():
            raise DeltaTableException(
                "FAILED_READ_FILE.UNSUPPORTED_FILE_SYSTEM",
                f"Without a JVM in this process '{url}' is read by {PACKAGE}, which is not installed.",
                parameters={"path": url},
            )
        import hdfs_native  # noqa: PLC0415  It is optional.

        if url.endswith("://"):
            default = config.get("fs.defaultFS", "")
            if not default.startswith(url):
                raise DeltaTableException(
                    "FAILED_READ_FILE.UNSUPPORTED_FILE_SYSTEM",
                    f"A path such as '{url}/table' names no host, and fs.defaultFS is '{default}': name the name node.",
                    parameters={"path": url},
                )
            url = default.rstrip("/")
        self.url = url
        self._options: Any = hdfs_native.WriteOptions
        try:
            self._client: Any = hdfs_native.Client(url, dict(config))
        except RuntimeError as error:
            # Such as a name service or a mount table of viewfs that is not configured here.
            raise DeltaTableException(
                "FAILED_READ_FILE.STORE_NOT_REACHED",
                f"The file system of '{url}' was not reached: {error}. Check the address, fs.defaultFS and "
                "HADOOP_CONF_DIR, by which hdfs-native is configured.",
                parameters={"path": url},
            ) from None

    def files(self, folder: str, *, recursive: bool, after: str = "") -> Iterator[FoundFile]:
        for status in self._client.list_status(folder, recursive):
            if not status.isdir and (recursive or status.path > after):
                yield FoundFile(status.path, status.length, status.modification_time)

    def size(self, path: str) -> int:
        status = self._client.get_file_info(path)
        if status.isdir:
            raise FileNotFoundError(path)
        return int(status.length)

    def read(self, path: str, start: int, length: int) -> bytes:
        return bytes(self._client.read(path).read_range(start, length))

    def create(self, path: str, content: bytes) -> None:
        with self._client.create(path, self._options(overwrite=False)) as file:
            file.write(content)

    def rename(self, before: str, after: str, *, overwrite: bool) -> None:
        self._client.rename(before, after, overwrite)

    def delete(self, path: str) -> None:
        try:
            self._client.delete(path, True)
        except FileNotFoundError:
            return

    def make_folder(self, path: str) -> None:
        self._client.mkdirs(path, create_parent=True)
