"""The source of a key lookup: its rows in files, with what Spark computes of them."""

from __future__ import annotations

from deltamerge.merge.executors.execution import Execution
from deltamerge.merge.executors.lookup import StagedSource
from deltamerge.merge.executors.lookup_recipe import LookupRecipe
from deltamerge.merge.executors.source_in_place import decoded, source_in_place, with_chosen, with_computed
from deltamerge.merge.executors.spark_staging import check_there, computing_for_all, stage_computed
from deltamerge.merge.executors.staged_columns import columns_to_stage
from deltamerge.merge.source.key_summary import NO_ROWS
from deltamerge.workers.staged_rows import StagedRows


def stage_source(execution: Execution, recipe: LookupRecipe) -> StagedSource:
    """Read the source as planned.

    Raises:
        Declined: It is not plain Parquet files, it has too many rows, or tasks write to another machine's disk.
    """
    steps, in_place = execution.steps, execution.plan.source.choice == "in_place"
    columns = columns_to_stage(execution, recipe)
    computing = computing_for_all(execution, recipe, columns)
    if execution.plan.source.choice == "none":
        return StagedSource(columns, StagedRows(()), row_count=0, bytes=0, bytes_in_memory=0, summary=NO_ROWS)
    if not in_place:
        with steps.step("materialize_source", "materializing the source"), computing:
            return _are_there(execution, stage_computed(execution, recipe, columns))
    with steps.step("plan_source", "looking at the source"):
        source, files = source_in_place(execution, recipe, columns)
    if source.bytes_in_memory > execution.limits.source_bytes:
        with steps.step("materialize_source", "decoding the source's files"):
            source = decoded(execution, source, files)
    with steps.step("plan_source", "looking at the source"):
        chosen = None if columns.needs_spark else with_chosen(execution, source)
    if chosen is not None:
        return chosen
    with steps.step("materialize_source", "materializing the source"), computing:
        return _are_there(execution, with_computed(execution, recipe, source, files))


def _are_there(execution: Execution, staged: StagedSource) -> StagedSource:
    check_there(execution, (*staged.rows.files, *staged.rows.computed))
    return staged
