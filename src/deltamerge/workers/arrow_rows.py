"""Changed and new rows of a table written by PyArrow: into files that are written again, and into new files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.workers.answers import answer
from deltamerge.workers.change_files import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE, ChangeWriter
from deltamerge.workers.file_columns import read_columns
from deltamerge.workers.file_systems import is_of_machine
from deltamerge.workers.files import Files
from deltamerge.workers.new_rows import ChangingFile, InsertedRows, NewRows
from deltamerge.workers.parquet_patch import in_schema, opened_writer, row_groups, row_places, with_column
from deltamerge.workers.patched_file import Changed, PatchedFile
from deltamerge.workers.row_pairs import MOVED, RowPairs, distinct, read_numbers, read_pairs, unmatched
from deltamerge.workers.row_tracking import Origin, changed_now
from deltamerge.workers.row_values import RowValue, Setting, is_last
from deltamerge.workers.source_parts import RowGroup, SourceOpener, SourcePart
from deltamerge.workers.staged_rows import (
    PIECE_BYTES,
    TakenRows,
    in_pieces,
    is_of_other_calendar,
    open_staged,
    taken,
)
from deltamerge.workers.table_columns import plain_type
from deltamerge.workers.table_writer import TableWriter

_Numbers: TypeAlias = np.ndarray[Any, Any]
# Into a store that takes long to answer; each file in work is in memory.
_FILES_AT_ONCE = 4
DONE_SCHEMA = (
    "rows BIGINT, detail STRING, path STRING, size BIGINT, footer BINARY, change_path STRING, change_rows BIGINT, "
    "change_size BIGINT, unfit STRING"
)


def writing(files: Files, new: NewRows) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that writes files, for ``mapInArrow``.

    Returns:
        A function over batches of ``work`` (see `patch_work`, `new_file_work`), a row a file. It returns for each the
        rows of the new file (none: no file), as JSON how many of them which INSERT clause took, its path, size and
        footer, and path, rows and size of its change data (none: no file); or as ``unfit`` why the file is not to be
        written in this way.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = _Source(files, new)
        given = [json.loads(document) for batch in batches for document in batch.column(0).to_pylist()]
        works = [
            {**work, **{kind: files.attempt_path(work[kind]) for kind in ("target", "changes") if work[kind]}}
            for work in given
        ]
        targets = [work["target"] for work in works]
        yield from files.ahead(partial(_done, source), works, targets, _FILES_AT_ONCE)

    return write


def _done(source: _Source, work: Mapping[str, Any]) -> pa.RecordBatch:
    new = source.new
    counts = dict.fromkeys(map(str, new.inserts), 0)
    try:
        with ChangeWriter(source.files, work["changes"], new.schema, new.options, new.metadata) as changes:
            written = _patched(work, source, changes) if "source" in work else _new_file(work, source, counts, changes)
    except (ValueError, OSError, pa.ArrowException) as error:
        if is_of_machine(error):
            # Spark runs the task again.
            raise
        given = [work["source"]] if "source" in work else [*work["rewritten"], *work["changed"], *work["moved"]]
        read = ", ".join(ChangingFile.of(file).path for file in given)
        return answer(DONE_SCHEMA, {"path": work["target"], "unfit": f"{read}: {error}" if read else str(error)})
    done = {"rows": written.rows, "detail": json.dumps(counts), "path": work["target"]}
    of_changes = dict(zip(("change_path", "change_rows", "change_size"), changes.done, strict=True))
    return answer(DONE_SCHEMA, {**done, "size": written.size, "footer": written.footer, **of_changes})


class _Source:
    """The staged rows, opened by a task once it needs them."""

    def __init__(self, files: Files, new: NewRows) -> None:
        self.files = files
        self.new = new
        self._opener = SourceOpener(files, new.staged, new.columns)
        self._open_part: Callable[[], SourcePart] = lambda: self._opener.all
        self._part: SourcePart | None = None
        self._opened: dict[str, Any] = {}

    def of_rows(self, numbers: _Numbers, exchanged: Sequence[RowGroup] = ()) -> _Source:
        """Return the source, with all else that is opened, for a file's work that takes only some rows of it."""
        source = copy(self)
        source._open_part = partial(self._opener.part_with, numbers, exchanged)
        source._part = None
        return source

    @property
    def part(self) -> SourcePart:
        if self._part is None:
            self._part = self._open_part()
        return self._part

    # functools.cached_property has a lock in Python 3.10 and 3.11, which cannot travel with a task.
    def _once(self, name: str, opened: Callable[[], Any]) -> Any:  # noqa: ANN401
        if name not in self._opened:
            self._opened[name] = opened()
        return self._opened[name]

    @property
    def values(self) -> pa.Table:
        assert self.new.values is not None
        values, names = self.new.values, sorted(self.new.of_pairs)
        return self._once("values", lambda: open_staged(self.files, values, names))

    @property
    def order(self) -> _Numbers:
        found: _Numbers = self._once("order", lambda: read_numbers(self.files, self.new.order))
        return found

    @property
    def is_new(self) -> _Numbers:
        rows = self.new.staged.row_count
        found: _Numbers = self._once("is_new", lambda: unmatched(self.files, self.new.pairs, rows))
        return found


