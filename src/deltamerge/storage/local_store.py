"""A table on a local or mounted file system, written so that a killed process leaves no half file."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from deltamerge.storage.stored_file import SCHEME, StoredFile, StoredFiles, not_atomic
from deltamerge.storage.task_files import NotOpened
from deltamerge.workers.files import LOCAL_FILES, Files

TEMP_SUFFIX = ".deltamerge.tmp"
"""The end of the names of half-written files; such a file may be removed when it is older than a write."""

# Whoever still writes into a folder may make a file while it is being deleted.
_DELETIONS = 3
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})


class LocalStore:
    """A folder on a local (or mounted) file system; see `Store`.

    Plain file calls rather than obstore's local store: that one hides names such as ``x#1`` and has no way to know
    Hadoop's checksum files. A file that is replaced loses its ``.name.crc`` neighbour, which Hadoop would otherwise
    check the new content against.

    Args:
        has_single_writer: Whether the user says that nobody else writes into the table.
    """

    is_local = True

    def __init__(self, root: str, *, has_single_writer: bool = False) -> None:
        self.root = root.rstrip("/") or "/"
        self._has_single_writer = has_single_writer
        self.files: Files | NotOpened = LOCAL_FILES

    def list(self, prefix: str = "") -> StoredFiles:
        return _listed(self._walk(prefix.strip("/")))

    def list_folder(self, folder: str, start_after: str | None = None) -> StoredFiles:
        entries = self._entries(folder.strip("/"))
        return _listed(each for each in entries if start_after is None or each[0] > start_after)

    def get(self, path: str) -> bytes:
        try:
            return self._path(path).read_bytes()
        except NotADirectoryError as error:
            raise FileNotFoundError(*error.args) from error

    def put_if_absent(self, path: str, content: bytes) -> None:
        """Write a file under another name and link it into place, so that a killed process leaves all of it or none."""
        target = self._path(path)
        if target.exists():
            raise FileExistsError(f"{target} exists")
        temporary = self._write_temporary(target, content)
        try:
            self._drop_checksum(target)
            try:
                os.link(temporary, target)
            except FileExistsError:
                # NFS may have linked and then lost its answer: two names mean that it was this call.
                if temporary.stat().st_nlink < 2:
                    raise
            except OSError as error:
                if error.errno not in _NO_HARD_LINKS:
                    raise
                if not self._has_single_writer:
                    raise not_atomic(f"'{self.root}' is on a file system without hard links", self.root) from None
                # A process that is killed just then could leave the file incomplete.
                _write_exclusively(target, content)
        finally:
            _discard(temporary)
        _sync_folder(target.parent)

    def check_commits(self) -> None:
        """Do nothing: whether there are hard links shows as a file is written."""

    def put(self, path: str, content: bytes) -> None:
        target = self._path(path)
        temporary = self._write_temporary(target, content)
        try:
            self._drop_checksum(target)
            temporary.replace(target)
        finally:
            _discard(temporary)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            target = self._path(path)
            target.unlink(missing_ok=True)
            self._drop_checksum(target)

    def make_folder(self, folder: str) -> None:
        self._path(folder).mkdir(parents=True, exist_ok=True)

    def delete_folder(self, folder: str) -> None:
        path = self._path(folder)
        for _ in range(_DELETIONS):
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                break

    def rename(self, source: str, target: str) -> None:
        before, after = self._path(source), self._path(target)
        after.parent.mkdir(parents=True, exist_ok=True)
        self._drop_checksum(before)
        self._drop_checksum(after)
        before.replace(after)

    def exists(self, path: str) -> bool:
        return self._path(path).is_file()

    def absolute(self, path: str) -> str:
        return path if SCHEME.match(path) else str(self._path(path))

    def open_input(self, path: str) -> IO[bytes]:
        return self._path(path).open("rb")

    def _path(self, path: str) -> Path:
        return Path(self.root, path)

    def _entries(self, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        try:
            entries = os.scandir(self._path(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            for entry in entries:
                yield (f"{folder}/{entry.name}" if folder else entry.name), entry

    def _walk(self, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        for path, entry in self._entries(folder):
            if entry.is_dir():
                yield from self._walk(path)
            else:
                yield path, entry

    def _write_temporary(self, target: Path, content: bytes) -> Path:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.parent / f".{target.name}.{uuid.uuid4().hex}{TEMP_SUFFIX}"
        _write_exclusively(temporary, content)
        return temporary

    def _drop_checksum(self, target: Path) -> None:
        (target.parent / f".{target.name}.crc").unlink(missing_ok=True)


def _listed(entries: Iterable[tuple[str, os.DirEntry[str]]]) -> StoredFiles:
    found = []
    for path, entry in entries:
        # Other writers make and delete files meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if entry.is_file():
                found.append(_stored(path, entry))
    return sorted(found, key=lambda file: file.path)


def _stored(path: str, entry: os.DirEntry[str]) -> StoredFile:
    stat = entry.stat()
    tag = f"{stat.st_ino:x}-{stat.st_mtime_ns:x}-{stat.st_size:x}"
    return StoredFile(path, stat.st_size, stat.st_mtime_ns // 1_000_000, tag)


def _write_exclusively(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            # A full disk or Ctrl-C must not leave half a file behind.
            _discard(path)
            raise


def _sync_folder(folder: Path) -> None:
    """Let the disk have the names of new files, too."""
    # Windows opens no folders, and some network disks sync none.
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _discard(path: Path) -> None:
    # Of a folder that lets nobody delete, what was done there still counts.
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
