"""Options of an object store under Hadoop's names, as scripts and sessions have them, under obstore's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from deltamerge.exceptions import DeltaTableException
from deltamerge.storage.option_names import canonical

_S3A: dict[str, str] = {
    "fs.s3a.access.key": "access_key_id",
    "fs.s3a.secret.key": "secret_access_key",
    "fs.s3a.session.token": "session_token",
    "fs.s3a.endpoint.region": "region",
}
_ENDPOINT, _REGION, _CENTRAL = "fs.s3a.endpoint", "fs.s3a.endpoint.region", "s3.amazonaws.com"
# S3A takes the region of an endpoint of Amazon's from its name.
_REGIONAL = re.compile(r"(?:^|/)s3(?:-fips)?[.-](?:dualstack\.)?([a-z]+(?:-[a-z]+)+-\d+)\.amazonaws\.com")
_SSL = "fs.s3a.connection.ssl.enabled"
_PATH_STYLE = "fs.s3a.path.style.access"
_PROVIDER = "fs.s3a.aws.credentials.provider"
_ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
# The older name comes first: the newer one wins.
_ALGORITHM = ("fs.s3a.server-side-encryption-algorithm", "fs.s3a.encryption.algorithm")
_ENCRYPTION_KEY = ("fs.s3a.server-side-encryption.key", "fs.s3a.encryption.key")
_CONTEXT = "fs.s3a.encryption.context"
_REQUESTER_PAYS = "fs.s3a.requester.pays.enabled"
# Of each way of encryption obstore's name of it, and of its key.
_ENCRYPTIONS = {
    "AES256": ("AES256", None),
    "SSE-KMS": ("aws:kms", "sse_kms_key_id"),
    "DSSE-KMS": ("aws:kms:dsse", "sse_kms_key_id"),
    "SSE-C": ("sse-c", "sse_customer_key_base64"),
}
_ENCRYPTED_BY = "server_side_encryption"
# What would be another file, or one that others cannot read, if it was passed over.
_REFUSED = ("fs.s3a.acl.default", "fs.s3a.accesspoint.arn")
_ENCRYPTION = (*_ALGORITHM, *_ENCRYPTION_KEY, _CONTEXT)
_S3A_KEYS = (*_S3A, _ENDPOINT, _SSL, _PATH_STYLE, _PROVIDER, _REQUESTER_PAYS, *_ENCRYPTION, *_REFUSED)
# An account may be in a DNS zone.
_HOST = r"([^.]+)(?:\.z\d+)?\.(?:dfs|blob)\.[^/]+"
_ACCOUNT_KEY = re.compile(rf"fs\.azure\.account\.key\.{_HOST}")
_SAS = re.compile(rf"fs\.azure\.sas\.fixed\.token\.{_HOST}")
_CLIENT = re.compile(rf"fs\.azure\.account\.oauth2\.client\.(id|secret|endpoint)(?:\.{_HOST})?")
_CLIENTS_OF_ALL = tuple(f"fs.azure.account.oauth2.client.{part}" for part in ("id", "secret", "endpoint"))
_TENANT = re.compile(r"(https://[^/]+)/([^/]+)/")
_LOGIN = "authority_host"
# That of the public cloud and its older names, for which nothing has to be set.
_PUBLIC_LOGINS = frozenset(
    f"https://{host}"
    for host in ("login.microsoftonline.com", "login.windows.net", "login.microsoft.com", "sts.windows.net")
)
_KEYFILE = ("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile")
_CREDENTIALS = (
    "key",
    "token",
    "secret",
    "client_id",
    "tenant",
    "authority_host",
    "service_account",
    "skip_signature",
    "credential",
)
_S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
_AZURE_SCHEMES = frozenset({"abfs", "abfss", "az", "azure", "wasb", "wasbs"})


def keys_of_store(scheme: str, authority: str) -> tuple[str, ...]:
    """Return the settings of Hadoop's that say how a store is reached, as far as they are known here.

    `authority` is as for `obstore_options`.
    """
    if scheme in _S3_SCHEMES:
        return (*_S3A_KEYS, *(_of_bucket(key, authority) for key in _S3A_KEYS))
    if scheme in _AZURE_SCHEMES:
        host = authority.partition("@")[2]
        hosts = {host, host.replace(".blob.", ".dfs."), host.replace(".dfs.", ".blob.")} - {""}
        settings = ("fs.azure.account.key", _SAS_KEY, *_CLIENTS_OF_ALL)
        return (*_CLIENTS_OF_ALL, *(f"{key}.{name}" for name in sorted(hosts) for key in settings))
    if scheme in ("hdfs", "viewfs"):
        return _HDFS
    return _KEYFILE if scheme == "gs" else ()


_HDFS = (
    "fs.defaultFS",
    "hadoop.security.authentication",
    "dfs.nameservices",
    "dfs.client.use.datanode.hostname",
    "dfs.data.transfer.protection",
)
_HDFS_PREFIXES = ("dfs.ha.namenodes.", "dfs.namenode.rpc-address.", "fs.viewfs.mounttable.")


def prefixes_of_store(scheme: str) -> tuple[str, ...]:
    """Return what the names of further settings of Hadoop's begin with, as `keys_of_store`."""
    return _HDFS_PREFIXES if scheme in ("hdfs", "viewfs") else ()


_SAS_KEY = "fs.azure.sas.fixed.token"


