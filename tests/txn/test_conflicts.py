"""Every conflict rule, both ways, under both isolation levels, between real commits of one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltamerge.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    DeltaConcurrentModificationException,
    DeltaError,
    MetadataChangedException,
    ProtocolChangedException,
)
from deltamerge.log.actions import Action, AddFile, DomainMetadata, Metadata, Protocol, SetTransaction
from deltamerge.log.commits import read_commit
from deltamerge.log.features.clustering import clustering_domain
from deltamerge.log.schema import StructType, parse_schema, schema_to_json
from deltamerge.log.snapshot import Snapshot
from deltamerge.skipping.predicates import ALWAYS, ColumnRef, Comparison, InRanges, Predicate
from deltamerge.txn.conflicts import WinningCommit
from deltamerge.txn.prepared import Committed, PreparedCommit
from deltamerge.txn.transaction import ReadSet, commit
from deltamerge.version import ENGINE_INFO
from txn.tables import append, clock, create, prepare, write_file

LEVELS = ["Serializable", "WriteSerializable"]
IN_A = Comparison("=", ColumnRef(("part",)), "a", "string")
KEYS = InRanges(ColumnRef(("id",)), ((10, 20), (50, 60)), False, "bigint")


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    return request.param


def reads(*predicates: Predicate, files: tuple[Any, ...] | list[AddFile] = (), whole_table: bool = False) -> ReadSet:
    return ReadSet(predicates, frozenset(file.path for file in files), whole_table)


def loses(prepared: PreparedCommit, kind: type[DeltaError], error_class: str) -> str:
    before = prepared.store.list()
    with pytest.raises(kind) as caught:
        commit(prepared, clock)
    assert caught.value.error_class == error_class
    assert caught.value.sqlstate == "2D521"
    assert prepared.store.list() == before
    return str(caught.value)


def merged(
    snapshot: Snapshot,
    predicate: Predicate,
    level: str,
    ids: tuple[int] = (1,),
    part: str = "a",
    **changes: Any,
) -> PreparedCommit:
    """A merge that read what a predicate names and adds a file."""
    file = write_file(snapshot, list(ids), part)
    return prepare(snapshot, file, read=reads(predicate), isolation_level=level, **changes)


def winner(snapshot: Snapshot, *actions: Action, blind: bool) -> Committed:
    read = None if blind else reads()
    return commit(prepare(snapshot, *actions, read=read, operation="WRITE"), clock)


def test_files_appended_to_what_was_read_conflict(tmp_path: Path, level: str) -> None:
    read = create(tmp_path, partitioned=True)
    file = write_file(read, [7], "a")
    winner(read, file, blind=False)
    message = loses(merged(read, IN_A, level), ConcurrentAppendException, "DELTA_CONCURRENT_APPEND")
    for part in ("version 1", "WRITE", ENGINE_INFO, "[part=a]", file.path, "run it again"):
        assert part in message


def test_files_appended_elsewhere_do_not_conflict(tmp_path: Path, level: str) -> None:
    read = create(tmp_path, partitioned=True)
    winner(read, write_file(read, [7], "b"), blind=False)
    committed = commit(merged(read, IN_A, level), clock)
    assert committed.version == 2
    assert committed.snapshot.files.num_files == 2


def test_files_with_other_keys_do_not_conflict(tmp_path: Path, level: str) -> None:
    read = create(tmp_path)
    winner(read, write_file(read, [21, 49]), blind=False)
    winner(read, write_file(read, [22, 40]), blind=False)
    # 21 to 49 lies between the ranges.
    assert commit(merged(read, KEYS, level), clock).version == 3


def test_files_with_the_same_keys_conflict(tmp_path: Path, level: str) -> None:
    read = create(tmp_path)
    winner(read, write_file(read, [0, 9]), blind=False)
    winner(read, write_file(read, [21, 55]), blind=False)
    assert "version 2" in loses(merged(read, KEYS, level), ConcurrentAppendException, "DELTA_CONCURRENT_APPEND")


def test_files_without_statistics_conflict(tmp_path: Path, level: str) -> None:
    read = create(tmp_path)
    winner(read, write_file(read, [0], stats=None), blind=False)
    loses(merged(read, KEYS, level), ConcurrentAppendException, "DELTA_CONCURRENT_APPEND")


def test_blind_appends_conflict_only_where_serializable(tmp_path: Path, level: str) -> None:
    read = create(tmp_path)
    winner(read, write_file(read, [15]), blind=True)
    if level == "Serializable":
        loses(merged(read, KEYS, level), ConcurrentAppendException, "DELTA_CONCURRENT_APPEND")
    else:
        assert commit(merged(read, KEYS, level), clock).version == 2


def test_blind_appends_conflict_with_a_change_of_metadata(tmp_path: Path, level: str) -> None:
    read = create(tmp_path)
    winner(read, write_file(read, [15]), blind=True)
    prepared = merged(read, KEYS, level)
    changed = replace(read.metadata, description="other")
    prepared = replace(prepared, actions=(changed, *prepared.actions))
    loses(prepared, ConcurrentAppendException, "DELTA_CONCURRENT_APPEND")


def test_a_writer_that_does_not_say_whether_it_read_may_have(tmp_path: Path, level: str) -> None:
    read = create(tmp_path)
    file = write_file(read, [15])
    foreign = b'{"commitInfo":{"operation":"STREAMING UPDATE"}}\n'
    content = f'{{"add":{{"path":"{file.path}","partitionValues":{{}},"size":1,"modificationTime":1}}}}\n'
    read.store.put("_delta_log/00000000000000000001.json", foreign + content.encode())
    message = loses(merged(read, KEYS, level), ConcurrentAppendException, "DELTA_CONCURRENT_APPEND")
    assert "STREAMING UPDATE" in message


def test_blind_appends_conflict_with_nothing_that_was_added(tmp_path: Path, level: str) -> None:
    read = create(tmp_path)
    winner(read, write_file(read, [15]), blind=False)
    assert commit(prepare(read, write_file(read, [15]), isolation_level=level), clock).version == 2


def test_a_new_layout_of_other_files_does_not_conflict(tmp_path: Path, level: str) -> None:
    small, read = append(create(tmp_path), [1])
    compacted = write_file(read, [1, 55], data_change=False)
    winner(read, small.remove(clock(), data_change=False), compacted, blind=False)
    assert commit(merged(read, KEYS, level), clock).version == 3


def test_whole_table_reads_conflict_with_every_append_and_delete(tmp_path: Path, level: str) -> None:
    file, read = append(create(tmp_path), [1])
    prepared = prepare(read, write_file(read, [2]), read=reads(whole_table=True), isolation_level=level)
    winner(read, write_file(read, [99]), blind=False)
    loses(prepared, ConcurrentAppendException, "DELTA_CONCURRENT_APPEND")
    later = commit(prepare(read), clock).snapshot
    prepared = replace(prepared, snapshot=later)
    winner(later, file.remove(clock()), blind=False)
    loses(prepared, ConcurrentDeleteReadException, "DELTA_CONCURRENT_DELETE_READ")


def test_files_that_were_read_and_deleted_conflict(tmp_path: Path, level: str) -> None:
    file, read = append(create(tmp_path, partitioned=True), [1], "a")
    winner(read, file.remove(clock()), blind=False)
    prepared = prepare(read, write_file(read, [2], "b"), read=reads(IN_A, files=[file]), isolation_level=level)
    message = loses(prepared, ConcurrentDeleteReadException, "DELTA_CONCURRENT_DELETE_READ")
    assert file.path in message
    assert "[part=a]" in message


def test_files_that_were_not_read_may_be_deleted(tmp_path: Path, level: str) -> None:
    file, read = append(create(tmp_path), [1])
    other, read = append(read, [2])
    winner(read, other.remove(clock()), blind=False)
    prepared = prepare(read, write_file(read, [3]), read=reads(KEYS, files=[file]), isolation_level=level)
    assert commit(prepared, clock).version == 4


def test_files_deleted_twice_conflict(tmp_path: Path, level: str) -> None:
    file, read = append(create(tmp_path), [1])
    winner(read, replace(file, path=file.path).remove(clock()), blind=False)
    prepared = prepare(read, file.remove(clock()), read=reads(), isolation_level=level)
    message = loses(prepared, ConcurrentDeleteDeleteException, "DELTA_CONCURRENT_DELETE_DELETE")
    assert file.path in message


def test_spellings_of_a_path_are_one_file(tmp_path: Path, level: str) -> None:
    read = create(tmp_path)
    file = write_file(read, [1])
    file = replace(file, path=f"file://{tmp_path}/{file.path}")
    read = commit(prepare(read, file), clock).snapshot
    other_spelling = replace(file, path=file.path.removeprefix("file://"))
    winner(read, other_spelling.remove(clock()), blind=False)
    prepared = prepare(read, file.remove(clock()), read=reads(), isolation_level=level)
    loses(prepared, ConcurrentDeleteDeleteException, "DELTA_CONCURRENT_DELETE_DELETE")


def test_different_files_deleted_do_not_conflict(tmp_path: Path, level: str) -> None:
    file, read = append(create(tmp_path), [1])
    other, read = append(read, [2])
    winner(read, other.remove(clock()), blind=False)
    prepared = prepare(read, file.remove(clock()), read=reads(), isolation_level=level)
    assert commit(prepared, clock).snapshot.files.num_files == 0


def test_changed_metadata_conflicts(tmp_path: Path, level: str) -> None:
    read = create(tmp_path)
    winner(read, replace(read.metadata, description="other"), blind=False)
    prepared = prepare(read, write_file(read, [1]), isolation_level=level)
    assert "version 1" in loses(prepared, MetadataChangedException, "DELTA_METADATA_CHANGED")


def test_the_same_metadata_again_conflicts_only_with_a_change_of_it(tmp_path: Path, level: str) -> None:
    read = create(tmp_path)
    winner(read, read.metadata, blind=False)
    change = prepare(read, replace(read.metadata, name="mine"), read=reads(), isolation_level=level)
    loses(change, MetadataChangedException, "DELTA_METADATA_CHANGED")
    assert commit(prepare(read, write_file(read, [1]), isolation_level=level), clock).version == 2


def with_mark(metadata: Metadata, mark: int) -> Metadata:
    number = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.highWaterMark": mark}
    first, *others = parse_schema(metadata.schema_string).fields
    return replace(metadata, schema_string=schema_to_json(StructType((replace(first, metadata=number), *others))))


def tags(snapshot: Snapshot) -> object:
    info = read_commit(snapshot.store, snapshot.version).info
    assert info is not None
    return info.values.get("tags")


def test_marks_of_identity_columns_conflict_only_with_a_change_of_metadata(tmp_path: Path, level: str) -> None:
    created = create(tmp_path)
    read = winner(created, with_mark(created.metadata, 1), blind=False).snapshot
    now = read
    for mark in (2, 3):
        now = winner(now, with_mark(read.metadata, mark), write_file(read, [mark]), blind=True).snapshot
        assert tags(now) == {"delta.identity.schemaUpdate": "true"}
    prepared = prepare(read, with_mark(read.metadata, 4), isolation_level=level)
    loses(prepared, MetadataChangedException, "DELTA_METADATA_CHANGED")
    now = commit(prepare(read, write_file(read, [1]), isolation_level=level), clock).snapshot
    assert (now.version, now.metadata, tags(now)) == (4, with_mark(read.metadata, 3), None)
    renamed = winner(now, replace(with_mark(read.metadata, 5), description="other"), blind=False).snapshot
    assert tags(renamed) is None
    prepared = prepare(now, write_file(read, [1]), isolation_level=level)
    loses(prepared, MetadataChangedException, "DELTA_METADATA_CHANGED")


def test_a_changed_protocol_conflicts(tmp_path: Path, level: str) -> None:
    read = create(tmp_path)
    winner(read, Protocol(1, 3), blind=False)
    prepared = prepare(read, write_file(read, [1]), isolation_level=level)
    loses(prepared, ProtocolChangedException, "DELTA_PROTOCOL_CHANGED")


def test_the_same_protocol_again_conflicts_only_with_a_change_of_it(tmp_path: Path, level: str) -> None:
    read = create(tmp_path)
    winner(read, read.protocol, blind=False)
    loses(
        prepare(read, Protocol(1, 3), isolation_level=level),
        ProtocolChangedException,
        "DELTA_PROTOCOL_CHANGED",
    )
    assert commit(prepare(read, write_file(read, [1]), isolation_level=level), clock).version == 2


def test_an_application_transaction_is_committed_once(tmp_path: Path, level: str) -> None:
    read = create(tmp_path)
    winner(read, SetTransaction("job", 4, clock()), blind=False)
    again = prepare(read, SetTransaction("job", 4, clock()), isolation_level=level)
    assert "job" in loses(again, ConcurrentTransactionException, "DELTA_CONCURRENT_TRANSACTION")
    other = prepare(read, SetTransaction("other", 4, clock()), isolation_level=level)
    assert set(commit(other, clock).snapshot.set_transactions) == {"job", "other"}


def test_a_domain_is_set_once(tmp_path: Path, level: str) -> None:
    features = frozenset({"domainMetadata"})
    read = create(tmp_path, protocol=Protocol(1, 7, None, features))
    winner(read, DomainMetadata("mine", "{}"), blind=False)
    again = prepare(read, DomainMetadata("mine", '{"a":1}'), isolation_level=level)
    assert "mine" in loses(again, ConcurrentTransactionException, "DELTA_CONCURRENT_TRANSACTION")
    other = prepare(read, DomainMetadata("yours", "{}"), isolation_level=level)
    assert set(commit(other, clock).snapshot.domain_metadata) == {"mine", "yours"}


def test_clustering_is_chosen_for_the_metadata_that_was_read(tmp_path: Path, level: str) -> None:
    """Who drops a column, or restores a version, has not seen by which columns another writer clusters meanwhile."""
    features = frozenset({"domainMetadata", "clustering"})
    read = create(tmp_path, protocol=Protocol(1, 7, None, features))
    winner(read, clustering_domain([("part",)]), blind=True)
    kept = StructType(tuple(field for field in read.schema.fields if field.name != "part"))
    dropped = replace(read.metadata, schema_string=schema_to_json(kept))
    drop = prepare(read, dropped, isolation_level=level, operation="DROP COLUMNS")
    message = loses(drop, MetadataChangedException, "DELTA_METADATA_CHANGED")
    assert "clustering columns" in message
    # Rows are added whatever the clustering.
    commit(prepare(read, write_file(read, [1], "a"), isolation_level=level), clock)


def test_two_that_create_one_table(tmp_path: Path, level: str) -> None:
    first = create(tmp_path)
    second = prepare(first.store, first.protocol, first.metadata, isolation_level=level)
    message = loses(second, ProtocolChangedException, "DELTA_PROTOCOL_CHANGED")
    assert "created" in message


def test_a_predicate_on_everything_reads_everything(tmp_path: Path, level: str) -> None:
    read = create(tmp_path)
    winner(read, write_file(read, [1]), blind=False)
    loses(merged(read, ALWAYS, level), ConcurrentAppendException, "DELTA_CONCURRENT_APPEND")


def test_a_second_look_at_rows(tmp_path: Path) -> None:
    """It gets all commits since the version that was read, once for each round that was lost to files."""
    read = create(tmp_path, partitioned=True)
    file, _ = append(read, [7], "a")
    far, _ = append(read, [9], "b")
    seen: list[list[int]] = []
    prepared = merged(read, IN_A, "Serializable")

    def reconcile(winners: Sequence[WinningCommit], conflict: DeltaConcurrentModificationException) -> PreparedCommit:
        seen.append([w.version for w in winners])
        assert (conflict.error_class, conflict.parameters["version"]) == ("DELTA_CONCURRENT_APPEND", str(len(seen)))
        if len(seen) == 1:
            # Others go on meanwhile.
            assert [f.path for w in winners for f in w.added] == [file.path, far.path]
            append(read, [7], "b")
        return replace(prepared, operation="again")

    committed = commit(prepared, clock, reconcile)
    assert (committed.version, seen) == (4, [[1, 2]])
    assert [f.path for f in committed.snapshot.files.add_files()].count(file.path) == 1


def test_rows_that_conflict_all_the_same(tmp_path: Path) -> None:
    read = create(tmp_path, partitioned=True)
    append(read, [7], "a")
    with pytest.raises(ConcurrentAppendException):
        commit(merged(read, IN_A, "Serializable"), clock, lambda *_: None)


def test_other_conflicts_are_no_matter_of_rows(tmp_path: Path) -> None:
    read = create(tmp_path, partitioned=True)
    append(read, [7], "a")
    winner(read, replace(read.metadata, name="renamed"), blind=False)

    def reconcile(*_: object) -> PreparedCommit:
        raise AssertionError("rows do not matter")

    with pytest.raises(MetadataChangedException):
        commit(merged(read, IN_A, "Serializable"), clock, reconcile)