def _patched(work: Mapping[str, Any], source: _Source, changes: ChangeWriter) -> PatchedFile:
    """Write the file of a `patch_work` again with its matched rows changed, or without them.

    Columns that are not set stay as they are, and so do encodings, compression and metadata. A column that the file
    lacks is NULL in its other rows. Protocol: Schema Serialization, missing columns. A row of the target is in one of
    the file's pairs at most. The new file appears whole or not at all.

    Raises:
        ValueError: A column is not of the table's type, or would be NULL where it must not.
    """
    new, given = source.new, ChangingFile.of(work["source"])
    changing = read_pairs(source.files, given.pairs).changing
    source = source.of_rows(changing.matched_sources, given.exchanged)
    with source.files.whole_parquet(given.path) as whole_file:
        file = whole_file.file
        if is_of_other_calendar(file.metadata):
            raise ValueError("the file's dates and times are in the calendar of Spark 2")
        if len(changing.rows) and changing.rows[-1] >= file.metadata.num_rows:
            raise ValueError(f"row {changing.rows[-1]} is to leave a file of {file.metadata.num_rows} rows")
        schema, places = _with_updated_columns(new.form.schema_of(file), new), row_places(file)
        pairs = [_among(changing, rows) for rows in places]
        changed = [_changed_columns(of_group, new) for of_group in pairs]
        codec = new.options["compression"]
        with opened_writer(source.files, work["target"], schema, whole_file, changed, codec) as writer:
            asked = [
                frozenset(schema.names)
                if changes.is_wanted and len(of_group.rows)
                else {*writer.columns(number), *(new.read_columns if len(of_group.rows) else ())}
                for number, of_group in enumerate(pairs)
            ]
            for group in row_groups(given.path, file, asked):
                own = pa.schema([field for field in schema if field.name in group.columns])
                table = _with_ids(in_schema(group.table, own), group.rows.start, given.origin, new)
                rows = _changed(table, source, pairs[group.number], group.rows.start, changes)
                writer.write_group(group.number, rows)
    return writer


def _among(changing: RowPairs, rows: slice) -> RowPairs:
    """Return the pairs of rows of a file, given in order, that are in a part of it."""
    return changing.among(slice(*np.searchsorted(changing.rows, [rows.start, rows.stop])))


def _changed_columns(pairs: RowPairs, new: NewRows) -> Changed:
    if not len(pairs.rows):
        return new.form.filled
    return None if _is_leaving(pairs, new).any() else (*new.updated_columns, *new.form.filled)


def _is_leaving(pairs: RowPairs, new: NewRows) -> Any:  # noqa: ANN401
    """Return for each pair whether its row leaves the file."""
    return ~np.isin(pairs.clauses, list(new.updates))


def _with_updated_columns(schema: pa.Schema, new: NewRows) -> pa.Schema:
    lowered = {name.lower() for name in schema.names}
    if len(lowered) < len(schema.names):
        raise ValueError("the file has columns that differ only in case")
    for name in new.read_columns.difference(schema.names):
        if name.lower() in lowered:
            raise ValueError(f"the file spells column {name} in another case")
    for name in new.updated_columns:
        schema = with_column(schema, new.schema.field(name))
        if plain_type(schema.field(name).type) != new.type_of(name):
            raise ValueError(f"column {name} is {schema.field(name).type}, not {new.type_of(name)}")
        if (name,) not in new.not_null:
            # Spark requires values where it knows of a query that none is NULL, and PyArrow would write a NULL struct
            # into such a column as a struct of NULLs.
            place = schema.get_field_index(name)
            schema = schema.set(place, schema.field(place).with_nullable(True))
    return schema


def _with_ids(table: pa.Table, start: int, origin: Origin, new: NewRows) -> pa.Table:
    return table if new.hidden is None else origin.fill(table, start, new.hidden)


