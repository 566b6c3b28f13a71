"""Google Cloud Storage by its XML API: one commit of a version, uploads in parts."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from deltamerge.storage.store import open_store

from .gcs import GCS, google_server
from .s3 import BUCKET


@pytest.fixture(scope="module")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GCS]:
    with google_server(tmp_path_factory.mktemp("gcs")) as running:
        yield running


def test_of_writers_of_one_version_one_wins(gcs: GCS) -> None:
    store = open_store(f"gs://{BUCKET}/race", gcs.options)

    def write(number: int) -> bool:
        try:
            store.put_if_absent("_delta_log/0.json", str(number).encode())
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(8)))
    assert sum(won) == 1
    assert store.get("_delta_log/0.json") == str(won.index(True)).encode()


def test_a_large_object_is_written_in_parts(gcs: GCS) -> None:
    store = open_store(f"gs://{BUCKET}/large", gcs.options)
    content = bytes(12 << 20)
    store.put("large.bin", content)
    assert store.get("large.bin") == content
    assert "<Upload>" not in gcs.s3.uploads()
