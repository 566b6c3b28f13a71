"""Which table a temporary view shows: all of its rows and columns, so that a statement may change it by the view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from deltamerge.scan.newest_reads import NewestRead, tag_in
from deltamerge.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JavaObject: TypeAlias = Any

_SAME_ROWS = ("SubqueryAlias", "View")


def table_of_view(view: DataFrame) -> NewestRead | None:
    """Return the table that a view is the whole of; None where it is something else, and over Spark Connect."""
    spark = view.sparkSession
    if is_connect(spark):
        return None
    plan: JavaObject = view._jdf.queryExecution().analyzed()
    while (read := tag_in(plan, spark)) is None:
        if plan.nodeName() not in _SAME_ROWS and not _keeps_columns(plan):
            return None
        plan = plan.children().head()
    return read


def _keeps_columns(plan: JavaObject) -> bool:
    """Return whether a plan only hands on the columns of the one below it."""
    if plan.nodeName() != "Project" or plan.children().size() != 1:
        return False
    columns, below = plan.projectList(), plan.children().head().output()
    names = [columns.apply(i) for i in range(columns.size())]
    are_columns = all(each.nodeName() in ("AttributeReference", "Alias") for each in names)
    is_plain = all(each.nodeName() != "Alias" or each.child().nodeName() == "AttributeReference" for each in names)
    same = [str(each.name()) for each in names] == [str(below.apply(i).name()) for i in range(below.size())]
    if not (are_columns and is_plain and same):
        return False
    sources = [each if each.nodeName() == "AttributeReference" else each.child() for each in names]
    return [str(each.name()) for each in sources] == [str(each.name()) for each in names]
