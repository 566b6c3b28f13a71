"""What travels to executors, which need not have this package: rows are read and written there all the same."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRs
from deltalake import write_deltalake
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StringType, StructField, StructType

from deltamerge.data_source.reading import plan_read, schema_of
from deltamerge.data_source.stream_reading import TableStream, open_stream
from deltamerge.data_source.writing import abort_write, commit_batch, commit_write, plan_write
from deltamerge.exceptions import (
    DeltaAnalysisException,
    DeltaConcurrentModificationException,
    DeltaRuntimeException,
    DeltaTableException,
)
from deltamerge.log.checkpoint.writing import write_checkpoint
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.store import open_store
from deltamerge.workers.data_source import StreamWriter, TableReader, TableWriter
from deltamerge.write.definition import check_duplicates

PARTITIONS = Path(__file__).parents[1] / "data" / "tables" / "partitions"
SETTINGS = {"spark.version": "4.0.0", "spark.default.parallelism": "2"}
SCHEMA = StructType([StructField("id", LongType()), StructField("s", StringType())])
EXECUTOR = """
import sys

class No:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] == 'deltamerge':
            raise ImportError(name)

sys.meta_path.insert(0, No())
from pyspark import cloudpickle
work, inputs = cloudpickle.loads(sys.stdin.buffer.read())
done = [work(each) for each in inputs]
sys.stdout.buffer.write(cloudpickle.dumps(done))
"""


def on_executor(work: Any, inputs: list[Any]) -> list[Any]:
    sent = cloudpickle.dumps((work, inputs))  # type: ignore[no-untyped-call]
    done = subprocess.run([sys.executable, "-c", EXECUTOR], input=sent, check=True, stdout=subprocess.PIPE)
    found: list[Any] = pickle.loads(done.stdout)
    return found


def read(path: Path, run: Any = lambda work, inputs: list(map(work, inputs))) -> list[dict[str, Any]]:
    options = {"path": str(path)}
    schema, version = schema_of(options, SETTINGS)
    reader = TableReader(*plan_read(options, SETTINGS, schema, version))

    def rows(partition: Any) -> list[dict[str, Any]]:
        return [row for batch in reader.read(partition) for row in batch.to_pylist()]

    return [row for rows_of_task in run(rows, list(reader.partitions())) for row in rows_of_task]


def batch(*ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(ids), "s": [str(number) for number in ids]})


def test_reading() -> None:
    found = read(PARTITIONS, on_executor)
    assert found
    assert sorted(map(str, found)) == sorted(map(str, DeltaRs(PARTITIONS).to_pyarrow_table().to_pylist()))


def test_writing(tmp_path: Path) -> None:
    options = {"path": str(tmp_path), "partitionby": "s", "delta.columnmapping.mode": "name"}
    writer = TableWriter(*plan_write(options, SETTINGS, SCHEMA, overwrite=False))
    messages = on_executor(lambda batches: writer.write(iter(batches)), [[batch(1, 2), batch(2)], []])
    commit_write(writer._plan, SETTINGS, messages)
    assert sorted(row["id"] for row in read(tmp_path)) == [1, 2, 2]
    assert {tuple(row.items()) for row in read(tmp_path)} == {(("id", 1), ("s", "1")), (("id", 2), ("s", "2"))}


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    writer = TableWriter(*plan_write({"path": str(tmp_path)}, SETTINGS, SCHEMA, overwrite=False))
    messages = [writer.write(iter([batch(1)]))]
    assert list(tmp_path.rglob("*.parquet"))
    abort_write(writer._plan, SETTINGS, [*messages, None])
    assert not list(tmp_path.iterdir())


def test_an_abort_after_a_commit_deletes_nothing(tmp_path: Path) -> None:
    path, stream = tmp_path / "t", tmp_path / "stream"
    writer = TableWriter(*plan_write({"path": str(path)}, SETTINGS, SCHEMA, overwrite=False))
    messages = [writer.write(iter([batch(1)]))]
    commit_write(writer._plan, SETTINGS, messages)
    # Spark calls it where the commit has landed and its answer was lost.
    writer.abort(messages)
    assert [row["id"] for row in read(path)] == [1]

    def batches() -> StreamWriter:
        return StreamWriter(*plan_write({"path": str(stream)}, SETTINGS, SCHEMA, overwrite=False, streams=True))

    message = batches().write(iter([batch(2)]))
    with pytest.raises(DeltaRuntimeException, match="DELTAMERGE_STREAM_WITHOUT_ID"):
        commit_batch(message.plan, SETTINGS, [message], 0)
    assert not list(stream.rglob("*.parquet"))
    message = batches().write(iter([batch(2)]))
    message.query = "query"
    # Spark plans the write anew to commit it.
    commit_batch(batches()._plan, SETTINGS, [message], 0)
    assert len(list(stream.glob("deltamerge-*"))) == 1
    batches().abort([message], 0)
    assert [row["id"] for row in read(stream)] == [2]


@pytest.mark.parametrize(("partitions", "kept"), [("s", [1, 3]), ("", [3])])
def test_the_session_says_how_partitions_are_overwritten(tmp_path: Path, partitions: str, kept: list[int]) -> None:
    """Tasks tell it: the session may have changed it since its source was registered."""
    options = {"path": str(tmp_path), "partitionby": partitions}
    for rows, overwrite in ((batch(1, 2), False), (pa.record_batch({"id": [3], "s": ["2"]}), True)):
        writer = TableWriter(*plan_write(options, SETTINGS, SCHEMA, overwrite))
        message = writer.write(iter([rows]))
        message.overwrite_mode = "dynamic"
        commit_write(writer._plan, SETTINGS, [message])
    assert sorted(row["id"] for row in read(tmp_path)) == kept


def test_rows_that_may_come_from_other_partitions_conflict_with_their_changes(tmp_path: Path) -> None:
    """What the rows are made of is not seen here."""
    write_deltalake(tmp_path, batch(1, 2), partition_by=["s"])
    options = {"path": str(tmp_path), "partitionoverwritemode": "dynamic"}
    writer = TableWriter(*plan_write(options, SETTINGS, SCHEMA, overwrite=True))
    message = writer.write(iter([pa.record_batch({"id": [3], "s": ["2"]})]))
    DeltaRs(tmp_path).delete("s = '1'")
    with pytest.raises(DeltaConcurrentModificationException):
        commit_write(writer._plan, SETTINGS, [message])
    assert [row["id"] for row in read(tmp_path)] == [2]


def test_a_batch_of_a_stream_is_committed_once(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for number in (0, 0, 1):
        planned = plan_write({"path": str(path)}, SETTINGS, SCHEMA, overwrite=False, streams=True)
        writer = StreamWriter(*planned)
        message = writer.write(iter([batch(number)]))
        # Outside of Spark there is no query.
        assert message.query is None
        message.query = "query"
        commit_batch(message.plan, SETTINGS, [message], number)
    assert sorted(row["id"] for row in read(path)) == [0, 1]
    assert len(list(path.rglob("*.parquet"))) == 2
    assert DeltaRs(path).transaction_version("query") == 1


def test_a_table_has_columns_with_the_names_of_the_feed(tmp_path: Path) -> None:
    names = ("_change_type", "_commit_version")
    schema, options = StructType([StructField(name, StringType()) for name in names]), {"path": str(tmp_path)}
    writer = TableWriter(*plan_write(options, SETTINGS, schema, overwrite=False))
    own = pa.record_batch({name: [f"own {name}"] for name in names})
    commit_write(writer._plan, SETTINGS, [writer.write(iter([own]))])
    assert read(tmp_path) == own.to_pylist()
    stream = open_stream(options, SETTINGS, schema)
    (group,) = stream.parts(stream.initial_offset(), stream.latest_offset())
    assert [row for found in stream.rows.read(group) for row in found.to_pylist()] == own.to_pylist()


@pytest.mark.parametrize("feed", ["true", "false"])
def test_a_stream_ends_where_columns_are_added(tmp_path: Path, feed: str) -> None:
    options = {"path": str(tmp_path), "delta.enablechangedatafeed": "true", "mergeschema": "true"}
    wider = batch(2).append_column("new", pa.array(["x"]))

    def write(schema: StructType, rows: pa.RecordBatch) -> None:
        writer = TableWriter(*plan_write(options, SETTINGS, schema, overwrite=False))
        commit_write(writer._plan, SETTINGS, [writer.write(iter([rows]))])

    write(SCHEMA, batch(1))
    asked = {"path": str(tmp_path), "readchangefeed": feed}
    stream = open_stream(asked, SETTINGS, schema_of(asked, SETTINGS)[0])
    start = stream.initial_offset()
    write(StructType([*SCHEMA.fields, StructField("new", StringType())]), wider)
    with pytest.raises(DeltaAnalysisException, match="DELTA_SCHEMA_CHANGED_WITH_VERSION"):
        stream.parts(start, stream.latest_offset())


def test_offsets_of_a_stream(tmp_path: Path) -> None:
    options = {"path": str(tmp_path), "maxfilespertrigger": "1"}
    for number in range(3):
        writer = TableWriter(*plan_write(options, SETTINGS, SCHEMA, overwrite=False))
        commit_write(writer._plan, SETTINGS, [writer.write(iter([batch(number)]))])
    stream = open_stream(options, SETTINGS, SCHEMA)
    offset, seen = stream.initial_offset(), []
    while (end := stream.latest_offset(offset)) != offset:
        seen.append([part.path for group in stream.parts(offset, end) for part in group])
        offset = end
    assert [len(paths) for paths in seen] == [1, 1, 1]
    assert len({paths[0] for paths in seen}) == 3
    whole = stream.parts(stream.initial_offset(), stream.latest_offset())
    assert sum(len(group) for group in whole) == 3
    # A query that ended before its first batch did asks for the same batch again.
    last = stream.latest_offset()
    writer = TableWriter(*plan_write(options, SETTINGS, SCHEMA, overwrite=False))
    commit_write(writer._plan, SETTINGS, [writer.write(iter([batch(9)]))])
    again = open_stream(options, SETTINGS, SCHEMA)
    assert sum(len(group) for group in again.parts(again.initial_offset(), last)) == 3


def test_calls_in_the_order_of_spark_before_4_2(tmp_path: Path) -> None:
    """The end of the first batch comes first, and no begin of the later ones: no row may be read again."""

    def write(number: int) -> None:
        writer = TableWriter(*plan_write({"path": str(tmp_path)}, SETTINGS, SCHEMA, overwrite=False))
        commit_write(writer._plan, SETTINGS, [writer.write(iter([batch(number)]))])

    def ids(stream: TableStream, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[int]:
        groups = stream.parts(start, end)
        return [row["id"] for g in groups for found in stream.rows.read(g) for row in found.to_pylist()]

    write(0)
    stream = open_stream({"path": str(tmp_path)}, SETTINGS, SCHEMA)
    first = stream.latest_offset()
    write(1)
    start = stream.initial_offset()
    assert ids(stream, start, first) == [0]
    assert ids(open_stream({"path": str(tmp_path)}, SETTINGS, SCHEMA), start, first) == [0]
    second = stream.latest_offset()
    assert ids(stream, first, second) == [1]
    assert stream.latest_offset() == second
    write(2)
    # A query that goes on from its checkpoint.
    again = open_stream({"path": str(tmp_path)}, SETTINGS, SCHEMA)
    assert ids(again, second, again.latest_offset()) == [2]
    # One whose first batch failed.
    again = open_stream({"path": str(tmp_path)}, SETTINGS, SCHEMA)
    again.latest_offset()
    assert ids(again, again.initial_offset(), first) == [0]


def test_a_query_that_ended_before_its_first_batch_did(tmp_path: Path) -> None:
    """It reads the rows that the batch had, although Spark asks anew where it begins."""

    def write(number: int) -> None:
        writer = TableWriter(*plan_write({"path": str(tmp_path)}, SETTINGS, SCHEMA, overwrite=False))
        commit_write(writer._plan, SETTINGS, [writer.write(iter([batch(number)]))])

    options = {"path": str(tmp_path), "startingversion": "latest"}
    write(0)
    stream = open_stream(options, SETTINGS, SCHEMA)
    stream.initial_offset()
    write(1)
    end = stream.latest_offset()
    for more in ([], [2]):
        for number in more:
            write(number)
        again = open_stream(options, SETTINGS, SCHEMA)
        groups = again.parts(again.initial_offset(), end)
        rows = [row for group in groups for found in again.rows.read(group) for row in found.to_pylist()]
        assert [row["id"] for row in rows] == [1]
    # Later batches begin where the one before ended.
    later = again.latest_offset(end)
    groups = again.parts(end, later)
    assert [row["id"] for g in groups for found in again.rows.read(g) for row in found.to_pylist()] == [2]


@pytest.mark.parametrize("limit", [{"maxfilespertrigger": "1"}, {"skipchangecommits": "true"}])
def test_a_stream_that_goes_on_in_a_table_of_another_form(tmp_path: Path, limit: dict[str, str]) -> None:
    """What was read in part has columns in files that are partition columns now."""
    for number in (0, 1):
        writer = TableWriter(*plan_write({"path": str(tmp_path)}, SETTINGS, SCHEMA, overwrite=False))
        commit_write(writer._plan, SETTINGS, [writer.write(iter([batch(number)]))])
    options = {"path": str(tmp_path), **limit}
    stream = open_stream(options, SETTINGS, SCHEMA)
    start = stream.initial_offset()
    first = stream.latest_offset(start)
    if "skipchangecommits" in limit:
        first = {**first, "reservoirVersion": 1, "index": 0, "isInitialSnapshot": False}
    rows = pa.table({"id": pa.array([7], pa.int64()), "s": ["7"]})
    write_deltalake(tmp_path, rows, mode="overwrite", schema_mode="overwrite", partition_by=["s"])
    again = open_stream(options, SETTINGS, SCHEMA)
    with pytest.raises(DeltaAnalysisException, match="DELTA_SCHEMA_CHANGED_WITH_VERSION"):
        again.parts(first, again.latest_offset())
    with pytest.raises(DeltaAnalysisException, match="DELTA_SCHEMA_CHANGED_WITH_VERSION"):
        open_stream(options, SETTINGS, SCHEMA).latest_offset(first)


def test_a_stream_whose_begin_was_cleaned_up(tmp_path: Path) -> None:
    for number in range(3):
        writer = TableWriter(*plan_write({"path": str(tmp_path)}, SETTINGS, SCHEMA, overwrite=False))
        commit_write(writer._plan, SETTINGS, [writer.write(iter([batch(number)]))])
    write_checkpoint(load_snapshot(open_store(str(tmp_path))), 0)
    for number in range(2):
        (tmp_path / "_delta_log" / f"{number:020d}.json").unlink()
    stream = open_stream({"path": str(tmp_path)}, SETTINGS, SCHEMA)
    start = {**stream.latest_offset(), "reservoirVersion": 1}
    with pytest.raises(DeltaTableException, match=r"was cleaned up.*with another checkpoint location"):
        stream.latest_offset(start)


@pytest.mark.parametrize("asked", [{"startingversion": "7"}, {"startingtimestamp": "2000-01-01"}])
def test_a_stream_from_a_version_whose_state_is_gone(tmp_path: Path, asked: dict[str, str]) -> None:
    """A log that was cut off between two checkpoints still has the commits."""
    for number in range(10):
        writer = TableWriter(*plan_write({"path": str(tmp_path)}, SETTINGS, SCHEMA, overwrite=False))
        commit_write(writer._plan, SETTINGS, [writer.write(iter([batch(number)]))])
    write_checkpoint(load_snapshot(open_store(str(tmp_path))), 0)
    for number in range(7):
        (tmp_path / "_delta_log" / f"{number:020d}.json").unlink()
    stream = open_stream({"path": str(tmp_path), **asked}, SETTINGS, SCHEMA)
    start = stream.initial_offset()
    groups = stream.parts(start, stream.latest_offset(start))
    rows = [row for group in groups for found in stream.rows.read(group) for row in found.to_pylist()]
    assert sorted(row["id"] for row in rows) == [7, 8, 9]


def test_names_that_differ_in_case_only(tmp_path: Path) -> None:
    """As spark.sql.caseSensitive allows: the table has room for one of them."""
    inner = StructType([StructField("s", StructType([StructField("a", LongType()), StructField("A", LongType())]))])
    for schema in (StructType([*SCHEMA.fields, StructField(SCHEMA.names[0].upper(), LongType())]), inner):
        with pytest.raises(DeltaAnalysisException, match="DELTA_DUPLICATE_COLUMNS_FOUND"):
            check_duplicates(schema)
