"""``pyspark.sql.functions``, for Columns that do not record call sites.

For each operation on a classic Column PySpark walks the stack and sends the JVM some ten requests, so that Spark's
messages can name the user's line (``spark.python.sql.dataFrameDebugging.enabled``, read once in a process). The lines
of this library are not the user's. Columns made here have PySpark's methods without that, and so has all that these
return; `untraced` converts others. Users' Columns stay as they are, and over Spark Connect PySpark's functions serve.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, functions
from pyspark.sql.utils import get_active_spark_context, is_remote

if TYPE_CHECKING:
    from pyspark.sql.functions import *  # noqa: F403

_DIRECT = ("col", "expr", "lit")
# Other arguments PySpark converts first.
_AS_THEY_ARE = (str, int, float, bool, type(None))


def untraced(column: Column) -> Column:
    """Return a Column whose methods do not record call sites."""
    found: Column = _untraced(column)
    return found


def _untraced(made: Any) -> Any:  # noqa: ANN401
    kind: Any = type(made)
    return _derived(kind)(made._jc) if kind.__module__ == "pyspark.sql.classic.column" else made


@cache
def _derived(base: type[Column]) -> type[Column]:
    """Derive a class from PySpark's, of the methods below its decorator."""

    def method(original: Callable[..., object]) -> Callable[..., object]:
        return wraps(original)(lambda self, *args, **kwargs: _untraced(original(self, *args, **kwargs)))

    def swapped(original: Callable[..., object]) -> Callable[..., object]:
        # Python asks the right operand first where its class is derived from the left one's.
        return lambda self, other: original(_function("lit")(other), self)

    methods = {
        name: method(member.__wrapped__) for name, member in vars(base).items() if hasattr(member, "__wrapped__")
    }
    reflected = {name: swapped(methods["__" + name[3:]]) for name in methods if name.startswith("__r")}
    return type("UntracedColumn", (base,), {**methods, **reflected})


def as_column(expression: str | Column) -> Column:
    """Return an expression, SQL or a Column, as a Column."""
    found: Column = _function("expr")(expression) if isinstance(expression, str) else expression
    return found


@cache
def _java_function(jvm: Any, name: str) -> Any:  # noqa: ANN401
    return getattr(getattr(jvm, "org.apache.spark.sql.functions"), name)


@cache
def _function(name: str) -> Callable[..., Any]:
    original = getattr(functions, name)

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if name in _DIRECT and len(args) == 1 and type(args[0]) in _AS_THEY_ARE and not is_remote():
            function = _java_function(get_active_spark_context()._jvm, name)
            return _untraced(Column(function(args[0])))
        return _untraced(original(*args, **kwargs))

    return call


if not TYPE_CHECKING:
    __getattr__ = _function
