"""Names of columns of our own inside users' frames, which never collide with theirs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InternalColumns:
    """The names of a merge's own columns; what follows the prefix is Delta's name for the same thing.

    Args:
        prefix: A prefix that no user's column has (see `free_prefix`).
    """

    prefix: str

    def target(self, index: int) -> str:
        """Return the name of the target's column at a position."""
        return f"{self.prefix}target_{index}"

    def visible(self, index: int) -> str:
        """Return the name of the target's column at a position, visible under the user's name beside a copy."""
        return f"{self.prefix}visible_{index}"

    def source(self, index: int) -> str:
        """Return the name of the source's column at a position."""
        return f"{self.prefix}source_{index}"

    def condition(self, action: str, index: int) -> str:
        """Return the name of a precomputed clause condition."""
        return f"{self.prefix}{action}_condition_{index}_"

    def clause(self, kind: str) -> str:
        """Return the name of the column that holds the number of the clause of a kind that takes the row."""
        return f"{self.prefix}{kind}_clause"

    @property
    def clauses(self) -> tuple[str, ...]:
        """The columns of `clause`, one for each kind."""
        return tuple(self.clause(kind) for kind in ("matched", "not_matched", "not_matched_by_source"))

    def value(self, kind: str, clause: int, index: int) -> str:
        """Return the name of an assigned value."""
        return f"{self.prefix}{kind}_{clause}_value_{index}"

    def stored(self, kind: str, clause: int, index: int) -> str:
        """Return the name of what an output column becomes, in its type."""
        return f"{self.prefix}{kind}_{clause}_stored_{index}"

    def holds(self, kind: str, clause: int) -> str:
        """Return the name of the column that says whether constraints hold for a clause's row."""
        return f"{self.prefix}{kind}_{clause}_holds"

    def output(self, index: int) -> str:
        """Return the name of an output column."""
        return f"{self.prefix}output_{index}"

    def copy(self, index: int) -> str:
        """Return the name of the target's own value of an output column."""
        return f"{self.prefix}copy_{index}"

    def generated(self, index: int) -> str:
        """Return the name of the flag for rows whose output column is computed by its generation expression."""
        return f"{self.prefix}generated_{index}"

    @property
    def file_name(self) -> str:
        """The target row's data file, as Spark spells its URI."""
        return f"{self.prefix}file_name_"

    @property
    def row_index(self) -> str:
        """The target row's position in its data file."""
        return f"{self.prefix}target_row_index_"

    @property
    def row_id(self) -> str:
        """The target row's id (Protocol: Row Tracking)."""
        return f"{self.prefix}row_id"

    @property
    def row_commit_version(self) -> str:
        """The version that last changed the target row."""
        return f"{self.prefix}row_commit_version"

    @property
    def source_row_index(self) -> str:
        return f"{self.prefix}source_row_index"

    @property
    def matched_source_row(self) -> str:
        """The number of a source row that matches some target row."""
        return f"{self.prefix}matched_source_row"

    @property
    def source_row_present(self) -> str:
        """TRUE where the joined row has a source row, else NULL."""
        return f"{self.prefix}source_row_present_"

    @property
    def target_row_present(self) -> str:
        """TRUE where the joined row has a target row, else NULL."""
        return f"{self.prefix}target_row_present_"

    @property
    def file_rewritten(self) -> str:
        """Whether the target row's file is to be rewritten."""
        return f"{self.prefix}file_rewritten_"

    @property
    def change(self) -> str:
        """What becomes of a joined row: insert, update, delete, drop, or NULL for a copy."""
        return f"{self.prefix}change"

    @property
    def change_type(self) -> str:
        """The change that the row records, or NULL for a row of the table."""
        return f"{self.prefix}change_type"

    @property
    def match_number(self) -> str:
        """The number of the match among those of its target row."""
        return f"{self.prefix}match_number"

    @property
    def block_file(self) -> str:
        """The file that a block of a set of rows is about."""
        return f"{self.prefix}block_file"

    @property
    def block(self) -> str:
        """The number of a block of 4,096 rows in a set of rows."""
        return f"{self.prefix}block"

    @property
    def block_words(self) -> str:
        """The block's bits, as words of 64 rows."""
        return f"{self.prefix}block_words"

    @property
    def packed(self) -> str:
        """The rows that one joined row becomes."""
        return f"{self.prefix}packed"
