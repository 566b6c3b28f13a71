"""Options of an object store under Hadoop's names, as scripts and sessions have them, under obstore's."""

from __future__ import annotations

import re
from collections.abc import Mapping

_S3A: dict[str, str] = {
    "fs.s3a.access.key": "access_key_id",
    "fs.s3a.secret.key": "secret_access_key",
    "fs.s3a.session.token": "session_token",
    "fs.s3a.endpoint.region": "region",
}
_ENDPOINT = "fs.s3a.endpoint"
_SSL = "fs.s3a.connection.ssl.enabled"
_PATH_STYLE = "fs.s3a.path.style.access"
_PROVIDER = "fs.s3a.aws.credentials.provider"
_ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
_S3A_KEYS = (*_S3A, _ENDPOINT, _SSL, _PATH_STYLE, _PROVIDER)
_HOST = r"([^.]+)\.(?:dfs|blob)\.[^/]+"
_ACCOUNT_KEY = re.compile(rf"fs\.azure\.account\.key\.{_HOST}")
_SAS = re.compile(rf"fs\.azure\.sas\.fixed\.token\.{_HOST}")
_CLIENT = re.compile(rf"fs\.azure\.account\.oauth2\.client\.(id|secret|endpoint)(?:\.{_HOST})?")
_TENANT = re.compile(r"https://[^/]+/([^/]+)/")
_KEYFILE = ("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile")
_CREDENTIALS = ("key", "token", "secret", "client_id", "tenant", "service_account", "skip_signature", "credential")
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
        clients = tuple(f"fs.azure.account.oauth2.client.{part}" for part in ("id", "secret", "endpoint"))
        own = (f"{key}.{name}" for name in sorted(hosts) for key in ("fs.azure.account.key", _SAS_KEY, *clients))
        return (*clients, *own)
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


def obstore_options(authority: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return options of a store under obstore's names.

    An option given under obstore's own name wins, and one of the bucket over one of all buckets; the key of another
    Azure account is left out. `authority` is a bucket, or ``container@account.dfs.core.windows.net``.
    """
    own = {key: options[of_bucket] for key in _S3A_KEYS if (of_bucket := _of_bucket(key, authority)) in options}
    given = {key: value for key, value in options.items() if not key.startswith("fs.s3a.bucket.")} | own
    translated: dict[str, str] = {}
    others: dict[str, str] = {}
    for key, value in given.items():
        if key in _S3A:
            translated[_S3A[key]] = value
        elif key == _ENDPOINT:
            scheme = "http" if given.get(_SSL, "true").lower() == "false" else "https"
            translated["endpoint"] = value if "://" in value else f"{scheme}://{value}"
            if translated["endpoint"].startswith("http://"):
                translated["allow_http"] = "true"
        elif key == _PATH_STYLE:
            # FALSE is Hadoop's default. For obstore the other style would mean that the bucket is in the endpoint.
            if value.lower() == "true":
                translated["virtual_hosted_style_request"] = "false"
        elif key == _PROVIDER:
            if value.strip() == _ANONYMOUS:
                translated["skip_signature"] = "true"
        elif key in _KEYFILE:
            translated["service_account"] = value
        elif key.startswith("fs.azure."):
            translated |= _azure(authority.partition("@")[2].partition(".")[0], key, value)
        elif key != _SSL:
            others[key] = value
    return {**translated, **others}


def with_defaults(authority: str, options: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return options under obstore's names, and those of others for what they do not give.

    Who gives credentials gives all of them: a token of others would not belong to them.
    """
    given, others = obstore_options(authority, options), obstore_options(authority, defaults)
    if any(_is_credential(key) for key in given):
        others = {key: value for key, value in others.items() if not _is_credential(key)}
    return {**others, **given}


def _is_credential(key: str) -> bool:
    return any(part in key.lower() for part in _CREDENTIALS)


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
        return {} if tenant is None else {"tenant_id": tenant.group(1)}
    return {f"client_{part}": value}


def _of_bucket(key: str, bucket: str) -> str:
    return f"fs.s3a.bucket.{bucket}.{key.removeprefix('fs.s3a.')}"
