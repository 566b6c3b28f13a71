"""A merge on S3 whose logs are as talkative as they get: keys and tokens are in no log, message or event log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from conftest import connect_server

from .s3 import BUCKET, KEY_ID, SECRET, server
from .test_secrets import TOKEN, refusing

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


@pytest.mark.slow
@pytest.mark.parametrize("session", ["classic", "connect"])
def test_nothing_that_is_written_down_has_a_secret(tmp_path: Path, session: str) -> None:
    events = tmp_path / "events"
    events.mkdir()
    settings = {
        **SETTINGS,
        "spark.log.level": "DEBUG",
        "spark.eventLog.dir": str(events),
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    with ExitStack() as stack:
        s3 = stack.enter_context(server(tmp_path))
        options = {**s3.options, "session_token": TOKEN}
        rows = pa.table({"id": pa.array(range(10), pa.int64()), "v": pa.array([0] * 10, pa.int64())})
        write_deltalake(f"s3://{BUCKET}/t", rows, storage_options=options)
        given = {
            "settings": {} if session == "connect" else settings,
            "remote": None,
            "path": f"s3a://{BUCKET}/t",
            "options": options,
            "session": {**s3.settings, "fs.s3a.session.token": TOKEN},
            "refusing": stack.enter_context(refusing()),
        }
        log = tmp_path / "program.log"
        if session == "connect":
            given["remote"] = stack.enter_context(connect_server(settings, tmp_path / "server.log"))
        paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONPATH": paths, "SPARK_LOCAL_IP": "127.0.0.1"}
        environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        command = [sys.executable, "-m", "storage.talkative", json.dumps(given)]
        with log.open("wb") as output:
            done = subprocess.run(command, env=environment, stdout=output, stderr=output, timeout=300, check=False)
        assert done.returncode == 0 and "done" in log.read_text(), log.read_text()[-3000:]
        commits = {name: s3.files.open_input_stream(f"{BUCKET}/t/{name}").read() for name in s3.objects("t")}
    written = {str(path): path.read_bytes() for path in (log, tmp_path / "server.log") if path.exists()}
    of_events = {str(path): path.read_bytes() for path in events.rglob("*") if path.is_file()}
    assert any(b"SparkListenerSQLExecutionStart" in content for content in of_events.values())
    assert any(b"DEBUG" in content for content in written.values())
    assert session == "connect" or b"DEBUG:py4j" in log.read_bytes()
    found = [
        (secret, name, line[:300])
        for secret in (KEY_ID, SECRET, TOKEN)
        for name, content in {**written, **of_events, **commits}.items()
        for line in content.splitlines()
        if secret.encode() in line
    ]
    assert not found, found[:10]
