"""Action reconciliation: lines of commits become the latest state, file actions staying in Arrow.

Source: Delta protocol, "Action Reconciliation": the newest protocol, metadata, transaction of an application
and configuration of a domain win; of a logical file (path and deletion vector) the newest add or remove.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.log.actions import (
    Action,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    first_of,
    from_json,
)
from deltamerge.log.arrays import bools, empty_table, mask_from_numpy, to_numpy
from deltamerge.log.commits import NO_ACTION, damaged
from deltamerge.log.file_actions import ADD_SCHEMA, REMOVE_KEY_SCHEMA, file_keys, parse_file_actions
from deltamerge.log.file_table import FileTable
from deltamerge.storage.stored_file import absolute_path

_CHUNK = 8 << 20
_PASSED_OVER = ("cdc", "commitInfo")


@dataclass(frozen=True)
class TableState:
    """The latest of all that is not a file."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    set_transactions: Mapping[str, SetTransaction] = field(default_factory=dict)
    domain_metadata: Mapping[str, DomainMetadata] = field(default_factory=dict)

    def apply(self, actions: Iterable[Action]) -> TableState:
        """Return the state after some actions, oldest first."""
        protocol, metadata = self.protocol, self.metadata
        transactions, domains = dict(self.set_transactions), dict(self.domain_metadata)
        for action in actions:
            if isinstance(action, Protocol):
                protocol = action
            elif isinstance(action, Metadata):
                metadata = action
            elif isinstance(action, SetTransaction):
                transactions[action.app_id] = action
            elif isinstance(action, DomainMetadata):
                if action.removed:
                    domains.pop(action.domain, None)
                else:
                    domains[action.domain] = action
        return TableState(protocol, metadata, transactions, domains)


@dataclass(frozen=True, eq=False)
class LogLines:
    """The parsed lines of some log files, oldest first; orders are the file actions' places among all lines.

    `actions` are the others, without change data files.
    """

    adds: pa.Table
    add_order: npt.NDArray[np.int64]
    removes: pa.Table
    remove_order: npt.NDArray[np.int64]
    actions: tuple[Action, ...]


def parse_log_files(
    files: Iterable[tuple[str, bytes]],
    root: str,
    *,
    remove_schema: pa.Schema = REMOVE_KEY_SCHEMA,
    with_commit_info: frozenset[str] = frozenset(),
) -> LogLines:
    """Parse commits (plain or compacted) or JSON checkpoints, oldest first, one by one.

    Fields of removes are those of `remove_schema`; commit infos are read of the files of `with_commit_info` only.
    Errors have the files' paths below `root`, and as they are given in the parameter ``path``.
    """
    collector = _Collector(root, remove_schema)
    for path, content in files:
        collector.take_file(path, content, path in with_commit_info)
    return collector.finish()


def live_files(base: FileTable | None, lines: LogLines, root: str) -> FileTable:
    """Return the live files after some commits.

    `base` has those before; None at the start of the log.
    """
    if lines.adds.num_rows == 0 and lines.removes.num_rows == 0:
        return FileTable(lines.adds) if base is None else base
    touched, newest = _newest(lines, root)
    adds = lines.adds
    wins = newest[newest < adds.num_rows]
    if len(wins) < adds.num_rows:
        adds = _keep(adds, wins)
    if base is None or base.num_files == 0:
        return FileTable(adds)
    return base.at_next_version(_untouched(base.arrow, touched, root), adds)


def tombstones(base: pa.Table | None, lines: LogLines, root: str) -> pa.Table:
    """Return the removes that no later add took back, whatever their age.

    `base` has those before, rows of `REMOVE_SCHEMA`, with which the commits are parsed, too.
    """
    if lines.adds.num_rows == 0 and lines.removes.num_rows == 0:
        return lines.removes if base is None else base
    touched, newest = _newest(lines, root)
    wins = newest[newest >= lines.adds.num_rows] - lines.adds.num_rows
    removes = _keep(lines.removes, wins)
    if base is None or base.num_rows == 0:
        return removes
    return pa.concat_tables([base.filter(mask_from_numpy(_untouched(base, touched, root))), removes])


