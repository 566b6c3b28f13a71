"""What the options of a write ask for."""

from __future__ import annotations

import json

from deltamerge.data_source.request import Request
from deltamerge.sql.merge_ast import Expression
from deltamerge.txn.application import option_transaction
from deltamerge.write.overwrite_kind import PARTITION_OVERWRITE_MODE, illegal_option, refuse_unsupported, write_kind
from deltamerge.write.property_names import BY_LOWER
from deltamerge.write.table_writer import CommitNotes, FrameWrite


def asked_write(request: Request, overwrite: bool) -> FrameWrite:
    """Return what a write asks for; its properties are those of a new table."""
    refuse_unsupported(request.options)
    where = request.options.get("replacewhere")
    kind = write_kind(
        overwrite,
        where,
        request.flag("overwriteSchema"),
        request.options.get("partitionoverwritemode"),
        request.settings.get(PARTITION_OVERWRITE_MODE),
        names_partitions=bool(option_partition_columns(request)),
    )
    transaction = option_transaction(request.options.get("txnappid"), request.number("txnVersion"))
    return FrameWrite(
        kind,
        Expression(where) if where is not None and kind == "replace_where" else None,
        partition_columns=option_partition_columns(request),
        properties=_properties(request),
        merges_schema=request.flag("mergeSchema", request.conf.schema_auto_merge),
        notes=CommitNotes(transaction, request.options.get("usermetadata")),
        data_change=request.flag("dataChange", True),
    )


def option_partition_columns(request: Request) -> tuple[str, ...] | None:
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
