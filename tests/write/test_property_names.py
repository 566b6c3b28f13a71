"""Delta's properties are known by name, in any case."""

from __future__ import annotations

import pytest

from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.write.property_names import named_properties


def test_names_are_spelled_as_delta_spells_them() -> None:
    given = {
        "delta.enablechangedatafeed": "TRUE",
        "DELTA.AppendOnly": "false",
        "delta.feature.DELETIONVECTORS": "supported",
        "delta.feature.someNew": "supported",
        "delta.constraints.C": "a > 0",
        "Owner": "me",
    }
    assert named_properties(given, any_name=False) == {
        "delta.enableChangeDataFeed": "TRUE",
        "delta.appendOnly": "false",
        "delta.feature.deletionVectors": "supported",
        "delta.feature.someNew": "supported",
        "delta.constraints.C": "a > 0",
        "Owner": "me",
    }


def test_an_unknown_property_is_refused() -> None:
    with pytest.raises(DeltaAnalysisException, match=r"delta.enableChangeDataFeeed\. Did you mean delta.enableChangeD"):
        named_properties({"delta.enableChangeDataFeeed": "true"}, any_name=False)
    assert named_properties({"delta.foo": "1"}, any_name=True) == {"delta.foo": "1"}
