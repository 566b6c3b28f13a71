"""``current_timestamp()`` and its like inside of Columns, classic ones and those of Spark Connect."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from pyspark.sql import Column, SparkSession

from deltamerge.spark import columns as F
from deltamerge.spark.column_nodes import ColumnNodes

_EXPRESSION = "spark.connect.Expression"


def with_fixed_time(spark: SparkSession, column: Column, fixed: Callable[[str], str]) -> Column:
    """Return a Column in which the functions of the current time are replaced; the same one where it has none.

    Args:
        fixed: Replaces such functions in SQL; returns SQL without any unchanged.
    """
    given: Any = column
    if hasattr(given, "_jc"):

        def change(node: Any) -> Any:  # noqa: ANN401
            sql = _sql(node)
            if sql is None:
                return None
            made = fixed(sql)
            if made == sql:
                return node
            expression: Any = F.expr(made)
            return expression._jc.node()

        return ColumnNodes(spark, change).column(column)
    expression = copy(given._expr)

    def to_plan(session: Any) -> Any:  # noqa: ANN401
        message = given._expr.to_plan(session)
        _fix_message(message, fixed)
        return message

    expression.to_plan = to_plan
    sent: Column = type(given)(expression)
    return sent


def _sql(node: Any) -> str | None:  # noqa: ANN401
    """Return the SQL of a function without arguments or of what `expr` was given; None for other nodes."""
    kind = node.getClass().getSimpleName()
    if kind == "UnresolvedFunction" and node.arguments().isEmpty():
        return f"{node.functionName()}()"
    return str(node.expression()) if kind == "SqlExpression" else None


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
