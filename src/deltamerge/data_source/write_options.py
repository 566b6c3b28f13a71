"""What the options of a write ask for."""

from __future__ import annotations

import json

from deltamerge.data_source.request import Request
from deltamerge.exceptions import DeltaAnalysisException
from deltamerge.sql.merge_ast import Expression
from deltamerge.sql.qualifiers import without_qualifier
from deltamerge.txn.application import option_transaction
from deltamerge.write.overwrite_kind import (
    KEEPS_NULL,
    PARTITION_OVERWRITE_MODE,
    illegal_option,
    refuse_unsupported,
    write_kind,
)
from deltamerge.write.property_names import BY_LOWER
from deltamerge.write.table_writer import CommitNotes, FrameWrite


def asked_write(
    request: Request,
    overwrite: bool,
    condition: Expression | None = None,
    partition_columns: tuple[str, ...] | None = None,
) -> FrameWrite:
    """Return what the options of a write ask for, besides the properties of a new table.

    Args:
        condition: Of which rows the new ones take the place; an option that says so, too, is refused.
        partition_columns: Those that a call names; they go before the option's.
    """
    refuse_unsupported(request.options)
    replaced = _replaced_rows(request, condition) if overwrite else None
    columns = option_partition_columns(request) if partition_columns is None else partition_columns
    # Where the data source is planned the session's mode is not known yet.
    has_mode = "partitionoverwritemode" in request.options or PARTITION_OVERWRITE_MODE in request.settings
    keeps_null = request.flag(KEEPS_NULL) if has_mode and KEEPS_NULL.lower() in request.options else None
    kind = write_kind(
        overwrite,
        None if replaced is None else replaced.text,
        request.flag("overwriteSchema"),
        request.options.get("partitionoverwritemode"),
        request.settings.get(PARTITION_OVERWRITE_MODE),
        names_partitions=bool(columns),
        keeps_null=keeps_null,
    )
    transaction = option_transaction(request.options.get("txnappid"), request.number("txnVersion"))
    return FrameWrite(
        kind,
        replaced,
        partition_columns=columns,
        keeps_null_partitions=bool(keeps_null),
        merges_schema=request.flag("mergeSchema", request.conf.schema_auto_merge),
        notes=CommitNotes(transaction, request.options.get("usermetadata")),
        data_change=request.flag("dataChange", True),
    )


def _replaced_rows(request: Request, condition: Expression | None) -> Expression | None:
    where, alias = request.options.get("replacewhere"), request.options.get("targetalias")
    if where is None:
        return condition
    if condition is not None:
        raise DeltaAnalysisException(
            "DELTA_REPLACE_WHERE_IN_OVERWRITE",
            "The option replaceWhere cannot be used with overwrite(condition), which says itself which rows are "
            "replaced: leave out the option. Nothing was written.",
        )
    return Expression(where if alias is None else without_qualifier(where, alias))


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


def option_properties(request: Request) -> dict[str, str]:
    """Return the properties of a new table that are among the options, which Spark hands over in lower case."""
    found = {}
    for key, value in request.options.items():
        if key.startswith("delta."):
            if key not in BY_LOWER:
                raise illegal_option(
                    key, value, "which is no table property that a write sets; deltamerge.write_delta takes properties"
                )
            found[BY_LOWER[key]] = value
    return found
