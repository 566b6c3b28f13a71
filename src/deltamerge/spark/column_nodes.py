"""Trees of Spark's ``ColumnNode``, of which classic Columns are made: what they refer to, and with other nodes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import Column, SparkSession

from deltamerge.exceptions import DeltaParseException
from deltamerge.sql.names import parse_name

_ATTRIBUTE = re.compile(r"UnresolvedAttribute\((?:[A-Z]\w*\(([^()]*)\)|([^(),]*)),")
# Words that a name prints like.
_CONSTANTS = frozenset({"true", "false", "null", "nan", "infinity"})


def is_built_on_subquery(column: Column) -> bool:
    """Return whether a classic Column contains ``DataFrame.scalar()``, ``exists()`` or ``isin(DataFrame)``.

    How such a Column prints does not show it; SQL inside of `expr` is not looked into. False for Columns of Connect,
    which `deltamerge.spark.column_trees` reads.
    """
    java: Any = getattr(column, "_jc", None)
    return java is not None and "SubqueryExpression(" in java.node().toString()


def has_users_functions(column: Column) -> bool:
    """Return whether a classic Column may call a function in Python, which prints as one of Spark's of its name."""
    java: Any = column._jc
    return "ExpressionColumnNode(" in java.node().toString()


def attribute_names(column: Column) -> list[tuple[str, ...]] | None:
    """Return the names that a classic Column refers to, but for those inside of `expr`; None where one is unusual.

    A Column prints a name as it is, so that ``col("0")`` prints like a number and ``col("a > 1")`` like a comparison.
    """
    java: Any = column._jc
    nodes = str(java.node().toString())
    found = [_parts(*match) for match in _ATTRIBUTE.findall(nodes)]
    names = [parts for parts in found if parts is not None and all(map(_is_plain, parts))]
    return names if len(names) == nodes.count("UnresolvedAttribute(") else None


def names_by_attributes(column: Column) -> list[tuple[str, ...]] | None:
    """Return all names that a Column refers to; None over Connect, and where SQL inside of `expr` may have others."""
    java: Any = getattr(column, "_jc", None)
    return None if java is None or "SqlExpression(" in str(java.node().toString()) else attribute_names(column)


def _parts(listed: str, name: str) -> tuple[str, ...] | None:
    """Split a name, which is printed as a list of its parts or, by Spark 4.0, as it was written."""
    if listed:
        return tuple(listed.split(", "))
    try:
        return parse_name(name)
    except DeltaParseException:
        return None


def _is_plain(part: str) -> bool:
    return part.replace(".", "_").isidentifier() and part.lower() not in _CONSTANTS


class ColumnNodes:
    """Rewrites trees; what has nothing to rewrite stays the same object.

    Args:
        change: Returns what is to be in the place of a node, or None to look at the nodes in it.
    """

    def __init__(self, spark: SparkSession, change: Callable[[Any], Any]) -> None:
        context: Any = spark.sparkContext
        self._gateway, self._jvm = context._gateway, context._jvm
        self._change = change
        classes = self._jvm.java.lang.Class
        self._node = classes.forName("org.apache.spark.sql.internal.ColumnNode")
        self._sequence = classes.forName("scala.collection.Seq")
        self._some = classes.forName("scala.Some")
        self._pair = classes.forName("scala.Tuple2")

    def column(self, column: Column) -> Column:
        given: Any = column
        node = given._jc.node()
        made = self._rewritten(node)
        found: Column = given if made is node else type(given)(self._jvm.org.apache.spark.sql.Column(made))
        return found

    def _rewritten(self, node: Any) -> Any:  # noqa: ANN401
        changed = self._change(node)
        if changed is not None:
            return changed
        values = [node.productElement(index) for index in range(node.productArity())]
        parts = self._parts(values)
        if parts is values:
            return node
        # A node is a case class: its values are the arguments of its constructor.
        arguments = self._gateway.new_array(self._jvm.java.lang.Object, len(parts))
        for index, part in enumerate(parts):
            arguments[index] = part
        return node.getClass().getConstructors()[0].newInstance(arguments)

    def _parts(self, values: list[Any]) -> list[Any]:
        found = [self._part(value) for value in values]
        return values if all(one is other for one, other in zip(values, found, strict=True)) else found

    def _part(self, value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, JavaObject):
            return value
        if self._node.isInstance(value):
            return self._rewritten(value)
        if self._some.isInstance(value):
            values = [value.get()]
            parts = self._parts(values)
            return value if parts is values else self._jvm.scala.Some(*parts)
        if self._pair.isInstance(value):
            values = [value._1(), value._2()]
            parts = self._parts(values)
            return value if parts is values else self._jvm.scala.Tuple2(*parts)
        if self._sequence.isInstance(value):
            values = [value.apply(index) for index in range(value.size())]
            parts = self._parts(values)
            return value if parts is values else self._jvm.PythonUtils.toSeq(parts).toList()
        return value
