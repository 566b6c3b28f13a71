"""A session with the data source ``delta``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import deltamerge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def registered(_session: SparkSession) -> SparkSession:
    assert deltamerge.register(_session)
    return _session
