"""One Spark session for all tests: classic, or over Connect with ``DELTAMERGE_TEST_MODE=connect``.

The two kinds of session cannot live in one process, so each mode is a run of pytest by itself. The variable
``DELTAMERGE_TEST_EXECUTOR`` forces one executor on all merges (``classic`` or ``low_shuffle``), and
``DELTAMERGE_TEST_JAVA`` gives the JVM more options: a short run is shorter without the second compiler.
``DELTAMERGE_TEST_RANDOM=1`` draws other examples of the properties each time; by default each run has the same ones.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import time
import warnings
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import hypothesis
import pytest

from class_archive import use_in_processes
from combinations import ALL
from corpus.deltamerge_engine import is_ci
from oracle.client import LineProcess, start_oracle
from oracle.environment import build, find
from oracle.random_merges.settings import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT = os.environ.get("DELTAMERGE_TEST_MODE", "classic") == "connect"
EXECUTOR = os.environ.get("DELTAMERGE_TEST_EXECUTOR")
CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
SERVER = "DELTAMERGE_TEST_SERVER"
SERVER_LOG = "DELTAMERGE_TEST_SERVER_LOG"
RECORDED_MERGES = Path(__file__).parent / "corpus" / "test_corpus.py"
CONNECTED = pytest.StashKey[bool]()
START_SECONDS = 120
# Of long tests on classic Spark every second one runs, by turns.
TURN = os.environ.get("DELTAMERGE_TEST_TURN")

hypothesis.settings.register_profile("repeatable", derandomize=True, database=None)
if not os.environ.get("DELTAMERGE_TEST_RANDOM"):
    hypothesis.settings.load_profile("repeatable")

SETTINGS = {
    "spark.driver.memory": "2g",
    # Without its second compiler the JVM would keep 48 MiB for compiled code; where that is full, a server dies.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:ReservedCodeCacheSize=512m "
    + os.environ.get("DELTAMERGE_TEST_JAVA", ""),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Failed tasks and analyses are what many tests are about: Spark shall not print each.
    "spark.log.level": "OFF",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is only for Connect where the session is a classic one; over Connect it chooses.

    Tests without Spark are quick unless they are marked as slow; those with Spark where they are marked as quick.
    Over Connect those run that are quick or whose subject meets the session in ways of its own (``sessions``). There,
    and of tests with Spark that are not quick, every third case runs of each test that has parameters, but for recorded
    merges on classic Spark; `make test-all` runs all.
    """
    for item in items:
        if not _uses_spark(item) and not item.get_closest_marker("slow"):
            item.add_marker("quick")
    if CONNECT:
        meeting = [item for item in items if _uses_spark(item) and _meets_the_session(item)]
        _choose(config, items, _some_of_each(meeting))
    else:
        long = [item for item in items if not (item.get_closest_marker("quick") or item.path == RECORDED_MERGES)]
        left_out = set(long) - set(_some_of_each(long))
        left_out |= {item for item in items if not (item.get_closest_marker("quick") or _is_of_turn(item))}
        _choose(config, items, [item for item in items if item not in left_out])
        reason = pytest.mark.skip(reason="only over Spark Connect: set DELTAMERGE_TEST_MODE=connect")
        for item in items:
            if item.get_closest_marker("connect"):
                item.add_marker(reason)


