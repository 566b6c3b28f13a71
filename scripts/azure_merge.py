"""A merge into a table in Azurite, Azure's emulator, which delta-rs makes and reads.

npm install --prefix DIR azurite && .venv/bin/python scripts/azure_merge.py DIR
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable as DeltaRs
from deltalake import write_deltalake
from pyspark.sql import SparkSession

import deltamerge

# Azurite's own, which everybody knows.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
START_SECONDS = 60


def make_container(address: str, name: str) -> None:
    """Make a container as soon as the emulator answers."""
    ends = {"blob_storage_authority": address, "dfs_storage_authority": address}
    schemes = {"blob_storage_scheme": "http", "dfs_storage_scheme": "http"}
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            pafs.AzureFileSystem(ACCOUNT, account_key=KEY, **ends, **schemes).create_dir(name)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)
        else:
            return


def merge(options: dict[str, str]) -> None:
    """Merge on the driver and in tasks, and compare what delta-rs reads."""
    rows = pa.table({"id": pa.array(range(10), pa.int64()), "v": pa.array([0] * 10, pa.int64())})
    write_deltalake("az://tables/t", rows, storage_options=options)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    for first, driver_bytes in ((5, str(1 << 30)), (12, "0")):
        spark.conf.set("spark.deltamerge.merge.driverBytes", driver_bytes)
        source = spark.range(first, first + 10).selectExpr("id", f"id + {first} AS v").alias("s")
        target = deltamerge.DeltaTable.forPath(spark, "az://tables/t", options).alias("t")
        report = target.merge(source, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
        assert report.outcome.executor == "key_lookup", report.outcome.plan
    found = DeltaRs("az://tables/t", storage_options=options).to_pyarrow_table().to_pylist()
    spark.stop()
    wanted = {i: 0 if i < 5 else i + 5 if i < 12 else i + 12 for i in range(22)}
    assert {row["id"]: row["v"] for row in found} == wanted, found
    sys.stdout.write(f"delta-rs reads {len(found)} rows, as they should be\n")


def main(folder: Path) -> None:
    """Start the emulator, and merge.

    Args:
        folder: Where npm has installed it.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(folder / "node_modules/.bin/azurite-blob"),
        "--inMemoryPersistence",
        "--skipApiVersionCheck",
        "--silent",
    ]
    with subprocess.Popen([*command, "--blobPort", str(port)]) as azurite:
        try:
            make_container(f"127.0.0.1:{port}", "tables")
            endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
            merge({"account_name": ACCOUNT, "account_key": KEY, "endpoint": endpoint, "allow_http": "true"})
        finally:
            azurite.kill()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
