"""Rows of random nested types written by PyArrow: into patched files, new files, and files of change data."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from deltamerge.workers.arrow_rows import writing
from deltamerge.workers.files import LOCAL_FILES
from deltamerge.workers.new_rows import ChangingFile, InsertedRows, NewRows, new_file_work, patch_work
from deltamerge.workers.parquet_patch import FileForm
from deltamerge.workers.row_pairs import RowPairs, write_pairs
from deltamerge.workers.row_values import ClauseRows
from deltamerge.workers.staged_rows import STAGED_SUFFIX, StagedFile, StagedRows
from deltamerge.workers.table_columns import FIELD_ID, Part, Shape

LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-9, 9),
    pa.string(): st.text("ab", max_size=3),
    pa.float64(): st.sampled_from([0.5, -1.0, float("inf")]),
    pa.date32(): st.dates(),
}
UPDATE, INSERT = 0, 1


@st.composite
def kinds(draw: st.DrawFn, depth: int = 2) -> pa.DataType:
    """Types as a frame has them: with the table's names."""
    form = draw(st.sampled_from(["leaf", "struct", "list", "map"])) if depth else "leaf"
    if form == "leaf":
        return draw(st.sampled_from(list(LEAVES)))
    inner = kinds(depth - 1)
    if form == "list":
        return pa.list_(pa.field("element", draw(inner)))
    if form == "map":
        return pa.map_(pa.string(), draw(inner))
    return pa.struct(
        [pa.field(f"f{number}", kind) for number, kind in enumerate(draw(st.lists(inner, min_size=1, max_size=3)))]
    )


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        of_type: st.SearchStrategy[Any] = st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    elif pa.types.is_list(kind):
        of_type = st.lists(values(kind.value_type), max_size=2)
    elif pa.types.is_map(kind):
        entries = st.dictionaries(st.text("xy", max_size=1), values(kind.item_type), max_size=2)
        of_type = entries.map(lambda found: list(found.items()))
    else:
        of_type = LEAVES[kind]
    return st.none() | of_type


def physical(kind: pa.DataType) -> pa.DataType:
    """The type in files of a table with column mapping."""
    if pa.types.is_struct(kind):
        return pa.struct(
            [
                pa.field(f"col-{field.name}", physical(field.type), metadata={FIELD_ID: str(number + 10).encode()})
                for number, field in enumerate(kind)
            ]
        )
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", physical(kind.value_type)))
    return pa.map_(pa.string(), physical(kind.item_type)) if pa.types.is_map(kind) else kind


def shape(kind: pa.DataType) -> Shape:
    stored = physical(kind)
    if pa.types.is_struct(kind):
        return Shape(stored, tuple(Part(field.name, shape(field.type)) for field in kind))
    if pa.types.is_list(kind):
        return Shape(stored, (Part("element", shape(kind.value_type)),))
    if pa.types.is_map(kind):
        return Shape(stored, (Part("key", Shape(pa.string())), Part("value", shape(kind.item_type))))
    return Shape(stored)


def renamed(value: Any, kind: pa.DataType) -> Any:
    """A value as files have it."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {f"col-{field.name}": renamed(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [renamed(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return [(key, renamed(each, kind.item_type)) for key, each in value]
    return value


def staged(folder: Path, ids: list[int], given_values: list[Any], kind: pa.DataType, pieces: int) -> StagedRows:
    table = pa.table({"i": pa.array(ids, pa.int64()), "v": pa.array(given_values, kind)})
    files = []
    for number, rows in enumerate(np.array_split(np.arange(len(ids)), pieces)):
        path = folder / f"{number}{STAGED_SUFFIX}"
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table.take(pa.array(rows)))
        files.append(StagedFile(str(path), len(rows)))
    return StagedRows(tuple(files))


@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(1, 3))
def test_values_are_those_that_are_given(data: st.DataObject, pieces: int) -> None:
    kind = data.draw(kinds())
    before = data.draw(st.lists(values(kind), min_size=4, max_size=6))
    after = data.draw(st.lists(values(kind), min_size=3, max_size=6))
    with TemporaryDirectory() as name:
        folder = Path(name)
        schema = pa.schema([pa.field("id", pa.int64()), pa.field("col-v", physical(kind), metadata={FIELD_ID: b"2"})])
        old = [renamed(value, kind) for value in before]
        target = pa.table([pa.array(range(len(before)), pa.int64()), pa.array(old, physical(kind))], schema=schema)
        pq.write_table(target, folder / "t.parquet", row_group_size=2, store_schema=False)
        # Source row 0 updates row 1, source row 1 updates row 3, row 2 is deleted.
        found = RowPairs(np.array([1, 2, 3]), np.array([0, 0, 1]), np.array([UPDATE, 7, UPDATE]))
        pairs = write_pairs(LOCAL_FILES, name, found)
        new = NewRows(
            staged=staged(folder, [100 + i for i in range(len(after))], after, kind, pieces),
            updates={UPDATE: ClauseRows({"col-v": "v"})},
            inserts={INSERT: ClauseRows({"id": "i", "col-v": "v"})},
            clause=None,
            form=FileForm(schema),
            not_null=frozenset(),
            metadata={},
            pairs=(pairs,),
            options={"compression": "zstd", "store_schema": False},
            shapes={"col-v": shape(kind)} if pa.types.is_nested(kind) else {},
        )
        changing = ChangingFile(str(folder / "t.parquet"), pairs)
        works = [
            patch_work(changing, str(folder / "patched.parquet"), str(folder / "changes.parquet")),
            new_file_work(str(folder / "new.parquet"), "", changed=[changing], inserted=InsertedRows(0, len(after))),
        ]
        done = [
            row for batch in writing(LOCAL_FILES, new)([pa.record_batch({"work": works})]) for row in batch.to_pylist()
        ]
        assert [row["rows"] for row in done] == [len(before) - 1, len(after)], done
        given_values = [renamed(value, kind) for value in after]
        expected = [
            (i, {1: given_values[0], 3: given_values[1]}.get(i, value)) for i, value in enumerate(old) if i != 2
        ]
        assert rows_of(done[0]["path"]) == expected
        inserted = [(100 + i, value) for i, value in enumerate(given_values) if i > 1]
        assert rows_of(done[1]["path"]) == [(1, given_values[0]), (3, given_values[1]), *inserted]
        changes = pq.read_table(done[0]["change_path"]).to_pylist()
        kinds_of_change = [(row["_change_type"], row["id"], row["col-v"]) for row in changes]
        assert sorted(kinds_of_change, key=lambda row: (row[1], row[0])) == [
            ("update_postimage", 1, given_values[0]),
            ("update_preimage", 1, old[1]),
            ("delete", 2, old[2]),
            ("update_postimage", 3, given_values[1]),
            ("update_preimage", 3, old[3]),
        ]
        for row in done:
            assert pq.read_schema(row["path"]).equals(schema, check_metadata=False)
            assert _ids(pq.read_schema(row["path"])) == _ids(schema)


def rows_of(path: str) -> list[tuple[int, Any]]:
    return [(row["id"], row["col-v"]) for row in pq.read_table(path).to_pylist()]


def _ids(schema: pa.Schema | pa.DataType) -> list[Any]:
    fields = schema if isinstance(schema, pa.Schema) else [schema.field(i) for i in range(schema.num_fields)]
    return [((field.metadata or {}).get(FIELD_ID), _ids(field.type)) for field in fields]