def _some_of_each(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    if ALL:
        return list(items)
    numbers: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
    counted = [(item, next(numbers[item.nodeid.split("[")[0]])) for item in items]
    return [item for item, number in counted if number % 3 == 0]


def _is_of_turn(item: pytest.Item) -> bool:
    return TURN is None or (zlib.crc32(item.nodeid.encode()) + int(TURN)) % 2 == 0


def _choose(config: pytest.Config, items: list[pytest.Item], chosen: Iterable[pytest.Item]) -> None:
    wanted = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = [item for item in items if item in wanted]


def _uses_spark(item: pytest.Item) -> bool:
    return "_session" in getattr(item, "fixturenames", ()) or item.get_closest_marker("connect") is not None


def _meets_the_session(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("quick", "sessions", "connect", "matrix"))


def pytest_configure(config: pytest.Config) -> None:
    """Starts the server that all processes of this run share over Connect: one JVM is sooner warm than two."""
    use_in_processes()
    if not CONNECT or hasattr(config, "workerinput") or config.option.collectonly:
        return
    running = ExitStack()
    folder = Path(running.enter_context(TemporaryDirectory(prefix="deltamerge-connect-")))
    os.environ[SERVER_LOG] = str(folder / "server.log")
    os.environ[SERVER] = running.enter_context(connect_server(_settings(folder), folder / "server.log"))
    config.add_cleanup(running.close)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fails a test at once where the server has died: Spark's client would try for ten minutes to reach it."""
    if item.config.stash.get(CONNECTED, False) and not _answers(os.environ[SERVER]):
        pytest.fail(f"The Spark Connect server has died. The end of its log:\n{_end_of_log()}", pytrace=False)


def _end_of_log() -> str:
    return "\n".join(Path(os.environ[SERVER_LOG]).read_text(errors="replace").splitlines()[-20:])


def _settings(folder: Path) -> dict[str, str]:
    forced = {"spark.deltamerge.merge.executor": EXECUTOR} if EXECUTOR else {}
    folders = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    return {**SETTINGS, **folders, **forced}


@pytest.fixture(scope="session")
def _session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    if CONNECT:
        _wait_for(os.environ[SERVER])
        request.config.stash[CONNECTED] = True
        session = SparkSession.builder.remote(os.environ[SERVER]).getOrCreate()
        yield session
        session.stop()
        return
    builder = SparkSession.builder.appName("deltamerge tests").master("local[2]")
    for name, value in _settings(tmp_path_factory.mktemp("spark")).items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    yield session
    session.stop()


@contextmanager
def connect_server(settings: Mapping[str, str], log: Path) -> Iterator[str]:
    """Starts a Spark Connect server in a process of its own, as in a cluster, and gives its address, a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {**settings, "spark.connect.grpc.binding.port": str(port)}
    confs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    pyspark = Path(spec.origin).parent
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment = {"SPARK_LOCAL_IP": "127.0.0.1", **os.environ, **python}
    submit = [str(pyspark / "bin" / "spark-submit"), "--master", "local[2]", *confs]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*submit, "--class", CONNECT_SERVER, "spark-internal"],
            env={**environment, "SPARK_HOME": str(pyspark), "SPARK_CONNECT_MODE": "0"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _wait_for(url: str) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if _answers(url):
            return
        time.sleep(0.1)
    raise RuntimeError("The Spark Connect server did not start.")


def _answers(url: str) -> bool:
    address = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((address.hostname, address.port)) == 0


@pytest.fixture
def spark(_session: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The session; its settings are put back after each test.

    To compile a stage takes longer than to run it a few times: quick tests on classic Spark, and those beside
    delta-spark, show that Spark compiles what it is asked; the others go without.
    """
    before = dict(_session.conf.getAll)
    if CONNECT or not any(request.node.get_closest_marker(name) for name in ("quick", "oracle")):
        _session.conf.set("spark.sql.codegen.wholeStage", "false")
    yield _session
    after = dict(_session.conf.getAll)
    for name in after.keys() - before.keys():
        _session.conf.unset(name)
    for name, value in before.items():
        if after.get(name) != value:
            _session.conf.set(name, value)


@pytest.fixture(scope="session")
def oracle() -> Iterator[LineProcess]:
    """delta-spark in a process of its own; in CI its environment is built where it is missing."""
    environment = find() or (build() if is_ci() else None)
    if environment is None:
        pytest.skip("no delta-spark: python tests/oracle/environment.py builds its environment")
    with start_oracle(environment, SMALL) as process:
        yield process
