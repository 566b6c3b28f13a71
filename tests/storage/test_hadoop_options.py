"""Options under Hadoop's names reach the store under obstore's."""

from __future__ import annotations

import pytest

from deltamerge.exceptions import DeltaTableException
from deltamerge.storage.hadoop_options import keys_of_store, obstore_options, with_defaults
from deltamerge.storage.store import ObjectStore, open_store
from deltamerge.storage.task_files import NotOpened, task_files
from deltamerge.workers.files import Files
from deltamerge.workers.obstore_client import open_bucket

S3A = {
    "fs.s3a.access.key": "AK",
    "fs.s3a.secret.key": "SK",
    "fs.s3a.session.token": "T",
    "fs.s3a.endpoint": "http://minio:9000",
    "fs.s3a.endpoint.region": "eu-north-1",
    "fs.s3a.path.style.access": "true",
}
_OF_URL = ("bucket", "container_name")
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


@pytest.mark.parametrize(
    ("options", "region"),
    [
        ({"fs.s3a.endpoint": "s3.eu-north-1.amazonaws.com"}, "eu-north-1"),
        ({"fs.s3a.endpoint": "https://s3-us-gov-west-1.amazonaws.com/"}, "us-gov-west-1"),
        ({"fs.s3a.endpoint": "s3.eu-north-1.amazonaws.com", "fs.s3a.endpoint.region": "eu-west-1"}, "eu-west-1"),
        ({"fs.s3a.endpoint.region": "eu-west-1", "fs.s3a.endpoint": "s3.eu-north-1.amazonaws.com"}, "eu-west-1"),
        ({"fs.s3a.endpoint": "s3.dualstack.eu-west-1.amazonaws.com"}, "eu-west-1"),
        ({"fs.s3a.endpoint": "s3-fips.us-east-2.amazonaws.com"}, "us-east-2"),
        ({"fs.s3a.endpoint": "minio.example.com"}, None),
    ],
)
def test_the_region_of_an_endpoint(options: dict[str, str], region: str | None) -> None:
    assert obstore_options("bucket", options).get("region") == region


@pytest.mark.parametrize("endpoint", ["s3.amazonaws.com", "https://s3.amazonaws.com/", ""])
def test_an_endpoint_that_is_none(endpoint: str) -> None:
    assert obstore_options("bucket", {"fs.s3a.endpoint": endpoint}) == {}


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


def test_settings_of_a_bucket_come_before_those_of_all() -> None:
    settings = {
        "fs.s3a.access.key": "all",
        "fs.s3a.bucket.mine.access.key": "own",
        "fs.s3a.bucket.other.access.key": "x",
    }
    assert obstore_options("mine", settings) == {"access_key_id": "own"}
    assert obstore_options("third", settings) == {"access_key_id": "all"}
    assert "fs.s3a.bucket.mine.access.key" in keys_of_store("s3a", "mine")


def test_hadoops_default_style_is_no_choice() -> None:
    assert obstore_options("b", {"fs.s3a.path.style.access": "false"}) == {}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"fs.s3a.encryption.algorithm": "AES256"}, {"server_side_encryption": "AES256"}),
        (
            {"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": "arn:k"},
            {"server_side_encryption": "aws:kms", "sse_kms_key_id": "arn:k"},
        ),
        (
            {"fs.s3a.server-side-encryption-algorithm": "SSE-C", "fs.s3a.server-side-encryption.key": "a2V5"},
            {"server_side_encryption": "sse-c", "sse_customer_key_base64": "a2V5"},
        ),
        (
            {"fs.s3a.encryption.algorithm": "AES256", "fs.s3a.bucket.b.encryption.algorithm": "DSSE-KMS"},
            {"server_side_encryption": "aws:kms:dsse"},
        ),
        ({"fs.s3a.requester.pays.enabled": "true"}, {"request_payer": "true"}),
        ({"fs.s3a.requester.pays.enabled": "false", "fs.s3a.encryption.algorithm": ""}, {}),
    ],
)
def test_encryption_and_who_pays(settings: dict[str, str], expected: dict[str, str]) -> None:
    assert obstore_options("b", settings) == expected
    store = open_store("s3a://b/t", settings)
    # PyArrow has no such settings: tasks would write other files than the user asks for.
    assert isinstance(store.files, NotOpened if expected else Files)
    assert set(settings) <= set(keys_of_store("s3a", "b"))


