"""delta-spark's module names for this package, so that libraries which import ``delta.tables`` run unchanged."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from pyspark.sql import SparkSession

from deltamerge import exceptions, tables

# The release of delta-spark whose API this is.
_VERSION = "4.4.0"


def install_as_delta() -> None:
    """Let ``import delta``, ``delta.tables`` and ``delta.exceptions`` mean this package, in this process.

    Call it before anything imports these names. Nothing is installed on disk.

    Raises:
        ImportError: delta-spark's own package is imported already.
    """
    present = sys.modules.get("delta")
    if present is not None:
        if getattr(present, "DeltaTable", None) is tables.DeltaTable:
            return
        raise ImportError(
            "the package delta is imported already: call deltamerge.install_as_delta() before anything imports it"
        )
    delta = ModuleType("delta", "delta-spark's names, from deltamerge.")
    delta.__path__ = []
    # importlib.util.find_spec refuses a module that is imported and has none.
    delta.__spec__ = ModuleSpec("delta", None, is_package=True)
    names = {
        "DeltaTable": tables.DeltaTable,
        "configure_spark_with_delta_pip": configure_spark_with_delta_pip,
        "tables": tables,
        "exceptions": exceptions,
        "__version__": _VERSION,
        "__all__": ["DeltaTable", "configure_spark_with_delta_pip"],
    }
    vars(delta).update(names)
    sys.modules.update(
        {
            "delta": delta,
            "delta.tables": tables,
            "delta.exceptions": exceptions,
            "delta.exceptions.base": exceptions,
            "delta.exceptions.captured": exceptions,
            "delta.pip_utils": _module(
                "delta.pip_utils", configure_spark_with_delta_pip=configure_spark_with_delta_pip
            ),
            "delta.version": _module("delta.version", __version__=_VERSION),
            "delta.connect": _module(
                "delta.connect", DeltaTable=tables.DeltaTable, tables=tables, exceptions=exceptions
            ),
            "delta.connect.tables": tables,
            "delta.connect.exceptions": exceptions,
        }
    )


def _module(name: str, **names: object) -> ModuleType:
    module = ModuleType(name, "delta-spark's names, from deltamerge.")
    module.__spec__ = ModuleSpec(name, None, is_package=name == "delta.connect")
    vars(module).update(names)
    return module


def configure_spark_with_delta_pip(
    spark_session_builder: SparkSession.Builder, extra_packages: Sequence[str] | None = None
) -> SparkSession.Builder:
    """Return the builder of a session as it is, since no JAR of Delta's is needed.

    Args:
        spark_session_builder: The builder.
        extra_packages: Maven coordinates of other packages, which are added.
    """
    if not extra_packages:
        return spark_session_builder
    return spark_session_builder.config("spark.jars.packages", ",".join(extra_packages))
