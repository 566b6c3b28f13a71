"""Whatever a predicate says and whatever statistics a file has, no file with a matching row is skipped."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltamerge.log.actions import AddFile, DeletionVectorDescriptor
from deltamerge.log.add_file_stats import with_wide_bounds
from deltamerge.log.file_table import FileTable
from deltamerge.log.schema import StructType
from deltamerge.skipping.collect_statistics import parquet_statistics
from deltamerge.skipping.indexed import IndexedColumns
from deltamerge.skipping.pruning import files_that_may_match
from skipping.rows import KINDS, ZONE, Kind, evaluate, predicates, schema_of

PARTITION_KINDS = tuple(kind for kind in KINDS if kind.name not in ("binary", "timestamp"))


def partition_text(value: Any, kind: Kind) -> str | None:
    if value is None:
        return None
    if kind.name == "boolean":
        return "true" if value else "false"
    if kind.name == "timestamp_ntz":
        return value.isoformat(sep=" ")
    return str(value)


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[tuple[str, ...], Kind], Kind | None, list[list[dict[str, Any]]]]:
    """Gives columns, and files as rows and what was written of them."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    columns: dict[tuple[str, ...], Kind] = {
        (f"c{at}.x" if at == 1 else f"c{at}",): kind for at, kind in enumerate(kinds)
    }
    if draw(st.booleans()):
        columns["st", "n"] = draw(st.sampled_from(KINDS))
    partition = draw(st.none() | st.sampled_from(PARTITION_KINDS))
    files = [draw(rows_of(columns, partition)) for _ in range(draw(st.integers(1, 3)))]
    return columns, partition, files


@st.composite
def rows_of(draw: st.DrawFn, columns: dict[tuple[str, ...], Kind], partition: Kind | None) -> list[dict[str, Any]]:
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
def configurations(draw: st.DrawFn) -> dict[str, str]:
    """Gives properties by which statistics say less: of some columns only, of strings their first characters."""
    found = {}
    if draw(st.booleans()):
        found["delta.dataSkippingStringPrefixLength"] = str(draw(st.sampled_from([0, 1, 2, 31, 32, 40])))
    if draw(st.booleans()):
        found["delta.dataSkippingNumIndexedCols"] = str(draw(st.integers(-1, 3)))
    elif draw(st.booleans()):
        found["delta.dataSkippingStatsColumns"] = draw(st.sampled_from(["c0", "st", "`c1.x`,st.n", "c2,c0", "p"]))
    return found


@st.composite
def deleted_among(draw: st.DrawFn, rows: Sequence[dict[str, Any]]) -> set[int] | None:
    """Gives the places of rows that a deletion vector deletes; None where the file has none."""
    if draw(st.booleans()):
        return None
    return draw(st.sets(st.integers(0, len(rows) - 1)))


@st.composite
def statistics_of(
    draw: st.DrawFn,
    rows: Sequence[dict[str, Any]],
    deleted: set[int] | None,
    columns: dict[tuple[str, ...], Kind],
    schema: StructType,
    indexed: IndexedColumns,
) -> str | None:
    """Gives what a writer may say of a file: with a deletion vector its bounds may be tight, wide, or either."""

    def collected(some: Sequence[dict[str, Any]]) -> str:
        footer = written(some, columns, draw(st.integers(1, 4)))
        return parquet_statistics(footer, schema, indexed)

    kind = "unsaid" if deleted is None else draw(st.sampled_from(["unsaid", "wide", "tight"]))
    if deleted is not None and kind == "tight":
        live = [row for at, row in enumerate(rows) if at not in deleted]
        return dumps({**loads(collected(live)), "numRecords": len(rows), "tightBounds": True})
    if kind == "unsaid":
        return collected(rows)
    document = loads(with_wide_bounds(collected(rows), len(rows)))
    return dumps({**document, "nullCount": draw(blurred(document["nullCount"], len(rows)))})


@st.composite
def blurred(draw: st.DrawFn, counts: dict[str, Any] | int, num_records: int) -> int | dict[str, Any]:
    """Gives counts of NULLs among wide bounds: only none and all mean something there."""
    if isinstance(counts, dict):
        return {name: draw(blurred(count, num_records)) for name, count in counts.items()}
    if num_records < 2 or draw(st.booleans()):
        return counts
    return draw(st.integers(1, num_records - 1))


@st.composite
def spoiled(draw: st.DrawFn, stats: str) -> str | None:
    """Gives statistics as other writers, older writers and mishaps leave them."""
    if draw(st.booleans()):
        return stats
    change = draw(st.integers(0, 7))
    if change == 0:
        return None
    if change == 1:
        return draw(st.sampled_from(["", "garbage", "{}", "[]", "null", "{\n}", '{"numRecords":', '{"a":1} {}']))
    document = loads(stats)
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
    elif change == 6:
        for tree in document["maxValues"], document["minValues"], document["nullCount"]:
            for name in draw(st.sets(st.sampled_from(sorted(tree)))) if tree else ():
                del tree[name]
    else:
        document["maxValues"] = {name: {"odd": True} for name in document["maxValues"]}
        return "{\n" + dumps(document)[1:]
    return dumps(document)


def loads(text: str) -> dict[str, Any]:
    return json.loads(text, parse_float=Decimal)


def dumps(value: Any) -> str:
    """Gives JSON with numbers as they were read."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{dumps(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dumps, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


def written(
    rows: Sequence[dict[str, Any]], columns: dict[tuple[str, ...], Kind], row_group_size: int
) -> pq.FileMetaData:
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
def test_no_file_with_a_matching_row_is_skipped(data: Any) -> None:
    columns, partition, files = data.draw(tables())
    all_columns = dict(columns)
    if partition is not None:
        all_columns["p",] = partition
    schema = schema_of(all_columns)
    partition_columns = ["p"] if partition is not None else []
    indexed = IndexedColumns.of(schema, partition_columns, data.draw(configurations()))
    adds, live = [], []
    for at, rows in enumerate(files):
        deleted = data.draw(deleted_among(rows))
        stats = data.draw(statistics_of(rows, deleted, columns, schema, indexed))
        vector = None if not deleted else DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 1, 34, len(deleted))
        values = {} if partition is None else {"p": partition_text(rows[0]["p"], partition)}
        stats = data.draw(spoiled(stats))
        adds.append(AddFile(f"f{at}", values, 1, 1, stats=stats, deletion_vector=vector))
        live.append([row for place, row in enumerate(rows) if place not in (deleted or ())])
    table = FileTable.from_add_files(adds)
    predicate = data.draw(predicates(all_columns))
    types = {path: kind.name for path, kind in all_columns.items()}
    mask = files_that_may_match(predicate, table, schema, partition_columns, ZONE)
    for rows, kept in zip(live, mask, strict=True):
        if not kept:
            assert not any(evaluate(predicate, row, types) is True for row in rows)
