"""Where rows are kept on the way of a merge: staged source rows, and pairs of rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from deltamerge.merge.executors.execution import Execution


@contextmanager
def scratch_folder(execution: Execution, name: str) -> Iterator[str]:
    """Make a folder that driver and tasks open, and delete it with all that is in it.

    Tasks do not make it, so that one that still runs when the run has failed leaves nothing.

    Args:
        name: Where in the table it is, unless the driver's own disk does.
    """
    store = execution.table.store
    if not store.is_local and execution.context.session.runs_in_local_mode:
        with tempfile.TemporaryDirectory(prefix="deltamerge-", ignore_cleanup_errors=True) as folder:
            yield folder
        return
    try:
        store.make_folder(name)
        yield execution.located(name)
    finally:
        store.delete_folder(name)
