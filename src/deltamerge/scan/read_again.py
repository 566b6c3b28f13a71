"""Frames that follow their tables: what one has read as a table's newest version is read again within its plan.

A frame of Spark keeps the files that it was made from. delta-spark's frames list them anew whenever they are used; here
a merge or a write does so for the table that it changes.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from py4j.java_gateway import JavaObject as JavaInstance
from py4j.java_gateway import is_instance_of
from pyspark.sql.types import StructType

from deltamerge.scan.newest_reads import NEWEST, NewestRead, tag, tag_in
from deltamerge.scan.relation import newest_frame
from deltamerge.scan.table_reads import each_of, versions_read
from deltamerge.spark.nested_types import as_nullable
from deltamerge.spark.session import frame_of_plan, is_connect
from deltamerge.spark.table import open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltamerge.log.snapshot import Snapshot
    from deltamerge.spark.table import Table

JavaObject: TypeAlias = Any

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"


def read_again(frame: DataFrame, table: Table, snapshot: Snapshot, *, has_all_columns: bool = True) -> DataFrame:
    """Return a frame with what it has read as a table's newest version read at another one.

    What has other columns since stays, and over Connect so does what a query of SQL has read.

    Args:
        has_all_columns: Whether a read that lacks columns which the table got since stays, too: rows that are written
            back would lose them. Over Connect it always does.
    """
    if min(versions_read(frame, table, snapshot), default=snapshot.version) == snapshot.version:
        return frame
    if is_connect(frame.sparkSession):
        connect: Any = frame
        plan = _ConnectPlans(table, snapshot).of(connect._plan)
        return frame if plan is None else type(connect)(plan, connect.sparkSession)
    plan = _plan(frame._jdf.queryExecution().analyzed(), table, snapshot, has_all_columns)
    return frame if plan is None else frame_of_plan(plan, frame.sparkSession)


def read_newest(frame: DataFrame, reads: Sequence[NewestRead]) -> DataFrame:
    """Return a frame with its reads at the tables' newest versions; the frame itself where it has these."""
    for root in dict.fromkeys(read.root for read in reads):
        table = open_table(frame.sparkSession, root)
        snapshot = table.snapshot()
        # The frame's plan is looked at only where there is something new.
        if any(read.root == root and read.version < snapshot.version for read in reads):
            frame = read_again(frame, table, snapshot, has_all_columns=False)
    return frame


def _is_older(found: NewestRead, table: Table, snapshot: Snapshot) -> bool:
    return found.version < snapshot.version and bool(found.columns) and found.is_of(table, snapshot)


def _plan(plan: JavaObject, table: Table, snapshot: Snapshot, has_all_columns: bool) -> JavaObject | None:
    """Return a classic frame's plan with newer reads; None where nothing changes."""
    found = tag_in(plan, table.spark)
    if found is not None:
        stays = has_all_columns and found.columns != NewestRead.of(table, snapshot).columns
        return None if stays or not _is_older(found, table, snapshot) else _in_place_of(plan, table, snapshot)
    with_children = _with_children(plan, lambda child: _plan(child, table, snapshot, has_all_columns), table.spark)
    if plan.subqueries().isEmpty():
        return with_children
    rewritten = _SubqueryPlans(table.spark, lambda query: _plan(query, table, snapshot, has_all_columns))
    with_queries = rewritten.of_node(plan if with_children is None else with_children)
    return with_children if with_queries is None else with_queries


def _with_children(
    node: JavaObject, change: Callable[[JavaObject], JavaObject | None], spark: SparkSession
) -> JavaObject | None:
    children = list(each_of(node.children()))
    changed = [change(child) for child in children]
    if all(child is None for child in changed):
        return None
    kept = [old if new is None else new for old, new in zip(children, changed, strict=True)]
    return node.withNewChildren(_seq(spark, kept))


