"""What the options of a write ask for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from deltamerge.data_source.request import Request
from deltamerge.spark.config import MergeConf
from deltamerge.txn.application import ApplicationTransaction, option_transaction
from deltamerge.write.overwrite_kind import PARTITION_OVERWRITE_MODE, illegal_option, write_kind
from deltamerge.write.property_names import BY_LOWER


@dataclass(frozen=True)
class WriteOptions:
    """What a write asks for.

    Args:
        kind: ``append``, ``overwrite``, ``overwrite_schema``, ``replace_where`` or ``dynamic``.
        partition_columns: Of a new table, or of one whose schema is replaced; None where they are not given.
        properties: Of a new table, or of one whose schema is replaced.
    """

    kind: str
    merges_schema: bool
    replace_where: str | None
    partition_columns: tuple[str, ...] | None
    properties: Mapping[str, str]
    transaction: ApplicationTransaction | None

    @staticmethod
    def of(request: Request, overwrite: bool) -> WriteOptions:
        where = request.options.get("replacewhere")
        kind = write_kind(
            overwrite,
            where,
            request.flag("overwriteSchema"),
            request.options.get("partitionoverwritemode"),
            request.settings.get(PARTITION_OVERWRITE_MODE),
        )
        return WriteOptions(
            kind,
            request.flag("mergeSchema", request.conf.schema_auto_merge),
            where if kind == "replace_where" else None,
            option_partition_columns(request),
            _properties(request),
            option_transaction(request.options.get("txnappid"), request.number("txnVersion")),
        )


def write_conf(request: Request) -> MergeConf:
    """Return the session's settings with those of a write's options."""
    metadata = request.options.get("usermetadata")
    return request.conf if metadata is None else replace(request.conf, user_metadata=metadata)


def option_partition_columns(request: Request) -> tuple[str, ...] | None:
    """Return the columns of the option ``partitionBy``; None where it is not given."""
    given = request.options.get("partitionby")
    if given is None:
        return None
    try:
        found = json.loads(given) if given.strip().startswith("[") else given.split(",")
    except ValueError:
        raise illegal_option(
            "partitionBy", given, "must be names with commas between them, or a list as JSON"
        ) from None
    return tuple(str(name).strip() for name in found if str(name).strip())


def _properties(request: Request) -> dict[str, str]:
    found = {}
    for key, value in request.options.items():
        if key.startswith("delta."):
            if key not in BY_LOWER:
                raise illegal_option(
                    key, value, "which is no table property that a write sets; deltamerge.write_delta takes properties"
                )
            # Spark hands options over in lower case.
            found[BY_LOWER[key]] = value
    return found
