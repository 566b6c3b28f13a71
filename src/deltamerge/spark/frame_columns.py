"""Columns that a DataFrame was asked for, such as ``df["id"]``, as columns by name.

Such a column is bound to its frame, and a merge reads its sides through frames of its own. Classic Spark binds by the
attribute's ``exprId``, Connect by the frame's plan id.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.spark import columns as F
from deltamerge.spark.column_nodes import ColumnNodes
from deltamerge.spark.session import frame_of_plan, is_connect
from deltamerge.sql.merge_ast import NameParts
from deltamerge.sql.names import parse_name, parse_table_name, quote_name
from deltamerge.sql.qualifiers import Renaming, rename_columns
from deltamerge.sql.relations import folded

_Renamed: TypeAlias = Callable[[NameParts], Column | None]
_Rewritten: TypeAlias = Callable[[str], Column | None]

_BOUND = "ExpressionColumnNode("
# Plan nodes whose columns keep the qualifiers they had below, by their names in Spark's plans and in Connect's.
_KEEPS_QUALIFIERS = {
    "Deduplicate", "Filter", "GlobalLimit", "Hint", "Limit", "LocalLimit", "Offset", "Repartition",
    "RepartitionByExpression", "ResolvedHint", "Sample", "Sort", "Tail",
}  # fmt: skip


@dataclass(frozen=True)
class FrameSide:
    """Frames whose columns are those of one side.

    Args:
        qualifier: The alias that a column by name gets; None for none.
        names: The whole names of the first frame's first columns, where they are not their own with the qualifier.
    """

    frames: tuple[DataFrame, ...]
    qualifier: str | None
    names: tuple[NameParts, ...] = ()


def is_bound(column: Column) -> bool:
    """Return whether a Column contains one that a frame was asked for."""
    java: Any = getattr(column, "_jc", None)
    if java is not None:
        return _BOUND in java.node().toString()
    return bool(_references(_expression(column)))


def with_table_name(frame: DataFrame, name: Sequence[str]) -> DataFrame:
    """Return a table's frame whose columns its name may qualify: all parts of it, or over Connect the last one."""
    spark = frame.sparkSession
    if is_connect(spark) or len(name) == 1:
        return frame.alias(name[-1])
    jvm: Any = spark.sparkContext._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    identifier = catalyst.AliasIdentifier(name[-1], jvm.PythonUtils.toSeq(list(name[:-1])))
    java: Any = frame._jdf.queryExecution().analyzed()
    return frame_of_plan(catalyst.plans.logical.SubqueryAlias(identifier, java), spark)


def name_of(frame: DataFrame) -> NameParts:
    """Return the name that may qualify all columns of a frame: its alias, table or view; no parts for none."""
    plan: Any = getattr(frame, "_plan", None)
    if plan is not None:
        return _name_of_connect_plan(plan)
    logical: Any = frame._jdf.queryExecution().analyzed()
    while logical.nodeName() in _KEEPS_QUALIFIERS:
        logical = logical.children().head()
    if logical.nodeName() != "SubqueryAlias":
        return ()
    qualifier = logical.identifier().qualifier()
    return (*(str(qualifier.apply(i)) for i in range(qualifier.size())), str(logical.alias()))


def _name_of_connect_plan(node: object) -> NameParts:
    plan: Any = node
    while type(plan).__name__ in _KEEPS_QUALIFIERS and getattr(plan, "_child", None) is not None:
        plan = plan._child
    if type(plan).__name__ == "SubqueryAlias":
        return (str(plan._alias),)
    return parse_table_name(plan.table_name) if type(plan).__name__ == "Read" else ()


def columns_by_name(spark: SparkSession, sides: Sequence[FrameSide]) -> Callable[[Column], Column]:
    """Return a function that replaces columns of the sides' frames by names; others stay as they are.

    Raises:
        DeltaAnalysisException: The function was given a column that is of several sides' frames.
        AnalysisException: Over Connect it was given a column that its side's frame has no longer.
    """
    return _by_plan_id(sides) if is_connect(spark) else _by_expr_id(spark, sides)


def with_other_names(spark: SparkSession, renaming: Renaming) -> Callable[[Column], Column]:
    """Return a function that renames the columns which a Column names, as in ``col("db.tbl.id")``."""

    def renamed(parts: NameParts) -> Column | None:
        others, length = renaming(folded(parts), len(parts) - 1)
        return F.col(quote_name((*others, *parts[length:]))) if others else None

    def rewritten(sql: str) -> Column | None:
        text = rename_columns(sql, renaming)
        return None if text == sql else F.expr(text)

    return _by_aliases_of_connect(renamed, rewritten) if is_connect(spark) else _by_aliases(spark, renamed, rewritten)


def _only(name: str, found: Sequence[FrameSide]) -> FrameSide | None:
    """Return the side that has a column; None where none has it."""
    if len(found) > 1:
        raise DeltaAnalysisException(
            "AMBIGUOUS_REFERENCE",
            f"Column {name} is ambiguous: the source was made of the frame of the target that it was taken from. Give "
            "both sides an alias, and name the column by it.",
            parameters={"name": name},
        )
    return found[0] if found else None


# Classic Spark


def _identified(frame: DataFrame) -> list[tuple[str, str]]:
    """Return the expression ids of a frame's columns, and how their qualifiers print."""
    java: Any = frame._jdf.queryExecution().analyzed().output()
    output = [java.apply(i) for i in range(java.size())]
    return [(str(each.exprId().toString()), str(each.qualifier().toString())) for each in output]


def _names_by_id(side: FrameSide) -> dict[str, NameParts]:
    ids = [expr_id for expr_id, _ in _identified(side.frames[0])][: len(side.names)]
    # The first of equal columns stands for all.
    return dict(zip(reversed(ids), reversed(side.names), strict=True))


