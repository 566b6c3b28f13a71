"""What a write of a frame does to the rows that are there, by its options and the session's setting."""

from __future__ import annotations

from collections.abc import Mapping

from deltamerge.exceptions import DeltaAnalysisException, DeltaIllegalArgumentException

PARTITION_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
_MODES = ("static", "dynamic")
_UNSUPPORTED = ("replaceUsing", "replaceOn")


def write_kind(
    overwrite: bool, where: str | None, overwrites_schema: bool, mode: str | None, session_mode: str | None
) -> str:
    """Return ``append``, ``overwrite``, ``overwrite_schema``, ``replace_where`` or ``dynamic``.

    Delta: DeltaOptions.isDynamicPartitionOverwriteMode. Of a table without partitions ``dynamic`` is ``overwrite``.

    Args:
        session_mode: `PARTITION_OVERWRITE_MODE`, which holds where no option says anything else.
    """
    if mode is not None and mode.lower() not in _MODES:
        raise illegal_option("partitionOverwriteMode", mode, "must be 'static' or 'dynamic'")
    if not overwrite:
        if where is not None:
            raise DeltaAnalysisException(
                "DELTA_REPLACE_WHERE_WITHOUT_OVERWRITE", "The option replaceWhere goes with .mode('overwrite')."
            )
        return "append"
    if mode is not None and mode.lower() == "dynamic" and (overwrites_schema or where is not None):
        other = "overwriteSchema" if overwrites_schema else "replaceWhere"
        raise DeltaAnalysisException(
            "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE"
            if overwrites_schema
            else "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE",
            f"A write with {other} cannot overwrite partitions dynamically: leave out one of the options.",
        )
    if overwrites_schema and where is not None:
        raise DeltaAnalysisException(
            "DELTA_REPLACE_WHERE_WITH_OVERWRITE_SCHEMA",
            "A write with replaceWhere keeps the rows that do not match, so that it cannot replace the schema: leave "
            "out overwriteSchema.",
        )
    if overwrites_schema:
        return "overwrite_schema"
    if where is not None:
        return "replace_where"
    return "dynamic" if (mode or session_mode or "").lower() == "dynamic" else "overwrite"


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
