"""Trees of Spark's ``ColumnNode``, of which classic Columns are made, with other nodes in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import Column, SparkSession


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
