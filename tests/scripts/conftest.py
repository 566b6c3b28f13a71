"""PySpark as `deltamerge.install_in_pyspark` leaves it, and as it was before."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import deltamerge
from deltamerge.api.register import ON_DEMAND
from deltamerge.as_jar import install, served, temp_views

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def pyspark_as_it_was() -> Iterator[None]:
    """Puts PySpark's classes and the names of modules back after a test."""
    classes = [each for found in install._classes() for each in (*vars(found).values(), found.session.Builder)]
    before = [dict(vars(each)) for each in classes]
    modules = {name for name in sys.modules if name.partition(".")[0] == "delta"}
    yield
    ON_DEMAND.clear()
    served.REPLACES_JARS.clear()
    served.HAS_JAR.clear()
    served.REGISTERED.clear()
    temp_views.VIEWS.clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "delta" and name not in modules]:
        del sys.modules[name]
    for each, names in zip(classes, before, strict=True):
        for name in [name for name in vars(each) if name not in names]:
            delattr(each, name)
        for name, value in names.items():
            if vars(each).get(name) is not value:
                setattr(each, name, value)


@pytest.fixture
def installed(spark: SparkSession, pyspark_as_it_was: None) -> SparkSession:
    deltamerge.install_in_pyspark()
    deltamerge.install_in_pyspark()
    return spark


@pytest.fixture
def database(installed: SparkSession) -> Iterator[str]:
    """The name of a current database of the test's own: over Connect others use the same catalog meanwhile."""
    name = f"own_{uuid.uuid4().hex}"
    installed.sql(f"CREATE DATABASE {name}")
    installed.sql(f"USE {name}")
    yield name
    installed.sql("USE default")
    installed.sql(f"DROP DATABASE {name} CASCADE")
