"""Changed and new rows of a table written by PyArrow: into files that are written again, and into new files.

Spark's Python workers run this module by value (`deltamerge.merge.key_lookup`), so of this package it imports only what
they run by value, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from deltamerge.scan.key_lookup import UNFIT, read_pairs
from deltamerge.scan.staged_rows import KeptFile, open_staged, taken
from deltamerge.write.parquet_patch import own_metadata, plain_schema, unfinished, writer_options

_PIECE_BYTES = 64 << 20
DONE_SCHEMA = "rows BIGINT, told STRING"


@dataclass(frozen=True)
class NewRows:
    """What the rows of a table are made of.

    Args:
        staged: The files of the source's rows (see `deltamerge.scan.staged_rows`).
        update: For each of the table's columns that an UPDATE sets, the column of the kept rows; None where matched
            rows leave the table.
        inserts: By the number of an INSERT clause, for each of the table's columns the column of the kept rows.
        clause: The column with the number of the clause that inserts a row; None where the only one takes all rows.
        types: The types of the table's columns.
        not_null: The table's columns that are never NULL.
        pairs: The files of all pairs of target and source rows: what is named there is not inserted.
        options: Arguments of ``ParquetWriter`` for new files.
    """

    staged: tuple[KeptFile, ...]
    update: Mapping[str, str] | None
    inserts: Mapping[int, Mapping[str, str]]
    clause: str | None
    types: Mapping[str, pa.DataType]
    not_null: frozenset[str]
    pairs: tuple[str, ...]
    options: Mapping[str, Any]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the kept rows that are needed."""
        wanted = [
            *(self.update or {}).values(),
            *(name for each in self.inserts.values() for name in each.values()),
        ]
        return tuple(dict.fromkeys([*wanted, *([] if self.clause is None else [self.clause])]))

    @property
    def schema(self) -> pa.Schema:
        """The schema of new files."""
        return pa.schema([pa.field(name, data_type) for name, data_type in self.types.items()])


def patch_work(source: str, target: str, pairs: str) -> str:
    """Describes a file to be written again.

    Args:
        source: Its path.
        target: The new file's path.
        pairs: The file of its pairs.
    """
    return json.dumps({"source": source, "target": target, "pairs": pairs})


def insert_work(target: str, begin: int, end: int) -> str:
    """Describes a new file of inserted rows.

    Args:
        target: Its path.
        begin: The first of the kept rows that it may get.
        end: The one after the last.
    """
    return json.dumps({"target": target, "begin": begin, "end": end})


def update_work(target: str, changed: Sequence[tuple[str, str]]) -> str:
    """Describes a new file of rows that deletion vectors delete where they were.

    Args:
        target: Its path.
        changed: The files whose rows change: their paths and the files of their pairs.
    """
    return json.dumps({"target": target, "changed": changed})


def writing(new: NewRows) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Makes the function that writes files, for ``mapInArrow``.

    Args:
        new: What rows are made of.

    Returns:
        A function over batches of ``work`` (see `patch_work`, `insert_work`), a row a file. It gives for each the rows
        of the new file (none: no file) and, as JSON, how many of them which INSERT clause took; or `UNFIT` and why the
        file is not to be written in this way.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        staged: pa.Table | None = None
        for batch in batches:
            for text in batch.column(0).to_pylist():
                try:
                    if staged is None and new.columns:
                        staged = open_staged(new.staged, new.columns)
                    rows, told = _done(json.loads(text), staged, new)
                except (ValueError, pa.ArrowException) as error:
                    rows, told = UNFIT, str(error)
                arrays = [pa.array([rows], pa.int64()), pa.array([told], pa.string())]
                yield pa.RecordBatch.from_arrays(arrays, ["rows", "told"])

    return write


def _done(work: Mapping[str, Any], staged: pa.Table | None, new: NewRows) -> tuple[int, str]:
    if "pairs" in work:
        return patched(work["source"], work["target"], work["pairs"], staged, new), "{}"
    assert staged is not None
    if "changed" in work:
        return updated(work["target"], work["changed"], staged, new), "{}"
    rows, clauses = inserted(work["target"], work["begin"], work["end"], staged, new)
    return rows, json.dumps(clauses)


