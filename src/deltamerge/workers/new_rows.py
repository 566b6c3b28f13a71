"""What the new and changed rows of a table are made of, and the work of writing them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import pyarrow as pa

from deltamerge.workers.conditions import RowCheck
from deltamerge.workers.parquet_patch import FileForm
from deltamerge.workers.row_tracking import NO_ORIGIN, HiddenColumns, Origin
from deltamerge.workers.row_values import ClauseRows, RowValue, is_last
from deltamerge.workers.source_parts import RowGroup
from deltamerge.workers.staged_rows import StagedRows
from deltamerge.workers.table_columns import Shape, has_null, shaped


@dataclass(frozen=True)
class NewRows:
    """What the rows of a table are made of.

    Args:
        updates: The UPDATE clauses by number, with columns of the staged rows or of `values`. Rows that another clause
            takes leave the table.
        inserts: The INSERT clauses by number, with columns of the staged rows for all of the table's columns.
        clause: The column with the number of the clause that inserts a row; None where the only one takes all rows.
        form: What files have; wherever the table's columns are named, it is by the names there.
        not_null: The paths of the table's columns and fields that are never NULL.
        pairs: The files of all pairs of target and source rows: what is named there is not inserted.
        order: The file with the numbers of the staged rows that are inserted, by partition; empty where they are all
            that match nothing.
        options: Arguments of ``ParquetWriter`` for new files.
        values: What was computed of pairs, by the rows that these name; None where nothing was.
        of_pairs: The columns of `values`.
        checks: What must hold for each row of the table.
        shapes: How the values of columns of nested types are given, by the columns.
        identities: By an identity column that INSERT clauses leave to the table its value for the first of the
            staged rows, and the step to the next one's.
        counted_by: A column of the staged rows, which is read where no other is: rows of literals are as many.
    """

    staged: StagedRows
    updates: Mapping[int, ClauseRows]
    inserts: Mapping[int, ClauseRows]
    clause: str | None
    form: FileForm
    not_null: frozenset[tuple[str, ...]]
    metadata: Mapping[bytes, bytes]
    pairs: tuple[str, ...]
    options: Mapping[str, Any]
    order: str = ""
    values: StagedRows | None = None
    of_pairs: frozenset[str] = frozenset()
    checks: tuple[RowCheck, ...] = ()
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    identities: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    counted_by: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the staged rows."""
        clauses = (*self.updates.values(), *self.inserts.values())
        wanted = [name for clause in clauses for name in clause.names if name not in self.of_pairs]
        wanted += [] if self.clause is None else [self.clause]
        if not wanted and self.inserts and self.counted_by is not None:
            return (self.counted_by,)
        return tuple(dict.fromkeys(wanted))

    @property
    def updated_columns(self) -> tuple[str, ...]:
        """The columns that UPDATE clauses set, those that are computed of others last."""
        settings = [(name, how) for clause in self.updates.values() for name, how in clause.settings.items()]
        last = {name for name, how in settings if is_last(how)}
        return tuple(dict.fromkeys(sorted((name for name, _ in settings), key=last.__contains__)))

    @property
    def read_columns(self) -> frozenset[str]:
        """The columns of the target's files that are read to compute values and to check constraints."""
        settings = [how for clause in self.updates.values() for how in clause.settings.values()]
        computed = [how for how in settings if isinstance(how, RowValue)]
        of_values = {name for how in computed for name in (*how.target_names, *how.written.values())}
        return frozenset(of_values.union(*(check.columns.values() for check in self.checks)))

    @property
    def schema(self) -> pa.Schema:
        return self.form.columns

    @property
    def hidden(self) -> HiddenColumns | None:
        return self.form.hidden

    def type_of(self, name: str) -> pa.DataType:
        return self.schema.field(name).type

    def stored(self, name: str, values: Any) -> Any:  # noqa: ANN401
        """Return staged or computed values as those of a column.

        Raises:
            ValueError: One is NULL where it must not be.
        """
        kind = self.type_of(name)
        found = shaped(values, self.shapes[name]) if name in self.shapes else values.cast(kind)
        for path in self.not_null:
            if path[0] == name and has_null(found, path[1:]):
                raise ValueError(f"column {'.'.join(path)} would be NULL")
        return found


@dataclass(frozen=True)
class ChangingFile:
    """A file whose rows change.

    Args:
        pairs: The file of its pairs.
        origin: What the log has of its rows.
        exchanged: Where the source's rows of its pairs are, if they were brought together.
    """

    path: str
    pairs: str
    origin: Origin = NO_ORIGIN
    exchanged: tuple[RowGroup, ...] = ()

    @property
    def as_json(self) -> list[Any]:
        return [self.path, self.pairs, astuple(self.origin), *map(astuple, self.exchanged)]

    @classmethod
    def of(cls, values: Sequence[Any]) -> ChangingFile:
        path, pairs, origin, *exchanged = values
        return cls(path, pairs, Origin(*origin), tuple(RowGroup(*group) for group in exchanged))


@dataclass(frozen=True)
class InsertedRows:
    """The staged rows that a new file may get.

    Args:
        first: The number of the first; with `NewRows.order` its place there.
        end: The one after the last.
        exchanged: Where the rows are, if they were brought together.
    """

    first: int = 0
    end: int = 0
    exchanged: tuple[RowGroup, ...] = ()

    @classmethod
    def of(cls, values: Sequence[Any]) -> InsertedRows:
        first, end, groups = values
        return cls(first, end, tuple(RowGroup(*group) for group in groups))


NOTHING_INSERTED = InsertedRows()


def patch_work(source: ChangingFile, target: str, changes: str) -> str:
    return json.dumps({"source": source.as_json, "target": target, "changes": changes})


def new_file_work(
    target: str,
    changes: str,
    *,
    rewritten: Sequence[ChangingFile] = (),
    changed: Sequence[ChangingFile] = (),
    moved: Sequence[ChangingFile] = (),
    inserted: InsertedRows = NOTHING_INSERTED,
) -> str:
    """Describe a new file.

    Args:
        changes: The path of the file with the change data; empty where none is written.
        rewritten: Files all of whose rows it takes over, with their changes.
        changed: Files of which it gets only the changed rows, since deletion vectors delete them where they were.
        moved: Files of other partitions of which it gets the updated rows.
    """
    return json.dumps(
        {
            "target": target,
            "changes": changes,
            "rewritten": [file.as_json for file in rewritten],
            "changed": [file.as_json for file in changed],
            "moved": [file.as_json for file in moved],
            "inserted": astuple(inserted),
        }
    )
