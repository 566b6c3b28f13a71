"""Whether work on Arrow rows runs in the driver: where a Spark job would cost more than the work."""

from __future__ import annotations

from deltamerge.merge.executors.execution import Execution


def fits_driver(execution: Execution, size: float, files: int) -> bool:
    """Return whether there is so little to do that the driver does it.

    Args:
        size: The bytes of source and target that are read.
    """
    limits, session = execution.limits, execution.context.session
    most = execution.conf.driver_bytes
    if most is None:
        most = limits.driver_bytes_in_local_mode if session.runs_in_local_mode else limits.driver_bytes
    return files <= limits.driver_files and size <= most
