"""The protocol of a table that needs a feature which it does not have yet."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from deltamerge.exceptions import DeltaUnsupportedFeatureException
from deltamerge.log.actions import Metadata, Protocol
from deltamerge.log.features.required_features import features_not_in_protocol
from deltamerge.write.table_features import protocol_for, upgraded


def listed(reader: int, readers: set[str] | None, writers: set[str]) -> Protocol:
    return Protocol(reader, 7, None if readers is None else frozenset(readers), frozenset(writers))


MAPPED_FOR_WRITERS = listed(3, set(), {"columnMapping", "invariants"})
VECTORS = listed(3, {"deletionVectors"}, {"deletionVectors"})
ALL_OF_4 = {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}


@pytest.mark.parametrize(
    ("present", "needed", "after"),
    [
        (Protocol(1, 4), Protocol(1, 2), Protocol(1, 4)),
        (MAPPED_FOR_WRITERS, listed(2, None, {"columnMapping"}), MAPPED_FOR_WRITERS),
        (
            Protocol(2, 5),
            VECTORS,
            listed(3, {"columnMapping", "deletionVectors"}, {*ALL_OF_4, "columnMapping", "deletionVectors"}),
        ),
        # Only a legacy writer version implies column mapping: no reader knows it.
        (Protocol(1, 5), VECTORS, listed(3, {"deletionVectors"}, {*ALL_OF_4, "deletionVectors"})),
        # A list that another engine left out is put right.
        (
            MAPPED_FOR_WRITERS,
            VECTORS,
            listed(3, {"columnMapping", "deletionVectors"}, {"columnMapping", "invariants", "deletionVectors"}),
        ),
        (
            MAPPED_FOR_WRITERS,
            listed(1, None, {"rowTracking"}),
            listed(3, {"columnMapping"}, {"columnMapping", "invariants", "rowTracking"}),
        ),
    ],
)
def test_an_upgrade_keeps_what_is_on(present: Protocol, needed: Protocol, after: Protocol) -> None:
    assert upgraded(present, needed) == after


@pytest.mark.parametrize(
    ("key", "feature"),
    [
        ("delta.enableMaterializePartitionColumnsFeature", "materializePartitionColumns"),
        ("delta.enableIcebergCompatV2", "icebergCompatV2"),
    ],
)
def test_a_property_whose_feature_is_not_implemented_is_refused(key: str, feature: str) -> None:
    with pytest.raises(DeltaUnsupportedFeatureException, match=feature):
        protocol_for(StructType([]), {key: "true"})


def test_shredding_is_the_feature_of_a_new_table_and_the_preview_that_another_lacks() -> None:
    properties = {"delta.enableVariantShredding": "true"}
    new = protocol_for(StructType([]), properties)
    assert new.writer_features is not None and {"variantShredding", "variantType"} <= new.writer_features
    metadata = Metadata("a", schema_string=StructType([]).json(), configuration=properties)
    without = listed(3, set(), {"appendOnly", "invariants"})
    assert features_not_in_protocol(without, metadata) == {"variantShredding-preview"}
    assert not features_not_in_protocol(new, metadata)
