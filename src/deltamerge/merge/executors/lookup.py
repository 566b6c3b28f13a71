"""A key lookup once its source is read."""

from __future__ import annotations

from dataclasses import dataclass

from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.lookup_recipe import LookupRecipe
from deltamerge.merge.executors.staged_columns import StagedColumns
from deltamerge.merge.source.key_summary import SourceSummary
from deltamerge.workers.key_index import KeyIndex
from deltamerge.workers.staged_rows import StagedRows


@dataclass(frozen=True)
class StagedSource:
    columns: StagedColumns
    rows: StagedRows
    row_count: int
    bytes: int
    bytes_in_memory: int
    summary: SourceSummary
    has_unique_keys: bool = False
    index: KeyIndex | None = None


@dataclass(frozen=True)
class Lookup:
    """A key lookup once its source is read."""

    execution: Execution
    recipe: LookupRecipe
    staged: StagedSource