def _changed(table: pa.Table, source: _Source, changing: RowPairs, start: int, changes: ChangeWriter) -> pa.Table:
    """Change rows of a row group, whose first row is the file's row `start`, or leave them out."""
    if not len(changing.rows):
        return table
    before, new = table, source.new
    updating = {number: _OfPairs(source, changing.of_clause(number), number) for number in new.updates}
    for pairs in updating.values():
        pairs.check()
    befores = {number: _RowsOf(before, new, pairs.rows - start) for number, pairs in updating.items()}
    for name in new.updated_columns:
        index = table.schema.get_field_index(name)
        field = table.schema.field(index)
        chunks, rows = list(table.column(index).chunks), table.num_rows
        order = np.arange(rows)
        for number, pairs in updating.items():
            if name in new.updates[number].settings and len(pairs.rows):
                after = _RowsOf(table, new, pairs.rows - start)
                values = pairs.values(new.updates[number].settings[name], name, befores[number], after.column)
                chunks.append(values.cast(field.type))
                order[pairs.rows - start] = rows + np.arange(len(values))
                rows += len(values)
        if rows > table.num_rows:
            table = table.set_column(index, field, pa.chunked_array(chunks).take(pa.array(order)))
    updated = np.concatenate([pairs.rows for pairs in updating.values()]) if updating else changing.rows[:0]
    if new.hidden is not None:
        table = changed_now(table, updated - start, new.hidden)
    _check(table, new, updated - start)
    leaves = _is_leaving(changing, new)
    if changes.is_wanted:
        is_moved = changing.clauses == MOVED
        changes.add(before.take(pa.array(np.concatenate([updated, changing.rows[is_moved]]) - start)), UPDATE_PREIMAGE)
        changes.add(table.take(pa.array(updated - start)), UPDATE_POSTIMAGE)
        changes.add(before.take(pa.array(distinct(changing.rows[leaves & ~is_moved]) - start)), DELETE)
    if not leaves.any():
        return table
    keep = np.ones(table.num_rows, np.bool_)
    keep[changing.rows[leaves] - start] = False
    return table.filter(pa.array(keep))


def _check(table: pa.Table, new: NewRows, rows: _Numbers | None = None) -> None:
    """Raise ValueError where a constraint does not hold for some rows that are written; None for all."""
    for check in new.checks:
        columns = {
            name: pa.nulls(len(table), new.type_of(name)) if name not in table.column_names else table.column(name)
            for name in check.columns.values()
        }
        if rows is not None:
            columns = {name: taken(column, rows) for name, column in columns.items()}
        check.check(columns, len(table) if rows is None else len(rows))


def _refuse_violations(holds: Any) -> None:  # noqa: ANN401
    if not pc.all(holds.fill_null(False)).as_py():
        raise ValueError("a row violates a constraint")


class _RowsOf:
    """Some rows of a table, a column of which is NULL where the table lacks it."""

    def __init__(self, table: pa.Table, new: NewRows, places: _Numbers) -> None:
        self._table, self._new, self._rows, self._count = table, new, TakenRows(places), len(places)

    def column(self, name: str, kind: pa.DataType | None = None) -> Any:  # noqa: ANN401
        if name not in self._new.read_columns:
            raise AssertionError(f"column {name} may not have been read")
        if name in self._table.column_names:
            return self._rows.of(self._table.column(name))
        return pa.nulls(self._count, self._new.type_of(name) if kind is None else kind)


class _OfPairs:
    """What the staged rows and the computed ones have for pairs of a clause."""

    def __init__(self, source: _Source, pairs: RowPairs, number: int) -> None:
        self.rows = pairs.rows
        self._source, self._holds = source, source.new.updates[number].holds
        self._sources = pairs.sources
        self._taken_rows: TakenRows | None = None
        self._of_values = None if pairs.values is None else TakenRows(pairs.values)

    def _taken(self, column: str) -> Any:  # noqa: ANN401
        if column in self._source.new.of_pairs and self._of_values is not None:
            return self._of_values.of(self._source.values.column(column))
        part = self._source.part
        if self._taken_rows is None:
            self._taken_rows = TakenRows(part.places(self._sources))
        return self._taken_rows.of(part.rows.column(column))

    def values(self, setting: Setting, name: str, before: _RowsOf, after: Callable[[str], Any]) -> Any:  # noqa: ANN401
        """Return what the table's column `name` becomes.

        Args:
            before: The rows as they are in the file.
            after: Returns a column of the rows as they are written, of those that are known.
        """
        if isinstance(setting, str):
            return self._source.new.stored(name, self._taken(setting))
        found = setting.of(len(self.rows), lambda field: before.column(field.name, field.type), self._taken, after)
        return self._source.new.stored(name, found)

    def check(self) -> None:
        if self._holds is not None and len(self.rows):
            _refuse_violations(self._taken(self._holds))


