"""Changed and new rows of a table written by PyArrow: into files that are written again, and into new files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltamerge.workers.file_columns import read_columns
from deltamerge.workers.files import Files
from deltamerge.workers.key_lookup import UNFIT
from deltamerge.workers.parquet_patch import (
    FileForm,
    TableWriter,
    in_schema,
    opened_writer,
    row_groups,
    with_column,
)
from deltamerge.workers.row_pairs import RowPairs, read_pairs, unmatched
from deltamerge.workers.row_tracking import NO_ORIGIN, HiddenColumns, Origin, changed_now
from deltamerge.workers.staged_rows import (
    KeptRows,
    in_plain_numbers,
    is_of_other_calendar,
    open_staged,
    plain_types,
    taken,
)

_PIECE_BYTES = 64 << 20
# Into a store that takes long to answer; each file in work is in memory.
_FILES_AT_ONCE = 4
DONE_SCHEMA = "rows BIGINT, detail STRING, path STRING, size BIGINT, footer BINARY"


@dataclass(frozen=True)
class NewRows:
    """What the rows of a table are made of.

    Args:
        updates: By the number of an UPDATE clause, for each of the table's columns that it sets the column of the kept
            rows. Rows that another clause takes leave the table.
        inserts: By the number of an INSERT clause, for each of the table's columns the column of the kept rows.
        clause: The column with the number of the clause that inserts a row; None where the only one takes all rows.
        form: What files have; wherever the table's columns are named, it is by the names there.
        not_null: The table's columns that are never NULL.
        pairs: The files of all pairs of target and source rows: what is named there is not inserted.
        options: Arguments of ``ParquetWriter`` for new files.
        values: The rows that UPDATE clauses take values from, by the numbers in the pairs that change a file; None
            where they are the kept ones.
    """

    staged: KeptRows
    updates: Mapping[int, Mapping[str, str]]
    inserts: Mapping[int, Mapping[str, str]]
    clause: str | None
    form: FileForm
    not_null: frozenset[str]
    metadata: Mapping[bytes, bytes]
    pairs: tuple[str, ...]
    options: Mapping[str, Any]
    values: KeptRows | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the kept rows."""
        wanted = [
            *(self.value_columns if self.values is None else ()),
            *(name for each in self.inserts.values() for name in each.values()),
        ]
        return tuple(dict.fromkeys([*wanted, *([] if self.clause is None else [self.clause])]))

    @property
    def value_columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for each in self.updates.values() for name in each.values()))

    @property
    def updated_columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for each in self.updates.values() for name in each))

    @property
    def schema(self) -> pa.Schema:
        return self.form.columns

    @property
    def hidden(self) -> HiddenColumns | None:
        return self.form.hidden

    def type_of(self, name: str) -> pa.DataType:
        return self.schema.field(name).type


@dataclass(frozen=True)
class ChangingFile:
    """A file whose rows change: its path, the file of its pairs, and what the log has of its rows."""

    path: str
    pairs: str
    origin: Origin = NO_ORIGIN

    @property
    def as_json(self) -> list[str | int | None]:
        return [self.path, self.pairs, self.origin.row_id, self.origin.row_commit_version]

    @classmethod
    def of(cls, values: Sequence[Any]) -> ChangingFile:
        path, pairs, row_id, version = values
        return cls(path, pairs, Origin(row_id, version))


def patch_work(source: ChangingFile, target: str) -> str:
    return json.dumps({"source": source.as_json, "target": target})


def new_file_work(
    target: str,
    *,
    rewritten: Sequence[ChangingFile] = (),
    changed: Sequence[ChangingFile] = (),
    inserted: tuple[int, int] = (0, 0),
    values: Mapping[str, int | str | None] | None = None,
) -> str:
    """Describe a new file.

    Args:
        rewritten: Files all of whose rows it takes over, with their changes.
        changed: Files of which it gets only the changed rows, since deletion vectors delete them where they were.
        inserted: The first of the kept rows that it may get, and the one after the last.
        values: What these have in columns of the kept rows, dates as days since 1970; other rows it does not get.
    """
    return json.dumps(
        {
            "target": target,
            "rewritten": [file.as_json for file in rewritten],
            "changed": [file.as_json for file in changed],
            "inserted": inserted,
            "values": values or {},
        }
    )


