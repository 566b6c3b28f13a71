"""Empty objects whose keys end with a slash, as S3's console and S3A leave them for folders."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from deltamerge.storage.store import Store, open_store, without_markers

from .s3 import BUCKET, S3, server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with server(tmp_path_factory.mktemp("s3")) as running:
        yield running


def put(s3: S3, *keys: str) -> None:
    for key in keys:
        url, headers = f"http://127.0.0.1:{s3.port}/{BUCKET}/{key}", {"Content-Type": "binary/octet-stream"}
        content = b"" if key.endswith(("/", "empty")) else b"1"
        request = urllib.request.Request(url, content, headers, method="PUT")
        urllib.request.urlopen(request, timeout=10).close()


def paths(store: Store, *, folder: str = "") -> list[str]:
    return [file.path for file in store.list(folder)]


def test_markers_are_no_files(s3: S3) -> None:
    put(s3, "t", "t/", "t/_delta_log/", "t/_delta_log/0.json", "t/p=1/", "t/p=1/q=2/", "t/p=1/q=2/a.parquet", "t/empty")
    store = open_store(f"s3://{BUCKET}/t", s3.options)
    assert paths(store) == ["_delta_log/0.json", "empty", "p=1/q=2/a.parquet"]
    assert paths(store, folder="p=1") == ["p=1/q=2/a.parquet"]
    assert [file.path for file in store.list_folder("")] == ["empty"]
    assert [file.path for file in store.list_folder("_delta_log")] == ["_delta_log/0.json"]
    assert [file.path for file in store.list_folder("_delta_log", "_delta_log/")] == ["_delta_log/0.json"]
    store.delete_folder("")
    assert without_markers(store, store.list()) == []
    assert open_store(f"s3://{BUCKET}", s3.options).get("t") == b"1"


def test_markers_of_empty_folders(s3: S3) -> None:
    put(s3, "u/", "u/p=1.5/", "u/old/")
    store = open_store(f"s3://{BUCKET}/u", s3.options)
    assert without_markers(store, store.list()) == []
