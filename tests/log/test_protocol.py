from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from deltamerge.exceptions import DeltaUnsupportedFeatureException
from deltamerge.log.actions import Action, Metadata, Protocol
from deltamerge.log.protocol import (
    IN_USE,
    SUPPORTED_READER_FEATURES,
    SUPPORTED_WRITER_FEATURES,
    check_readable,
    check_writable,
    reader_features,
    writer_features,
)


def schema_with(**field_metadata: Any) -> str:
    fields = [{"name": "a", "type": "long", "nullable": True, "metadata": field_metadata}]
    nested = {"name": "s", "type": {"type": "struct", "fields": fields}, "nullable": True, "metadata": {}}
    return json.dumps({"type": "struct", "fields": [nested]})


PLAIN = Metadata("id", schema_string=schema_with())


def named(*features: str, reader: Sequence[str] | tuple[Any, ...] = ()) -> Protocol:
    return Protocol(3, 7, frozenset(reader), frozenset(features))


def refused(check: Callable[..., Any], *arguments: Action) -> DeltaUnsupportedFeatureException:
    with pytest.raises(DeltaUnsupportedFeatureException) as raised:
        check(*arguments)
    return raised.value


@pytest.mark.parametrize("reader", [1, 2])
@pytest.mark.parametrize("writer", range(1, 8))
def test_legacy_versions_that_use_no_unknown_feature_pass(reader: int, writer: int) -> None:
    protocol = Protocol(reader, writer)
    check_readable(protocol, PLAIN)
    check_writable(protocol, PLAIN)


def test_legacy_versions_imply_all_that_came_before() -> None:
    assert writer_features(Protocol(1, 1)) == frozenset()
    assert writer_features(Protocol(1, 2)) == {"appendOnly", "invariants"}
    assert writer_features(Protocol(2, 6)) == {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
        "columnMapping",
        "identityColumns",
    }
    assert reader_features(Protocol(2, 5)) == {"columnMapping"}


@pytest.mark.parametrize(("reader", "writer"), [(0, 2), (4, 7), (99, 7), (3, 8), (5, 7)])
def test_unknown_versions_are_refused(reader: int, writer: int) -> None:
    protocol = Protocol(reader, writer, frozenset(), frozenset())
    assert refused(check_readable, protocol).getErrorClass() == "DELTA_INVALID_PROTOCOL_VERSION"


@pytest.mark.parametrize("feature", sorted(SUPPORTED_READER_FEATURES))
def test_supported_reader_features(feature: str) -> None:
    check_readable(named(feature, reader=[feature]), PLAIN)
    assert feature in SUPPORTED_WRITER_FEATURES


@pytest.mark.parametrize("feature", ["somethingNew", "somethingElse"])
def test_unknown_reader_features_are_named(feature: str) -> None:
    error = refused(check_readable, named(feature, "appendOnly", reader=[feature, "v2Checkpoint"]), PLAIN)
    assert (error.getErrorClass(), error.getSqlState()) == ("DELTA_UNSUPPORTED_FEATURES_FOR_READ", "56038")
    assert error.getMessageParameters() == {"unsupported": feature}
    assert feature in str(error)


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned", "catalogOwned-preview"])
def test_catalog_managed_tables_are_refused_wherever_it_stands(feature: str) -> None:
    assert feature in str(refused(check_readable, named(feature), PLAIN))
    assert feature in str(refused(check_readable, named(reader=[feature]), PLAIN))


@pytest.mark.parametrize("feature", ["somethingNew", "collations", "materializePartitionColumns", "icebergCompatV3"])
def test_unknown_writer_feature_allows_reading_only(feature: str) -> None:
    check_readable(named(feature), PLAIN)
    error = refused(check_writable, named(feature, "appendOnly"), PLAIN)
    assert (error.getErrorClass(), error.getSqlState()) == ("DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", "56038")
    assert error.getMessageParameters() == {"unsupported": feature}


@pytest.mark.parametrize("feature", sorted(IN_USE))
def test_feature_blocks_writing_only_where_it_is_used(feature: str) -> None:
    used = Metadata("id", schema_string=schema_with(), configuration={IN_USE[feature]: "true"})
    protocol = Protocol(1, 7, None, frozenset({feature, "columnMapping"}))
    check_writable(protocol, PLAIN)
    error = refused(check_writable, protocol, used)
    assert error.getMessageParameters() == {"unsupported": feature}


@pytest.mark.parametrize("formats", ["hudi", "iceberg, hudi"])
def test_other_formats_metadata_is_not_left_behind(formats: str) -> None:
    configuration = {"delta.universalFormat.enabledFormats": formats}
    used = Metadata("id", schema_string=schema_with(), configuration=configuration)
    check_readable(Protocol(1, 2), used)
    error = refused(check_writable, Protocol(1, 2), used)
    assert error.getErrorClass() == "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"
    for name in formats.split(", "):
        assert f"delta.universalFormat.enabledFormats={name}" in error.getMessageParameters()["unsupported"]
    unused = {"delta.universalFormat.enabledFormats": ""}
    check_writable(Protocol(1, 2), Metadata("id", schema_string=schema_with(), configuration=unused))
