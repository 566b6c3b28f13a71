"""Where rows are kept on the way of a merge: staged source rows, and pairs of rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from deltamerge.merge.executors.execution import Execution


@contextmanager
def scratch_folder(execution: Execution) -> Iterator[str]:
    """Make a folder that driver and tasks open, and delete it with all that is in it.

    A run that fails leaves it to `remove_leftovers`. Tasks do not make it, so that one that still runs when the run has
    failed leaves nothing.
    """
    store = execution.table.store
    if not store.is_local and execution.context.session.runs_in_local_mode:
        with tempfile.TemporaryDirectory(prefix="deltamerge-", ignore_cleanup_errors=True) as folder:
            yield folder
        return
    folder = f"{execution.folder}/_staged"
    store.make_folder(folder)
    yield execution.located(folder)
    store.delete_folder(folder)
