"""The source's keys as tasks look them up, and what chooses the clause that takes what they find."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltamerge.workers.conditions import ClauseChoice
from deltamerge.workers.file_columns import Asked
from deltamerge.workers.files import Files
from deltamerge.workers.key_index import KeyIndex, OpenedIndex
from deltamerge.workers.row_pairs import NO_CLAUSE
from deltamerge.workers.source_parts import SourceOpener
from deltamerge.workers.staged_rows import StagedFile, StagedRows, open_staged, taken
from deltamerge.workers.table_columns import widened

_Numbers: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ComparedKey:
    """A key of both sides.

    Args:
        source: Its name in the staged rows.
        column: The name in the target's data files of its column.
        kind: The type in which both sides are compared.
        null_safe: Whether NULL equals NULL.
        fields: The names there of the fields that lead to it, where it is one of a struct.
    """

    source: str
    column: str
    kind: pa.DataType
    null_safe: bool = False
    fields: tuple[str, ...] = ()

    @property
    def asked(self) -> tuple[str, pa.DataType]:
        """What is read of a data file; see `Asked`."""
        kind = self.kind
        for name in reversed(self.fields):
            kind = pa.struct([(name, kind)])
        return self.column, kind

    def values_of(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.struct_field(column, [0] * len(self.fields)) if self.fields else column


@dataclass(frozen=True)
class RowChoice:
    """Which clause takes a row of one side or a pair of rows, or whether ON admits a row.

    Args:
        target: The target's columns in the conditions, by the names that `choice` has for them.
        source: The source's: by the name that `choice` has for one, its name in the staged rows.
    """

    choice: ClauseChoice
    target: Asked = field(default_factory=dict)
    source: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class KeyLookup:
    """What is looked up in files, and which clause takes what is found.

    Args:
        clause: The MATCHED clause that takes a pair: its number for all pairs (or `NO_CLAUSE`), the column of the
            staged rows with its number, NULL where there is none, or what chooses it by both rows.
        by_source: What takes target rows without a match; None where all stay.
        rest: The target's columns that are read once the pairs are known.
        unique: Whether no two source rows have the same keys, so that a row of the target is in one pair at most.
        most_pairs: How many pairs a task makes at once where they may; more are declined.
        on_target: What ON requires of a target row besides equal keys; None where it is nothing.
        on_source: The same of a source row.
        index: The source's keys, sorted; None where each task puts them into a hash table.
    """

    staged: StagedRows
    keys: tuple[ComparedKey, ...]
    clause: int | str | RowChoice
    by_source: RowChoice | None
    rest: Asked
    unique: bool
    most_pairs: int
    on_target: RowChoice | None = None
    on_source: RowChoice | None = None
    index: KeyIndex | None = None


def comparable(rows: pa.Table, names: Sequence[str], keys: Sequence[ComparedKey], admitted: Any) -> pa.Table:  # noqa: ANN401
    """Return keys so that a join finds the equal ones: of null-safe ones the values and whether they are NULL.

    Args:
        admitted: For each row whether it may match anything; None where all may.
    """
    found: dict[str, Any] = {}
    for index, (name, key) in enumerate(zip(names, keys, strict=True)):
        values = widened(rows.column(name), key.kind)
        values = values if values.type == key.kind else values.cast(key.kind)
        if key.null_safe:
            found[f"n{index}"] = pc.is_null(values)
            values = pc.fill_null(values, _some_value(key.kind))
        found[f"k{index}"] = values
    if admitted is not None:
        # No NULL equals another in a join.
        found["k0"] = pc.if_else(admitted, found["k0"], pa.scalar(None, found["k0"].type))
    return pa.table(found)


def _some_value(kind: pa.DataType) -> pa.Scalar:
    """Return a value for the place of NULL, beside which another column says so."""
    if pa.types.is_string(kind):
        return pa.scalar("", kind)
    if pa.types.is_binary(kind):
        return pa.scalar(b"", kind)
    return pa.scalar(False, kind) if pa.types.is_boolean(kind) else pa.scalar(0, kind)


def comparable_keys(
    files: Files, staged: StagedRows, keys: Sequence[ComparedKey], on_source: RowChoice | None
) -> pa.Table:
    """Return the source's keys, all rows, so that a join finds the equal ones; NULL equals nothing."""
    of_on = {} if on_source is None else on_source.source
    names = [key.source for key in keys]
    rows = open_staged(files, staged, list(dict.fromkeys([*names, *of_on.values()])))
    admitted = None
    if on_source is not None:
        seen = pa.table({name: rows.column(column) for name, column in of_on.items()})
        admitted = on_source.choice.of(seen, len(rows)).is_valid()
    return comparable(rows, names, keys, admitted)