def writing(files: Files, new: NewRows) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that writes files, for ``mapInArrow``.

    Returns:
        A function over batches of ``work`` (see `patch_work`, `new_file_work`), a row a file. It returns for each the
        rows of the new file (none: no file), as JSON how many of them which INSERT clause took, its path, size and
        footer; or `UNFIT` and why the file is not to be written in this way.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = _Source(files, new)
        given = [json.loads(document) for batch in batches for document in batch.column(0).to_pylist()]
        works = [{**work, "target": files.attempt_path(work["target"])} for work in given]
        targets = [work["target"] for work in works]
        for work, done in zip(
            works, files.ahead(partial(_tried, source, new), works, targets, _FILES_AT_ONCE), strict=True
        ):
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([done.rows], pa.int64()),
                    pa.array([done.detail], pa.string()),
                    pa.array([work["target"]], pa.string()),
                    pa.array([done.size], pa.int64()),
                    pa.array([done.footer], pa.binary()),
                ],
                ["rows", "detail", "path", "size", "footer"],
            )

    return write


@dataclass(frozen=True)
class _Done:
    rows: int
    detail: str = "{}"
    size: int = 0
    footer: bytes = b""

    @classmethod
    def by(cls, writer: TableWriter, detail: str = "{}") -> _Done:
        return cls(writer.rows, detail, writer.size, writer.footer)


def _tried(source: _Source, new: NewRows, work: Mapping[str, Any]) -> _Done:
    try:
        return _done(work, source, new)
    except (ValueError, OSError, pa.ArrowException) as error:
        return _Done(UNFIT, str(error))


