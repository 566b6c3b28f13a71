"""How tasks open the files of an object store: by PyArrow's file systems, which every executor with PyArrow has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlsplit

from deltamerge.workers.azure import of_service
from deltamerge.workers.files import Files


@dataclass(frozen=True)
class NotOpened:
    """Why tasks do not open the files of a store."""

    reason: str


_KINDS = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    "gs": "gs",
    **dict.fromkeys(("az", "azure", "abfs", "abfss"), "az"),
    **dict.fromkeys(("hdfs", "viewfs"), "hdfs"),
}
_S3 = {
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "session_token": "session_token",
    "region": "region",
}
_AZURE = {
    "account_name": "account_name",
    "account_key": "account_key",
    "client_id": "client_id",
    "client_secret": "client_secret",
    "tenant_id": "tenant_id",
    "sas_key": "sas_token",
}
_PYARROWS_OWN = ("dfs.core.windows.net", "blob.core.windows.net")
# What concerns how requests are sent, not what they may do.
_OF_CLIENT = frozenset({"timeout", "connect_timeout", "read_timeout", "user_agent", "default_region"})


def store_kind(scheme: str) -> str:
    """Return the kind of store that a URL's scheme names; empty for one that PyArrow has no file system for."""
    return _KINDS.get(scheme.lower(), "")


def task_files(
    kind: str, authority: str, options: Mapping[str, Any], ranged: Mapping[str, Any] | None = None
) -> Files | NotOpened:
    """Return how tasks open a store's files.

    Args:
        kind: ``s3``, ``gs`` or ``az``; another store is not opened.
        authority: The URL's part before the path.
        options: The store's, under the names that `canonical` gives.
        ranged: The arguments of obstore's store with these options; see `Files`.
    """
    make = {"s3": _s3, "az": _azure, "gs": _gcs}.get(kind)
    if make is None:
        return NotOpened("PyArrow has no file system for the table's store")
    left = {key: str(value) for key, value in options.items() if key not in _OF_CLIENT}
    found = make(authority, left)
    if isinstance(found, str):
        return NotOpened(found)
    left.pop("allow_http", None)
    if left:
        return NotOpened(f"PyArrow's file system does not know the store's option {min(left)}")
    return Files(kind, found, ranged)


def _s3(bucket: str, given: dict[str, str]) -> dict[str, Any] | str:
    """Return the arguments of PyArrow's file system, or why there are none; takes the options that it knows."""
    made: dict[str, Any] = {_S3[key]: given.pop(key) for key in [*given] if key in _S3}
    endpoint = given.pop("endpoint", None)
    is_virtual = _is_true(given.pop("virtual_hosted_style_request", "false"))
    if endpoint is not None:
        parts = urlsplit(endpoint)
        if parts.path.strip("/"):
            return "tasks do not open an S3 endpoint with a path"
        # To obstore the bucket is then in the endpoint, and PyArrow puts it there.
        if is_virtual and not parts.netloc.startswith(f"{bucket}."):
            return "with virtual_hosted_style_request the bucket is the first part of the endpoint's host"
        host = parts.netloc.removeprefix(f"{bucket}.") if is_virtual else parts.netloc
        made |= {"endpoint_override": host, "scheme": parts.scheme or "https"}
    if is_virtual:
        made["force_virtual_addressing"] = True
    if _is_true(given.pop("skip_signature", "false")):
        made["anonymous"] = True
    return made


def _azure(authority: str, given: dict[str, str]) -> dict[str, Any] | str:
    made: dict[str, Any] = {_AZURE[key]: given.pop(key) for key in [*given] if key in _AZURE}
    if "sas_token" in made:
        # PyArrow puts it behind its URLs as it is.
        made["sas_token"] = "?" + made["sas_token"].removeprefix("?")
    if "@" in authority:
        made["account_name"], _, domain = authority.partition("@")[2].partition(".")
        if domain not in _PYARROWS_OWN:
            made |= {f"{each}_storage_authority": f".{of_service(domain, each)}" for each in ("blob", "dfs")}
    endpoint = given.pop("endpoint", None)
    if _is_true(given.pop("use_emulator", "false")):
        made.setdefault("account_name", "devstoreaccount1")
        endpoint = endpoint or "http://127.0.0.1:10000"
    if endpoint is not None:
        parts = urlsplit(endpoint)
        scheme, authority = parts.scheme or "https", parts.netloc
        made |= {"blob_storage_scheme": scheme, "blob_storage_authority": authority}
        made |= {"dfs_storage_scheme": scheme, "dfs_storage_authority": authority}
    return made if "account_name" in made else "tasks need the name of the Azure account (option account_name)"


def _gcs(_: str, given: dict[str, str]) -> dict[str, Any] | str:
    made: dict[str, Any] = {}
    if _is_true(given.pop("skip_signature", "false")):
        made["anonymous"] = True
    if (token := given.pop("bearer_token", None)) is not None:
        # PyArrow takes a token only with its end, of which it makes nothing.
        made |= {"access_token": token, "credential_token_expiration": datetime.now(timezone.utc) + timedelta(hours=1)}
    endpoint = given.pop("base_url", None)
    if endpoint is not None:
        parts = urlsplit(endpoint)
        made |= {"endpoint_override": parts.netloc, "scheme": parts.scheme or "https"}
    return made


def _is_true(value: str) -> bool:
    return value.lower() in ("true", "1")