def parts_of_keys(
    files: Files, staged: StagedRows, keys: Sequence[ComparedKey], on_source: RowChoice | None
) -> Iterator[pa.Table]:
    """Return the source's keys as `comparable_keys` does, file by file where no column is computed."""
    if staged.computed:
        yield comparable_keys(files, staged, keys, on_source)
        return

    def of_file(file: StagedFile) -> pa.Table:
        return comparable_keys(files, replace(staged, files=(file,)), keys, on_source)

    yield from files.ahead(of_file, staged.files, staged.paths)


@dataclass(frozen=True)
class OpenedKeys:
    """The source's keys in a task.

    Args:
        keys: Those that may equal others, by `comparable`, each with its row's number; or what finds them.
        asked: The source's columns by which clauses are chosen.
    """

    lookup: KeyLookup
    keys: pa.Table | OpenedIndex
    asked: SourceOpener

    def clauses_of(self, sources: _Numbers) -> _Numbers:
        """Return the clause that takes the pairs of each source row, as far as that follows from it alone."""
        clause = self.lookup.clause
        if isinstance(clause, str):
            found: _Numbers = taken(self.asked.all.rows.column(clause), sources).fill_null(NO_CLAUSE).to_numpy()
            return found
        return np.full(len(sources), clause if isinstance(clause, int) else NO_CLAUSE, np.int32)

    def find(self, keys: pa.Table) -> tuple[_Numbers, _Numbers]:
        """Return the pairs of rows with equal keys: those of `keys`, and the source's.

        Raises:
            ValueError: They are more than a task makes at once.
        """
        most_pairs = None if self.lookup.unique else self.lookup.most_pairs
        if isinstance(self.keys, OpenedIndex):
            return self.keys.find(keys, most_pairs)
        names = keys.column_names
        if most_pairs is not None and _makes_more_pairs(most_pairs, keys, self.keys, names):
            raise ValueError("few keys of many rows make very many pairs")
        numbered = keys.append_column("at", pa.array(np.arange(len(keys))))
        found = numbered.join(self.keys, names, join_type="inner", use_threads=False)
        return found["at"].to_numpy(), found["source"].to_numpy()


def _makes_more_pairs(most_pairs: int, target: pa.Table, source: pa.Table, keys: Sequence[str]) -> bool:
    times = source.group_by(keys).aggregate([([], "count_all")])
    most = pc.max(times["count_all"]).as_py() or 0
    if most <= 1 or most * len(target) <= most_pairs:
        return False
    both = target.group_by(keys).aggregate([([], "count_all")]).join(times, keys, right_suffix="_of_source")
    pairs = [both[name].to_numpy().astype(np.float64) for name in ("count_all", "count_all_of_source")]
    return bool(np.nansum(pairs[0] * pairs[1]) > most_pairs)


def open_keys(files: Files, lookup: KeyLookup) -> OpenedKeys:
    clause, staged, index = lookup.clause, lookup.staged, lookup.index
    asked = [*clause.source.values()] if isinstance(clause, RowChoice) else [clause] if isinstance(clause, str) else []
    rows = SourceOpener(files, staged, asked)
    if index is not None and index.codes.are_exact:
        return OpenedKeys(lookup, OpenedIndex(files, index, None), rows)
    table = comparable_keys(files, staged, lookup.keys, lookup.on_source)
    if index is not None:
        return OpenedKeys(lookup, OpenedIndex(files, index, table), rows)
    table = table.append_column("source", pa.array(np.arange(len(table))))
    whole = table.drop_null() if any(column.null_count for column in table.columns) else table
    return OpenedKeys(lookup, whole, rows)
