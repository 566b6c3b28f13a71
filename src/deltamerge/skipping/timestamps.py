"""Dates, timestamps and time zones as statistics and partition values spell them, in days and microseconds.

Functions return None where a string is not surely what Spark would read: a caller then keeps the file.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

EPOCH_DATE = date(1970, 1, 1)
EPOCH = datetime.combine(EPOCH_DATE, time.min)
MICROS_PER_DAY = 86_400_000_000

# Java prints offsets without their seconds, and zones had seconds until Liberia dropped its own in 1972: a
# string such as 1890-01-01T00:00:00.000-07:52 is up to a minute off. (From 1973 on no zone has seconds.)
MICROS_1973 = 94_694_400_000_000
OFFSET_SLACK_MICROS = 60_000_000

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
# As Spark writes years that have not four digits.
_FAR_YEAR = re.compile(r"([+-]\d{4,6}|0000)(?=-)", re.ASCII)
_DAYS_OF_400_YEARS = 146_097
_TIMESTAMP = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)"
    r"(?:[ T](?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,9}))?"
    r"(?P<offset>Z|[+-]\d\d:?\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
# As Spark casts strings.
_CAST = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})(?:[ T](?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})"
    r"(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?"
    r" *(?P<zone>[A-Za-z].*|[+-]\d{1,2}(?::\d\d){0,2}|[+-]\d{4}|[+-]\d{6})?)?)?)?)?)?",
    re.ASCII,
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d))?(?::?(\d\d))?", re.ASCII)
# These have Java's old meaning in Spark (PST is Los Angeles, EST a fixed offset), another in zoneinfo.
_SHORT_ID = re.compile(r"[A-Z]{3}")


# Python's rules for a zone may be of another release than Java's, and before 1970 differ by choice: since 2022 the tz
# database gives Amsterdam the past of Brussels, which Java does not follow. Alaska and Manila were a day apart.
ZONE_SLACK_MICROS = 26 * 3_600_000_000


@lru_cache(maxsize=64)
def session_zone(name: str) -> tzinfo | None:
    """Return the time zone that ``spark.sql.session.timeZone`` names, or None where it may be another to Spark."""
    if name in ("UTC", "GMT", "UT", "Z", "Etc/UTC"):
        return timezone.utc
    match = _OFFSET.fullmatch(name)
    if match:
        sign, hours, minutes, seconds = match.groups()
        size = timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
        if size > timedelta(hours=18):
            return None
        return timezone(size if sign == "+" else -size)
    if _SHORT_ID.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def is_fixed(zone: tzinfo) -> bool:
    """Return whether a zone is an offset from UTC, which Python and Java know alike at all times."""
    return isinstance(zone, timezone)


def days_of(value: date) -> int:
    return value.toordinal() - EPOCH_DATE.toordinal()


def local_micros(value: datetime) -> int:
    """Return a local time as microseconds since 1970-01-01 00:00 on the same clock."""
    since = value.replace(tzinfo=None) - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def instant_micros(value: datetime) -> int:
    """Return an instant (a datetime with a time zone) as microseconds since the epoch."""
    offset = value.utcoffset()
    assert offset is not None
    shift = (offset.days * 86_400 + offset.seconds) * 1_000_000 + offset.microseconds
    return local_micros(value) - shift


def zoned_micros(value: datetime, zone: tzinfo) -> int:
    """Return the instant of a local time in a zone.

    In an overlap it is the earlier instant, in a gap the clock goes on with the offset before it, as in Java (and
    so Spark).
    """
    return instant_micros(value.replace(tzinfo=zone, fold=0))


def in_known_years(string: str) -> tuple[str, int]:
    """Return a date or time whose year is beyond 1 to 9999 with one among these, and how many days lie between both.

    The calendar repeats itself after 400 years.
    """
    match = _FAR_YEAR.match(string)
    if match is None:
        return string, 0
    year = int(match[0])
    near = 2000 + year % 400
    return f"{near}{string[match.end() :]}", (year - near) // 400 * _DAYS_OF_400_YEARS


def parse_date(string: str) -> int | None:
    """Return ``yyyy-MM-dd`` as days since 1970-01-01, or None."""
    match = _DATE.fullmatch(string)
    if match is None:
        return None
    try:
        return days_of(date(*(int(part) for part in match.groups())))
    except ValueError:
        return None


def parse_timestamp(string: str) -> tuple[datetime, str | None] | None:
    """Split a timestamp such as ``2024-01-01T10:00:00.000000Z`` into its local time and its offset.

    Digits below a microsecond are dropped; None for the offset where there is none, and for all where the string is
    no timestamp of the years 1 to 9999.
    """
    match = _TIMESTAMP.fullmatch(string)
    if match is None:
        return None
    parts = match.groupdict()
    try:
        clock = time(
            int(parts["hour"] or 0),
            int(parts["minute"] or 0),
            int(parts["second"] or 0),
            int((parts["fraction"] or "0")[:6].ljust(6, "0")),
        )
        local = datetime.combine(date.fromisoformat(parts["day"]), clock)
    except ValueError:
        return None
    return local, parts["offset"]


def split_cast(string: str) -> tuple[str, str | None] | None:
    """Split a string that Spark casts to a timestamp into one for `parse_timestamp` and its time zone.

    None for the zone where it has none, and for all where it is no timestamp with a year of four digits.
    """
    match = _CAST.fullmatch(string.strip())
    if match is None:
        return None
    parts = match.groupdict()
    year, month, day, hour, minute, second = (
        (parts[name] or least).zfill(2)
        for name, least in (("year", ""), ("month", "1"), ("day", "1"), ("hour", ""), ("minute", ""), ("second", ""))
    )
    fraction = (parts["fraction"] or "")[:6] or "0"
    return f"{year}-{month}-{day} {hour}:{minute}:{second}.{fraction}", parts["zone"]


def certain_instant(string: str, session_time_zone: str) -> int | None:
    """Return a timestamp as microseconds since the epoch, as Spark surely reads it.

    One without an offset is in the session's time zone: None where that has rules of its own.
    """
    zone = session_zone(session_time_zone)
    return _instant(string, zone if zone is not None and is_fixed(zone) else None)


def rough_instant(string: str, session_time_zone: str) -> int | None:
    """Return a timestamp as microseconds since the epoch, at most `ZONE_SLACK_MICROS` off."""
    return _instant(string, session_zone(session_time_zone) or timezone.utc)


def parse_instant(string: str, session_time_zone: str) -> int | None:
    """Return a timestamp as microseconds since the epoch, as Spark reads it if it knows the same of the time zone.

    None for times before 1970 without an offset, where Java and Python know different ones.
    """
    found, certain = _instant(string, session_zone(session_time_zone)), certain_instant(string, session_time_zone)
    return found if found is None or found >= 0 else certain


def _instant(string: str, zone: tzinfo | None) -> int | None:
    parsed = parse_timestamp(string)
    if parsed is None:
        return None
    local, offset = parsed
    if offset is not None:
        return local_micros(local) - offset_micros(offset)
    return None if zone is None else zoned_micros(local, zone)


def offset_micros(offset: str) -> int:
    """Return an offset (``Z``, ``+01:00``, ``-0752``) in microseconds east of UTC."""
    if offset == "Z":
        return 0
    digits = offset[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:6] or 0)
    return (seconds if offset[0] == "+" else -seconds) * 1_000_000
