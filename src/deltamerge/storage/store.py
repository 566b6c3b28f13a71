"""The interface of a store, and opening the one of a table.

Paths are relative to the table's root, decoded (real names), with ``/`` between folders.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from obstore.exceptions import BaseError

from deltamerge.exceptions import DeltaTableException
from deltamerge.storage.credentials import (
    PROVIDER,
    ProvidedCredentials,
    StoreOptions,
    provided,
    provided_files,
    split_provider,
)
from deltamerge.storage.first_contact import FirstContact
from deltamerge.storage.google import has_tokens, without_service_account
from deltamerge.storage.hadoop_options import with_defaults
from deltamerge.storage.hadoop_store import HadoopFiles, HadoopStore
from deltamerge.storage.hdfs import HDFS_SCHEMES, PACKAGE, NativeHdfs, is_installed
from deltamerge.storage.local_store import LocalStore
from deltamerge.storage.object_store import ObjectStore
from deltamerge.storage.stored_file import SCHEME, SINGLE_WRITER, StoredFile, StoredFiles, has_single_writer
from deltamerge.storage.task_files import NotOpened, store_kind, task_files
from deltamerge.workers.files import Files
from deltamerge.workers.obstore_client import open_bucket

__all__ = ["HadoopFiles", "HadoopStore", "LocalStore", "ObjectStore", "Store", "StoredFile", "open_store"]

_OBJECT_SCHEMES = frozenset({"s3", "s3a", "s3n", "gs", "az", "azure", "abfs", "abfss", "http", "https"})
_Result = TypeVar("_Result")
_AT_ONCE = 16
# Keys of obstore's ClientConfig, for which it panics among those of the store itself, to which all others belong.
_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "disable_system_certificates",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_max_frame_size",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "timeout",
        "user_agent",
    }
)
# A key with its secret before a bucket's name; a port is none. A secret may have slashes.
_LOGIN = re.compile(r"(?<=://)[^/@:]*:(?!\d+(?:/|$))[^@]*@")
# The query of a signed URL.
_SIGNATURE = re.compile(
    r"\?.*\b(?:sig|x-(?:amz|goog)-[a-z-]+|[a-z_-]*token|[a-z_-]*secret)=.*", re.IGNORECASE | re.DOTALL
)


class Store(Protocol):
    """The table's folder. All paths are relative to `root`; absolute ones work where the store can reach them.

    `root` is an absolute local path without a scheme, or a URL as the user spelled it, without a last slash. `files` is
    how tasks open its files.
    """

    root: str
    is_local: bool
    files: Files | NotOpened

    def list(self, prefix: str = "") -> StoredFiles:
        """Return all files below a folder, sub-folders included, by path: none where it does not exist."""

    def list_folder(self, folder: str, start_after: str | None = None) -> StoredFiles:
        """Return the files directly in a folder, by name; with `start_after` only paths greater than this one."""

    def get(self, path: str) -> bytes:
        """Read a whole file.

        Raises:
            FileNotFoundError: It does not exist.
        """

    def put_if_absent(self, path: str, content: bytes) -> None:
        """Write a file whole, or not at all.

        Raises:
            FileExistsError: The file exists; it is not changed.
        """

    def check_commits(self) -> None:
        """Refuse a store in which a commit would be refused, as far as this is known before anything is written."""

    def put(self, path: str, content: bytes) -> None:
        """Write or replaces a file whole."""

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; those that do not exist are passed over."""

    def make_folder(self, folder: str) -> None:
        """Make a folder with all above it, where the store has folders that are more than prefixes."""

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with everything in it, if it exists."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing the one that had the name."""

    def exists(self, path: str) -> bool:
        """Return whether a file exists."""

    def absolute(self, path: str) -> str:
        """Return the path as Spark takes it: a plain local path or a URL, not percent-encoded."""

    def open_input(self, path: str) -> IO[bytes]:
        """Open a file for reading at random positions, as `pyarrow.parquet` needs it.

        Raises:
            FileNotFoundError: It does not exist.
        """


