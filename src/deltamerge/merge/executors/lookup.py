"""A key lookup once its source is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.lookup_recipe import LookupRecipe
from deltamerge.merge.executors.staged_columns import StagedColumns
from deltamerge.merge.plan import Declined
from deltamerge.merge.source.key_summary import SourceSummary
from deltamerge.workers.key_index import KeyIndex
from deltamerge.workers.left_to_spark import LeftToSpark, leaving_to_spark
from deltamerge.workers.staged_rows import StagedRows, open_staged


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
    execution: Execution
    recipe: LookupRecipe
    staged: StagedSource


def opened_source(execution: Execution, rows: StagedRows, columns: Sequence[str]) -> pa.Table:
    """Return columns of the source's rows, in this process.

    Raises:
        Declined: A file of the source is no longer the one that was looked at, or PyArrow does not read it.
    """
    try:
        with leaving_to_spark("the source"):
            return open_staged(execution.files, rows, columns)
    except (ValueError, LeftToSpark) as error:
        raise Declined("source", execution.plan.source.choice, str(error)) from error