def _new_file(work: Mapping[str, Any], source: _Source, counts: dict[str, int], changes: ChangeWriter) -> TableWriter:
    """Write the new file of a `new_file_work`, whole or not at all.

    Raises:
        ValueError: A column is not of the table's type, or would be NULL where it must not.
    """
    new = source.new
    takes_over = bool(work["rewritten"] or work["changed"] or work["moved"])
    schema = new.hidden.added_to(new.schema) if takes_over and new.hidden is not None else new.schema
    with TableWriter(source.files, work["target"], schema, new.options, new.metadata) as writer:
        for tables in in_pieces(_rows_of_new_file(work, schema, source, counts, changes)):
            writer.write(pa.concat_tables(tables))
    return writer


def _rows_of_new_file(
    work: Mapping[str, Any], schema: pa.Schema, source: _Source, counts: dict[str, int], changes: ChangeWriter
) -> Iterator[pa.Table]:
    """Return the rows of a new file, and count the inserted ones by clause."""
    for file in map(ChangingFile.of, work["rewritten"]):
        changing = read_pairs(source.files, file.pairs).changing
        rows = source.of_rows(changing.matched_sources, file.exchanged)
        yield _changed(_rows_of(file, schema, source), rows, changing, 0, changes)
    for file in map(ChangingFile.of, work["changed"]):
        changing = read_pairs(source.files, file.pairs).changing
        if changes.is_wanted:
            rows = source.of_rows(changing.matched_sources, file.exchanged)
            yield _only_updated(_rows_of(file, schema, source), rows, changing, changes)
            continue
        yield from _updated_rows(file, changing, schema, source)
    for file in map(ChangingFile.of, work["moved"]):
        for table in _updated_rows(file, read_pairs(source.files, file.pairs), schema, source):
            changes.add(table, UPDATE_POSTIMAGE)
            yield table
    inserted = InsertedRows.of(work["inserted"])
    if inserted.first < inserted.end:
        for table in _inserted(inserted, schema, source, counts):
            changes.add(table, INSERT)
            yield table


def _only_updated(table: pa.Table, source: _Source, changing: RowPairs, changes: ChangeWriter) -> pa.Table:
    """Return the updated rows of a file, given all, and add what becomes of its changing rows to the change data."""
    rows = distinct(changing.rows)
    among = replace(changing, rows=np.searchsorted(rows, changing.rows))
    return _changed(table.take(pa.array(rows)), source, among, 0, changes)


def _updated_rows(file: ChangingFile, changing: RowPairs, schema: pa.Schema, source: _Source) -> Iterator[pa.Table]:
    source = source.of_rows(changing.matched_sources, file.exchanged)
    for number in source.new.updates:
        updated = changing.of_clause(number)
        if len(updated.rows):
            yield _updated(file, schema, source, updated, number)


def _updated(file: ChangingFile, schema: pa.Schema, source: _Source, pairs: RowPairs, number: int) -> pa.Table:
    new, clause = source.new, source.new.updates[number]
    setting = clause.settings
    computed_of = {name for how in setting.values() if isinstance(how, RowValue) for name in how.target_names}
    read = pa.schema([field for field in schema if field.name not in setting or field.name in computed_of])
    own = _rows_of(file, read, source).take(pa.array(pairs.rows))
    if new.hidden is not None:
        own = changed_now(own, np.arange(len(own)), new.hidden)
    of_pairs, before = _OfPairs(source, pairs, number), _RowsOf(own, new, np.arange(len(own)))
    columns = {name: own.column(name) for name in schema.names if name not in setting}
    for name in clause.ordered:
        columns[name] = of_pairs.values(setting[name], name, before, columns.__getitem__)
    updated = pa.table({name: columns[name] for name in schema.names}, schema=schema)
    _check(updated, new)
    of_pairs.check()
    return updated


def _rows_of(file: ChangingFile, schema: pa.Schema, source: _Source) -> pa.Table:
    """Read columns of all rows of a file; one that the file lacks is NULL."""
    found = read_columns(source.files, file.path, {}, {field.name: (field.name, field.type) for field in schema})
    return _with_ids(found, 0, file.origin, source.new)


