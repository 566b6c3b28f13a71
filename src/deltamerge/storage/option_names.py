"""The options of obstore's stores under one name each: obstore takes several, in any case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltamerge.exceptions import DeltaTableException

# The longer ones come first.
_PREFIXES = {"s3": ("aws_",), "az": ("azure_storage_", "azure_"), "gs": ("google_",)}
_OF_HADOOP = ("fs.", "google.cloud.")
_NAMES = {
    "s3": {
        "token": "session_token",
        "endpoint_url": "endpoint",
        "endpoint_url_s3": "endpoint",
    },
    "az": {
        **dict.fromkeys(("access_key", "master_key"), "account_key"),
        "authority_id": "tenant_id",
        "sas_token": "sas_key",
        "bearer_token": "token",
        "identity_endpoint": "msi_endpoint",
    },
    "gs": {"service_account_path": "service_account"},
}


def canonical(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options, each under the one name that this package knows; those with names of Hadoop's stay.

    Args:
        kind: As `store_kind` has it.

    Raises:
        DeltaTableException: Two of them are the same option.
    """
    found: dict[str, str] = {}
    for name in options:
        known = _canonical(kind, name)
        if known in found:
            raise DeltaTableException(
                "DELTAMERGE_DUPLICATE_STORE_OPTION",
                f"The store's options {found[known]} and {name} are two names of one option. Leave out one of them.",
                parameters={"option": known},
            )
        found[known] = name
    return {known: options[name] for known, name in found.items()}


def _canonical(kind: str, name: str) -> str:
    if name.startswith(_OF_HADOOP):
        # They have names of buckets and accounts in them.
        return name
    bare = name.lower()
    prefix = next((prefix for prefix in _PREFIXES.get(kind, ()) if bare.startswith(prefix)), "")
    bare = bare.removeprefix(prefix)
    return _NAMES.get(kind, {}).get(bare, bare)