def patched(source: str, target: str, pairs: str, staged: pa.Table | None, new: NewRows) -> int:
    """Writes a file again with its matched rows changed, or without them.

    Columns that are not set stay as they are, and so do encodings, compression and metadata. A column that the file
    lacks is NULL in its other rows. Protocol: Schema Serialization, missing columns.

    Args:
        source: The file's path.
        target: The path of the new file; it appears there whole or not at all.
        pairs: The file of its pairs; a row of the target stands there once.
        staged: The kept rows, where there is an UPDATE.
        new: What rows are made of.

    Returns:
        The rows of the new file.

    Raises:
        ValueError: A column is not of the table's type, or would be NULL where it must not.
    """
    rows, sources = read_pairs(pairs)
    written = 0
    with unfinished(target) as place, pq.ParquetFile(source, memory_map=True) as file:
        if len(rows) and rows[-1] >= file.metadata.num_rows:
            raise ValueError(f"row {rows[-1]} is to leave a file of {file.metadata.num_rows} rows")
        schema = _with_missing_columns(plain_schema(file.schema_arrow), new)
        options = _with_columns(writer_options(file), schema.names[len(file.schema_arrow) :], new)
        with pq.ParquetWriter(place, schema, **options) as writer:
            writer.add_key_value_metadata(own_metadata(file))
            start = 0
            for number in range(file.metadata.num_row_groups):
                count = file.metadata.row_group(number).num_rows
                begin, end = np.searchsorted(rows, [start, start + count])
                table = _in_schema(file.read_row_group(number, use_threads=False), schema)
                table = _changed(table, staged, rows[begin:end] - start, sources[begin:end], new)
                start += count
                if table.num_rows:
                    writer.write_table(table, row_group_size=table.num_rows)
                    written += table.num_rows
        if not written:
            place.unlink()
    return written


def _with_missing_columns(schema: pa.Schema, new: NewRows) -> pa.Schema:
    known, lowered = set(schema.names), {name.lower() for name in schema.names}
    if len(lowered) < len(schema.names):
        raise ValueError("the file has columns that differ in case alone")
    for name in new.update or ():
        if name in known:
            if schema.field(name).type != new.types[name]:
                raise ValueError(f"column {name} is {schema.field(name).type}, not {new.types[name]}")
        elif name.lower() in lowered:
            raise ValueError(f"the file spells column {name} in another case")
        else:
            schema = schema.append(pa.field(name, new.types[name]))
    return schema


def _with_columns(options: dict[str, Any], names: Sequence[str], new: NewRows) -> dict[str, Any]:
    """Says of columns that a file lacks how they are written."""
    if not names:
        return options
    compression = options["compression"]
    if isinstance(compression, dict):
        compression = {**compression, **dict.fromkeys(names, new.options["compression"])}
    return {**options, "compression": compression, "use_dictionary": [*options["use_dictionary"], *names]}


def _in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table.cast(schema)


def _changed(
    table: pa.Table,
    staged: pa.Table | None,
    rows: np.ndarray[Any, Any],
    sources: np.ndarray[Any, Any],
    new: NewRows,
) -> pa.Table:
    """Changes rows of a row group, or leaves them out."""
    if not len(rows):
        return table
    if staged is None or new.update is None:
        keep = np.ones(table.num_rows, np.bool_)
        keep[rows] = False
        return table.filter(pa.array(keep))
    order = np.arange(table.num_rows)
    order[rows] = table.num_rows + np.arange(len(rows))
    places = pa.array(order)
    for name, column in new.update.items():
        index = table.schema.get_field_index(name)
        values = _values(staged, column, sources, name, new)
        both = pa.chunked_array([*table.column(index).chunks, values])
        table = table.set_column(index, table.schema.field(index), both.take(places))
    return table


def _values(staged: pa.Table, column: str, rows: np.ndarray[Any, Any], name: str, new: NewRows) -> Any:  # noqa: ANN401
    values = taken(staged.column(column), rows)
    if name in new.not_null and values.null_count:
        raise ValueError(f"column {name} would be NULL")
    return values.cast(new.types[name])


def updated(target: str, changed: Sequence[tuple[str, str]], staged: pa.Table, new: NewRows) -> int:
    """Writes the changed rows of some files as they are afterwards.

    Args:
        target: The path of the new file; it appears there whole or not at all.
        changed: The files and the files of their pairs.
        staged: The kept rows.
        new: What rows are made of; an UPDATE.

    Returns:
        The rows of the new file.

    Raises:
        ValueError: A column is not of the table's type, or would be NULL where it must not.
    """
    assert new.update is not None
    written = 0
    schema = new.schema
    kept = [name for name in schema.names if name not in new.update]
    with unfinished(target) as place, pq.ParquetWriter(place, schema, **new.options) as writer:
        for source, pairs in changed:
            rows, sources = read_pairs(pairs)
            own = _rows_of(source, kept, rows, new)
            columns = {
                name: _values(staged, new.update[name], sources, name, new)
                if name in new.update
                else own.column(name)
                for name in schema.names
            }
            writer.write_table(pa.table(columns, schema=schema))
            written += len(rows)
    return written


