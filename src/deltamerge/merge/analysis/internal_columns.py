"""Names of columns of our own inside users' frames, which never collide with theirs."""

from __future__ import annotations

from dataclasses import dataclass


class _Name:
    """A column's name: the prefix, then always the same."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, columns: InternalColumns, _: type[InternalColumns]) -> str:
        return columns.prefix + self._name


@dataclass(frozen=True)
class InternalColumns:
    """The names of a merge's own columns; what follows the prefix is Delta's name for the same thing.

    Args:
        prefix: A prefix that no user's column has (see `free_prefix`).
    """

    prefix: str

    file_name = _Name("file_name_")
    """The target row's data file, as Spark spells its URI."""
    row_index = _Name("target_row_index_")
    """The target row's position in its data file."""
    row_id = _Name("row_id")
    """The target row's id (Protocol: Row Tracking)."""
    row_commit_version = _Name("row_commit_version")
    """The version that last changed the target row."""
    source_row_index = _Name("source_row_index")
    matched_source_row = _Name("matched_source_row")
    """The number of a source row that matches some target row."""
    source_row_present = _Name("source_row_present_")
    """TRUE where the joined row has a source row, else NULL."""
    target_row_present = _Name("target_row_present_")
    """TRUE where the joined row has a target row, else NULL."""
    file_rewritten = _Name("file_rewritten_")
    """Whether the target row's file is to be rewritten."""
    change = _Name("change")
    """What becomes of a joined row: insert, update, delete, drop, or NULL for a copy."""
    change_type = _Name("change_type")
    """The change that the row records, or NULL for a row of the table."""
    match_number = _Name("match_number")
    """The number of the match among those of its target row."""
    block_file = _Name("block_file")
    """The file that a block of a set of rows is about."""
    block = _Name("block")
    """The number of a block of 4,096 rows in a set of rows."""
    block_words = _Name("block_words")
    """The block's bits, as words of 64 rows."""
    pair_values = _Name("pair_values")
    """The number of the row of values that is computed of a pair."""
    pair_clause = _Name("pair_clause")
    """The code of the clause that takes a pair."""
    packed = _Name("packed")
    """The rows that one joined row becomes."""

    def target(self, index: int) -> str:
        return f"{self.prefix}target_{index}"

    def visible(self, index: int) -> str:
        """Return the name of the target's column at a position, visible under the user's name beside a copy."""
        return f"{self.prefix}visible_{index}"

    def source(self, index: int) -> str:
        return f"{self.prefix}source_{index}"

    def source_key(self, index: int) -> str:
        return f"{self.prefix}source_key_{index}"

    def condition(self, action: str, index: int) -> str:
        return f"{self.prefix}{action}_condition_{index}_"

    def clause(self, kind: str) -> str:
        """Return the name of the column that holds the number of the clause of a kind that takes the row."""
        return f"{self.prefix}{kind}_clause"

    @property
    def clauses(self) -> tuple[str, ...]:
        return tuple(self.clause(kind) for kind in ("matched", "not_matched", "not_matched_by_source"))

    def value(self, kind: str, clause: int, index: int) -> str:
        return f"{self.prefix}{kind}_{clause}_value_{index}"

    def stored(self, kind: str, clause: int, index: int) -> str:
        """Return the name of what an output column becomes, in its type."""
        return f"{self.prefix}{kind}_{clause}_stored_{index}"

    def holds(self, kind: str, clause: int) -> str:
        """Return the name of the column that says whether constraints hold for a clause's row."""
        return f"{self.prefix}{kind}_{clause}_holds"

    def output(self, index: int) -> str:
        return f"{self.prefix}output_{index}"

    def copy(self, index: int) -> str:
        """Return the name of the target's own value of an output column."""
        return f"{self.prefix}copy_{index}"

    def generated(self, index: int) -> str:
        """Return the name of the flag for rows whose output column is computed by its generation expression."""
        return f"{self.prefix}generated_{index}"
