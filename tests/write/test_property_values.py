"""Values that a table property may have and may not have."""

from __future__ import annotations

import pytest

from deltamerge.exceptions import DeltaIllegalArgumentException
from deltamerge.write.property_names import check_values


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        ("delta.appendOnly", ("true", "FALSE"), ("", "1", "maybe")),
        (
            "delta.logRetentionDuration",
            ("interval 30 days", "1 week", "interval 0 hours"),
            ("", "a while", "5", "interval 1 month", "interval -1 days"),
        ),
        ("delta.checkpointInterval", ("1", "100"), ("0", "-1", "ten")),
        ("delta.dataSkippingNumIndexedCols", ("-1", "0", "32"), ("-2", "many")),
        ("delta.isolationLevel", ("Serializable", "WriteSerializable"), ("nope", "SnapshotIsolation")),
        ("anything", ("else", ""), ()),
    ],
)
def test_values(key: str, right: tuple[str, ...], wrong: tuple[str, ...]) -> None:
    for value in right:
        check_values({key: value})
    for value in wrong:
        kind = "DELTA_INVALID_INTERVAL" if key.endswith("Duration") else "DELTAMERGE_INVALID_TABLE_PROPERTY"
        with pytest.raises(DeltaIllegalArgumentException, match=f"{kind}.*{key}"):
            check_values({key: value})
