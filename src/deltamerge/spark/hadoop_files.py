"""Hadoop's file systems, through the JVM of a classic session: whatever its Spark can read, with its credentials."""

from __future__ import annotations

import posixpath
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from deltamerge.exceptions import DeltaTableException
from deltamerge.storage.hadoop_store import ATOMIC_RENAME, FoundFile

# Hadoop would ask a name node that does not answer for minutes.
_CLIENT = {
    "ipc.client.connect.max.retries": "2",
    "ipc.client.connect.max.retries.on.timeouts": "1",
    "ipc.client.connect.timeout": "2000",
    "ipc.client.connect.retry.interval": "500",
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.retry.policy.enabled": "false",
    # A name node does not know yet that a small file is complete when it is asked for the first time. Hadoop would ask
    # again after 400 ms; the doubled waits come to as many seconds as Hadoop's own.
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
    "dfs.client.block.write.locateFollowingBlock.retries": "10",
}

# Py4J sends bytes as text: more go by a file of this machine, which takes a third of the time.
_MOST_SENT_BYTES = 1 << 20

_lock = threading.Lock()
# A file system holds connections, and Hadoop never lets go of one, so that sessions with the same settings share it: a
# driver may make a session for each request, and a stream makes one each time it starts. The settings are compared in
# the JVM, since it takes long to send them.
_opened: dict[tuple[str, str, int], tuple[Any, Any]] = {}
# Those of Spark are among a session's, too, and change from merge to merge.
_OF_SPARK = r"^spark\."


