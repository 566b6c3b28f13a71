"""``current_timestamp()`` and its like inside of Columns, classic ones and those of Spark Connect."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from pyspark.sql import Column, SparkSession

from deltamerge.spark import columns as F

_EXPRESSION = "spark.connect.Expression"


def with_fixed_time(spark: SparkSession, column: Column, fixed: Callable[[str], str]) -> Column:
    """Return a Column in which the functions of the current time are replaced; the same one where it has none.

    Args:
        fixed: Replaces such functions in SQL; returns SQL without any unchanged.
    """
    given: Any = column
    if hasattr(given, "_jc"):
        jvm: Any = spark._jvm
        node = given._jc.node()
        made = _ClassicNodes(jvm, type(node), fixed).node(node)
        rewritten: Column = given if made is node else type(given)(jvm.org.apache.spark.sql.Column(made))
        return rewritten
    expression = copy(given._expr)

    def to_plan(session: Any) -> Any:  # noqa: ANN401
        message = given._expr.to_plan(session)
        _fix_message(message, fixed)
        return message

    expression.to_plan = to_plan
    sent: Column = type(given)(expression)
    return sent


class _ClassicNodes:
    """Rewrites a tree of Spark's ``ColumnNode``; nodes without anything to rewrite stay the same objects."""

    def __init__(self, jvm: Any, java_object: Any, fixed: Callable[[str], str]) -> None:  # noqa: ANN401
        self._jvm = jvm
        self._java_object = java_object
        self._fixed = fixed
        classes = jvm.java.lang.Class
        self._node = classes.forName("org.apache.spark.sql.internal.ColumnNode")
        self._sequence = classes.forName("scala.collection.Seq")
        self._some = classes.forName("scala.Some")
        self._pair = classes.forName("scala.Tuple2")

    def node(self, node: Any) -> Any:  # noqa: ANN401
        sql = self._sql(node)
        if sql is not None:
            made = self._fixed(sql)
            if made == sql:
                return node
            expression: Any = F.expr(made)
            return expression._jc.node()
        values = [node.productElement(index) for index in range(node.productArity())]
        fixed = [self._value(value) for value in values]
        return node if _same(values, fixed) else node.copy(*fixed)

    def _sql(self, node: Any) -> str | None:  # noqa: ANN401
        """Return the SQL of a function without arguments or of what `expr` was given; None for other nodes."""
        kind = node.getClass().getSimpleName()
        if kind == "UnresolvedFunction" and node.arguments().isEmpty():
            return f"{node.functionName()}()"
        return str(node.expression()) if kind == "SqlExpression" else None

    def _value(self, value: Any) -> Any:  # noqa: ANN401
        if type(value) is not self._java_object:
            return value
        if self._node.isInstance(value):
            return self.node(value)
        if self._some.isInstance(value):
            inner = value.get()
            made = self._value(inner)
            return value if made is inner else self._jvm.scala.Some(made)
        if self._pair.isInstance(value):
            parts = [value._1(), value._2()]
            both = [self._value(part) for part in parts]
            return value if _same(parts, both) else self._jvm.scala.Tuple2(*both)
        if self._sequence.isInstance(value):
            items = [value.apply(index) for index in range(value.size())]
            all_of_them = [self._value(item) for item in items]
            if _same(items, all_of_them):
                return value
            java = self._jvm.java.util.ArrayList()
            for item in all_of_them:
                java.add(item)
            return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(java)
        return value


def _same(before: list[Any], after: list[Any]) -> bool:
    return all(one is other for one, other in zip(before, after, strict=True))


def _fix_message(message: Any, fixed: Callable[[str], str]) -> None:  # noqa: ANN401
    """Rewrite a message of Spark Connect, and all expressions in it."""
    if message.DESCRIPTOR.full_name == _EXPRESSION:
        kind = message.WhichOneof("expr_type")
        called = message.unresolved_function if kind == "unresolved_function" else None
        sql = None
        if called is not None and not called.arguments and not called.is_user_defined_function:
            sql = f"{called.function_name}()"
        elif kind == "expression_string":
            sql = message.expression_string.expression
        if sql is not None:
            made = fixed(sql)
            if made != sql:
                message.expression_string.expression = made
            return
    for _, value in message.ListFields():
        many = hasattr(value, "__len__") and not isinstance(value, (str, bytes))
        for part in value if many else (value,):
            if hasattr(part, "ListFields"):
                _fix_message(part, fixed)
