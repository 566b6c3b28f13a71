"""What stands in a failed job's message of the row at fault."""

from __future__ import annotations

import pytest

from deltamerge.spark.row_errors import row_error_in

SHOWN = 'raise_error(concat(deltamerge-row-error:tie:{"argument": "n"}, to_json(struct(key))))'
RAISED = 'deltamerge-row-error:tie:{"argument": "n"}{"key":"{\\"id\\":1}"}'


@pytest.mark.parametrize(
    "message", [f"[USER_RAISED_EXCEPTION] {RAISED} SQLSTATE: P0001", f"{SHOWN}\n{RAISED} and more"]
)
def test_the_row_is_found(message: str) -> None:
    """Also behind the expression itself, which Spark may show before."""
    assert row_error_in(message, "tie") == {"argument": "n", "key": '{"id":1}'}


@pytest.mark.parametrize("message", [SHOWN, "another error", RAISED.replace("tie", "null")])
def test_no_row_is_in_the_message(message: str) -> None:
    assert row_error_in(message, "tie") is None
