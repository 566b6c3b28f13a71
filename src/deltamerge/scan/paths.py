"""How the log, the store and Spark spell a file's name."""

from __future__ import annotations

import re
from urllib.parse import unquote

from deltamerge.log.actions import AddFile
from deltamerge.log.paths import decode_path
from deltamerge.spark.table import Table


def file_key(uri: str) -> str:
    """Gives one spelling to a file's name, whether Spark or the log spelled it.

    Args:
        uri: A URI as ``_metadata.file_path`` gives it.

    Returns:
        The decoded absolute path of a local file, the decoded URL of another.
    """
    return without_file_scheme(unquote(uri))


def absolute_key(table: Table, file: AddFile) -> str:
    """Gives a log file's name in the spelling of `file_key`."""
    return without_file_scheme(table.store.absolute(decode_path(file.path)))


def without_file_scheme(path: str) -> str:
    """Gives a local file's plain path, however its scheme is spelled; other URLs as they are."""
    return re.sub(r"^file:/+", "/", path)


def spark_path(table: Table, path: str) -> str:
    """Gives a file's name as `DataFrameReader` takes it.

    Args:
        table: The table.
        path: The real name, relative to the table or absolute.
    """
    # Spark takes these for patterns; on Connect that cannot be turned off.
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", table.store.absolute(path))


def spark_spellings(table: Table, file: AddFile) -> list[str]:
    """Gives the URIs that Spark may name a file by."""
    path = table.store.absolute(decode_path(file.path))
    if "://" in path and not path.startswith("file:"):
        scheme, rest = path.split("://", 1)
        return [f"{scheme}://{_java_uri(rest)}"]
    encoded = _java_uri(without_file_scheme(path))
    return [f"file:{encoded}", f"file://{encoded}"]


_URI_PLAIN = frozenset("_-!.~'()*,;:$&+=@/")


def _java_uri(path: str) -> str:
    """Spells a path as java.net.URI does when it is given one in parts."""
    return "".join(
        char
        if (char.isascii() and char.isalnum())
        or char in _URI_PLAIN
        or (ord(char) >= 160 and not char.isspace())
        else "".join(f"%{byte:02X}" for byte in char.encode())
        for char in path
    )
