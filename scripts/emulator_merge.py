"""A merge into a table in an emulator of Azure's or Google's store, which delta-rs makes and reads.

npm install --prefix DIR azurite && .venv/bin/python scripts/emulator_merge.py azure DIR/node_modules/.bin/azurite-blob
.venv/bin/python scripts/emulator_merge.py gcs PROGRAM

PROGRAM is fake-gcs-server with Google's XML API, by which obstore and delta-rs ask: the branch ``support-xml-api`` of
tustvold/fake-gcs-server, built by ``go build``. It has no conditions on uploads, so that one writer at a time is right.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable as DeltaRs
from deltalake import write_deltalake
from pyspark.sql import SparkSession

import deltamerge

# Azurite's own, which everybody knows.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
BUCKET = "tables"
START_SECONDS = 60


def when_started(make: Callable[[], object]) -> None:
    """Make a container or bucket as soon as the emulator answers."""
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            make()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)
        else:
            return


def make_container(address: str) -> None:
    """Make a container of Azure's."""
    ends = {"blob_storage_authority": address, "dfs_storage_authority": address}
    schemes = {"blob_storage_scheme": "http", "dfs_storage_scheme": "http"}
    pafs.AzureFileSystem(ACCOUNT, account_key=KEY, **ends, **schemes).create_dir(BUCKET)


def make_bucket(address: str) -> None:
    """Make a bucket of Google's."""
    body = json.dumps({"name": BUCKET}).encode()
    request = urllib.request.Request(f"http://{address}/storage/v1/b?project=p", body)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=10):
        return


def merge(path: str, options: dict[str, str]) -> None:
    """Merge on the driver and in tasks, and compare what delta-rs reads."""
    rows = pa.table({"id": pa.array(range(10), pa.int64()), "v": pa.array([0] * 10, pa.int64())})
    write_deltalake(path, rows, storage_options=options)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    for first, driver_bytes in ((5, str(1 << 30)), (12, "0")):
        spark.conf.set("spark.deltamerge.merge.driverBytes", driver_bytes)
        source = spark.range(first, first + 10).selectExpr("id", f"id + {first} AS v").alias("s")
        target = deltamerge.DeltaTable.forPath(spark, path, options).alias("t")
        report = target.merge(source, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
        assert report.outcome.executor == "key_lookup", report.outcome.plan
    found = DeltaRs(path, storage_options=options).to_pyarrow_table().to_pylist()
    spark.stop()
    wanted = {i: 0 if i < 5 else i + 5 if i < 12 else i + 12 for i in range(22)}
    assert {row["id"]: row["v"] for row in found} == wanted, found
    sys.stdout.write(f"delta-rs reads {len(found)} rows, as they should be\n")


def main(store: str, program: str) -> None:
    """Start the emulator, and merge.

    Args:
        store: ``azure`` or ``gcs``.
        program: The emulator.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    if store == "azure":
        arguments: Sequence[str] = ("--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--blobPort")
        path, endpoint = f"az://{BUCKET}/t", f"http://{address}/{ACCOUNT}"
        options = {"account_name": ACCOUNT, "account_key": KEY, "endpoint": endpoint, "allow_http": "true"}
    else:
        arguments = ("-scheme", "http", "-backend", "memory", "-public-host", address, "-port")
        key = {"gcs_base_url": f"http://{address}", "disable_oauth": True}
        empty = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        path, options = f"gs://{BUCKET}/t", {"service_account_key": json.dumps({**key, **empty}), "allow_http": "true"}
    with subprocess.Popen([program, *arguments, str(port)], stderr=subprocess.DEVNULL) as emulator:
        try:
            when_started(lambda: make_container(address) if store == "azure" else make_bucket(address))
            merge(path, options)
        finally:
            emulator.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