class JvmFiles:
    """The file system of a URL; see `HadoopFiles`."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        java: Any = spark._jsparkSession
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        self._gateway = context._gateway
        self._conf = java.sessionState().newHadoopConf()
        for key, value in _CLIENT.items():
            self._conf.set(key, value)
        self._root = self._jvm.org.apache.hadoop.fs.Path(url).toUri()
        self._url = url
        settings = self._conf.getPropsWithPrefix("")
        settings.keySet().removeIf(self._jvm.java.util.regex.Pattern.compile(_OF_SPARK).asPredicate())
        place = str(context.applicationId), url, int(settings.hashCode())
        with _lock:
            if place not in _opened or not _opened[place][0].equals(settings):
                _opened[place] = settings, self._open()
            self._system = _opened[place][1]
        self._root = self._system.getUri()
        scheme, authority = str(self._root.getScheme()), self._root.getAuthority()
        self.url = f"{scheme}:" if authority is None else f"{scheme}://{authority}"
        self._is_atomic = scheme.lower() in ATOMIC_RENAME

    def files(self, folder: str, *, recursive: bool, after: str = "") -> Iterator[FoundFile]:
        with self._errors():
            yield from self._files_below(folder) if recursive else self._files_in(folder, after)

    def _files_below(self, folder: str) -> Iterator[FoundFile]:
        found = self._system.listFiles(self._path(folder), True)
        while found.hasNext():
            yield _found(found.next())

    def _files_in(self, folder: str, after: str) -> Iterator[FoundFile]:
        found = self._system.listStatus(self._path(folder))
        if not len(found):
            return
        # All names by one call: a log has thousands of files, of which the last ones are looked at.
        paths = self._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(found)
        start = str(found[0].getPath().getParent().toString()).rstrip("/") + "/"
        shown = str(self._jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(paths).mkString("\n"))
        names = shown.removeprefix(start).split(f"\n{start}")
        for index, name in enumerate(names):
            if posixpath.join(folder, name) > after and found[index].isFile():
                yield _found(found[index])

    def size(self, path: str) -> int:
        with self._errors():
            status = self._system.getFileStatus(self._path(path))
        if status.isDirectory():
            raise FileNotFoundError(path)
        return int(status.getLen())

    def read(self, path: str, start: int, length: int) -> bytes:
        with self._errors():
            stream = self._system.open(self._path(path))
            try:
                stream.seek(start)
                return bytes(stream.readNBytes(length))
            finally:
                stream.close()

    def create(self, path: str, content: bytes) -> None:
        if len(content) > _MOST_SENT_BYTES:
            self._copy(path, content)
            return
        with self._errors():
            stream = self._system.create(self._path(path), False)
            try:
                stream.write(content)
            finally:
                stream.close()

    def _copy(self, path: str, content: bytes) -> None:
        with tempfile.NamedTemporaryFile() as file, self._errors():
            file.write(content)
            file.flush()
            local = self._jvm.org.apache.hadoop.fs.Path("file", None, file.name)
            self._system.copyFromLocalFile(False, False, local, self._path(path))

    def rename(self, before: str, after: str, *, overwrite: bool) -> None:
        if not self._is_atomic:
            self._rename_alone(before, after, overwrite=overwrite)
            return
        option = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
        options = self._gateway.new_array(option, 1)
        options[0] = option.OVERWRITE if overwrite else option.NONE
        with self._errors():
            # FileSystem.rename only reports that it did not, and some replace what is there.
            context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._root, self._conf)
            context.rename(self._path(before), self._path(after), options)

    def _rename_alone(self, before: str, after: str, *, overwrite: bool) -> None:
        """Rename where there is no other writer: few file systems have a FileContext."""
        with self._errors():
            if self._system.exists(self._path(after)):
                if not overwrite:
                    raise FileExistsError(after)
                self._system.delete(self._path(after), False)
            if not self._system.rename(self._path(before), self._path(after)):
                raise OSError(f"{self.url} has not renamed {before} to {after}")

    def delete(self, path: str) -> None:
        with self._errors():
            self._system.delete(self._path(path), True)

    def make_folder(self, path: str) -> None:
        with self._errors():
            self._system.mkdirs(self._path(path))

    def _open(self) -> Any:  # noqa: ANN401
        try:
            # Hadoop's cache would give Spark the impatient one.
            return self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(self._root, self._conf)
        except Py4JJavaError as error:
            raise self._not_reached(error) from None

    def _path(self, path: str) -> Any:  # noqa: ANN401
        # Hadoop's Path(String) would take what precedes a colon in the first folder for a scheme.
        parts = self._root.getScheme(), self._root.getAuthority(), posixpath.normpath(path)
        return self._jvm.org.apache.hadoop.fs.Path(*parts)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            name = str(error.java_exception.getClass().getName())
            message = str(error.java_exception.getMessage())
            if name in ("java.io.FileNotFoundException", "java.nio.file.NoSuchFileException"):
                raise FileNotFoundError(message) from None
            if name in ("org.apache.hadoop.fs.FileAlreadyExistsException", "org.apache.hadoop.fs.PathExistsException"):
                raise FileExistsError(message) from None
            if name == "org.apache.hadoop.security.AccessControlException":
                raise PermissionError(message.partition("\n")[0]) from None
            if name.startswith("java.net."):
                raise self._not_reached(error) from None
            raise

    def _not_reached(self, error: Py4JJavaError) -> DeltaTableException:
        reason = str(error.java_exception.toString()).partition("\n")[0]
        is_unknown = "UnsupportedFileSystem" in reason or "ClassNotFound" in reason
        scheme = self._url.partition(":")[0]
        advice = (
            f"Spark has no file system for {scheme}: add its JAR, and set spark.hadoop.fs.{scheme}.impl."
            if is_unknown
            else "Check the address in the path, spark.hadoop.fs.defaultFS and HADOOP_CONF_DIR."
        )
        return DeltaTableException(
            "FAILED_READ_FILE.UNSUPPORTED_FILE_SYSTEM" if is_unknown else "FAILED_READ_FILE.STORE_NOT_REACHED",
            f"The file system of '{self._url}' was not reached: {reason}. {advice}",
            parameters={"path": self._url},
        )


def _found(status: Any) -> FoundFile:  # noqa: ANN401
    path = str(status.getPath().toUri().getPath())
    return FoundFile(path, int(status.getLen()), int(status.getModificationTime()))
