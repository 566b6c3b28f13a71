"""One Spark session for all tests: classic, or over Connect with ``DELTAMERGE_TEST_MODE=connect``.

The two kinds of session cannot live in one process, so each mode is a run of pytest by itself. The variable
``DELTAMERGE_TEST_EXECUTOR`` forces one executor on all merges (``classic`` or ``low_shuffle``).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT = os.environ.get("DELTAMERGE_TEST_MODE", "classic") == "connect"
EXECUTOR = os.environ.get("DELTAMERGE_TEST_EXECUTOR")
# The tests may be shared out among processes (pytest-xdist), each with a session of its own.
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
PLAN_CHECKS = ("spark.sql.planChangeValidation", "spark.sql.lightweightPlanChangeValidation")

SETTINGS = {
    "spark.driver.memory": "2g",
    # Most of what Spark runs here it runs a few times only: to compile it well takes longer than to run it.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Failed tasks and analyses are what many tests are about: Spark shall not print each.
    "spark.log.level": "OFF",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is only for Connect where the session is a classic one, and over Connect what has no session.

    Tests without Spark are quick unless they are marked as slow; those with Spark where they are marked as quick.
    """
    for item in items:
        if not _uses_spark(item) and not item.get_closest_marker("slow"):
            item.add_marker("quick")
    if CONNECT:
        with_session = [item for item in items if _uses_spark(item)]
        config.hook.pytest_deselected(items=[item for item in items if not _uses_spark(item)])
        items[:] = with_session
    else:
        reason = pytest.mark.skip(reason="only over Spark Connect: set DELTAMERGE_TEST_MODE=connect")
        for item in items:
            if item.get_closest_marker("connect"):
                item.add_marker(reason)


def _uses_spark(item: pytest.Item) -> bool:
    return "_session" in getattr(item, "fixturenames", ()) or item.get_closest_marker("connect") is not None


@pytest.fixture(scope="session")
def _session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("deltamerge tests")
    builder = builder.remote("local[2]") if CONNECT else builder.master("local[2]")
    folder = tmp_path_factory.mktemp("spark")
    places = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder / "local")}
    if CONNECT and WORKER is not None:
        # Each worker's server then takes a free port, and would check each plan besides.
        os.environ["SPARK_TESTING"] = "1"
        places |= dict.fromkeys(PLAN_CHECKS, "false")
    forced = {"spark.deltamerge.merge.executor": EXECUTOR} if EXECUTOR else {}
    for name, value in {**SETTINGS, **places, **forced}.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # Over Connect each setting goes to the server's start and then to the session, where some come too late.
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    yield session
    # Over Connect the process would not end while the session lives.
    session.stop()


@pytest.fixture
def spark(_session: SparkSession) -> Iterator[SparkSession]:
    """The session; its settings are put back after each test."""
    before = dict(_session.conf.getAll)
    yield _session
    after = dict(_session.conf.getAll)
    for name in after.keys() - before.keys():
        _session.conf.unset(name)
    for name, value in before.items():
        if after.get(name) != value:
            _session.conf.set(name, value)
