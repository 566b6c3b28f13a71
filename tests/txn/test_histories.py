"""Histories of writers that overlap in every way: each is equivalent to a serial one.

Writers read a version, and commit later, others in between. They compute rows in plain Python; conflict checks, the
second look at rows, deletion vectors and the log are the library's own. After a conflict about rows a statement runs
again, as merges do. The model knows rows only: under Serializable the statements one after another, in the order of
their versions, give the rows that the table has; under WriteSerializable those of some order do.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

import deltamerge.merge.result.reconcile as looked_at
from deltamerge.exceptions import DeltaConcurrentModificationException
from deltamerge.log.actions import Action, AddFile, Protocol
from deltamerge.log.features.deletion_vectors import read_deletion_vectors
from deltamerge.log.paths import decode_path
from deltamerge.log.snapshot import Snapshot, load_snapshot
from deltamerge.merge.executors.merge_changes import NOTHING_WRITTEN, MergeChanges
from deltamerge.merge.executors.touched_files import TouchedFiles
from deltamerge.merge.planning.target_files import ScanSizes, TargetFiles
from deltamerge.skipping.predicates import ALWAYS, NEVER
from deltamerge.storage.store import Store, open_store
from deltamerge.txn.conflicts import ROW_CONFLICTS, WinningCommit
from deltamerge.txn.prepared import PreparedCommit
from deltamerge.txn.transaction import ReadSet, commit
from deltamerge.write.deletion_vectors import NO_VECTORS, write_deletion_vectors
from txn.tables import clock, metadata, prepare, write_file

EXAMPLES = int(os.environ.get("DELTAMERGE_HISTORIES", "80"))
FEATURES = Protocol(3, 7, frozenset({"deletionVectors"}), frozenset({"deletionVectors"}))
Row: TypeAlias = "tuple[int, int]"
FIRST: tuple[tuple[Row, ...], ...] = (tuple((i, i % 3) for i in range(5)), tuple((i, i % 3) for i in range(5, 9)))


@dataclass(frozen=True)
class Statement:
    """What a writer does.

    Args:
        keys: The source's keys; each sets the value `value`.
        kind: ``upsert``, ``odd`` (an upsert that changes only rows with odd values), ``delete``, ``keep`` (updates the
            keys' rows and deletes all others from key 4 on), ``append``, ``overwrite``, ``compact``, ``alter``.
    """

    kind: str
    keys: tuple[int, ...]
    value: int

    @property
    def inserts(self) -> bool:
        return self.kind in ("upsert", "odd")

    def reads(self, row: Row) -> bool:
        """Whether a row matches the source, or is one that a BY SOURCE clause takes."""
        return row[0] in self.keys or (self.kind == "keep" and row[0] >= 4)

    def changes(self, row: Row) -> bool:
        return self.reads(row) and (self.kind != "odd" or row[1] % 2 == 1)

    def replaced_by(self, row: Row) -> list[Row]:
        return [(row[0], self.value)] if row[0] in self.keys and self.kind != "delete" else []

    def inserted(self, rows: Sequence[Row]) -> list[Row]:
        there = {row[0] for row in rows}
        return [(key, self.value) for key in self.keys if key not in there] if self.inserts else []

    def after(self, rows: Sequence[Row]) -> list[Row]:
        """The rows of a table after it: the model."""
        new = [(key, self.value) for key in self.keys]
        if self.kind in ("compact", "alter"):
            return list(rows)
        if self.kind in ("append", "overwrite"):
            return [*(rows if self.kind == "append" else ()), *new]
        changed = [new for row in rows for new in (self.replaced_by(row) if self.changes(row) else [row])]
        return [*changed, *self.inserted(rows)]


def live_rows(store: Store, files: Sequence[AddFile]) -> list[tuple[AddFile, int, Row]]:
    vectors = read_deletion_vectors(store, [f.deletion_vector for f in files if f.deletion_vector is not None])
    found = []
    for file in files:
        gone = BitMap64() if file.deletion_vector is None else vectors[file.deletion_vector.unique_id]
        table = pq.read_table(store.open_input(decode_path(file.path)))
        rows = zip(table["id"].to_pylist(), map(int, table["part"].to_pylist()), strict=True)
        found += [(file, at, row) for at, row in enumerate(rows) if at not in gone]
    return found


def written(snapshot: Snapshot, rows: Sequence[Row], **changes: Any) -> list[AddFile]:
    """Writes a file for each value: values are in its one other column."""
    by_value: dict[int, list[int]] = {}
    for key, value in rows:
        by_value.setdefault(value, []).append(key)
    return [write_file(snapshot, keys, str(value), **changes) for value, keys in sorted(by_value.items())]


@dataclass
class Writer:
    """A statement that has read a version and is ready to commit."""

    statement: Statement
    level: str
    snapshot: Snapshot
    reconciled: int = 0

    def commit(self) -> int:
        kind = self.statement.kind
        if kind in ("append", "overwrite", "compact", "alter"):
            return commit(self._whole(kind), clock).version
        changes, new = self._found()

        def prepared(changes: MergeChanges) -> PreparedCommit:
            actions: list[Action] = [file.remove(clock()) for file in changes.touched.rewrite]
            actions += [*changes.vectors.kept, *new]
            read = ReadSet((ALWAYS,), frozenset(file.path for file in changes.target.files))
            return prepare(self.snapshot, *actions, read=read, isolation_level=self.level)

        first = prepared(changes)

        def reconcile(winners: Sequence[WinningCommit], _: DeltaConcurrentModificationException) -> Any:
            found = looked_at.reconciled(changes, first, winners)
            self.reconciled += found is not None
            return None if found is None else replace(prepared(found), txn_id=first.txn_id)

        return commit(first, clock, reconcile).version

    def _whole(self, kind: str) -> PreparedCommit:
        read, files = self.snapshot, self.snapshot.files.add_files()
        new = written(read, [(key, self.statement.value) for key in self.statement.keys])
        everything = ReadSet((ALWAYS,), frozenset(file.path for file in files))
        if kind == "append":
            return prepare(read, *new, isolation_level=self.level, operation="WRITE")
        if kind == "alter":
            changed = replace(read.metadata, name=str(self.statement.value))
            return prepare(read, changed, read=ReadSet(), isolation_level=self.level)
        if kind == "overwrite":
            gone = [file.remove(clock()) for file in files]
            return prepare(read, *gone, *new, read=everything, isolation_level=self.level)
        rows = [row for _, _, row in live_rows(read.store, files)]
        together = written(read, rows, data_change=False)
        gone = [file.remove(clock(), data_change=False) for file in files]
        read_files = ReadSet((NEVER,), everything.files)
        return prepare(
            read, *gone, *together, read=read_files, isolation_level="SnapshotIsolation", operation="OPTIMIZE"
        )

    def _found(self) -> tuple[MergeChanges, list[AddFile]]:
        statement, store = self.statement, self.snapshot.store
        files = tuple(self.snapshot.files.add_files())
        found = live_rows(store, files)
        deleted: dict[str, BitMap64] = {}
        new: list[Row] = []
        for file, at, row in found:
            if statement.changes(row):
                deleted.setdefault(file.path, BitMap64()).add(at)
                new += statement.replaced_by(row)
        new += statement.inserted([row for _, _, row in found])
        touched = {file.path: file for file in files if file.path in deleted}
        folder = f"deltamerge-{os.urandom(8).hex()}"
        vectors = write_deletion_vectors(store, folder, deleted, touched) if deleted else NO_VECTORS

        def finds_rows(others: Sequence[AddFile]) -> bool:
            return any(statement.reads(row) for _, _, row in live_rows(store, others))

        given = SimpleNamespace(source=None, clauses=())
        merge = SimpleNamespace(changes_all_it_matches=statement.kind != "odd", statement=given)
        table = SimpleNamespace(store=store)
        conf = SimpleNamespace(double_quoted_identifiers=False)
        execution = SimpleNamespace(table=table, merge=merge, folder=folder, conf=conf, source_read_table=False)
        changes = MergeChanges(
            execution=cast("Any", execution),
            source_rows=len(statement.keys),
            second_scan_rows=-1,
            target=TargetFiles(ALWAYS, files, frozenset(), ScanSizes(0, 0, 0, 0, 0)),
            touched=TouchedFiles(tuple(touched.values()), (), {}, has_multiple_matches=False),
            written=NOTHING_WRITTEN,
            inserted=0,
            inserted_by_clause={},
            copied=0,
            summary=None,
            vectors=vectors,
            finds_rows=finds_rows,
        )
        return changes, written(self.snapshot, new)


KINDS = ["upsert", "upsert", "odd", "delete", "keep", "append", "overwrite", "compact", "alter"]
STATEMENTS = st.builds(
    Statement,
    st.sampled_from(KINDS),
    st.lists(st.integers(0, 10), min_size=1, max_size=2, unique=True).map(lambda keys: tuple(sorted(keys))),
    st.integers(3, 6),
)


@st.composite
def histories(draw: Callable[[Any], Any]) -> tuple[list[Statement], list[int]]:
    """Statements, and the order in which they read and commit: each number comes twice."""
    statements = draw(st.lists(STATEMENTS, min_size=2, max_size=4))
    return statements, draw(st.permutations([*range(len(statements))] * 2))


def played(store: Store, level: str, statements: list[Statement], order: list[int]) -> tuple[list[Statement], int]:
    """Runs a history; gives the statements that were committed, in the order of their versions, and second looks."""
    writers: dict[int, Writer] = {}
    committed: dict[int, Statement] = {}
    looks = 0
    for number in order:
        if number not in writers:
            writers[number] = Writer(statements[number], level, load_snapshot(store))
            continue
        writer = writers[number]
        try:
            committed[writer.commit()] = writer.statement
        except ROW_CONFLICTS:
            if writer.statement.kind in ("overwrite", "compact"):
                continue
            again = Writer(writer.statement, level, load_snapshot(store))
            committed[again.commit()] = writer.statement
        except DeltaConcurrentModificationException:
            assert any(statement.kind == "alter" for statement in statements)
        looks += writer.reconciled
    return [committed[version] for version in sorted(committed)], looks


def serial(statements: Sequence[Statement]) -> Counter[Row]:
    rows = [row for of_file in FIRST for row in of_file]
    for statement in statements:
        rows = statement.after(rows)
    return Counter(rows)


SEEN: Counter[str] = Counter()


def check(level: str, history: tuple[list[Statement], list[int]]) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        store = open_store(folder)
        made = commit(prepare(store, FEATURES, metadata(enableDeletionVectors="true"), is_blind_append=False), clock)
        for rows in FIRST:
            snapshot = load_snapshot(store)
            commit(prepare(snapshot, *written(snapshot, rows)), clock)
        assert made.version == 0
        done, looks = played(store, level, *history)
        snapshot = load_snapshot(store)
        found = Counter(row for _, _, row in live_rows(store, snapshot.files.add_files()))
        assert snapshot.version == len(FIRST) + len(done)
        for file in snapshot.files.add_files():
            vector = file.deletion_vector
            assert vector is None or 0 < vector.cardinality < pq.read_metadata(store.open_input(file.path)).num_rows
    SEEN["histories"] += 1
    SEEN["commits beside others"] += looks
    if level == "Serializable":
        assert found == serial(done)
    else:
        assert any(found == serial(order) for order in [done, *permutations(done)])


@pytest.fixture(autouse=True)
def _sources_are_no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looked_at, "reads_table", lambda *_: False)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
def test_every_history_is_equivalent_to_a_serial_one(level: str) -> None:
    SEEN.clear()
    chosen = settings(
        max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES <= 80, suppress_health_check=list(HealthCheck)
    )
    chosen(given(histories())(lambda history: check(level, history)))()
    print(level, dict(SEEN))
    assert SEEN["commits beside others"] > EXAMPLES // 20


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
def test_two_upserts_of_one_file(level: str) -> None:
    SEEN.clear()
    check(level, ([Statement("upsert", (1, 9), 5), Statement("upsert", (2, 10), 6)], [0, 1, 1, 0]))
    assert SEEN["commits beside others"] == 1