def open_store(
    root: str,
    options: StoreOptions | None = None,
    defaults: Mapping[str, str] | None = None,
    hadoop: Callable[[str], HadoopFiles] | None = None,
) -> Store:
    """Return the store of a table; nothing is read yet.

    `root` is a local path (also ``file:/...``) or a URL (``s3://``, ``s3a://``, ``gs://``, ``az://``,
    ``abfss://``...), spelled as Spark takes it: not percent-encoded. `options` are obstore's for an object store,
    such as ``region``, ``endpoint``, ``allow_http``, or their Hadoop names, and perhaps a provider of credentials;
    `defaults` hold for what they do not give. `hadoop` opens the file system of any other URL; without it, only
    HDFS is reached, by hdfs-native.

    Raises:
        DeltaTableException: There is no store for this kind of URL, its options are wrong, or it has a secret.
    """
    scheme = SCHEME.match(root)
    if scheme is not None:
        _refuse_secrets(root)
    if scheme is None or scheme.group(1).lower() == "file":
        local = root if scheme is None else "/" + root[scheme.end() :].lstrip("/")
        # Spark's names of files have no `..` and no empty parts, so the log's must not either.
        folder = posixpath.normpath(Path(re.sub("^/+", "/", local)).absolute())
        return LocalStore(folder, has_single_writer=has_single_writer(options or {}))
    if scheme.group(1).lower() not in _OBJECT_SCHEMES:
        strings, provider = split_provider(options or {}, root)
        if provider is not None:
            provided(provider, scheme.group(1), root)
        return _hadoop_store(root, scheme.group(1), {**(defaults or {}), **strings}, hadoop)
    head = scheme.group(1) + "://"
    authority, _, prefix = root[len(head) :].lstrip("/").partition("/")
    # As for a local path.
    prefix = posixpath.normpath("/" + prefix).strip("/")
    kind, url = store_kind(scheme.group(1)), f"{head}{authority}/{prefix}".rstrip("/")
    # All of these stores create a file only where there is none.
    of_store = {key: value for key, value in (options or {}).items() if key != SINGLE_WRITER}
    given, provider = split_provider(with_defaults(kind, authority, of_store, defaults or {}), root)
    credentials = None if provider is None else provided(provider, scheme.group(1), root)
    by_kind = _arguments(given)
    asked = by_kind if credentials is None else {**by_kind, PROVIDER: credentials}
    try:
        inner = open_bucket(head + authority, asked)
    except (BaseError, ValueError, TypeError) as error:
        raise _unsupported(root, f"The store of '{root}' cannot be opened: {str(error).splitlines()[0]}") from None

    for_tasks, tokens = without_service_account(given) if kind == "gs" else (given, None)

    def files_with(options: Mapping[str, str]) -> Files | NotOpened:
        known = {**for_tasks, **options}
        return task_files(kind, authority, known, _arguments(known))

    if credentials is not None:
        files = provided_files(credentials, files_with, credentials.options())
    elif tokens is None:
        files = files_with({})
    elif has_tokens():
        files = provided_files(ProvidedCredentials(tokens, kind, "The service account"), files_with, {})
    else:
        files = NotOpened("for tokens of the service account the driver needs google-auth: deltamerge[gcs]")
    return ObjectStore(url, inner, prefix, files, FirstContact(url, kind, head + authority, asked))


def _arguments(options: Mapping[str, str]) -> dict[str, Any]:
    by_kind: dict[str, Any] = {}
    for key, value in options.items():
        by_kind.setdefault("client_options" if key in _CLIENT_OPTIONS else "config", {})[key] = value
    return by_kind


def _hadoop_store(
    root: str, scheme: str, config: Mapping[str, str], hadoop: Callable[[str], HadoopFiles] | None
) -> HadoopStore:
    authority, _, path = root[len(scheme) + 1 :].removeprefix("//").partition("/")
    system, folder = f"{scheme}://{authority}", posixpath.normpath("/" + path.lstrip("/"))
    settings = {key: value for key, value in config.items() if key != SINGLE_WRITER}
    is_hdfs = scheme.lower() in HDFS_SCHEMES
    if hadoop is not None:
        opened: HadoopFiles = hadoop(system)
    elif is_hdfs:
        opened = NativeHdfs(system, settings)
    else:
        raise _unsupported(
            root,
            f"There is no store for '{scheme}' paths such as '{root}' without a JVM in this process: open the table "
            "in a classic Spark session whose Hadoop has this file system, or name a local path or a URL of S3, "
            "Google Cloud Storage, Azure or HDFS.",
        )
    files: Files | NotOpened = NotOpened(f"tasks do not open {scheme} paths")
    system = opened.url
    if is_hdfs:
        by_name = {"url": system, "config": settings}
        # Of most small files hdfs-native asks twice whether they are complete, half a second apart.
        put = None if hadoop is None else opened.create
        files = Files("hdfs", by_name, put=put) if is_installed() else NotOpened(f"tasks open HDFS by {PACKAGE} only")
    return HadoopStore((system + folder).rstrip("/"), opened, files, has_single_writer=has_single_writer(config))


def _refuse_secrets(url: str) -> None:
    """Refuse a table's URL with a key or a token: it stands in plans, reports and logs, also in Spark's."""
    shown = _SIGNATURE.sub("?…", _LOGIN.sub("…@", url))
    if shown != url:
        raise _unsupported(
            shown,
            f"The URL '{shown}' has a key or a token in it, which would be shown wherever the table is named. Give it "
            "as an option, a setting of the session or a provider of credentials, and the URL without it.",
        )


def _unsupported(root: str, message: str) -> DeltaTableException:
    return DeltaTableException("FAILED_READ_FILE.UNSUPPORTED_FILE_SYSTEM", message, parameters={"path": root})


def in_parallel(work: Callable[..., _Result], *items: Iterable[Any]) -> list[_Result]:
    """Return what a function returns for each item, in their order; threads wait for the store at the same time."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(work, *items))


def without_markers(store: Store, files: list[StoredFile]) -> list[StoredFile]:
    """Return files without what may be a marker of an empty folder in an object store."""
    if store.is_local:
        return files
    return [file for file in files if file.size or ("." in file.name and "=" not in file.name)]


def own_files(store: Store) -> list[StoredFile]:
    """List the files of a table's folder, without those that a symbolic link shows of a folder elsewhere."""
    found = store.list()
    if not store.is_local:
        return found
    root = Path(store.root).resolve()
    folders = {posixpath.dirname(file.path) for file in found}
    own = {folder for folder in folders if (root / folder).resolve().is_relative_to(root)}
    return [file for file in found if posixpath.dirname(file.path) in own]
