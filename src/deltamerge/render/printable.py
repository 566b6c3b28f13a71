"""Strings that a terminal and a page show as they are, whoever wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

T = TypeVar("T")

# Control characters may move a terminal's cursor, direction marks may reorder a line; each is shown as one character.
_SHOWN = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: 0x2421,
    **dict.fromkeys([*range(0x80, 0xA0), 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)], 0xFFFD),
}


def printable(data: T) -> T:
    """Return frozen data in which every string has symbols instead of control characters."""
    found: T = _printable(data)
    return found


def _printable(data: Any) -> Any:  # noqa: ANN401
    if isinstance(data, str):
        return data.replace("\r\n", "\n").translate(_SHOWN)
    if isinstance(data, tuple):
        return tuple(map(_printable, data))
    if isinstance(data, Mapping):
        return {_printable(key): _printable(value) for key, value in data.items()}
    if is_dataclass(data) and not isinstance(data, type):
        return replace(data, **{field.name: _printable(getattr(data, field.name)) for field in fields(data)})
    return data