@pytest.mark.parametrize(
    "settings",
    [
        {"fs.s3a.encryption.algorithm": "CSE-KMS"},
        {"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.context": "a=b"},
        {"fs.s3a.acl.default": "BucketOwnerFullControl"},
        {"fs.s3a.bucket.b.accesspoint.arn": "arn:aws:s3:…"},
    ],
)
def test_settings_that_are_refused_by_name(settings: dict[str, str]) -> None:
    with pytest.raises(DeltaTableException) as error:
        open_store("s3a://b/t", {}, settings)
    assert max(settings).replace("bucket.b.", "") in str(error.value) or "CSE-KMS" in str(error.value)


def test_credentials_are_not_mixed() -> None:
    defaults = {"fs.s3a.access.key": "A", "fs.s3a.session.token": "T", "fs.s3a.endpoint.region": "here"}
    assert with_defaults("s3", "b", {"access_key_id": "B"}, defaults) == {"access_key_id": "B", "region": "here"}
    assert with_defaults("s3", "b", {"region": "there"}, defaults) == {
        "access_key_id": "A",
        "session_token": "T",
        "region": "there",
    }


KMS = {"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": "arn:k"}
OF_KMS = {"server_side_encryption": "aws:kms", "sse_kms_key_id": "arn:k"}


@pytest.mark.parametrize(
    ("options", "defaults", "expected"),
    [
        ({"access_key_id": "B"}, {"fs.s3a.access.key": "A", **KMS}, {"access_key_id": "B", **OF_KMS}),
        (KMS, {"fs.s3a.access.key": "A"}, {"access_key_id": "A", **OF_KMS}),
        ({"server_side_encryption": "AES256"}, KMS, {"server_side_encryption": "AES256"}),
        ({"sse_kms_key_id": "other"}, KMS, {**OF_KMS, "sse_kms_key_id": "other"}),
    ],
)
def test_encryption_is_no_credential(
    options: dict[str, str], defaults: dict[str, str], expected: dict[str, str]
) -> None:
    assert with_defaults("s3", "b", options, defaults) == expected


@pytest.mark.parametrize("account_first", [True, False])
def test_what_is_of_an_azure_account_comes_before_what_is_of_all(account_first: bool) -> None:
    client = "fs.azure.account.oauth2.client"
    of_all = {
        f"{client}.id": "all",
        f"{client}.secret": "all",
        f"{client}.endpoint": "https://login.microsoftonline.com/tenant/token",
    }
    of_one = {f"{client}.{part}.mine.dfs.core.windows.net": "mine" for part in ("id", "secret")}
    other = {f"{client}.id.other.dfs.core.windows.net": "other"}
    settings = of_one | of_all | other if account_first else other | of_all | of_one
    assert obstore_options("data@mine.dfs.core.windows.net", settings) == {
        "client_id": "mine",
        "client_secret": "mine",
        "tenant_id": "tenant",
    }


def test_more_of_azure() -> None:
    settings = {
        "fs.azure.sas.fixed.token.mine.dfs.core.windows.net": "sig",
        "fs.azure.account.oauth2.client.id": "me",
        "fs.azure.account.oauth2.client.secret": "s",
        "fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.com/tenant-7/oauth2/token",
    }
    assert obstore_options("data@mine.dfs.core.windows.net", settings) == {
        "sas_key": "sig",
        "client_id": "me",
        "client_secret": "s",
        "tenant_id": "tenant-7",
    }


