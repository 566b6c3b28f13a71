"""Numbers, bytes and times for people."""

from __future__ import annotations

_BYTE_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def count(number: int, noun: str) -> str:
    """Return a number of things: ``1 row``, ``1,234 rows``."""
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
