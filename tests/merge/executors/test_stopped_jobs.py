"""Jobs that were cancelled, or that the cluster could not run, are no reason to go on by another plan."""

from __future__ import annotations

import errno

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from deltamerge.merge.executors.job_errors import is_stopped, is_unreadable
from deltamerge.workers.file_systems import is_of_machine


@pytest.mark.parametrize(
    "message",
    [
        "[OPERATION_CANCELED] Operation has been canceled. SQLSTATE: HY008",
        "[SPARK_JOB_CANCELLED] Job 3 cancelled as part of cancellation of all jobs SQLSTATE: XXKDA",
        "Job 3 cancelled part of cancelled job group 7",
        "Lost task 0.3 in stage 1.0: ExecutorLostFailure (executor 2 exited caused by one of the running tasks)",
        "java.lang.OutOfMemoryError: Java heap space",
        "java.io.IOException: No space left on device",
    ],
)
def test_stopped(message: str) -> None:
    assert is_stopped(PySparkException(message))


@pytest.mark.parametrize(
    "message",
    [
        '[CAST_INVALID_INPUT] The value \'x\' of the type "STRING" cannot be cast to "INT". SQLSTATE: 22018',
        "[FAILED_EXECUTE_UDF] User defined function failed due to: Traceback … ValueError. SQLSTATE: 39000",
        "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times: [DIVIDE_BY_ZERO] SQLSTATE: 22012",
        "[CAST_INVALID_INPUT] The value 'cancelled' cannot be cast. SQLSTATE: 22018",
    ],
)
def test_data_at_fault(message: str) -> None:
    assert not is_stopped(PySparkException(message))
    assert not is_unreadable(PySparkException(message))


def test_a_source_that_cannot_be_read() -> None:
    message = "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file x. SQLSTATE: KD001"
    assert is_unreadable(PySparkException(message))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EMFILE, "Too many open files"), True),
        (OSError("When reading key a: AWS Error NETWORK_CONNECTION during GetObject"), True),
        (OSError("GetProperties failed for 'https://a/c/f'. Azure Error: [ServerBusy] 503 The server is busy."), True),
        (pa.ArrowMemoryError("malloc failed"), True),
        (OSError("Couldn't deserialize thrift: TProtocolException"), False),
        (FileNotFoundError(errno.ENOENT, "gone"), False),
        (FileNotFoundError(errno.ENOENT, "Failed to open local file '/connections/x'"), False),
        (FileNotFoundError("bucket/connections/x"), False),
        (PermissionError(errno.EACCES, "Failed to open local file '/connections/x'"), False),
        (pa.ArrowInvalid("not a Parquet file"), False),
    ],
)
def test_whether_another_plan_may_read_the_file(error: Exception, expected: bool) -> None:
    assert is_of_machine(error) is expected
