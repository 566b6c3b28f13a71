"""Google's service accounts for tasks, whose file system takes tokens and no keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timezone
from importlib import import_module
from pathlib import Path
from typing import Any

_PATHS = ("service_account", "application_credentials")
_KEY = "service_account_key"
_TRANSPORT = "google.auth.transport.requests"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


def without_service_account(
    options: Mapping[str, str],
) -> tuple[dict[str, str], Callable[[], dict[str, Any]] | None]:
    """Return a store's options without a service account, and a function that returns its tokens, if they have one.

    What the account's key says of the endpoint stays, as an option: an emulator's has ``gcs_base_url`` and
    ``disable_oauth``.
    """
    left = dict(options)
    paths = [left.pop(name) for name in _PATHS if name in left]
    key = left.pop(_KEY, None)
    if key is None and not paths:
        return left, None
    account = json.loads(Path(paths[0]).read_text(encoding="utf-8") if key is None else key)
    if "gcs_base_url" in account:
        left["base_url"] = account["gcs_base_url"]
    return left, lambda: _token(account)


def has_tokens() -> bool:
    """Return whether google-auth is there, which asks for tokens."""
    try:
        import_module(_TRANSPORT)
    except ImportError:
        return False
    return True


def _token(account: Mapping[str, Any]) -> dict[str, Any]:
    if account.get("disable_oauth"):
        # An emulator takes any.
        return {"token": "none", "expires_at": None}
    auth: Any = import_module("google.auth")
    credentials: Any = auth.load_credentials_from_dict(account, scopes=[_SCOPE])[0]
    credentials.refresh(import_module(_TRANSPORT).Request())
    return {"token": credentials.token, "expires_at": credentials.expiry.replace(tzinfo=timezone.utc)}
