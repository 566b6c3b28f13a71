"""Options as PySpark's readers and writers take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def asked_options(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, str]:
    """Return what a call of ``option`` or ``options`` sets, as strings; None sets nothing."""
    given = dict(kwargs)
    if name == "option":
        named = {**dict(zip(("key", "value"), args, strict=False)), **kwargs}
        given = {str(named["key"]): named["value"]}
    return {key: _string(value) for key, value in given.items() if value is not None}


def _string(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