@dataclass(frozen=True)
class _NewRows:
    """Staged rows that become new ones.

    Args:
        staged: A piece of the staged rows.
        places: Where the rows are in it.
        numbers: Their numbers in the source.
    """

    staged: pa.Table
    places: _Numbers
    numbers: _Numbers

    def among(self, wanted: Any) -> _NewRows:  # noqa: ANN401
        return _NewRows(self.staged, self.places[wanted], self.numbers[wanted])

    def column(self, name: str) -> Any:  # noqa: ANN401
        column = self.staged.column(name)
        return column if len(self.places) == self.staged.num_rows else taken(column, self.places)


def _inserted(inserted: InsertedRows, schema: pa.Schema, source: _Source, counts: dict[str, int]) -> Iterator[pa.Table]:
    """Return those of some staged rows that match nothing, and that an INSERT takes."""
    if source.new.order:
        pieces = _ordered(source, source.order[inserted.first : inserted.end], inserted.exchanged)
    else:
        pieces = _unmatched(source, inserted.first, inserted.end)
    for rows in pieces:
        table, taken_by = _inserted_rows(rows, schema, source.new)
        for number, count in taken_by.items():
            counts[str(number)] += count
        yield table


def _ordered(source: _Source, numbers: _Numbers, exchanged: Sequence[RowGroup]) -> Iterator[_NewRows]:
    """Return the staged rows of some numbers, in pieces."""
    part = source.of_rows(numbers, exchanged).part
    most = max(1, PIECE_BYTES * len(part.rows) // max(1, part.rows.nbytes))
    for first in range(0, len(numbers), most):
        some = numbers[first : first + most]
        yield _NewRows(part.rows, part.places(some), some)


def _unmatched(source: _Source, begin: int, end: int) -> Iterator[_NewRows]:
    """Return in pieces those of some staged rows that match nothing."""
    part = source.of_rows(begin + np.flatnonzero(source.is_new[begin:end])).part.between(begin, end)
    assert part.numbers is not None
    at = 0
    for batches in in_pieces(part.rows.to_batches()):
        piece = pa.Table.from_batches(batches).combine_chunks()
        numbers = part.numbers[at : at + piece.num_rows]
        yield _NewRows(piece, np.arange(piece.num_rows), numbers).among(source.is_new[numbers])
        at += piece.num_rows


def _inserted_rows(rows: _NewRows, schema: pa.Schema, new: NewRows) -> tuple[pa.Table, dict[int, int]]:
    if new.clause is None:
        (number,) = new.inserts
        return _made(rows, number, schema, new), {number: len(rows.places)}
    clauses = rows.column(new.clause).fill_null(-1).to_numpy(zero_copy_only=False)
    counts = {number: int((clauses == number).sum()) for number in new.inserts}
    kinds = list(new.inserts.values())
    if all(clause == kinds[0] and clause.holds is None for clause in kinds):
        # The clauses differ only in their conditions, so that rows may stay in their order.
        first = next(iter(new.inserts))
        return _made(rows.among(np.isin(clauses, list(new.inserts))), first, schema, new), counts
    made = [_made(rows.among(clauses == number), number, schema, new) for number in new.inserts]
    return pa.concat_tables(made), counts


def _made(rows: _NewRows, number: int, schema: pa.Schema, new: NewRows) -> pa.Table:
    clause, count = new.inserts[number], len(rows.places)
    columns = clause.settings
    if clause.holds is not None:
        _refuse_violations(taken(rows.staged.column(clause.holds), rows.places))
    made: dict[str, Any] = {}
    for column in schema:
        if column.name not in columns and column.name in new.identities:
            first, step = new.identities[column.name]
            made[column.name] = pa.array(first + rows.numbers * step, column.type)
        elif column.name not in columns:
            # A hidden column: new rows get their ids from the commit.
            made[column.name] = pa.nulls(count, column.type)
    for name in sorted(schema.names, key=lambda name: name in columns and is_last(columns[name])):
        if name not in columns:
            continue
        how = columns[name]
        values = rows.column(how) if isinstance(how, str) else how.of(count, _no_target, rows.column, made.__getitem__)
        made[name] = new.stored(name, values)
    table = pa.table({name: made[name] for name in schema.names}, schema=schema)
    _check(table, new)
    return table


def _no_target(field: pa.Field) -> None:
    raise AssertionError(f"a new row has no target, but column {field.name} of one is read")