def _rows_of(source: str, columns: Sequence[str], rows: np.ndarray[Any, Any], new: NewRows) -> pa.Table:
    """Reads columns of some rows of a file; one that the file lacks is NULL."""
    with pq.ParquetFile(source, memory_map=True) as file:
        present = [name for name in columns if name in file.schema_arrow.names]
        lowered = {name.lower() for name in file.schema_arrow.names}
        if any(name.lower() in lowered for name in columns if name not in present):
            raise ValueError("the file spells a column in another case")
        table = file.read(present, use_threads=False) if present else pa.table({})
    found = {name: table.column(name).take(pa.array(rows)) for name in present}
    columns_of_rows = {}
    for name in columns:
        column = found.get(name, pa.nulls(len(rows), new.types[name]))
        if plain_schema(pa.schema([(name, column.type)])).field(name).type != new.types[name]:
            raise ValueError(f"column {name} is {column.type}, not {new.types[name]}")
        columns_of_rows[name] = column.cast(new.types[name])
    return pa.table(columns_of_rows)


def inserted(target: str, begin: int, end: int, staged: pa.Table, new: NewRows) -> tuple[int, dict[str, int]]:
    """Writes those of some kept rows that match nothing and that an INSERT takes.

    Args:
        target: The path of the new file; it appears there whole or not at all.
        begin: The first of the kept rows.
        end: The one after the last.
        staged: All kept rows.
        new: What rows are made of.

    Returns:
        The rows of the new file, and how many each clause took.

    Raises:
        ValueError: A column would be NULL where it must not.
    """
    wanted = np.ones(end - begin, np.bool_)
    for path in new.pairs:
        sources = read_pairs(path)[1]
        wanted[sources[(sources >= begin) & (sources < end)] - begin] = False
    schema = new.schema
    counts = dict.fromkeys(map(str, new.inserts), 0)
    written = 0
    with unfinished(target) as place:
        with pq.ParquetWriter(place, schema, **new.options) as writer:
            at = begin
            for piece in _pieces(staged, begin, end):
                rows = np.flatnonzero(wanted[at - begin : at - begin + piece.num_rows])
                at += piece.num_rows
                table, taken_by = _inserted_rows(piece, rows, schema, new)
                for number, count in taken_by.items():
                    counts[str(number)] += count
                if table.num_rows:
                    writer.write_table(table)
                    written += table.num_rows
        if not written:
            place.unlink()
    return written, counts


def _pieces(staged: pa.Table, begin: int, end: int) -> Iterator[pa.Table]:
    """Gives rows in contiguous pieces; each becomes a row group."""
    pending: list[pa.RecordBatch] = []
    for batch in staged.slice(begin, end - begin).to_batches():
        pending.append(batch)
        if sum(piece.nbytes for piece in pending) >= _PIECE_BYTES:
            yield pa.Table.from_batches(pending).combine_chunks()
            pending = []
    if pending:
        yield pa.Table.from_batches(pending).combine_chunks()


def _inserted_rows(
    piece: pa.Table, rows: np.ndarray[Any, Any], schema: pa.Schema, new: NewRows
) -> tuple[pa.Table, dict[int, int]]:
    """Makes the new rows of a piece of the kept ones, and counts them by clause."""
    if new.clause is None:
        ((number, columns),) = new.inserts.items()
        return _made(piece, rows, columns, schema, new), {number: len(rows)}
    clauses = piece.column(new.clause).combine_chunks().fill_null(-1).to_numpy(zero_copy_only=False)[rows]
    counts = {number: int((clauses == number).sum()) for number in new.inserts}
    kinds = list(new.inserts.values())
    if all(columns == kinds[0] for columns in kinds):
        # The clauses differ in their conditions alone, so that rows may stay in their order.
        return _made(piece, rows[np.isin(clauses, list(new.inserts))], kinds[0], schema, new), counts
    made = [_made(piece, rows[clauses == number], new.inserts[number], schema, new) for number in new.inserts]
    return pa.concat_tables(made), counts


def _made(
    piece: pa.Table, rows: np.ndarray[Any, Any], columns: Mapping[str, str], schema: pa.Schema, new: NewRows
) -> pa.Table:
    everything = len(rows) == piece.num_rows
    arrays = []
    for field in schema:
        column = piece.column(columns[field.name])
        values = column if everything else taken(column, rows)
        if field.name in new.not_null and values.null_count:
            raise ValueError(f"column {field.name} would be NULL")
        arrays.append(values.cast(field.type))
    return pa.table(arrays, schema=schema)
