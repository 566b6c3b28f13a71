"""Paths of data files: the log's URI spelling, real names, and the canonical form that replay compares.

`add.path` is a URI: relative to the table or absolute, percent-encoded once. Folders on disk may carry
Hive's escapes on top, which belong to the real name and are not decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

from deltamerge.storage.stored_file import SCHEME

# What Hadoop leaves out of a path.
_REDUNDANT = re.compile(r"(?<![:/])/(?:\.?/)+|^(?:\./+)+")
# The scheme and, after two slashes, the authority.
_ROOT = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:(?://[^/]*)?(?=/|$)")
# Of what Delta keeps in a table's folder beside its data.
_OWN_FOLDERS = frozenset({"_delta_log", "_samples"})
_FILE = re.compile(r"file:/+", re.IGNORECASE)
# What java.net.URI leaves as it is in a path, except ':' (a scheme would be seen in a first segment).
_SAFE = "/-_.!~*'(),;$&+=@"


def is_absolute(path: str) -> bool:
    return path.startswith("/") or SCHEME.match(path) is not None


def folders_up(path: str) -> Iterator[str]:
    """Yield a folder and those that it is in, up to the root of its store or to a log's folder, which is left out.

    Delta: DeltaTableUtils.findDeltaTableRoot.
    """
    root = _ROOT.match(path)
    head = root[0] if root is not None else ""
    folder = PurePosixPath("/" + path[len(head) :].lstrip("/"))
    for each in takewhile(lambda found: found.name not in _OWN_FOLDERS, (folder, *folder.parents)):
        yield f"{head}{each}"


def decode_path(add_path: str) -> str:
    """Return the real name of a file from the log's spelling, a URI: relative to the table, or absolute.

    Absolute are a plain path for local files (without ``file:``), scheme and decoded path for all others.
    """
    decoded = unquote(add_path) if "%" in add_path else add_path
    local = _FILE.match(add_path)
    decoded = "/" + decoded[local.end() :] if local else decoded
    return _REDUNDANT.sub(_shortened, decoded) if "//" in decoded or "./" in decoded else decoded


def _shortened(redundant: re.Match[str]) -> str:
    return "/" if redundant.group().startswith("/") else ""


def names_no_file_of_table(add_path: str) -> bool:
    """Return whether a path of the log leads out of its folder, or is none.

    Only an absolute path, such as those of shallow clones, may be outside the table.
    """
    decoded = decode_path(add_path)
    return "\0" in decoded or ".." in decoded.split("/")


def encode_path(real_path: str) -> str:
    """Return the log's spelling of a file's real name, relative or absolute; `decode_path` is its inverse."""
    scheme = SCHEME.match(real_path)
    if scheme is None:
        return quote(real_path, safe=_SAFE)
    # The authority (bucket, container@account) is no part of the path and is kept.
    head = scheme.group()[:-1]
    rest = real_path[len(head) :]
    return head + quote(rest, safe=_SAFE + ":")


def canonical_path(add_path: str, root: str) -> str:
    """Return the form in which two spellings of one file are equal: decoded, with scheme if absolute.

    Delta qualifies absolute paths with the file system's scheme and leaves relative ones as they are (delta-spark,
    `DeltaLog.canonicalizePath`). An absolute path without a scheme gets that of `root`.
    """
    decoded = decode_path(add_path)
    if not is_absolute(decoded):
        return decoded
    scheme = SCHEME.match(decoded)
    if scheme is not None:
        head = scheme.group()
        authority, slash, path = decoded[len(head) :].lstrip("/").partition("/")
        return head.lower().rstrip("/") + "//" + authority + slash + path
    if _FILE.match(add_path) is None and (root_scheme := SCHEME.match(root)) is not None:
        authority = root[root_scheme.end() :].lstrip("/").partition("/")[0]
        return root_scheme.group().lower().rstrip("/") + "//" + authority + decoded
    return "file:" + decoded


def canonical_paths(add_paths: Iterable[str], root: str) -> Iterator[str]:
    """Yield the canonical forms of many paths; files of one folder share the work on its name."""
    folders: dict[str, str] = {}
    for path in add_paths:
        folder, slash, name = path.rpartition("/")
        if not slash or "%" in name or not folder or is_absolute(path):
            yield canonical_path(path, root)
            continue
        if folder not in folders:
            folders[folder] = canonical_path(folder + "/", root)
        yield folders[folder] + name
