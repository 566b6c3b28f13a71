"""The file systems that tasks reach with what executors have: PyArrow's, and hdfs-native."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from deltamerge.workers.azure import AzureSystem
from deltamerge.workers.first_contact import StoreFailed
from deltamerge.workers.hdfs import HdfsSystem

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://(?:([^/@]*)@)?([^/]*)/*(.*)", re.DOTALL)
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
# PyArrow's first version with S3's `allow_delayed_open`.
_WITH_DELAYED_OPEN = 20
_OF_MACHINE = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EROFS, errno.ETIMEDOUT,
        errno.ESTALE, errno.EPIPE, errno.ENOTCONN, errno.ECONNABORTED, errno.ECONNRESET, errno.ECONNREFUSED,
        errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH,
    }
)  # fmt: skip
# Arrow's file systems for stores have no numbers for errors.
_OF_STORE = re.compile(
    r"AWS Error|Azure Error|google::cloud::Status|(?i:timed? ?out|no space left|too many open files|connection)"
)


def connect(kind: str, options: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return a file system of PyArrow's, or what offers the same methods.

    Args:
        kind: ``s3``, ``gs``, ``az`` or ``hdfs``.
    """
    if kind == "hdfs":
        return HdfsSystem(**options)
    if kind == "s3":
        options = {**_endpoint_of_environment(), **options}
        # A small file is then one request, not three.
        delayed = {"allow_delayed_open": True} if int(pa.__version__.split(".")[0]) >= _WITH_DELAYED_OPEN else {}
        return pafs.S3FileSystem(**options, **delayed)
    if kind == "gs":
        return pafs.GcsFileSystem(**options)
    if kind == "az":
        return AzureSystem(options)
    raise ValueError("tasks do not open the store")


def _endpoint_of_environment() -> dict[str, str]:
    """Return the endpoint that obstore takes from this process's environment, and PyArrow does not."""
    endpoint = next((os.environ[name] for name in _ENDPOINTS if os.environ.get(name)), None)
    if endpoint is None:
        return {}
    scheme, _, host = endpoint.rpartition("://")
    return {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}


def key_of(kind: str, url: str) -> str:
    """Return the path of a URL as its file system takes it."""
    found = _URL.fullmatch(url)
    if found is None:
        raise ValueError(f"{url} is neither an absolute path nor a URL")
    container, authority, key = found.groups()
    return f"/{key}" if kind == "hdfs" else f"{container or authority}/{key}"


def account_of(url: str) -> str | None:
    found = _URL.fullmatch(url)
    return None if found is None or found.group(1) is None else found.group(2).partition(".")[0]


def is_of_machine(error: Exception) -> bool:
    """Return whether a disk, a network or memory failed: in no other way will the same file be read."""
    if isinstance(error, (MemoryError, StoreFailed)):
        return True
    if not isinstance(error, OSError) or isinstance(error, FileNotFoundError):
        return False
    # A message with a number has a path, which may have any words.
    return error.errno in _OF_MACHINE if error.errno is not None else _OF_STORE.search(str(error)) is not None
