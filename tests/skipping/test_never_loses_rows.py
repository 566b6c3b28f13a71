"""Whatever a predicate says and whatever statistics a file has, no file with a matching row is skipped."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.skipping.rows import KINDS, ZONE, evaluate, predicates, schema_of

from deltamerge.log.actions import AddFile
from deltamerge.log.file_table import FileTable
from deltamerge.skipping.collect import IndexedColumns, parquet_statistics
from deltamerge.skipping.pruning import files_that_may_match

PARTITION_KINDS = tuple(kind for kind in KINDS if kind.name not in ("binary", "timestamp"))


def partition_text(value, kind):
    if value is None:
        return None
    if kind.name == "boolean":
        return "true" if value else "false"
    if kind.name == "timestamp_ntz":
        return value.isoformat(sep=" ")
    return str(value)


@st.composite
def tables(draw):
    """Gives columns, and files as rows and what was written of them."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    columns = {(f"c{at}.x" if at == 1 else f"c{at}",): kind for at, kind in enumerate(kinds)}
    if draw(st.booleans()):
        columns["st", "n"] = draw(st.sampled_from(KINDS))
    partition = draw(st.none() | st.sampled_from(PARTITION_KINDS))
    files = [draw(rows_of(columns, partition)) for _ in range(draw(st.integers(1, 3)))]
    return columns, partition, files


@st.composite
def rows_of(draw, columns, partition):
    value = None if partition is None else draw(st.none() | partition.values)
    if partition is not None and partition.name == "string" and value == "":
        value = None
    null_chance = draw(st.integers(0, 2))
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        row = {"st": None, "p": value}
        for path, kind in columns.items():
            cell = draw(kind.values if null_chance == 0 else st.none() | kind.values)
            if len(path) == 1:
                row[path[0]] = cell
            elif draw(st.integers(0, 3)):
                row["st"] = {"n": cell}
        rows.append(row)
    return rows


@st.composite
def spoiled(draw, stats):
    """Gives statistics as other writers, older writers and mishaps leave them."""
    if draw(st.booleans()):
        return stats
    change = draw(st.integers(0, 6))
    if change == 0:
        return None
    if change == 1:
        return draw(
            st.sampled_from(["", "garbage", "{}", "[]", "null", "{\n}", '{"numRecords":', '{"a":1} {}'])
        )
    document = json.loads(stats)
    if change == 2:
        document["nullCounts"] = document.pop("nullCount")
    elif change == 3:
        document["tightBounds"] = False
        for tree in document["maxValues"], document["minValues"]:
            for name in list(tree):
                if draw(st.booleans()):
                    del tree[name]
    elif change == 4:
        del document[draw(st.sampled_from(sorted(document)))]
    elif change == 5:
        document["minValues"] = dict.fromkeys(document["minValues"])
        document["more"] = {"x": [1, {"y": "z"}]}
    else:
        document["maxValues"] = {name: {"odd": True} for name in document["maxValues"]}
        return json.dumps(document, indent=1)
    return json.dumps(document)


def written(rows, columns, row_group_size):
    arrays, names = [], []
    for path, kind in columns.items():
        if len(path) == 1:
            names.append(path[0])
            arrays.append(pa.array([row[path[0]] for row in rows], kind.arrow))
        else:
            names.append("st")
            arrays.append(pa.array([row["st"] for row in rows], pa.struct([("n", kind.arrow)])))
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, names), buffer, row_group_size=row_group_size)
    return pq.read_metadata(buffer)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_file_with_a_matching_row_is_skipped(data):
    columns, partition, files = data.draw(tables())
    all_columns = dict(columns)
    if partition is not None:
        all_columns["p",] = partition
    schema = schema_of(all_columns)
    partition_columns = ["p"] if partition is not None else []
    adds = []
    for at, rows in enumerate(files):
        footer = written(rows, columns, data.draw(st.integers(1, 4)))
        stats = parquet_statistics(footer, schema, IndexedColumns.of(schema, partition_columns, {}))
        values = {} if partition is None else {"p": partition_text(rows[0]["p"], partition)}
        adds.append(AddFile(f"f{at}", values, 1, 1, stats=data.draw(spoiled(stats))))
    table = FileTable.from_add_files(adds)
    predicate = data.draw(predicates(all_columns))
    types = {path: kind.name for path, kind in all_columns.items()}
    mask = files_that_may_match(predicate, table, schema, partition_columns, ZONE)
    for rows, kept in zip(files, mask, strict=True):
        if not kept:
            assert not any(evaluate(predicate, row, types) is True for row in rows)
