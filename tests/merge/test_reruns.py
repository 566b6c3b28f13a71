"""When a merge that lost runs again, and what it says of the commits that were first."""

from __future__ import annotations

import pytest

from deltamerge.exceptions import ConcurrentAppendException, ConcurrentWriteException
from deltamerge.merge.outcome import LostCommit
from deltamerge.merge.reruns import gave_up, rerun_notes, seconds_to_wait

LOST = (
    LostCommit(4, "MERGE", "DELTA_CONCURRENT_DELETE_READ"),
    LostCommit(6, "WRITE", "DELTA_CONCURRENT_APPEND"),
    LostCommit(1006, "", "DELTA_CONCURRENT_WRITE", "they were faster 1000 times"),
)


@pytest.mark.parametrize(
    ("lost", "random", "seconds"),
    [(1, 0.0, 0.0), (1, 1.0, 0.1), (2, 0.5, 0.1), (4, 1.0, 0.8), (50, 1.0, 10.0), (10**9, 0.5, 5.0)],
)
def test_waits_grow_and_are_random(lost: int, random: float, seconds: float) -> None:
    assert seconds_to_wait(lost, random) == pytest.approx(seconds)


def test_what_it_lost_to() -> None:
    parameters = {"version": "6", "operation": "WRITE", "tableName": "t"}
    appended = ConcurrentAppendException("DELTA_CONCURRENT_APPEND", "m", parameters=parameters)
    assert LostCommit.of(appended) == LOST[1]
    faster = ConcurrentWriteException(
        "DELTA_CONCURRENT_WRITE", "m", parameters={"version": "1006", "reason": LOST[2].why}
    )
    assert LostCommit.of(faster) == LOST[2]
    assert LostCommit.of(ConcurrentWriteException("DELTA_CONCURRENT_WRITE", "m")).version is None


def test_notes() -> None:
    assert rerun_notes([]) == ()
    (note,) = rerun_notes(LOST)
    assert note == (
        "ran again 3 times, because other writers were first: "
        "version 4 (MERGE) removed a file that the merge had read [DELTA_CONCURRENT_DELETE_READ], "
        "version 6 (WRITE) added rows that the merge should have read [DELTA_CONCURRENT_APPEND], "
        "version 1006 and those before it: they were faster 1000 times [DELTA_CONCURRENT_WRITE]"
    )
    assert rerun_notes(LOST[:1])[0].startswith("ran again once, because other writers were first: version 4 (MERGE) ")


def test_the_error_of_a_merge_that_gave_up() -> None:
    error = ConcurrentAppendException("DELTA_CONCURRENT_APPEND", "Why.", sqlstate="2D521", parameters={"version": "6"})
    found = gave_up(error, LOST[:2])
    assert isinstance(found, ConcurrentAppendException)
    assert found.message.startswith("Why. The merge ran 2 times, as spark.deltamerge.merge.conflictRetries allows: ")
    assert (found.parameters, found.sqlstate) == (error.parameters, error.sqlstate)