def _newest(lines: LogLines, root: str) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return all keys, and for each the row of its newest action (removes counted after the adds)."""
    keys = [
        file_keys(table.column("path"), table.column("deletion_vector"), root) for table in (lines.adds, lines.removes)
    ]
    chunks = [chunk for column in keys for chunk in _chunks(column)]
    encoded = pa.chunked_array(chunks, pa.string()).combine_chunks().dictionary_encode()
    codes = to_numpy(encoded.indices)
    by_age = np.argsort(np.concatenate([lines.add_order, lines.remove_order]), kind="stable")
    newest = np.empty(len(encoded.dictionary), np.int64)
    # Where a key occurs twice the later assignment stays.
    newest[codes[by_age]] = by_age
    return encoded.dictionary, newest


def _untouched(base: pa.Table, touched: pa.Array, root: str) -> npt.NDArray[np.bool_]:
    keys = file_keys(base.column("path"), base.column("deletion_vector"), root)
    found = _chunks(pc.invert(pc.is_in(keys, value_set=touched)))
    return np.concatenate([bools(chunk) for chunk in found]) if found else np.ones(0, np.bool_)


def _keep(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    # A filter goes chunk by chunk, where `take` would first copy all of them into one.
    mask = np.zeros(table.num_rows, bool)
    mask[rows] = True
    return table.filter(mask_from_numpy(mask))


def _chunks(column: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]


class _Collector:
    """Lines by action, parsed in batches, so that the bytes need not stay in memory."""

    def __init__(self, root: str, remove_schema: pa.Schema) -> None:
        self._root = root
        self._schemas = {"add": ADD_SCHEMA, "remove": remove_schema}
        self._lines: dict[str, list[bytes]] = {"add": [], "remove": []}
        self._order: dict[str, list[int]] = {"add": [], "remove": []}
        self._tables: dict[str, list[pa.Table]] = {"add": [], "remove": []}
        self._sources: list[tuple[int, str]] = []
        self._actions: list[Action] = []
        self._place = 0
        self._pending = 0

    def take_file(self, path: str, content: bytes, with_commit_info: bool) -> None:
        self._sources.append((self._place, path))
        # Arrow's reader takes any bytes for a string.
        self._check_utf8(path, content)
        number = 0
        for chunk in _line_chunks(content):
            adds, removes = self._lines["add"], self._lines["remove"]
            add_order, remove_order = self._order["add"], self._order["remove"]
            for line in chunk.split(b"\n"):
                number += 1
                if line.startswith(b'{"add":{'):
                    adds.append(line)
                    add_order.append(self._place + number)
                elif line.startswith(b'{"remove":{'):
                    removes.append(line)
                    remove_order.append(self._place + number)
                elif line and not line.startswith(b'{"cdc":{'):
                    self._take_other(line, path, number, with_commit_info)
            self._pending += len(chunk)
            if self._pending >= _CHUNK:
                self._flush()
        self._place += number

    def finish(self) -> LogLines:
        self._flush()
        tables = {
            action: pa.concat_tables(parts) if parts else empty_table(self._schemas[action])
            for action, parts in self._tables.items()
        }
        return LogLines(
            adds=tables["add"],
            add_order=np.array(self._order["add"], np.int64),
            removes=tables["remove"],
            remove_order=np.array(self._order["remove"], np.int64),
            actions=tuple(self._actions),
        )

    def _check_utf8(self, path: str, content: bytes) -> None:
        try:
            _ = content.isascii() or content.decode()
        except UnicodeDecodeError as error:
            raise self._damaged(path, f"byte {error.start} is no UTF-8") from error

    def _take_other(self, line: bytes, path: str, number: int, with_commit_info: bool) -> None:
        if line.isspace() or (line.startswith(b'{"commitInfo":{') and not with_commit_info):
            return
        try:
            parsed = json.loads(line)
            present = {name for name, content in parsed.items() if content is not None}
        except (ValueError, AttributeError, RecursionError) as error:
            raise self._damaged(path, f"line {number} is no JSON object ({error})") from error
        for action in ("add", "remove"):
            if action in present:
                self._lines[action].append(line)
                self._order[action].append(self._place + number)
                return
        if not present.intersection(_PASSED_OVER) or (with_commit_info and "commitInfo" in present):
            try:
                action_or_none = from_json(parsed)
            except NO_ACTION as error:
                raise self._damaged(path, f"line {number} is no action ({error!r})") from error
            if action_or_none is not None:
                self._actions.append(action_or_none)

    def _flush(self) -> None:
        self._pending = 0
        for action, lines in self._lines.items():
            if not lines:
                continue
            self._tables[action].append(self._parsed(action, lines))
            lines.clear()

    def _parsed(self, action: str, lines: list[bytes]) -> pa.Table:
        try:
            return parse_file_actions(lines, action, self._schemas[action])
        except (ValueError, RecursionError) as error:
            raise self._blame(action, lines, error) from error

    def _blame(self, action: str, lines: list[bytes], error: Exception) -> Exception:
        places = self._order[action][-len(lines) :]
        causes = (_parse_error(line, action, self._schemas[action]) for line in lines)
        for place, cause in zip(places, causes, strict=True):
            if cause is not None:
                begin, path = max(source for source in self._sources if source[0] < place)
                return self._damaged(path, f"line {place - begin} is no '{action}' action ({cause})")
        return self._damaged(self._sources[-1][1], str(error))

    def _damaged(self, path: str, why: str) -> Exception:
        error = damaged(absolute_path(self._root, path), why)
        error.parameters["path"] = path
        return error


def _parse_error(line: bytes, action: str, schema: pa.Schema) -> Exception | None:
    try:
        parse_file_actions([line], action, schema)
    except (ValueError, RecursionError) as error:
        return error
    return None


def _line_chunks(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        end = content.find(b"\n", at + _CHUNK) if len(content) - at > _CHUNK else -1
        end = len(content) if end < 0 else end
        yield content[at:end] if at or end < len(content) else content
        at = end + 1


def commit_info(lines: LogLines) -> CommitInfo | None:
    return first_of(CommitInfo, reversed(lines.actions))