class _Source:
    """The kept rows, opened by a task once it needs them."""

    # functools.cached_property has a lock in Python 3.10 and 3.11, which cannot travel with a task.
    def __init__(self, files: Files, new: NewRows) -> None:
        self.files = files
        self._new = new
        self._rows: pa.Table | None = None
        self._values: pa.Table | None = None
        self._is_new: np.ndarray[Any, np.dtype[np.bool_]] | None = None

    @property
    def rows(self) -> pa.Table:
        if self._rows is None:
            self._rows = open_staged(self.files, self._new.staged, self._new.columns)
        return self._rows

    @property
    def values(self) -> pa.Table:
        if self._new.values is None:
            return self.rows
        if self._values is None:
            self._values = open_staged(self.files, self._new.values, self._new.value_columns)
        return self._values

    @property
    def is_new(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        if self._is_new is None:
            self._is_new = unmatched(self.files, self._new.pairs, len(self.rows))
        return self._is_new


def _done(work: Mapping[str, Any], source: _Source, new: NewRows) -> _Done:
    if "source" in work:
        return _patched(ChangingFile.of(work["source"]), work["target"], source, new)
    return _new_file(work, source, new)


def _patched(changing_file: ChangingFile, target: str, source: _Source, new: NewRows) -> _Done:
    """Write a file again with its matched rows changed, or without them.

    Columns that are not set stay as they are, and so do encodings, compression and metadata. A column that the file
    lacks is NULL in its other rows. Protocol: Schema Serialization, missing columns.

    Args:
        changing_file: The file; a row of the target is in one of its pairs at most.
        target: The path of the new file; it appears there whole or not at all.

    Raises:
        ValueError: A column is not of the table's type, or would be NULL where it must not.
    """
    changing = read_pairs(source.files, changing_file.pairs).changing
    rows = changing.rows
    with source.files.whole_parquet(changing_file.path) as file:
        _refuse_other_calendar(file)
        if len(rows) and rows[-1] >= file.metadata.num_rows:
            raise ValueError(f"row {rows[-1]} is to leave a file of {file.metadata.num_rows} rows")
        schema = _with_updated_columns(new.form.schema_of(file), new)
        with opened_writer(source.files, target, schema, file, new.options["compression"]) as writer:
            for start, table in row_groups(file):
                places = np.searchsorted(rows, [start, start + table.num_rows])
                of_group = changing.among(slice(*places))
                whole = _with_ids(in_schema(table, schema), start, changing_file.origin, new)
                writer.write(_changed(whole, source, of_group, start, new))
    return _Done.by(writer)


def _refuse_other_calendar(file: pq.ParquetFile) -> None:
    if is_of_other_calendar(file.metadata):
        raise ValueError("the file's dates and times are those of Spark 2")


def _with_updated_columns(schema: pa.Schema, new: NewRows) -> pa.Schema:
    if len({name.lower() for name in schema.names}) < len(schema.names):
        raise ValueError("the file has columns that differ only in case")
    for name in new.updated_columns:
        schema = with_column(schema, new.schema.field(name))
        if plain_types(pa.schema([schema.field(name)])).field(0).type != new.type_of(name):
            raise ValueError(f"column {name} is {schema.field(name).type}, not {new.type_of(name)}")
    return schema


def _with_ids(table: pa.Table, start: int, origin: Origin, new: NewRows) -> pa.Table:
    return table if new.hidden is None else origin.fill(table, start, new.hidden)


def _changed(table: pa.Table, source: _Source, changing: RowPairs, start: int, new: NewRows) -> pa.Table:
    """Change rows of a row group, whose first row is the file's row `start`, or leave them out."""
    if not len(changing.rows):
        return table
    updating = {number: changing.of_clause(number) for number in new.updates}
    for name in new.updated_columns:
        index = table.schema.get_field_index(name)
        field = table.schema.field(index)
        chunks, rows = list(table.column(index).chunks), table.num_rows
        order = np.arange(rows)
        for number, pairs in updating.items():
            if name in new.updates[number] and len(pairs.rows):
                values = _values(source, new.updates[number][name], pairs.sources, name, new)
                chunks.append(values.cast(field.type))
                order[pairs.rows - start] = rows + np.arange(len(values))
                rows += len(values)
        if rows > table.num_rows:
            table = table.set_column(index, field, pa.chunked_array(chunks).take(pa.array(order)))
    updated = np.concatenate([pairs.rows for pairs in updating.values()]) if updating else changing.rows[:0]
    if new.hidden is not None:
        table = changed_now(table, updated - start, new.hidden)
    if len(updated) == len(changing.rows):
        return table
    keep = np.ones(table.num_rows, np.bool_)
    keep[changing.rows[~np.isin(changing.clauses, list(new.updates))] - start] = False
    return table.filter(pa.array(keep))


def _values(source: _Source, column: str, rows: np.ndarray[Any, Any], name: str, new: NewRows) -> Any:  # noqa: ANN401
    values = taken(source.values.column(column), rows)
    if name in new.not_null and values.null_count:
        raise ValueError(f"column {name} would be NULL")
    return values.cast(new.type_of(name))


def _new_file(work: Mapping[str, Any], source: _Source, new: NewRows) -> _Done:
    """Write the new file of a `new_file_work`, whole or not at all.

    Raises:
        ValueError: A column is not of the table's type, or would be NULL where it must not.
    """
    counts = dict.fromkeys(map(str, new.inserts), 0)
    takes_over = bool(work["rewritten"] or work["changed"])
    schema = new.hidden.added_to(new.schema) if takes_over and new.hidden is not None else new.schema
    with TableWriter(source.files, work["target"], schema, new.options, new.metadata) as writer:
        for table in _row_groups(_rows_of_new_file(work, schema, source, new, counts)):
            writer.write(table)
    return _Done.by(writer, json.dumps(counts))


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    pending: list[pa.Table] = []
    for table in tables:
        pending.append(table)
        if sum(piece.nbytes for piece in pending) >= _PIECE_BYTES:
            yield pa.concat_tables(pending)
            pending = []
    if pending:
        yield pa.concat_tables(pending)


def _rows_of_new_file(
    work: Mapping[str, Any], schema: pa.Schema, source: _Source, new: NewRows, counts: dict[str, int]
) -> Iterator[pa.Table]:
    """Return the rows of a new file, and count the inserted ones by clause."""
    for file in map(ChangingFile.of, work["rewritten"]):
        yield _changed(
            _rows_of(source.files, file, schema, new), source, read_pairs(source.files, file.pairs).changing, 0, new
        )
    for file in map(ChangingFile.of, work["changed"]):
        changing = read_pairs(source.files, file.pairs)
        for number, setting in new.updates.items():
            updated = changing.of_clause(number)
            if len(updated.rows):
                yield _updated(file, schema, source, updated, setting, new)
    begin, end = work["inserted"]
    if begin < end:
        yield from _inserted(begin, end, work["values"], schema, source, new, counts)


def _updated(
    file: ChangingFile, schema: pa.Schema, source: _Source, pairs: RowPairs, setting: Mapping[str, str], new: NewRows
) -> pa.Table:
    kept = pa.schema([field for field in schema if field.name not in setting])
    own = _rows_of(source.files, file, kept, new).take(pa.array(pairs.rows))
    if new.hidden is not None:
        own = changed_now(own, np.arange(len(own)), new.hidden)
    columns = {
        name: _values(source, setting[name], pairs.sources, name, new) if name in setting else own.column(name)
        for name in schema.names
    }
    return pa.table(columns, schema=schema)


def _rows_of(files: Files, file: ChangingFile, schema: pa.Schema, new: NewRows) -> pa.Table:
    """Read columns of all rows of a file; one that the file lacks is NULL."""
    found = read_columns(files, file.path, {}, {field.name: (field.name, field.type) for field in schema})
    return _with_ids(found.select(schema.names), 0, file.origin, new)


def _inserted(
    begin: int,
    end: int,
    values: Mapping[str, int | str | None],
    schema: pa.Schema,
    source: _Source,
    new: NewRows,
    counts: dict[str, int],
) -> Iterator[pa.Table]:
    """Return those of some kept rows that match nothing, have these values, and that an INSERT takes."""
    at = begin
    for piece in _pieces(source.rows, begin, end):
        rows = np.flatnonzero(source.is_new[at : at + piece.num_rows] & _have(piece, values))
        at += piece.num_rows
        table, taken_by = _inserted_rows(piece, rows, schema, new)
        for number, count in taken_by.items():
            counts[str(number)] += count
        yield table


def _pieces(staged: pa.Table, begin: int, end: int) -> Iterator[pa.Table]:
    pending: list[pa.RecordBatch] = []
    for batch in staged.slice(begin, end - begin).to_batches():
        pending.append(batch)
        if sum(piece.nbytes for piece in pending) >= _PIECE_BYTES:
            yield pa.Table.from_batches(pending).combine_chunks()
            pending = []
    if pending:
        yield pa.Table.from_batches(pending).combine_chunks()


def _have(piece: pa.Table, values: Mapping[str, int | str | None]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    found = np.ones(piece.num_rows, np.bool_)
    for name, value in values.items():
        column = in_plain_numbers(piece.column(name))
        same = pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value, column.type))
        found &= same.fill_null(False).to_numpy()
    return found


