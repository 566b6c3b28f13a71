"""The history of a table: who did what, from the commit infos, without loading a snapshot."""

from __future__ import annotations

from typing import Any

from deltamerge.log.actions import CommitInfo, compact_json
from deltamerge.log.cleanup import adjusted_timestamps
from deltamerge.log.commit_times import datetime_of
from deltamerge.log.commits import parse_action, read_ahead
from deltamerge.log.segment import list_log, table_not_found
from deltamerge.storage.store import Store

COLUMNS = {
    "version": "BIGINT",
    "timestamp": "TIMESTAMP",
    "userId": "STRING",
    "userName": "STRING",
    "operation": "STRING",
    "operationParameters": "MAP<STRING, STRING>",
    "job": "STRUCT<jobId: STRING, jobName: STRING, jobRunId: STRING, runId: STRING, jobOwnerId: STRING, "
    "triggerType: STRING>",
    "notebook": "STRUCT<notebookId: STRING>",
    "clusterId": "STRING",
    "readVersion": "BIGINT",
    "isolationLevel": "STRING",
    "isBlindAppend": "BOOLEAN",
    "operationMetrics": "MAP<STRING, STRING>",
    "userMetadata": "STRING",
    "engineInfo": "STRING",
}
"""The columns of DESCRIBE HISTORY, with their types in SQL."""

# Stores read ranges in pieces of this size; of a smaller file the whole is one request.
_WHOLE_BYTES = 1 << 20


def read_history(store: Store, limit: int | None = None) -> list[dict[str, Any]]:
    """Return one row a commit, newest first, with the columns of DESCRIBE HISTORY; None where a commit lacks one.

    ``timestamp`` is the in-commit timestamp, else the file's modification time; the values of
    ``operationParameters`` and ``operationMetrics`` are strings. `limit` is the number of commits; None for all
    that the log still has.
    """
    try:
        return _read(store, limit)
    except FileNotFoundError:
        # The log was cleaned up since it was listed: a new listing shows what it still has.
        return _read(store, limit)


def _read(store: Store, limit: int | None) -> list[dict[str, Any]]:
    listing = list_log(store)
    if not listing.commits and not listing.checkpoints:
        raise table_not_found(store)
    times = adjusted_timestamps(listing.commits)
    begin = 0 if limit is None else max(0, len(listing.commits) - limit)
    chosen = listing.commits[begin:]
    sizes = {commit.file.path: commit.file.size for commit in chosen}
    contents = read_ahead(store, sizes, lambda path: _content_with_info(store, path, sizes[path]))
    rows = [
        _row(commit.start, time, _commit_info(content, store.absolute(path)))
        for commit, time, (path, content) in zip(chosen, times[begin:], contents, strict=True)
    ]
    return rows[::-1]


def _content_with_info(store: Store, path: str, size: int) -> bytes:
    """Read a commit, only the first line of a large one where that is its info, as the protocol asks of writers."""
    if size <= _WHOLE_BYTES:
        return store.get(path)
    with store.open_input(path) as source:
        first = source.readline()
        return first if first.startswith(b'{"commitInfo":') and first.endswith(b"\n") else first + source.read()


def _commit_info(content: bytes, where: str) -> CommitInfo:
    for number, line in enumerate(content.split(b"\n"), 1):
        # The name also occurs in strings of other actions, so the parsed line has the last word.
        if b'"commitInfo"' in line:
            action = parse_action(line, where, number)
            if isinstance(action, CommitInfo):
                return action
    return CommitInfo({})


def _row(version: int, time: int, info: CommitInfo) -> dict[str, Any]:
    milliseconds = time if info.in_commit_timestamp is None else info.in_commit_timestamp
    row = {name: _in_type(info.values.get(name), kind) for name, kind in COLUMNS.items()}
    return row | {"version": version, "timestamp": datetime_of(milliseconds)}


def _in_type(value: object, kind: str) -> object:
    """Return a value of a commit info, which may have any, in a column's type; None where it is of another."""
    if kind == "STRING":
        return _as_string(value)
    if kind == "BIGINT":
        return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None
    if kind == "BOOLEAN":
        return value if isinstance(value, bool) else None
    # Maps and structs are of strings.
    return {key: _as_string(each) for key, each in value.items()} if isinstance(value, dict) else None


def _as_string(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return compact_json(value)
