"""What a terminal and a page show as it is: strings, whoever wrote them, and numbers, bytes and times in words."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from deltamerge.merge.outcome import MergeExplanation, MergeOutcome
from deltamerge.merge.plan import MergePlan

T = TypeVar("T")

# Control characters may move a terminal's cursor, direction marks may reorder a line; each is shown as one character.
_OF_LINES = (*range(0x80, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
# One half of a pair cannot be written as UTF-8; JSON in UTF-8 has it as an escape.
_SURROGATES = range(0xD800, 0xE000)
_SHOWN = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: 0x2421,
    **dict.fromkeys((*_OF_LINES, *_SURROGATES), 0xFFFD),
}
_ESCAPED = {code: f"\\u{code:04x}" for code in (0x7F, *_OF_LINES, *_SURROGATES)}


_BYTE_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def printable(data: T) -> T:
    """Return data in which every string has symbols instead of control characters and halves of surrogate pairs."""
    found: T = _printable(data)
    return found


def _printable(data: Any) -> Any:  # noqa: ANN401
    if isinstance(data, str):
        return data.replace("\r\n", "\n").translate(_SHOWN)
    if isinstance(data, (list, tuple)):
        return type(data)(map(_printable, data))
    if isinstance(data, Mapping):
        return {_printable(key): _printable(value) for key, value in data.items()}
    if is_dataclass(data) and not isinstance(data, type):
        return replace(data, **{field.name: _printable(getattr(data, field.name)) for field in fields(data)})
    return data


def printable_json(values: object, default: Callable[[Any], object] | None = None) -> str:
    """Return values as JSON, in which control characters, direction marks and halves of surrogate pairs are escaped."""
    return json.dumps(values, default=default, ensure_ascii=False, indent=2).translate(_ESCAPED)


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(number_of_bytes: int) -> str:
    """Return a size in powers of 1000: ``812 bytes``, ``1.2 kB``, ``31 MB``."""
    value, unit = float(number_of_bytes), 0
    # 999.5 would be written as 1000.
    while value >= 999.5 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    if unit == 0:
        return count(number_of_bytes, "byte")
    return f"{value:.1f} {_BYTE_UNITS[unit]}" if value < 9.95 else f"{value:.0f} {_BYTE_UNITS[unit]}"


def duration(milliseconds: int) -> str:
    """Return a time: ``0.04 s``, ``1.3 s``, ``2 min 05 s``, ``1 h 02 min``."""
    if milliseconds < 100:
        return f"{milliseconds / 1000:.2f} s"
    if milliseconds < 59_950:
        return f"{milliseconds / 1000:.1f} s"
    seconds = round(milliseconds / 1000)
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02} min"


def to_dict(data: MergeOutcome | MergeExplanation) -> dict[str, Any]:
    """Return a report or an explanation as plain values, fit for JSON; a plan has its name beside its decisions."""
    values: dict[str, Any] = _plain(data)
    return values


def to_json(data: MergeOutcome | MergeExplanation) -> str:
    return printable_json(to_dict(data))


def _plain(value: object) -> Any:  # noqa: ANN401
    if isinstance(value, MergePlan):
        return {"name": value.name, **_plain(value.decisions)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value