def _by_expr_id(spark: SparkSession, sides: Sequence[FrameSide]) -> Callable[[Column], Column]:
    # A source that was made of the target's frame has its expression ids, perhaps by another alias.
    owners: dict[str, dict[FrameSide, set[str]]] = {}
    for side in sides:
        for expr_id, qualifier in chain.from_iterable(map(_identified, side.frames)):
            owners.setdefault(expr_id, {}).setdefault(side, set()).add(qualifier)
    names = {side: _names_by_id(side) for side in sides if side.names}

    def change(node: Any) -> Any:  # noqa: ANN401
        printed = node.toString()
        if _BOUND not in printed:
            return node
        if not printed.startswith(_BOUND):
            return None
        parts = parts_of(node.expression())
        named: Any = None if parts is None else F.col(quote_name(parts))
        return node if named is None else named._jc.node()

    def parts_of(expression: Any) -> tuple[str, ...] | None:  # noqa: ANN401
        kind = expression.nodeName()
        if kind == "Alias":
            return parts_of(expression.child())
        if kind == "GetStructField":
            parts = parts_of(expression.child())
            return None if parts is None else (*parts, str(expression.extractFieldName()))
        if kind != "AttributeReference":
            return None
        name, expr_id = str(expression.name()), str(expression.exprId().toString())
        found, qualifier = owners.get(expr_id, {}), str(expression.qualifier().toString())
        side = _only(name, [each for each, known in found.items() if qualifier in known] or list(found))
        if side is None:
            return None
        by_name = (name,) if side.qualifier is None else (side.qualifier, name)
        return names[side].get(expr_id, by_name) if side in names else by_name

    return ColumnNodes(spark, change).column


def _by_aliases(spark: SparkSession, renamed: _Renamed, rewritten: _Rewritten) -> Callable[[Column], Column]:
    def change(node: Any) -> Any:  # noqa: ANN401
        kind = node.getClass().getSimpleName()
        if kind == "UnresolvedAttribute":
            name = node.productElement(0)  # Spark 4.0 has it as it was written.
            parts = parse_name(name) if isinstance(name, str) else tuple(name.apply(i) for i in range(name.size()))
            column: Any = renamed(parts)
        elif kind == "SqlExpression":
            column = rewritten(node.productElement(0))
        else:
            return None
        return node if column is None else column._jc.node()

    return ColumnNodes(spark, change).column


# Spark Connect


def _expression(column: Column) -> Any:  # noqa: ANN401
    connect: Any = column
    return connect._expr


def _is_of(module: str, value: object) -> bool:
    # A Column has every attribute: they are names of fields.
    return type(value).__module__ == f"pyspark.sql.connect.{module}"


def _references(value: object) -> list[Any]:
    """Return the bound references in an expression, or in what an expression is made of."""
    if isinstance(value, (list, tuple)):
        return [reference for part in value for reference in _references(part)]
    if not _is_of("expressions", value):
        return []
    if type(value).__name__ == "ColumnReference" and getattr(value, "_plan_id", None) is not None:
        return [value]
    return _references(list(vars(value).values()))


def _by_aliases_of_connect(renamed: _Renamed, rewritten: _Rewritten) -> Callable[[Column], Column]:
    def change(expression: Any) -> Any:  # noqa: ANN401
        column: Any = None
        if type(expression).__name__ == "ColumnReference" and getattr(expression, "_plan_id", None) is None:
            column = renamed(parse_name(expression._unparsed_identifier))
        elif type(expression).__name__ == "SQLExpression":
            column = rewritten(expression._expr)
        return None if column is None else column._expr

    return lambda column: type(column)(_replaced(_expression(column), change))


def _plan_ids(plan: object) -> set[int]:
    if isinstance(plan, (list, tuple)):
        return set().union(*map(_plan_ids, plan))
    if not _is_of("plan", plan):
        return set()
    own: Any = plan
    return {own._plan_id, *_plan_ids(list(vars(plan).values()))}


def _by_plan_id(sides: Sequence[FrameSide]) -> Callable[[Column], Column]:
    owners: dict[int, list[FrameSide]] = {}
    frames: dict[int, DataFrame] = {}
    for side in sides:
        for frame in side.frames:
            plan: Any = frame
            for plan_id in _plan_ids(plan._plan):
                frames.setdefault(plan_id, frame)
                if side not in owners.setdefault(plan_id, []):
                    owners[plan_id].append(side)

    def named(column: Column) -> Column:
        made: Any = type(column)
        names: dict[int, Any] = {}
        for reference in _references(_expression(column)):
            side = _only(reference._unparsed_identifier, owners.get(reference._plan_id, []))
            if side is not None:
                # Spark knows whether the frame still has the column, or another one of its name.
                _ = frames[reference._plan_id].select(made(reference)).schema
                parts = parse_name(reference._unparsed_identifier)
                qualified: Any = F.col(quote_name(parts if side.qualifier is None else (side.qualifier, *parts)))
                names[id(reference)] = qualified._expr
        result: Column = made(_replaced(_expression(column), lambda each: names.get(id(each)))) if names else column
        return result

    return named


def _replaced(value: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """Return an expression, or what one is made of, with other ones for those for which `change` has one."""
    if isinstance(value, (list, tuple)):
        return type(value)(_replaced(part, change) for part in value)
    if not _is_of("expressions", value):
        return value
    changed = change(value)
    if changed is not None:
        return changed
    made = copy.copy(value)
    vars(made).update({name: _replaced(part, change) for name, part in vars(value).items()})
    return made
