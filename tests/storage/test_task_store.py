"""Tables whose log Spark's tasks read and write, since the client does not reach the store or is not to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRs
from deltalake import write_deltalake

from conftest import CONNECT, connect_server
from deltamerge import write_delta
from deltamerge.exceptions import DeltaIllegalArgumentException, DeltaTableException
from deltamerge.spark.table import open_table
from deltamerge.spark.task_store import TaskStore
from deltamerge.storage.local_store import LocalStore
from deltamerge.tables import DeltaTable

from .s3 import BUCKET, KEY_ID, S3, SECRET, server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_ACCESS = "spark.deltamerge.storage.logAccess"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with server(tmp_path_factory.mktemp("s3")) as running:
        yield running


def environment(s3: S3) -> dict[str, str]:
    """What tasks have and the client has not."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3.port}",
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


@pytest.fixture
def by_tasks(spark: SparkSession) -> None:
    spark.conf.set(LOG_ACCESS, "server")


def open_store(spark: SparkSession, root: str) -> TaskStore:
    store = open_table(spark, root).store
    assert isinstance(store, TaskStore)
    return store


@pytest.mark.sessions
@pytest.mark.usefixtures("by_tasks")
def test_the_methods_of_a_store(spark: SparkSession, tmp_path: Path) -> None:
    store = open_store(spark, f"file:{tmp_path}")
    assert store.list("a") == store.list_folder("a") == []
    store.put_if_absent("a/1.json", b"one")
    with pytest.raises(FileExistsError):
        store.put_if_absent("a/1.json", b"two")
    large = os.urandom(9 << 20)
    store.put("a/b/2.bin", large)
    assert store.get("a/1.json") == b"one" and store.get("a/b/2.bin") == large
    listed = store.list("a")
    assert listed == LocalStore(str(tmp_path)).list("a")
    assert [file.path for file in store.list_folder("a")] == ["a/1.json"]
    with store.open_input("a/b/2.bin") as file:
        file.seek(5)
        assert file.read(7 << 20) == large[5 : 5 + (7 << 20)]
    # Another writer's change is seen, whatever was listed before.
    (tmp_path / "a/1.json").write_bytes(b"other")
    store.list_folder("a")
    assert store.get("a/1.json") == b"other"
    (tmp_path / "a/1.json").write_bytes(b"")
    store.list_folder("a")
    (tmp_path / "a/1.json").write_bytes(b"written later")
    assert store.get("a/1.json") == b"written later"
    store.rename("a/1.json", "c/1.json")
    store.delete(["a/b/2.bin", "nothing"])
    assert store.exists("c/1.json") and not store.exists("a/1.json")
    for missing in (lambda: store.get("a/1.json"), lambda: store.open_input("a/1.json")):
        with pytest.raises(FileNotFoundError):
            missing()
    store.delete_folder("c")
    assert not store.list("c")


@pytest.mark.sessions
@pytest.mark.usefixtures("by_tasks")
def test_a_table_on_the_servers_disk(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    DeltaTable.create(spark).location(path).addColumn("id", "long").addColumn("v", "long").execute()
    write_delta(spark.range(10).selectExpr("id", "0L AS v"), path, mode="append")
    target = DeltaTable.forPath(spark, path)
    source = spark.range(5, 15).selectExpr("id", "id * 10 AS v")
    merge = target.alias("t").merge(source.alias("s"), "t.id = s.id")
    report = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    assert report.outcome.plan is not None
    reasons = [each.reason for each in report.outcome.plan.match.declined]
    assert any("disk of the tasks' machines" in reason for reason in reasons)
    assert {row["id"]: row["v"] for row in target.toDF().collect()} == {i: i * 10 if i > 4 else 0 for i in range(15)}
    assert [row["operation"] for row in target.history().collect()] == ["MERGE", "WRITE", "CREATE TABLE"]
    assert len(DeltaRs(path).to_pyarrow_table()) == 15


def test_a_value_that_the_setting_does_not_take(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set(LOG_ACCESS, "tasks")
    with pytest.raises(DeltaIllegalArgumentException, match="auto, client, server"):
        DeltaTable.isDeltaTable(spark, str(tmp_path))


def merge_into(spark: SparkSession, s3: S3, name: str) -> Any:
    """Merges into a table in a store that only tasks reach, and returns the report."""
    rows = pa.table({"id": pa.array(range(10), pa.int64()), "v": pa.array([0] * 10, pa.int64())})
    write_deltalake(f"s3://{BUCKET}/{name}", rows, storage_options=s3.options)
    path = f"s3a://{BUCKET}/{name}"
    source = spark.range(5, 15).selectExpr("id", "id * 10 AS v").alias("s")
    for _ in range(2):
        merge = DeltaTable.forPath(spark, path).alias("t").merge(source, "t.id = s.id")
        report = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
    found = DeltaRs(f"s3://{BUCKET}/{name}", storage_options=s3.options).to_pyarrow_table().to_pylist()
    assert {row["id"]: row["v"] for row in found} == {i: i * 10 if i > 4 else 0 for i in range(15)}
    assert report.outcome.version == 2
    assert SECRET not in f"{report.to_json()}{s3.objects(name)}"
    return report


@pytest.mark.skipif(CONNECT, reason="the environment of a server's tasks is the server's")
@pytest.mark.usefixtures("by_tasks")
def test_a_store_that_only_tasks_reach(spark: SparkSession, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(s3).items():
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    before = len(s3.requests())
    report = merge_into(spark, s3, "tasks")
    assert report.outcome.executor == "key_lookup"
    assert len(s3.requests()) > before


OVER_CONNECT = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from storage.s3 import S3
from storage.test_task_store import merge_into

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
report = merge_into(spark, S3(int(sys.argv[2]), Path(sys.argv[3])), "connect")
print("executor:", report.outcome.executor)
spark.stop()
"""


@pytest.mark.slow
def test_over_connect_by_itself(s3: S3, tmp_path: Path) -> None:
    """The server's environment has the credentials; the client has neither these nor the endpoint."""
    log = tmp_path / "server.log"
    before = dict(os.environ)
    os.environ.update(environment(s3))
    try:
        with connect_server({"spark.log.level": "OFF", "spark.ui.enabled": "false"}, log) as url:
            client = {**before, "AWS_EC2_METADATA_DISABLED": "true", "PYTHONPATH": str(Path(__file__).parents[1])}
            command = [sys.executable, "-c", OVER_CONNECT, url, str(s3.port), str(s3.log)]
            done = subprocess.run(command, env=client, capture_output=True, text=True, timeout=240, check=False)
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "executor: key_lookup" in done.stdout
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.usefixtures("by_tasks")
def test_a_store_that_tasks_do_not_reach(spark: SparkSession) -> None:
    options = {"endpoint": "http://127.0.0.1:9", "allow_http": "true", "access_key_id": KEY_ID}
    with pytest.raises(DeltaTableException, match="was not reached") as error:
        DeltaTable.forPath(spark, "s3a://tables/t", {**options, "secret_access_key": SECRET})
    assert SECRET not in str(error.value) and KEY_ID not in str(error.value)
