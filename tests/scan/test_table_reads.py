"""What a physical plan says of what a frame over Connect reads."""

from __future__ import annotations

import pytest

from deltamerge.scan.table_reads import _plan_may_read as may_read

LOCAL = """== Physical Plan ==
Union
:- LocalTableScan [id#1L]
+- LocalTableScan [id#2L]
"""


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (LOCAL, False),
        (LOCAL.replace("+- LocalTableScan", "+- BatchScan delta"), True),
        (f"{LOCAL.splitlines()[0]}\nUnion\n:- LocalTableScan [id... 41 more characters", True),
        (f"{LOCAL.splitlines()[0]}\nTruncated plan of 90 characters", True),
    ],
)
def test_a_plan_that_is_not_shown_whole_may_read_the_table(plan: str, expected: bool) -> None:
    assert may_read(plan, [], "/data/t") == expected
