from __future__ import annotations

import json

import pytest

from deltamerge.render.printable import to_dict, to_json

from .outcomes import ALL, ALREADY_COMMITTED, ODD, UPSERT


@pytest.mark.parametrize("name", ALL)
def test_json_holds_the_dict(name: str) -> None:
    assert json.loads(to_json(ALL[name])) == to_dict(ALL[name])


def test_what_it_holds() -> None:
    values = to_dict(UPSERT)
    assert values["version"] == 1
    assert values["metrics"]["numTargetRowsInserted"] == 27_035
    assert values["clauses"][2] == {
        "kind": "not_matched_by_source",
        "action": "delete",
        "condition": "t.month = 10 AND t.day >= 25",
        "rows": 1,
        "skipped": 0,
        "text": "WHEN NOT MATCHED BY SOURCE AND t.month = 10 AND t.day >= 25 THEN DELETE",
    }
    assert values["steps"][0] == {
        "name": "snapshot",
        "description": "loading the table's log",
        "milliseconds": 21,
    }


def test_no_version_is_null() -> None:
    assert json.loads(to_json(ALREADY_COMMITTED))["version"] is None


def test_nothing_is_cut() -> None:
    assert "column_99 = s.column_99" in to_json(ODD)
