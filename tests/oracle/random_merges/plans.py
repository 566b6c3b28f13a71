"""The plans that a merge is run by, and the settings that ask for each."""

from __future__ import annotations

from collections.abc import Mapping

AUTO = "auto"
_NAME = "spark.deltamerge.merge.executor"

PLANS: Mapping[str, Mapping[str, str]] = {
    AUTO: {_NAME: AUTO},
    "key_lookup in the driver": {_NAME: "key_lookup"},
    "key_lookup in tasks": {_NAME: "key_lookup", "spark.deltamerge.merge.driverBytes": "0"},
    **{name: {_NAME: name} for name in ("insert_only", "low_shuffle", "classic")},
}
FORCED = tuple(name for name in PLANS if name != AUTO)
