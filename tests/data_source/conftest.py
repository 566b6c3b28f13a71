"""A session with the data source ``delta``, and PySpark's calls as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deltamerge.api.register import register_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def registered(_session: SparkSession) -> SparkSession:
    assert register_source(_session)
    return _session
