"""Functions for tasks run where this package is not installed."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BooleanType, DateType, LongType, StringType, StructField

from deltamerge.merge.analysis.arrow_conditions import Columns, arrow_condition
from deltamerge.sql.condition_reader import read_condition
from deltamerge.workers import data_source
from deltamerge.workers.arrow_rows import writing
from deltamerge.workers.conditions import ClauseChoice
from deltamerge.workers.data_source import DeltaSource, StreamWriter, TableReader, TableWriter
from deltamerge.workers.file_pairs import pairing
from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.matched_rows import pairing_rows
from deltamerge.workers.new_rows import NewRows
from deltamerge.workers.parquet_patch import AS_IT_WAS
from deltamerge.workers.row_values import ClauseRows
from deltamerge.workers.source_keys import ComparedKey, KeyLookup, RowChoice
from deltamerge.workers.staged_rows import StagedFile, StagedRows, Staging, staging
from deltamerge.workers.table_columns import Part, Shape
from deltamerge.workers.table_files import RowsToWrite
from deltamerge.workers.table_rows import RowsOfTable


def by_source() -> RowChoice:
    sql = "n % 3 = 1 AND name IN ('a', 'b') AND (day BETWEEN DATE'2024-01-01' AND DATE'2024-01-09' OR b)"
    types = {"n": LongType(), "name": StringType(), "day": DateType(), "b": BooleanType()}
    fields = [StructField(name, data_type) for name, data_type in types.items()]
    condition = arrow_condition(read_condition(sql), Columns(lambda name: list(types).index(name.parts[0]), fields))
    assert condition is not None
    return RowChoice(ClauseChoice(((0, condition),), frozenset({0})))


def of_table() -> RowsOfTable:
    return RowsOfTable(LOCAL_FILES, "t", pa.schema([("a", pa.int64())]), (COLUMN,), ("a",), 10)


def to_table() -> RowsToWrite:
    schema = pa.schema([("a", pa.int64())])
    return RowsToWrite(LOCAL_FILES, "t", "/x", schema, (COLUMN,), (), (), {}, {}, (), None, None, {}, {}, schema)


def lookup(clause: int | str | RowChoice, unmatched: RowChoice | None = None) -> KeyLookup:
    return KeyLookup(KEPT, (KEY,), clause, unmatched, {}, unique=True, most_pairs=10)


COLUMN = Part("a", Shape(pa.int64()))
KEY = ComparedKey("a", "b", pa.int64())
KEPT = StagedRows((StagedFile("a", 3, 1, 2),))
FUNCTIONS = {
    "writing": writing(
        LOCAL_FILES, NewRows(KEPT, {0: ClauseRows({"a": "b"})}, {}, None, AS_IT_WAS, frozenset(), {}, (), {})
    ),
    "pairing": pairing(LOCAL_FILES, lookup("c"), "/x"),
    "pairing, by source": pairing(LOCAL_FILES, lookup(0, by_source()), "/x"),
    "pairing, of pairs": pairing(LOCAL_FILES, lookup(by_source()), "/x"),
    "pairing_rows": pairing_rows(LOCAL_FILES, KEPT, ("a",), {}, "n", "c"),
    "reading a table": of_table().read,
    "writing a table": to_table().write,
    "staging": staging(LOCAL_FILES, Staging("/x", ("k",), 1, 1)),
}
WITHOUT_PACKAGE = """
import sys

class No:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] == 'deltamerge':
            raise ImportError(name)

sys.meta_path.insert(0, No())
import pyarrow as pa
from pyspark import cloudpickle
for name, pickled in cloudpickle.loads(sys.stdin.buffer.read()).items():
    try:
        assert list(cloudpickle.loads(pickled)(iter([]))) == []
    except Exception as error:
        raise AssertionError(name) from error
"""


def test_executors_need_not_have_the_package() -> None:
    pickled = {name: cloudpickle.dumps(function) for name, function in FUNCTIONS.items()}  # type: ignore[no-untyped-call]
    work = cloudpickle.dumps(pickled)  # type: ignore[no-untyped-call]
    subprocess.run([sys.executable, "-c", WITHOUT_PACKAGE], input=work, check=True)


WITHOUT_PACKAGE_TOO = (
    WITHOUT_PACKAGE.split("for name, pickled", maxsplit=1)[0]
    + """
from pyspark.sql.datasource import InputPartition
source, reader, *writers = cloudpickle.loads(sys.stdin.buffer.read())
assert list(reader.read(InputPartition(None))) == []
for writer in writers:
    assert writer.write(iter([])).parts == []
try:
    source({"path": "/x"}).schema()
except ImportError as error:
    assert "deltamerge" in str(error)
"""
)


def test_neither_does_the_data_source() -> None:
    source = type("DeltaSource", (DeltaSource,), {"settings": {}})
    parts = source, TableReader(of_table(), None), TableWriter(to_table(), "", {}), StreamWriter(to_table(), "", {})
    work = cloudpickle.dumps(parts)  # type: ignore[no-untyped-call]
    subprocess.run([sys.executable, "-c", WITHOUT_PACKAGE_TOO], input=work, check=True)


def test_what_the_python_beside_the_driver_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltamerge.data_source.reading", None)
    with pytest.raises(ImportError, match=r"which has no deltamerge.*PYSPARK_PYTHON"):
        data_source._beside_driver("reading")
