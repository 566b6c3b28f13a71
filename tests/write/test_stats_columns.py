from __future__ import annotations

import pytest

from deltamerge.exceptions import DeltaError
from deltamerge.log.schema import parse_schema
from deltamerge.write.stats_columns import check_stats_columns

SCHEMA = parse_schema(
    '{"type":"struct","fields":['
    + ",".join(
        f'{{"name":"{name}","type":{kind},"nullable":true,"metadata":{{}}}}'
        for name, kind in {
            "id": '"long"',
            "d": '"decimal(5,2)"',
            "b": '"boolean"',
            "p": '"string"',
            "m": '{"type":"map","keyType":"string","valueType":"long","valueContainsNull":true}',
            "s": '{"type":"struct","fields":[{"name":"x","type":"boolean","nullable":true,"metadata":{}}]}',
        }.items()
    )
    + "]}"
)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("listed", "condition"),
    [
        ("id", None),
        ("ID, `d`,s.x", None),
        ("s", None),
        ("", None),
        ("idd", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        ("s.y", "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        ("b", "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE"),
        ("m", "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE"),
        ("p", "DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_PARTITIONED_COLUMN"),
        ("s,s.x", "DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS"),
        ("id,ID", "DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS"),
    ],
)
def test_columns_with_statistics(listed: str, condition: str | None) -> None:
    properties = {"delta.dataSkippingStatsColumns": listed}
    if condition is None:
        check_stats_columns(SCHEMA, ["p"], properties)
        return
    with pytest.raises(DeltaError) as caught:
        check_stats_columns(SCHEMA, ["p"], properties)
    assert caught.value.getCondition() == condition