@dataclass(frozen=True)
class _SubqueryPlans:
    """Puts other plans into subqueries, such as those of ``id IN (SELECT …)``.

    Args:
        change: Returns the plan in the place of a subquery's; None where it stays.
    """

    spark: SparkSession
    change: Callable[[JavaObject], JavaObject | None]

    def of_node(self, plan: JavaObject) -> JavaObject | None:
        """Return a node of a plan with other subqueries in its own expressions; None where nothing changes."""
        arguments = [plan.productElement(index) for index in range(plan.productArity())]
        changed = [self._of_argument(argument) for argument in arguments]
        if all(each is None for each in changed):
            return None
        jvm: Any = self.spark.sparkContext._jvm
        context: Any = self.spark.sparkContext
        made = context._gateway.new_array(jvm.java.lang.Object, len(arguments))
        for index, (old, new) in enumerate(zip(arguments, changed, strict=True)):
            made[index] = old if new is None else new
        return plan.makeCopy(made)

    def _of_argument(self, argument: JavaObject) -> JavaObject | None:
        jvm: Any = self.spark.sparkContext._jvm
        if self._is(argument, f"{_EXPRESSIONS}.Expression"):
            return self._of_expression(argument)
        if self._is(argument, "scala.Some"):
            found = self._of_argument(argument.get())
            return None if found is None else jvm.scala.Some(found)
        if not self._is(argument, "scala.collection.immutable.Seq"):
            return None
        parts = list(each_of(argument))
        changed = [self._of_argument(part) for part in parts]
        if all(each is None for each in changed):
            return None
        return _seq(self.spark, [old if new is None else new for old, new in zip(parts, changed, strict=True)])

    def _of_expression(self, expression: JavaObject) -> JavaObject | None:
        if self._is(expression, f"{_EXPRESSIONS}.SubqueryExpression"):
            found = self.change(expression.plan())
            return None if found is None else expression.withNewPlan(found)
        return _with_children(expression, self._of_expression, self.spark)

    def _is(self, value: JavaObject, name: str) -> bool:
        context: Any = self.spark.sparkContext
        return isinstance(value, JavaInstance) and bool(is_instance_of(context._gateway, value, name))


def _in_place_of(plan: JavaObject, table: Table, snapshot: Snapshot) -> JavaObject | None:
    """Return a read that has the columns of another one under their ids, by which all above it knows them.

    None where a column is gone or another one, and where a query has asked the read for its files' metadata, too.
    """
    spark = table.spark
    jvm: Any = spark.sparkContext._jvm
    new = newest_frame(table, snapshot)._jdf.queryExecution().analyzed()
    before = list(each_of(plan.output()))
    by_column = dict(zip(_columns(new), each_of(new.output()), strict=True))
    columns_now = [by_column.get(column) for column in _columns(plan)]
    if None in columns_now:
        return None
    alias, some = getattr(jvm, f"{_EXPRESSIONS}.Alias"), jvm.scala.Some
    columns = [
        alias(to, of.name(), of.exprId(), of.qualifier(), some(of.metadata()), _seq(spark, []))
        for of, to in zip(before, columns_now, strict=True)
    ]
    found = jvm.org.apache.spark.sql.catalyst.plans.logical.Project(_seq(spark, columns), new)
    tag(found, spark, NewestRead.of(table, snapshot))
    return found


def _columns(plan: JavaObject) -> list[tuple[str, str, bool]]:
    """Return the name, the type and whether there may be NULL of each column: comments of its fields say nothing."""
    schema = StructType.fromJson(json.loads(plan.schema().json()))
    return [(f.name, as_nullable(f.dataType).json(), f.nullable) for f in schema.fields]


def _seq(spark: SparkSession, values: list[JavaObject]) -> JavaObject:
    jvm: Any = spark.sparkContext._jvm
    return jvm.PythonUtils.toSeq(values)


class _ConnectPlans:
    """Plans of Connect's client with newer reads of a table; some hold a plan of theirs twice."""

    def __init__(self, table: Table, snapshot: Snapshot) -> None:
        self._table, self._snapshot = table, snapshot
        # With the plan, whose number no other one gets as long as it is there.
        self._seen: dict[int, tuple[Any, Any]] = {}

    def of(self, plan: Any) -> Any:  # noqa: ANN401
        """Return a plan with newer reads; None where nothing changes."""
        if id(plan) not in self._seen:
            self._seen[id(plan)] = plan, self._changed(plan)
        return self._seen[id(plan)][1]

    def _changed(self, plan: Any) -> Any:  # noqa: ANN401
        mark = getattr(plan, NEWEST, None)
        if mark is not None:
            found = NewestRead.from_json(mark)
            has_columns = found.columns == NewestRead.of(self._table, self._snapshot).columns
            if not (has_columns and _is_older(found, self._table, self._snapshot)):
                return None
            new: Any = copy.copy(newest_frame(self._table, self._snapshot)._plan)
            # By these numbers columns name the frame that they are of.
            vars(new).update({name: value for name, value in vars(plan).items() if "plan_id" in name})
            return new
        changed = {name: new for name, value in vars(plan).items() if (new := self._in(value)) is not None}
        if not changed:
            return None
        new = copy.copy(plan)
        vars(new).update(changed)
        return new

    def _in(self, value: Any) -> Any:  # noqa: ANN401
        """Return what a plan holds with newer reads, one plan or several; None where nothing changes."""
        if isinstance(value, import_module("pyspark.sql.connect.plan").LogicalPlan):
            return self.of(value)
        if not isinstance(value, (list, tuple)):
            return None
        changed = [self._in(each) for each in value]
        if all(each is None for each in changed):
            return None
        return type(value)(old if new is None else new for old, new in zip(value, changed, strict=True))