@pytest.mark.parametrize(
    ("root", "options", "defaults", "expected"),
    [
        ("s3://b/t", {"AWS_REGION": "there"}, {"fs.s3a.endpoint.region": "here"}, {"region": "there"}),
        ("s3://b/t", {"endpoint_url": "http://x"}, {"fs.s3a.endpoint": "http://y"}, {"endpoint": "http://x"}),
        (
            "s3://b/t",
            {"aws_access_key_id": "X", "Secret_Access_Key": "S", "AWS_TOKEN": "Y"},
            {"fs.s3a.access.key": "A", "fs.s3a.session.token": "B"},
            {"access_key_id": "X", "secret_access_key": "S", "session_token": "Y"},
        ),
        (
            "abfss://c@mine.dfs.core.windows.net/t",
            {"AZURE_STORAGE_ACCESS_KEY": "QUJD"},
            AZURE,
            {"account_key": "QUJD", "account_name": "mine"},
        ),
        (
            "abfss://c@mine.dfs.core.windows.net/t",
            {"azure_authority_id": "tenant", "CLIENT_ID": "me", "client_secret": "s"},
            AZURE,
            {"tenant_id": "tenant", "client_id": "me", "client_secret": "s", "account_name": "mine"},
        ),
        ("gs://b/t", {"GOOGLE_SKIP_SIGNATURE": "true"}, {}, {"skip_signature": "true"}),
    ],
)
def test_an_option_has_one_name(
    root: str, options: dict[str, str], defaults: dict[str, str], expected: dict[str, str]
) -> None:
    store = open_store(root, options, defaults)
    assert isinstance(store, ObjectStore)
    found = {key: value for key, value in store._inner.config.items() if key not in _OF_URL}
    assert found == expected
    assert isinstance(store.files, Files)


@pytest.mark.parametrize("root", ["s3://b/t", "gs://b/t", "az://c/t", "https://host/t"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALLOW_HTTP", "true"),
        ("Timeout", "3s"),
        ("default_content_type", "text/plain"),
        ("http2_keep_alive_interval", "3s"),
        ("randomize_addresses", "false"),
    ],
)
def test_options_of_the_client(root: str, name: str, value: str) -> None:
    account = {"azure_storage_account_name": "a"} if root.startswith("az") else {}
    prefix = {"s3": "AWS_", "gs": "google_", "az": "azure_"}.get(root.partition(":")[0], "")
    for given in (name, prefix + name):
        store = open_store(root, {given: value, **account})
        assert isinstance(store, ObjectStore)
        assert store._inner.client_options == {name.lower(): value}


def test_an_option_under_two_names() -> None:
    with pytest.raises(DeltaTableException, match="AWS_REGION and region are two names"):
        open_store("s3://b/t", {"AWS_REGION": "here", "region": "there"})


