"""Options under Hadoop's names reach the store under obstore's."""

from __future__ import annotations

import pytest

from deltamerge.exceptions import DeltaTableException
from deltamerge.storage.hadoop_options import obstore_options
from deltamerge.storage.store import ObjectStore, open_store

S3A = {
    "fs.s3a.access.key": "AK",
    "fs.s3a.secret.key": "SK",
    "fs.s3a.session.token": "T",
    "fs.s3a.endpoint": "http://minio:9000",
    "fs.s3a.endpoint.region": "eu-north-1",
    "fs.s3a.path.style.access": "true",
}
AZURE = {
    "fs.azure.account.key.mine.dfs.core.windows.net": "a2V5",
    "fs.azure.account.key.other.dfs.core.windows.net": "b3RoZXI=",
}


def test_keys_of_s3a() -> None:
    assert obstore_options("bucket", S3A) == {
        "access_key_id": "AK",
        "secret_access_key": "SK",
        "session_token": "T",
        "endpoint": "http://minio:9000",
        "allow_http": "true",
        "region": "eu-north-1",
        "virtual_hosted_style_request": "false",
    }


@pytest.mark.parametrize(
    ("endpoint", "ssl", "expected"),
    [
        ("s3.eu-north-1.amazonaws.com", None, "https://s3.eu-north-1.amazonaws.com"),
        ("minio:9000", "false", "http://minio:9000"),
        ("https://minio", "false", "https://minio"),
    ],
)
def test_endpoints_with_and_without_a_scheme(endpoint: str, ssl: str | None, expected: str) -> None:
    options = {"fs.s3a.endpoint": endpoint}
    if ssl is not None:
        options["fs.s3a.connection.ssl.enabled"] = ssl
    found = obstore_options("bucket", options)
    assert found["endpoint"] == expected
    assert ("allow_http" in found) == expected.startswith("http://")


def test_the_key_of_the_urls_own_account() -> None:
    assert obstore_options("data@mine.dfs.core.windows.net", AZURE) == {"account_key": "a2V5"}
    assert obstore_options("data@third.dfs.core.windows.net", AZURE) == {}


def test_obstores_own_names_stay_and_come_first() -> None:
    assert obstore_options("b", {"region": "here", "fs.s3a.endpoint.region": "there", "timeout": "5s"}) == {
        "region": "here",
        "timeout": "5s",
    }


def test_stores_open_with_them() -> None:
    for root, options in (
        ("s3a://bucket/t", S3A),
        ("abfss://data@mine.dfs.core.windows.net/t", AZURE),
    ):
        assert isinstance(open_store(root, options), ObjectStore)
    with pytest.raises(DeltaTableException, match=r"fs\.s3a\.nonsense"):
        open_store("s3a://bucket/t", {"fs.s3a.nonsense": "1"})
