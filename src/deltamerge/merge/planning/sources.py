"""Which way of reading the source fits, for a way of finding the matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltamerge.merge.analysis.join_keys import PlainKeys
from deltamerge.merge.output.identity_columns import generated_identities
from deltamerge.merge.planning.context import PlanningContext
from deltamerge.merge.planning.fit import Fits, Operator, always, no, yes


def in_place(context: PlanningContext, _: str) -> Fits:
    """PyArrow reads the Parquet files of the source."""
    if context.conf.materialize_source == "all":
        return no("spark.databricks.delta.merge.materializeSource is all")
    if isinstance(context.plain_keys, PlainKeys) and context.plain_keys.are_computed:
        return no("ON compares a key with an expression, which Spark computes of the source's rows")
    return yes("the source is nothing but Parquet files, which PyArrow reads")


def read_once(context: PlanningContext, _: str) -> Fits:
    """The source is read in one pass and not kept."""
    if _must_keep(context):
        return no("identity columns take their values from the source's rows, which must be the same at each read")
    if context.conf.materialize_source == "none":
        return yes("spark.databricks.delta.merge.materializeSource is none")
    if context.conf.materialize_source == "all":
        return no("spark.databricks.delta.merge.materializeSource is all")
    if any(alternative.choice == "checkpoint" for alternative in context.declined):
        return yes("the session keeps no rows, and one pass over the source is enough")
    most = context.limits.broadcast_target_bytes
    if context.summary is None and context.files.size_in_bytes <= most:
        return yes("the target is small enough to be sent to every executor, so one pass over the source is enough")
    return no("the target is not small, and the source's keys say which of its files are read")


def checkpoint(context: PlanningContext, _: str) -> Fits:
    """Spark keeps the source's rows for all later reads."""
    if context.conf.materialize_source == "none" and not _must_keep(context):
        return no("spark.databricks.delta.merge.materializeSource is none")
    return yes("the source is read more than once, so Spark keeps its rows")


def recomputed(context: PlanningContext, _: str) -> Fits:
    """The source is computed each time that it is read."""
    if context.conf.materialize_source != "none" or _must_keep(context):
        return no(
            "the source is to be kept; if it returns the same rows each time that it is read, set "
            "spark.databricks.delta.merge.materializeSource to none"
        )
    return yes("spark.databricks.delta.merge.materializeSource is none")


def _must_keep(context: PlanningContext) -> bool:
    return bool(generated_identities(context.merge))


_STAGED = always("Spark computes the source once; its rows are staged in Arrow files for the lookup")
_NONE: Operator = ("none", always("the statement has no source"))


def operators(context: PlanningContext, match: str) -> Sequence[Operator]:
    return OPERATORS[match] if context.merge.statement.has_source else (_NONE,)


OPERATORS: Mapping[str, Sequence[Operator]] = {
    "key_lookup": (("in_place", in_place), ("staged", _STAGED)),
    "anti_join": (("read_once", read_once), ("checkpoint", checkpoint)),
    "join": (("checkpoint", checkpoint),),
    "join_files": (("checkpoint", checkpoint), ("recomputed", recomputed)),
    "whole_files": (_NONE,),
}
"""By the way of finding the matches."""
