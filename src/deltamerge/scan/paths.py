"""How the log, the store and Spark spell the name of a file."""

from __future__ import annotations

import os.path
import re
from urllib.parse import unquote

from deltamerge.log.actions import AddFile
from deltamerge.log.paths import decode_path
from deltamerge.spark.table import Table
from deltamerge.storage.store import Store
from deltamerge.storage.stored_file import SCHEME, uri_of


def file_key(uri: str) -> str:
    """Normalize a URI of ``_metadata.file_path`` to the decoded absolute path of a local file or the decoded URL."""
    return without_file_scheme(unquote(uri))


def absolute_key(table: Table, file: AddFile) -> str:
    """Return the name of a file of the log in the spelling of `file_key`."""
    return located(table.store, decode_path(file.path))


def located(store: Store, path: str) -> str:
    """Return the path of a file of a table as tasks open it: absolute on this machine, or a URL."""
    return without_file_scheme(store.absolute(path))


def without_file_scheme(path: str) -> str:
    """Strip the scheme of a local file's URL, however it is spelled; other URLs stay."""
    return re.sub(r"^file:/+", "/", path)


def may_be_below(uri: str, root: str) -> bool:
    """Return whether a file or folder may be a table's folder or in it, whatever way its file system is spelled."""
    authority, path = _place(uri)
    table_authority, table_path = _place(root)
    if authority and table_authority and authority != table_authority:
        return False
    return path == table_path or path.startswith(table_path.rstrip("/") + "/")


def is_same_place(uri: str, root: str) -> bool:
    """Return whether two locations may be one, whatever way their file system is spelled."""
    return may_be_below(uri, root) and may_be_below(root, uri)


def _place(uri: str) -> tuple[str, str]:
    """Return a location's bucket or container, empty where that is not certain, and its path."""
    scheme = SCHEME.match(uri)
    if scheme is None or scheme.group(1).lower() == "file":
        return "", os.path.realpath(file_key(uri))
    decoded = file_key(uri[scheme.end() - 1 :])
    authority, _, path = decoded[2:].partition("/") if decoded.startswith("//") else ("", "", decoded)
    kind = scheme.group(1).lower()
    if kind.startswith(("abfs", "wasb")):
        authority = authority.partition(".")[0]
    elif kind not in ("s3", "s3a", "s3n", "gs"):
        authority = ""
    return authority, os.path.normpath("/" + path.lstrip("/"))


def spark_path(table: Table, path: str) -> str:
    """Escape a decoded path, relative to the table or absolute, for `DataFrameReader`."""
    # Spark takes these for patterns; on Connect that cannot be turned off.
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", uri_of(table.store.absolute(path)))


def spark_spellings(table: Table, file: AddFile) -> list[str]:
    """Return the URIs by which Spark may name a file."""
    path = table.store.absolute(decode_path(file.path))
    if SCHEME.match(path) and not path.startswith("file:"):
        scheme, rest = path.split(":", 1)
        return [f"{scheme}:{_java_uri(rest)}"]
    encoded = _java_uri(without_file_scheme(path))
    return [f"file:{encoded}", f"file://{encoded}"]


_URI_PLAIN = frozenset("_-!.~'()*,;:$&+=@/")


def _java_uri(path: str) -> str:
    """Spell a path as java.net.URI does when it is given one in parts."""
    return "".join(
        char
        if (char.isascii() and char.isalnum()) or char in _URI_PLAIN or (ord(char) >= 160 and not char.isspace())
        else "".join(f"%{byte:02X}" for byte in char.encode())
        for char in path
    )