def obstore_options(authority: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a store under obstore's names.

    An option given under obstore's own name wins, and one of the bucket or the Azure account over one of all; the key
    of another account is left out. `authority` is a bucket, or ``container@account.dfs.core.windows.net``.
    """
    own = {key: options[of_bucket] for key in _S3A_KEYS if (of_bucket := _of_bucket(key, authority)) in options}
    given = {key: value for key, value in options.items() if not key.startswith("fs.s3a.bucket.")} | own
    refused = next((key for key in _REFUSED if given.get(key)), None)
    if refused is not None:
        raise _refused(refused, given[refused])
    translated: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, value in given.items():
        if key in _S3A_KEYS:
            translated |= _s3a(key, value, given)
        elif key in _KEYFILE:
            translated["service_account"] = value
        elif key.startswith("fs.azure."):
            found = _azure(authority.partition("@")[2].partition(".")[0], key, value)
            translated = {**found, **translated} if key in _CLIENTS_OF_ALL else {**translated, **found}
        else:
            others[key] = value
    if translated.get(_LOGIN, "").lower() in _PUBLIC_LOGINS:
        del translated[_LOGIN]
    return {**translated, **_encryption(given), **others}


def _s3a(key: str, value: str, given: Mapping[str, Any]) -> dict[str, str]:
    if key in _S3A:
        return {_S3A[key]: value}
    if key == _ENDPOINT:
        # S3A's central endpoint is none of a region: without one obstore has the region's own.
        if value.strip().rpartition("//")[2].rstrip("/") in ("", _CENTRAL):
            return {}
        scheme = "http" if given.get(_SSL, "true").lower() == "false" else "https"
        endpoint = value if "://" in value else f"{scheme}://{value}"
        region = _REGIONAL.search(value)
        return {
            "endpoint": endpoint,
            **({"allow_http": "true"} if endpoint.startswith("http://") else {}),
            **({} if region is None or _REGION in given else {"region": region[1]}),
        }
    # FALSE is Hadoop's default. For obstore the other style would mean that the bucket is in the endpoint.
    if key == _PATH_STYLE and value.lower() == "true":
        return {"virtual_hosted_style_request": "false"}
    if key == _PROVIDER and value.strip() == _ANONYMOUS:
        return {"skip_signature": "true"}
    if key == _REQUESTER_PAYS and value.lower() == "true":
        return {"request_payer": "true"}
    return {}


def _encryption(given: Mapping[str, str]) -> dict[str, str]:
    named = [(key, given[key]) for key in _ALGORITHM if given.get(key)]
    if not named:
        return {}
    setting, algorithm = named[-1]
    if algorithm.upper() not in _ENCRYPTIONS:
        raise _refused(setting, algorithm)
    name, option = _ENCRYPTIONS[algorithm.upper()]
    if option == "sse_kms_key_id" and given.get(_CONTEXT):
        raise _refused(_CONTEXT, "…")
    keys = [given[key] for key in _ENCRYPTION_KEY if given.get(key)]
    return {_ENCRYPTED_BY: name, **({option: keys[-1]} if keys and option is not None else {})}


def _refused(setting: str, value: str) -> DeltaTableException:
    return DeltaTableException(
        "DELTAMERGE_UNSUPPORTED_STORE_SETTING",
        f"The setting {setting} = {value} is not supported for the table's log, and files written without it would be "
        "others than Spark writes. Unset it, also for the bucket (fs.s3a.bucket.<bucket>.…).",
        parameters={"setting": setting},
    )


def with_defaults(kind: str, authority: str, options: Mapping[str, Any], defaults: Mapping[str, str]) -> dict[str, Any]:
    """Return options under the names that `canonical` gives, and those of others for what they do not give.

    Who gives credentials gives all of them: a token of others would not belong to them. So it is with a way of
    encryption and its key.
    """
    given = obstore_options(authority, canonical(kind, options))
    others = obstore_options(authority, canonical(kind, defaults))
    if any(_is_credential(key) for key in given):
        others = {key: value for key, value in others.items() if not _is_credential(key)}
    if _ENCRYPTED_BY in given:
        others = {key: value for key, value in others.items() if not _is_encryption(key)}
    return {**others, **given}


def _is_credential(key: str) -> bool:
    return any(part in key for part in _CREDENTIALS) and not _is_encryption(key)


def _is_encryption(key: str) -> bool:
    return key.startswith("sse_") or key in (_ENCRYPTED_BY, "encryption_key")


def _azure(account: str, key: str, value: str) -> dict[str, str]:
    if (found := _ACCOUNT_KEY.fullmatch(key)) is not None:
        return {"account_key": value} if found.group(1) == account else {}
    if (found := _SAS.fullmatch(key)) is not None:
        return {"sas_key": value} if found.group(1) == account else {}
    if (found := _CLIENT.fullmatch(key)) is None:
        return {key: value}
    part, of_account = found.groups()
    if of_account not in (None, account):
        return {}
    if part == "endpoint":
        tenant = _TENANT.match(value)
        return {} if tenant is None else {_LOGIN: tenant.group(1), "tenant_id": tenant.group(2)}
    return {f"client_{part}": value}


def _of_bucket(key: str, bucket: str) -> str:
    return f"fs.s3a.bucket.{bucket}.{key.removeprefix('fs.s3a.')}"
