"""Streams: each batch of a query merged exactly once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, SparkSession

from deltamerge.api.report import MergeReport
from deltamerge.exceptions import DeltaIllegalArgumentException
from deltamerge.recipes.targets import Target, place_of_target
from deltamerge.recipes.upsert import Written, upsert
from deltamerge.spark.session import is_connect
from deltamerge.storage.credentials import StoreOptions

_QUERY_ID = "sql.streaming.queryId"
# Spark's local properties are those of the query's thread, which ends with this run of the query.
_MERGED = "deltamerge.streaming.merged"


def upsert_into(
    target: Target,
    keys: str | Sequence[str],
    *,
    update: Written = True,
    insert: Written = True,
    delete_when: str | Column | None = None,
    order_by: str | Sequence[str] = (),
    null_safe: bool = True,
    ignore_nulls: bool = False,
    skip_unchanged: bool = False,
    schema_evolution: bool = False,
    quarantine: str | None = None,
    options: StoreOptions | None = None,
    app_id: str | None = None,
    on_report: Callable[[MergeReport], None] | None = None,
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that upserts each batch of a stream exactly once.

    A query that fails and starts again from its checkpoint runs its last batch again. The table remembers the last
    batch of each application that it has, and a batch that it has does nothing.

    Args:
        target: The table: a `DeltaTable`, a path (a string with a slash), or a name in the catalog.
        keys: The columns, of both sides, that identify a row.
        update: What a known row gets; see `deltamerge.upsert` for this and the following.
        insert: What a new row gets.
        delete_when: A condition over the source's row: a known row is deleted where it holds, a new one is left out.
        order_by: Source columns: of several rows with one key the latest is taken, and none older than the target's.
        null_safe: Whether NULL keys are equal to each other.
        ignore_nulls: Whether NULL in the source leaves the target's value as it is.
        skip_unchanged: Whether a row that would get the values that it has is not written.
        schema_evolution: Whether the target gets the source's columns that it lacks.
        quarantine: A path or a name of a table for the rows that the target cannot take.
        options: The options of the object store.
        app_id: The application's name in the table's log. By default it comes from the query's id, which the checkpoint
            keeps: a query with a new checkpoint is another application. Of several `upsert_into` of one query into one
            table each needs a name of its own. Over Spark Connect it is required.
        on_report: Called with the report of each batch's merge.

    Returns:
        The function, of a batch and its number.

    Raises:
        DeltaIllegalArgumentException: When a batch is run: the query's id is not known, and there is no `app_id`; or
            the batch has been merged into the table under this application's name before, in the same run of the query.
    """

    def merge_batch(batch: DataFrame, batch_id: int) -> None:
        spark = batch.sparkSession
        name = app_id or f"deltamerge-stream-{query_id(spark)}"
        place = place_of_target(spark, target, options)
        merged = f"{_MERGED}.{name}.{place.open().table.store.absolute('')}"
        refuse_second_merge(spark, merged, batch_id, name, place.name)
        report = upsert(
            target,
            batch,
            keys,
            update=update,
            insert=insert,
            delete_when=delete_when,
            order_by=order_by,
            null_safe=null_safe,
            ignore_nulls=ignore_nulls,
            skip_unchanged=skip_unchanged,
            schema_evolution=schema_evolution,
            quarantine=quarantine,
            options=options,
            txn_app_id=name,
            txn_version=batch_id,
        )
        if on_report is not None:
            on_report(report)
        if runs_in_query(spark):
            spark.sparkContext.setLocalProperty(merged, str(batch_id))

    return merge_batch


def runs_in_query(spark: SparkSession) -> bool:
    """Return whether this thread runs a batch of a query; over Spark Connect that is not known."""
    return not is_connect(spark) and spark.sparkContext.getLocalProperty(_QUERY_ID) is not None


def refuse_second_merge(spark: SparkSession, merged: str, batch_id: int, app_id: str, table: str) -> None:
    """Refuse another merge of a batch into a table, which would pass for the first one run again and be left out.

    Args:
        merged: The local property that has the batch that this run of the query has merged last.
    """
    if runs_in_query(spark) and spark.sparkContext.getLocalProperty(merged) == str(batch_id):
        raise DeltaIllegalArgumentException(
            "DELTA_ILLEGAL_OPTION",
            f"Batch {batch_id} of this stream was merged into {table} before, by another upsert_into with the "
            f"application id {app_id}: this second merge would be taken for the first one run again, and its rows "
            "would be left out. Give each upsert_into into one table an `app_id` of its own.",
            parameters={"name": "app_id"},
        )


def query_id(spark: SparkSession) -> str:
    """Return the id of the streaming query whose batch this thread runs; the query's checkpoint keeps it."""
    found = None if is_connect(spark) else spark.sparkContext.getLocalProperty(_QUERY_ID)
    if found is None:
        raise DeltaIllegalArgumentException(
            "DELTA_ILLEGAL_OPTION",
            "The stream's id is not known here, so a repeated batch could not be recognized. Give upsert_into an "
            "`app_id`, a different one for each checkpoint.",
            parameters={"name": "app_id"},
        )
    return found
