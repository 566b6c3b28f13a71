"""Columns of a library's own, made without what PySpark does for a user's lines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyspark.errors.utils as pyspark_errors

from deltamerge.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SWITCH = "_enable_debugging_cache"
# The names under which PySpark asks the JVM for its classes, each time that it makes a Column.
_CLASSES = ("functions", "org.apache.spark.sql.functions", "PythonUtils")


@contextmanager
def lean_columns(spark: SparkSession) -> Iterator[None]:
    """Makes Columns cheaper meanwhile: their call sites are not noted, and classes of the JVM are looked up once.

    For each Column PySpark walks the stack, looks for IPython and asks the JVM a dozen things, so that Spark's messages
    can show the user's line (`spark.python.sql.dataFrameDebugging.enabled`). The lines of Columns made here are not the
    user's. It also asks for the class of each function anew, for which the JVM searches all its JARs. In a small
    merge both took a third of the time. What the user made before keeps its call sites.

    Args:
        spark: The session; over Connect there are call sites alone.
    """
    jvm = None if is_connect(spark) else spark.sparkContext._jvm
    _LEAN.begin(jvm)
    try:
        yield
    finally:
        _LEAN.end()


class _Lean:
    """What is switched for as long as any thread wants it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._before: bool | None = None
        self._jvm: object = None

    def begin(self, jvm: object) -> None:
        with self._lock:
            if not self._holders:
                classes = (
                    {name: _JavaClass(getattr(jvm, name)) for name in _CLASSES} if jvm is not None else {}
                )
                self._before = getattr(pyspark_errors, _SWITCH, None)
                setattr(pyspark_errors, _SWITCH, False)
                self._jvm = jvm
                for name, java_class in classes.items():
                    setattr(jvm, name, java_class)
            self._holders += 1

    def end(self) -> None:
        with self._lock:
            self._holders -= 1
            if not self._holders:
                setattr(pyspark_errors, _SWITCH, self._before)
                for name in _CLASSES if self._jvm is not None else ():
                    delattr(self._jvm, name)
                self._jvm = None


class _JavaClass:
    """A class of the JVM that remembers its members."""

    def __init__(self, java_class: object) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> object:
        member: object = getattr(self._java_class, name)
        setattr(self, name, member)
        return member


_LEAN = _Lean()
