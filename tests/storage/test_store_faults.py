"""A store that fails in 10 %, hangs in 5 % and loses 3 % of its answers: merges end well or say why they do not."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRs
from deltalake import write_deltalake

from combinations import some
from deltamerge.exceptions import CommitStateUnknownException, DeltaError
from deltamerge.tables import DeltaTable

from .faulty_proxy import SHARES, Faults, proxy
from .s3 import BUCKET, S3, server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MERGES = 8
ROWS = 40


@dataclass(frozen=True)
class Faulty:
    """A server, and the proxy in front of it."""

    s3: S3
    faults: Faults

    @property
    def options(self) -> dict[str, str]:
        return {**self.s3.options, "endpoint": f"http://127.0.0.1:{self.faults.port}", "timeout": "2s"}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    with server(tmp_path_factory.mktemp("s3")) as s3, proxy(s3.port, seed=7) as faults:
        yield Faulty(s3, faults)


def rows_of(faulty: Faulty, name: str) -> dict[int, int]:
    table = DeltaRs(f"s3://{BUCKET}/{name}", storage_options=faulty.s3.options).to_pyarrow_table()
    return dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))


def unnamed(faulty: Faulty, name: str) -> set[str]:
    """Lists the objects that no version names."""
    objects = faulty.s3.objects(name)
    named = set()
    for log in (each for each in objects if each.startswith("_delta_log/") and each.endswith(".json")):
        content = faulty.s3.files.open_input_stream(f"{BUCKET}/{name}/{log}").read().decode()
        named |= {unquote(a["add"]["path"]) for a in map(json.loads, content.splitlines()) if "add" in a}
    return {each for each in objects if not each.startswith("_delta_log/")} - named


@pytest.mark.parametrize("driver_bytes", some(["0", None]))
def test_merges_end_well_or_say_why_not(driver_bytes: str | None, spark: SparkSession, faulty: Faulty) -> None:
    name = f"faulty-{driver_bytes}"
    expected = dict.fromkeys(range(ROWS), 0)
    table = pa.table({"id": pa.array(expected, pa.int64()), "v": pa.array([0] * ROWS, pa.int64())})
    write_deltalake(f"s3://{BUCKET}/{name}", table, storage_options=faulty.s3.options)
    if driver_bytes is not None:
        spark.conf.set("spark.deltamerge.merge.driverBytes", driver_bytes)
    drawn, ended = random.Random(3), []
    for number in range(1, MERGES + 1):
        first = drawn.randrange(ROWS)
        changed = {**expected, **dict.fromkeys(range(first, first + 9), number)}
        faulty.faults.are_on = True
        try:
            merge(spark, faulty, name, first, number)
        except CommitStateUnknownException:
            ended.append("unknown")
            found = rows_of(faulty, name)
            assert found in (expected, changed)
            expected = found
        except (DeltaError, OSError) as error:
            ended.append("failed")
            assert str(error).strip()
        else:
            ended.append("committed")
            expected = changed
        finally:
            faulty.faults.are_on = False
        assert rows_of(faulty, name) == expected, ended
        if ended[-1] != "unknown":
            assert not unnamed(faulty, name), ended
    assert "<Upload>" not in faulty.s3.uploads()
    assert ended.count("committed") >= MERGES // 2, ended
    if driver_bytes is not None:
        assert set(faulty.faults.seen) == set(SHARES)


def merge(spark: SparkSession, faulty: Faulty, name: str, first: int, number: int) -> Any:
    source = spark.range(first, first + 9).selectExpr("id", f"{number}L AS v").alias("s")
    target = DeltaTable.forPath(spark, f"s3a://{BUCKET}/{name}", faulty.options).alias("t")
    return target.merge(source, "t.id = s.id").whenMatchedUpdateAll().whenNotMatchedInsertAll().run()