def _inserted_rows(
    piece: pa.Table, rows: np.ndarray[Any, Any], schema: pa.Schema, new: NewRows
) -> tuple[pa.Table, dict[int, int]]:
    """Make the new rows of a piece of the kept ones, and count them by clause."""
    if new.clause is None:
        ((number, columns),) = new.inserts.items()
        return _made(piece, rows, columns, schema, new), {number: len(rows)}
    clauses = piece.column(new.clause).combine_chunks().fill_null(-1).to_numpy(zero_copy_only=False)[rows]
    counts = {number: int((clauses == number).sum()) for number in new.inserts}
    kinds = list(new.inserts.values())
    if all(columns == kinds[0] for columns in kinds):
        # The clauses differ only in their conditions, so that rows may stay in their order.
        return _made(piece, rows[np.isin(clauses, list(new.inserts))], kinds[0], schema, new), counts
    made = [_made(piece, rows[clauses == number], new.inserts[number], schema, new) for number in new.inserts]
    return pa.concat_tables(made), counts


def _made(
    piece: pa.Table, rows: np.ndarray[Any, Any], columns: Mapping[str, str], schema: pa.Schema, new: NewRows
) -> pa.Table:
    everything = len(rows) == piece.num_rows
    arrays = []
    for field in schema:
        if field.name not in columns:
            # A hidden column: new rows get their ids from the commit.
            arrays.append(pa.nulls(len(rows), field.type))
            continue
        column = piece.column(columns[field.name])
        values = column if everything else taken(column, rows)
        if field.name in new.not_null and values.null_count:
            raise ValueError(f"column {field.name} would be NULL")
        arrays.append(values.cast(field.type))
    return pa.table(arrays, schema=schema)
