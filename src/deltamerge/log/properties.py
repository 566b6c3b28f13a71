"""Table properties that govern the log: intervals, numbers and switches in `metaData.configuration`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import Metadata

IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"

_MILLISECONDS = {
    "week": 7 * 24 * 3_600_000,
    "day": 24 * 3_600_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1_000,
    "millisecond": 1,
}
_PART = re.compile(r"\s*'?(\d+(?:\.\d+)?)'?\s*([a-z]+?)s?(?=\s|$|\d)")


def interval_ms(metadata: Metadata, key: str, default: str) -> int:
    value = metadata.configuration.get(key, default)
    try:
        return parse_interval(value)
    except ValueError as error:
        raise DeltaTableException(
            "DELTA_INVALID_INTERVAL",
            f"The table property {key} is '{value}', which is no interval ({error}). Write it as 'interval 7 days'.",
            parameters={"interval": value},
        ) from error


def parse_interval(string: str) -> int:
    """Return an interval such as ``interval 30 days`` or ``1 week 12 hours`` in milliseconds.

    Months and years have no fixed length and are refused, as delta-spark does.

    >>> parse_interval("interval 1 day 2 hours")
    93600000
    """
    rest = string.strip().lower().removeprefix("interval")
    total = 0.0
    at = 0
    while rest[at:].strip():
        match = _PART.match(rest, at)
        if match is None:
            raise ValueError(f"cannot read '{rest[at:].strip()}'")
        unit = match[2]
        if unit == "microsecond":
            total += float(match[1]) / 1_000
        elif unit in _MILLISECONDS:
            total += float(match[1]) * _MILLISECONDS[unit]
        else:
            raise ValueError(f"no unit of fixed length: '{unit}'")
        at = match.end()
    if at == 0:
        raise ValueError("it is empty")
    return int(total)


def is_enabled(configuration: Mapping[str, str], key: str, *, default: bool = False) -> bool:
    value = configuration.get(key, "").lower()
    return value == "true" if value in ("true", "false") else default


def has_in_commit_timestamps(metadata: Metadata) -> bool:
    return is_enabled(metadata.configuration, IN_COMMIT_TIMESTAMPS)


def integer(configuration: Mapping[str, str], key: str, default: int) -> int:
    """Return a property that is a whole number; any other value counts as the default."""
    try:
        return int(configuration.get(key, default))
    except ValueError:
        return default
