"""Functions that tell the time become one moment; what may be a column stays."""

import pytest

from deltamerge.sql.current_time import fix_current_time, names_time

MOMENT = 1_700_000_000_123_456
TIMESTAMP = "TIMESTAMP_LTZ'2023-11-14T22:13:20.123456Z'"
DATE = f"CAST({TIMESTAMP} AS DATE)"


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("current_timestamp()", TIMESTAMP),
        ("NOW ( ) + INTERVAL 1 DAY", f"{TIMESTAMP} + INTERVAL 1 DAY"),
        ("curdate() = current_date()", f"{DATE} = {DATE}"),
        ("localtimestamp()", f"CAST({TIMESTAMP} AS TIMESTAMP_NTZ)"),
        ("unix_timestamp() - 5", "CAST(1700000000 AS BIGINT) - 5"),
        ("unix_timestamp(ts)", "unix_timestamp(ts)"),
        ("date_add(current_date, 1) < CURRENT_TIMESTAMP", f"date_add({DATE}, 1) < {TIMESTAMP}"),
        ("s.current_date", "s.current_date"),
        ("current_date.year", "current_date.year"),
        ("`current_date`", "`current_date`"),
        ("'current_date' /* current_date */", "'current_date' /* current_date */"),
        ("transform(xs, current_date -> 1)", "transform(xs, current_date -> 1)"),
        ("current_timestamp('", "current_timestamp('"),
    ],
)
def test_expressions(text: str, fixed: str) -> None:
    assert fix_current_time(text, MOMENT, ("id", "ts")) == fixed


def test_columns_of_the_name_stay() -> None:
    text = "current_date < current_timestamp AND current_date() > d"
    assert fix_current_time(text, MOMENT, ("Current_Date",)) == f"current_date < {TIMESTAMP} AND {DATE} > d"


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("SELECT id, Current_Date() FROM t", f"SELECT id, {DATE} AS `current_date()` FROM t"),
        ("(SELECT DISTINCT now())", f"(SELECT DISTINCT {TIMESTAMP} AS `now()`)"),
        ("SELECT curdate(), a UNION ALL SELECT 1, 2", f"SELECT {DATE} AS `current_date()`, a UNION ALL SELECT 1, 2"),
        ("SELECT now() AS n, now() m, now() - a", f"SELECT {TIMESTAMP} AS n, {TIMESTAMP} m, {TIMESTAMP} - a"),
        (
            "SELECT f(a, now()), a FROM t ORDER BY a, now()",
            f"SELECT f(a, {TIMESTAMP}), a FROM t ORDER BY a, {TIMESTAMP}",
        ),
        ("VALUES (1, now())", f"VALUES (1, {TIMESTAMP})"),
    ],
)
def test_columns_keep_their_names(text: str, fixed: str) -> None:
    assert fix_current_time(text, MOMENT) == fixed


def test_words_in_a_query_stay_since_its_columns_are_not_known() -> None:
    text = "SELECT current_date, now() FROM t"
    assert fix_current_time(text, MOMENT) == f"SELECT current_date, {TIMESTAMP} AS `now()` FROM t"


@pytest.mark.parametrize(
    ("zone", "date"),
    [("UTC", "DATE'2023-11-14'"), ("Asia/Tokyo", "DATE'2023-11-15'"), ("PST", DATE), ("Mars/Olympus", DATE)],
)
def test_the_date_is_that_of_the_zone(zone: str, date: str) -> None:
    assert fix_current_time("d >= current_date()", MOMENT, (), zone) == f"d >= {date}"


def test_near_midnight_the_date_is_left_to_spark() -> None:
    """Java may know other rules of a time zone: Mexico gave up summer time in 2022."""
    about_midnight = MOMENT + 7 * 3_600_000_000
    date = fix_current_time("current_date()", about_midnight, (), "America/Mexico_City")
    assert date == "CAST(TIMESTAMP_LTZ'2023-11-15T05:13:20.123456Z' AS DATE)"
    assert fix_current_time("current_date()", about_midnight, (), "-06:00") == "DATE'2023-11-14'"


@pytest.mark.parametrize(
    ("text", "named"),
    [("<(t.a, current_timestamp())", True), ("Column<'NOW()'>", True), ("=(t.known, s.known)", False)],
)
def test_texts_that_may_tell_the_time(text: str, named: bool) -> None:
    assert names_time(text) is named
