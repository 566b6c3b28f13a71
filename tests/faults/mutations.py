"""Random damage to files: bytes of any file, and values of JSON."""

from __future__ import annotations

import json
import random
from typing import Any

_ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1 << 31, 1 << 63, 10**40, 0.5, -1e308, float("nan"), "", "x", "\x00", "\u202e", "1" * 5000,
    "../../../etc/passwd", "/etc/passwd", "s3://elsewhere/x", "%00", "%zz", "\ud800", "<script>", "\x1b[31m",
    [], {}, [[]], [None], {"": {}},
)  # fmt: skip


def damaged(content: bytes, seed: int, is_json: bool) -> bytes:
    """Returns a file's content with one to three changes."""
    rng = random.Random(seed)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice(_JSON + _BYTES if is_json else _BYTES)
        content = change(content, rng)
    return content


def _flip(content: bytes, rng: random.Random) -> bytes:
    if not content:
        return b"\x00"
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]


def _flip_near_the_end(content: bytes, rng: random.Random) -> bytes:
    """Parquet's footer is there."""
    kept = max(0, len(content) - 400)
    return content[:kept] + _flip(content[kept:], rng)


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _without_a_range(content: bytes, rng: random.Random) -> bytes:
    begin, end = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    return content[:begin] + content[end:]


def _zeros(content: bytes, rng: random.Random) -> bytes:
    begin = rng.randrange(len(content) + 1)
    end = min(len(content), begin + rng.choice((1, 8, 64, 4096)))
    return content[:begin] + bytes(end - begin) + content[end:]


def _inserted(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.randbytes(rng.choice((1, 4, 100))) + content[at:]


def _twice(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    return b"\n".join([*lines[:at], lines[at], *lines[at:]])


def _without_a_line(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    del lines[rng.randrange(len(lines))]
    return b"\n".join(lines)


def _other_value(content: bytes, rng: random.Random) -> bytes:
    """Puts something odd in the place of a value anywhere in a line's JSON."""
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    try:
        value = json.loads(lines[at])
    except ValueError:
        return _flip(content, rng)
    lines[at] = json.dumps(_changed(value, rng)).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _changed(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: _changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], _changed(value[at], rng), *value[at + 1 :]]
    if isinstance(value, str) and value.startswith("{") and rng.random() < 0.7:
        try:
            return json.dumps(_changed(json.loads(value), rng))
        except ValueError:
            pass
    return rng.choice(_ODD)


_BYTES = [_flip, _flip, _flip_near_the_end, _cut, _without_a_range, _zeros, _inserted]
_JSON = [_other_value, _other_value, _other_value, _other_value, _twice, _without_a_line]
