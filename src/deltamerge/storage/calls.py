"""Calls of a store's methods that run in another process, such as a Spark task; their answers are Arrow rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from obstore.exceptions import (
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from deltamerge.exceptions import DeltaTableException
from deltamerge.storage.store import Store, open_store
from deltamerge.workers.obstore_client import reason_of
from deltamerge.workers.sealed import Sealed

SCHEMA = "path string, size long, modified long, tag string, content binary, error string"
_ARROW = pa.schema([
    ("path", pa.string()), ("size", pa.int64()), ("modified", pa.int64()),
    ("tag", pa.string()), ("content", pa.binary()), ("error", pa.string()),
])  # fmt: skip
# Spark sends a row as a whole.
_PIECE_BYTES = 8 << 20
# A listing brings the end of each file, and as much more as is small, so that a log is read by the call that lists it.
_SMALL_BYTES = 1 << 20
_TAIL_BYTES = 1 << 16
_AHEAD_BYTES = 32 << 20
_ERRORS: Mapping[str, type[OSError | BaseError]] = {
    each.__name__: each
    for each in (
        FileExistsError,
        FileNotFoundError,
        NotADirectoryError,
        PermissionError,
        InvalidPathError,
        NotSupportedError,
        PermissionDeniedError,
        UnauthenticatedError,
    )
}
"""Errors that say more than that a call failed, by name: a commit that a store refuses has certainly not landed."""


@dataclass(frozen=True)
class Call:
    """A method of `Store`, or ``end`` (a file's size and last bytes) or ``read`` (a range)."""

    method: str
    arguments: tuple[Any, ...]


def answering(
    root: str, options: Mapping[str, str], defaults: Mapping[str, str], call: Call
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for one task that makes a call of a store; the other arguments are those of `open_store`."""
    options, defaults = Sealed(options), Sealed(defaults)

    def answer(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        try:
            rows = _made(open_store(root, options, defaults), call)
        except (OSError, BaseError, DeltaTableException) as error:
            rows = [{"error": described(error)}]
        for row in rows:
            yield pa.RecordBatch.from_pylist([row], _ARROW)

    return answer


def raise_error(described: str) -> None:
    """Raise the error of a call again.

    Raises:
        OSError: Also its subclasses, as the store raised it; what a store refuses is one of obstore's own errors.
        DeltaTableException: The store was not reached.
    """
    known = json.loads(described)
    if "class" in known:
        raise DeltaTableException(known["class"], known["message"])
    raise _ERRORS.get(known["kind"], OSError)(known["message"])


def described(error: OSError | BaseError | DeltaTableException) -> str:
    """Return an error as `raise_error` takes it."""
    if isinstance(error, DeltaTableException):
        return json.dumps({"class": error.error_class, "message": error.message})
    kind = next((each.__name__ for each in _ERRORS.values() if isinstance(error, each)), "OSError")
    return json.dumps({"kind": kind, "message": reason_of(error) if str(error) else type(error).__name__})


def _made(store: Store, call: Call) -> list[dict[str, Any]]:
    if call.method in ("list", "list_folder"):
        return _listed(store, call)
    if call.method == "end":
        path, most = call.arguments
        with store.open_input(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            return [{"size": size, "content": piece} for piece in _pieces(file.read())]
    if call.method == "read":
        path, first, end = call.arguments
        with store.open_input(path) as file:
            file.seek(first)
            return [{"content": piece} for piece in _pieces(file.read(end - first))]
    found = getattr(store, call.method)(*call.arguments)
    if isinstance(found, bool):
        return [{"size": int(found)}]
    return [] if found is None else [{"content": piece} for piece in _pieces(found)]


def _listed(store: Store, call: Call) -> list[dict[str, Any]]:
    files = getattr(store, call.method)(*call.arguments)
    rows, left = [], _AHEAD_BYTES if call.arguments[0] else 0
    # Of a long listing the last files are asked for: the newest commits.
    for file in reversed(files):
        content = None
        size = file.size if file.size <= _SMALL_BYTES else _TAIL_BYTES
        # What is replaced under its name, as pointers are, has no suffix, and is read when it is asked for.
        if "." in file.name and size <= left:
            content, left = _end_of(store, file.path, size), left - size
        row = {"path": file.path, "size": file.size, "modified": file.modification_time, "tag": file.e_tag}
        rows.append({**row, "content": content})
    return rows[::-1]


def _end_of(store: Store, path: str, size: int) -> bytes | None:
    try:
        with store.open_input(path) as file:
            file.seek(max(0, file.seek(0, 2) - size))
            return file.read()
    except FileNotFoundError:
        return None


def _pieces(content: bytes) -> list[bytes]:
    return [content[at : at + _PIECE_BYTES] for at in range(0, len(content), _PIECE_BYTES)] or [b""]
