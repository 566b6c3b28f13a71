"""What an operator found and wrote, for the commit and the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from deltamerge.log.actions import AddFile, Metadata
from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.touched_files import TouchedFiles
from deltamerge.merge.planning.target_files import TargetFiles
from deltamerge.merge.source.key_summary import SourceSummary
from deltamerge.write.data_files import WrittenFiles
from deltamerge.write.deletion_vectors import NO_VECTORS, VectorChanges

NOTHING_WRITTEN = WrittenFiles((), (), ())


@dataclass(frozen=True)
class AppendedRows:
    """Rows that were written before, to be committed with what a statement changes.

    Args:
        written: Their files; change files for the case that the statement has some.
        metadata: The table's from then on; None where it stays.
        parameters: What the history shows of the write.
        landed: Called as soon as a commit names the files.
    """

    written: WrittenFiles
    metadata: Metadata | None
    parameters: Mapping[str, object]
    landed: Callable[[], None]


@dataclass(frozen=True)
class MergeChanges:
    """What a plan found and wrote.

    Args:
        second_scan_rows: Rows of the source in a second scan, -1 where there was none.
        target: The files that were read, and what rows were looked for in them.
        touched: What the first scan found; its `rewrite` files are replaced.
        summary: What is known of the source's keys; None where it was read once.
        vectors: What became of touched files whose changed rows are deleted by deletion vectors.
        finds_rows: Returns whether a row of other files matches the source, or is one that a BY SOURCE clause takes;
            None where the source cannot be asked again.
        appended: What is committed besides; the commit is then a write's.
    """

    execution: Execution
    source_rows: int
    target: TargetFiles
    touched: TouchedFiles
    summary: SourceSummary | None
    written: WrittenFiles = NOTHING_WRITTEN
    inserted: int = 0
    inserted_by_clause: Mapping[tuple[str, int], int] = field(default_factory=dict)
    copied: int = 0
    second_scan_rows: int = -1
    vectors: VectorChanges = NO_VECTORS
    finds_rows: Callable[[Sequence[AddFile]], bool] | None = None
    appended: AppendedRows | None = None

    @property
    def names_files_in_folder(self) -> bool:
        """Whether the commit names a file in the merge's folder; change data has another."""
        return bool(self.written.files or self.vectors.kept)

    @property
    def removed_files(self) -> tuple[AddFile, ...]:
        kept = {file.path for file in self.vectors.kept}
        return tuple(file for file in self.touched.rewrite if file.path not in kept)
