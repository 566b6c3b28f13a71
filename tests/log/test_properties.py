from __future__ import annotations

import pytest

from deltamerge.exceptions import DeltaTableException
from deltamerge.log.actions import Metadata
from deltamerge.log.properties import interval_ms, is_enabled, parse_interval

HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("interval 30 days", 30 * DAY),
        ("interval 1 week", 7 * DAY),
        ("INTERVAL 2 WEEKS", 14 * DAY),
        ("7 days", 7 * DAY),
        ("interval 1 day 12 hours", 36 * HOUR),
        ("interval '5' minute", 300_000),
        ("interval 1.5 seconds", 1_500),
        ("interval 10 milliseconds 2000 microseconds", 12),
        ("  interval   0   hours ", 0),
        ("interval 1day2hours", 26 * HOUR),
    ],
)
def test_intervals(text: str, milliseconds: int) -> None:
    assert parse_interval(text) == milliseconds


@pytest.mark.parametrize("text", ["", "interval", "interval 1 month", "2 years", "days", "interval x days", "-1 day"])
def test_no_intervals(text: str) -> None:
    metadata = Metadata("id", configuration={"delta.logRetentionDuration": text})
    with pytest.raises(DeltaTableException, match=r"delta\.logRetentionDuration") as raised:
        interval_ms(metadata, "delta.logRetentionDuration", "interval 1 day")
    assert raised.value.getErrorClass() == "DELTA_INVALID_INTERVAL"


def test_defaults() -> None:
    assert interval_ms(Metadata("id"), "delta.x", "interval 1 day") == DAY
    assert is_enabled({}, "delta.x", default=True)
    assert not is_enabled({"delta.x": "False"}, "delta.x", default=True)
    assert is_enabled({"delta.x": "what"}, "delta.x", default=True)