@pytest.mark.parametrize(
    ("kind", "authority", "options", "expected"),
    [
        (
            "s3",
            "b",
            {"access_key_id": "A", "secret_access_key": "S", "endpoint": "http://minio:9000", "allow_http": "true"},
            {"access_key": "A", "secret_key": "S", "endpoint_override": "minio:9000", "scheme": "http"},
        ),
        ("s3", "b", {"region": "r", "skip_signature": "true", "timeout": "5s"}, {"region": "r", "anonymous": True}),
        ("az", "c@acc.dfs.core.windows.net", {"account_key": "K"}, {"account_name": "acc", "account_key": "K"}),
        ("az", "c@acc.dfs.core.windows.net", {"sas_key": "a=1"}, {"account_name": "acc", "sas_token": "?a=1"}),
        ("az", "c@acc.dfs.core.windows.net", {"sas_key": "?a=1"}, {"account_name": "acc", "sas_token": "?a=1"}),
        (
            "az",
            "c@acc.dfs.core.usgovcloudapi.net",
            {"account_key": "K"},
            {
                "account_name": "acc",
                "account_key": "K",
                "blob_storage_authority": ".blob.core.usgovcloudapi.net",
                "dfs_storage_authority": ".dfs.core.usgovcloudapi.net",
            },
        ),
        (
            "az",
            "w@onelake.dfs.fabric.microsoft.com",
            {"client_id": "i", "client_secret": "s", "tenant_id": "t"},
            {
                "account_name": "onelake",
                "client_id": "i",
                "client_secret": "s",
                "tenant_id": "t",
                "blob_storage_authority": ".blob.fabric.microsoft.com",
                "dfs_storage_authority": ".dfs.fabric.microsoft.com",
            },
        ),
        (
            "s3",
            "bkt",
            {"region": "r", "virtual_hosted_style_request": "true", "endpoint": "http://bkt.minio:9000"},
            {"region": "r", "force_virtual_addressing": True, "endpoint_override": "minio:9000", "scheme": "http"},
        ),
        ("gs", "b", {"skip_signature": "true"}, {"anonymous": True}),
    ],
)
def test_tasks_get_pyarrows_names(kind: str, authority: str, options: dict[str, str], expected: dict[str, str]) -> None:
    files = task_files(kind, authority, options)
    assert isinstance(files, Files)
    assert files.options == expected
    assert "S" not in repr(files).replace("Files", "")


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        ("s3n://b/t", {}, None),
        *(
            (f"abfss://c@{host}/t", {"account_key": "a2V5"}, f"https://{blobs}")
            for host, blobs in {
                "acc.dfs.core.usgovcloudapi.net": "acc.blob.core.usgovcloudapi.net",
                "acc.blob.core.chinacloudapi.cn": "acc.blob.core.chinacloudapi.cn",
                "acc.z01.dfs.storage.azure.net": "acc.z01.blob.storage.azure.net",
            }.items()
        ),
        ("abfss://c@acc.dfs.core.usgovcloudapi.net/t", {"endpoint": "https://here"}, "https://here"),
    ],
)
def test_urls_that_obstore_does_not_know(url: str, options: dict[str, str], expected: str | None) -> None:
    store = open_store(url, options)
    assert isinstance(store, ObjectStore)
    assert store.root == url
    if expected is not None:
        config = store._inner.config
        assert (config["endpoint"], config["account_name"], config["container_name"]) == (expected, "acc", "c")
    scheme, _, authority = url.removesuffix("/t").partition("://")
    assert open_bucket(f"{scheme}://{authority}", {"config": options}) == store._inner


def test_data_lake_of_the_first_generation_is_hadoops() -> None:
    with pytest.raises(DeltaTableException, match="There is no store for 'adl' paths"):
        open_store("adl://account.azuredatalakestore.net/t")


def test_accounts_of_other_clouds() -> None:
    host = "acc.z01.dfs.storage.azure.net"
    assert obstore_options(f"c@{host}", {f"fs.azure.account.key.{host}": "a2V5"}) == {"account_key": "a2V5"}
    client = {"fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.us/tenant-7/oauth2/token"}
    expected = {"tenant_id": "tenant-7", "authority_host": "https://login.microsoftonline.us"}
    assert obstore_options("c@acc.dfs.core.usgovcloudapi.net", client) == expected
    own = {"fs.azure.account.oauth2.client.endpoint.acc": "https://Login.windows.net/tenant-8/oauth2/token"}
    own = {f"{key}.dfs.core.windows.net": value for key, value in own.items()}
    assert obstore_options("c@acc.dfs.core.windows.net", {**client, **own}) == {"tenant_id": "tenant-8"}
    open_store("abfss://c@acc.dfs.core.usgovcloudapi.net/t", {**client, "client_id": "me", "client_secret": "s"})


def test_object_stores_need_no_single_writer() -> None:
    assert open_store("s3a://b/t", {"single_writer": "true", "region": "r"}).root == "s3a://b/t"


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("s3", {"sse_kms_key_id": "k"}),
        ("s3", {"virtual_hosted_style_request": "true", "endpoint": "http://minio"}),
        ("", {}),
        ("az", {"account_key": "K"}),
    ],
)
def test_options_that_tasks_do_not_know(kind: str, options: dict[str, str]) -> None:
    assert isinstance(task_files(kind, "b", options), NotOpened)
