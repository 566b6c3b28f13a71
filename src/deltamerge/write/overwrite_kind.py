"""What a write of a frame does to the rows that are there, by its options and the session's setting."""

from __future__ import annotations

from collections.abc import Mapping

from deltamerge.exceptions import DeltaAnalysisException, DeltaIllegalArgumentException

KEEPS_NULL = "useNullIntolerantEqualityWithDPO"
"""Whether a dynamic overwrite leaves partitions with a NULL among their values as they are."""
PARTITION_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
_MODES = ("static", "dynamic")
_UNSUPPORTED = ("replaceUsing", "replaceOn")


def write_kind(
    overwrite: bool,
    where: str | None,
    overwrites_schema: bool,
    mode: str | None,
    session_mode: str | None,
    *,
    names_partitions: bool,
    keeps_null: bool | None = None,
) -> str:
    """Return ``append``, ``overwrite``, ``overwrite_schema``, ``replace_where`` or ``dynamic``.

    Delta: WriteIntoDelta, DeltaOptions.isDynamicPartitionOverwriteMode. ``replaceWhere`` goes before
    ``overwriteSchema``. Of a table without partitions ``dynamic`` is ``overwrite``.

    Args:
        session_mode: `PARTITION_OVERWRITE_MODE`, which holds where no option says anything else.
        names_partitions: Whether the write names partition columns; a schema that replaces another has no others.
        keeps_null: `KEEPS_NULL`; None where it is not given.
    """
    if mode is not None and mode.lower() not in _MODES:
        raise illegal_option("partitionOverwriteMode", mode, "must be 'static' or 'dynamic'")
    if not overwrite:
        # As delta-spark, whose appends have no regard to the other options.
        return "append"
    is_dynamic = (mode or session_mode or "").lower() == "dynamic"
    if where is not None:
        if is_dynamic and mode is not None:
            raise DeltaIllegalArgumentException(
                "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE",
                "A write with replaceWhere cannot overwrite partitions dynamically: leave out one of the options.",
            )
        return "replace_where"
    if keeps_null is not None and not is_dynamic:
        why = "This option should be specified only in Dynamic Partition Overwrite mode: add the option "
        raise illegal_option(KEEPS_NULL, str(keeps_null).lower(), why + "partitionOverwriteMode = dynamic.")
    if not overwrites_schema:
        return "dynamic" if is_dynamic else "overwrite"
    if is_dynamic and names_partitions:
        set_by = "the option partitionOverwriteMode" if mode is not None else PARTITION_OVERWRITE_MODE
        raise DeltaIllegalArgumentException(
            "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE",
            f"A write with overwriteSchema cannot overwrite partitions dynamically, as {set_by} = dynamic asks for: "
            "leave out overwriteSchema, or set the option partitionOverwriteMode = static.",
        )
    return "overwrite_schema"


def refuse_unsupported(options: Mapping[str, str]) -> None:
    """Refuse options, by their names in lower case, without which a write would replace rows that it should keep."""
    for name in _UNSUPPORTED:
        if name.lower() in options:
            raise DeltaAnalysisException(
                "DELTAMERGE_UNSUPPORTED_WRITE_OPTION",
                f"The option {name} is not supported, and without it the write would replace other rows. Nothing was "
                "written. Name the rows to replace with the option replaceWhere, or replace them by key with a MERGE.",
                parameters={"option": name},
            )


def illegal_option(name: str, value: str, why: str) -> DeltaIllegalArgumentException:
    return DeltaIllegalArgumentException(
        "DELTA_ILLEGAL_OPTION",
        f"Invalid value '{value}' for option '{name}', {why}",
        parameters={"input": value, "name": name, "explain": why},
    )
