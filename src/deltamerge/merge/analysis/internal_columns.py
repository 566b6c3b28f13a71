"""Names of columns of our own inside users' frames, which never collide with theirs."""

from __future__ import annotations


class InternalColumns:
    """The names of a merge's own columns; what follows the prefix is Delta's name for the same thing.

    Args:
        prefix: A prefix that no user's column has (see `free_prefix`).
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        # The target row's data file, as Spark spells its URI, and the row's position in it.
        self.file_name = f"{prefix}file_name_"
        self.row_index = f"{prefix}target_row_index_"
        # The target row's id, and the version that last changed the row. Protocol: Row Tracking.
        self.row_id = f"{prefix}row_id"
        self.row_commit_version = f"{prefix}row_commit_version"
        self.source_row_index = f"{prefix}source_row_index"
        # The number of a source row that matches some target row.
        self.matched_source_row = f"{prefix}matched_source_row"
        # TRUE where the joined row has a row of the side, else NULL.
        self.source_row_present = f"{prefix}source_row_present_"
        self.target_row_present = f"{prefix}target_row_present_"
        # Whether the target row's file is to be rewritten.
        self.file_rewritten = f"{prefix}file_rewritten_"
        # What becomes of a joined row: insert, update, delete, drop, or NULL for a copy.
        self.change = f"{prefix}change"
        # The change that a row of change data records, NULL for a row of the table.
        self.change_type = f"{prefix}change_type"
        # The number of the match among those of its target row.
        self.match_number = f"{prefix}match_number"
        # The file that a block of a set of rows is about, the block's number, and its bits as words of 64 rows.
        self.block_file = f"{prefix}block_file"
        self.block = f"{prefix}block"
        self.block_words = f"{prefix}block_words"
        # The rows that one joined row becomes.
        self.packed = f"{prefix}packed"
        # The columns of `clause`.
        self.clauses = tuple(map(self.clause, ("matched", "not_matched", "not_matched_by_source")))

    def target(self, index: int) -> str:
        return f"{self.prefix}target_{index}"

    def visible(self, index: int) -> str:
        """Name the target's column that is visible under the user's name beside a copy."""
        return f"{self.prefix}visible_{index}"

    def source(self, index: int) -> str:
        return f"{self.prefix}source_{index}"

    def condition(self, action: str, index: int) -> str:
        return f"{self.prefix}{action}_condition_{index}_"

    def clause(self, kind: str) -> str:
        """Name the column with the number of the clause of a kind that takes the row."""
        return f"{self.prefix}{kind}_clause"

    def value(self, kind: str, clause: int, index: int) -> str:
        return f"{self.prefix}{kind}_{clause}_value_{index}"

    def output(self, index: int) -> str:
        return f"{self.prefix}output_{index}"

    def copy(self, index: int) -> str:
        """Name the target's own value of an output column."""
        return f"{self.prefix}copy_{index}"

    def generated(self, index: int) -> str:
        """Name the flag for rows whose output column is computed by its generation expression."""
        return f"{self.prefix}generated_{index}"
