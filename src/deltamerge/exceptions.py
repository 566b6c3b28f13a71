"""The errors of deltamerge, with Delta's error classes and SQLSTATEs.

::

    DeltaError                                   everything below
    ├── DeltaAnalysisException                   the statement is wrong: correct it (an AnalysisException)
    │   ├── DeltaParseException                  SQL cannot be read (a ParseException)
    │   └── DeltaUnsupportedOperationException   a table like this does not take it (an UnsupportedOperationException)
    ├── DeltaIllegalArgumentException            a setting's value is wrong (a ValueError)
    ├── DeltaTableException                      the table cannot be used
    │   ├── DeltaTableNotFoundException          there is no table (an AnalysisException)
    │   ├── DeltaLogCorruptException             its log is damaged
    │   └── DeltaUnsupportedFeatureException     it needs a feature that is not implemented
    ├── DeltaRuntimeException                    the data is wrong: correct it
    │   ├── InvariantViolationException          a constraint does not hold for a written row
    │   ├── MultipleSourceRowsException          several source rows want one target row
    │   ├── OverflowException                    a value does not fit its column (an ArithmeticException)
    │   └── UnfitValueException                  a string cannot be cast (a NumberFormatException, DateTimeException)
    ├── DeltaConcurrentModificationException     another writer was first: run the merge again
    │   ├── ConcurrentAppendException            files were added that this merge would have read
    │   ├── ConcurrentDeleteReadException        files that this merge read were deleted
    │   ├── ConcurrentDeleteDeleteException      files that this merge deletes were deleted
    │   ├── ConcurrentTransactionException       the same application transaction was committed
    │   ├── ConcurrentWriteException             too many other commits came first
    │   ├── MetadataChangedException             the schema or a table property was changed
    │   └── ProtocolChangedException             the table was upgraded
    └── CommitStateUnknownException              nobody knows whether the commit landed: look before a retry
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltamerge.sqlstates import sqlstate_of

try:
    from pyspark.errors import (
        AnalysisException,
        ArithmeticException,
        DateTimeException,
        IllegalArgumentException,
        NumberFormatException,
        ParseException,
        PySparkException,
        QueryContext,
        UnsupportedOperationException,
    )
except ImportError as error:  # pragma: no cover - needs an environment without PySpark
    raise ImportError(
        "deltamerge needs PySpark: install 'deltamerge[spark]' for classic Spark, "
        "'deltamerge[connect]' for Spark Connect"
    ) from error


__all__ = [
    "CommitStateUnknownException",
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "DeltaAnalysisException",
    "DeltaConcurrentModificationException",
    "DeltaError",
    "DeltaIllegalArgumentException",
    "DeltaLogCorruptException",
    "DeltaParseException",
    "DeltaRuntimeException",
    "DeltaTableException",
    "DeltaTableNotFoundException",
    "DeltaUnsupportedFeatureException",
    "DeltaUnsupportedOperationException",
    "InvariantViolationException",
    "MetadataChangedException",
    "MultipleSourceRowsException",
    "OverflowException",
    "ProtocolChangedException",
    "UnfitValueException",
]


class DeltaError(PySparkException):
    """An error with a class, an SQLSTATE and parameters, as Spark's own errors have them.

    Args:
        error_class: Delta's (or Spark's) error class, such as ``DELTA_MERGE_UNRESOLVED_EXPRESSION``.
        message: What was wrong, where, and what to do.
        sqlstate: Five characters, where Spark reported them; else what `sqlstates` has for the class.
        parameters: The error class's parameters by name.
    """

    def __init__(
        self,
        error_class: str,
        message: str,
        *,
        sqlstate: str | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        self.error_class = error_class
        self.sqlstate = sqlstate or sqlstate_of(error_class)
        self.parameters: dict[str, str] = dict(parameters or {})
        self.message = message
        separator = "\n" if "\n" in message else " "
        self._message = f"[{error_class}] {message}{separator}SQLSTATE: {self.sqlstate}"
        Exception.__init__(self, self._message)

    def getCondition(self) -> str:
        """Return the error class, as PySpark's exceptions do."""
        return self.error_class

    def getErrorClass(self) -> str:
        """Return the error class, under PySpark's older name for it."""
        return self.error_class

    def getSqlState(self) -> str:
        """Return the SQLSTATE."""
        return self.sqlstate

    def getMessageParameters(self) -> dict[str, str]:
        """Return the error class's parameters by name."""
        return self.parameters

    def getMessage(self) -> str:
        """Return the whole message."""
        return self._message

    def getQueryContext(self) -> list[QueryContext]:
        """Return no contexts: the message shows the place in a statement."""
        return []

    def getBreakingChangeInfo(self) -> dict[str, Any] | None:
        """Return None: PySpark has this for changes of Spark's behaviour."""
        return None

    def __str__(self) -> str:
        return self._message

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.error_class, self.message, self.sqlstate, self.parameters))


def _rebuild(
    kind: type[DeltaError], error_class: str, message: str, sqlstate: str, parameters: dict[str, str]
) -> DeltaError:
    return kind(error_class, message, sqlstate=sqlstate, parameters=parameters)


class DeltaAnalysisException(DeltaError, AnalysisException):
    """The statement is wrong; nothing was read or written."""


class DeltaParseException(DeltaAnalysisException, ParseException):
    """A statement's SQL, or a condition or value in SQL, cannot be read; nothing was read or written."""


class DeltaUnsupportedOperationException(DeltaAnalysisException, UnsupportedOperationException):
    """The table, as its properties and columns are, does not take the statement; nothing was changed."""


class DeltaIllegalArgumentException(DeltaError, IllegalArgumentException, ValueError):
    """A setting or an argument has a value that it does not take; nothing was read or written."""


class DeltaTableException(DeltaError):
    """The table cannot be used as it is."""


class DeltaTableNotFoundException(DeltaTableException, AnalysisException):
    """There is no Delta table where one was named."""


class VersionNotFoundException(DeltaTableException, AnalysisException):
    """The table has no such version, or its log has been cleaned up since."""


class DeltaLogCorruptException(DeltaTableException):
    """The table's log has gaps or cannot be read."""


class DeltaUnsupportedFeatureException(DeltaTableException):
    """The table's protocol names a feature that is not implemented; the message names it."""


class DeltaRuntimeException(DeltaError):
    """The data makes the statement fail; the table is as it was.

    One with the class DELTA_POST_COMMIT_HOOK_FAILED is another case: the statement is committed as the version that it
    names, and must not be run again.
    """


class InvariantViolationException(DeltaRuntimeException):
    """A row to be written violates NOT NULL, a CHECK constraint or a generated column."""


class ReplaceWhereMismatchException(InvariantViolationException, AnalysisException):
    """A row to be written is none of those that ``replaceWhere`` replaces."""


class UnfitValueException(DeltaRuntimeException, NumberFormatException, DateTimeException):
    """A string of the source cannot be cast to the type that the target's column has; Spark's own classes catch it."""


class OverflowException(DeltaRuntimeException, ArithmeticException):
    """A value does not fit the type of the column that it is stored in; Spark's own class catches it."""


class MultipleSourceRowsException(DeltaRuntimeException, UnsupportedOperationException):
    """Clauses fire for several source rows on one target row."""


class DeltaConcurrentModificationException(DeltaError):
    """Another writer's commit conflicts with this one; the table holds the other's change."""


class ConcurrentAppendException(DeltaConcurrentModificationException):
    """Files were appended that this transaction would have had to read."""


class ConcurrentDeleteReadException(DeltaConcurrentModificationException):
    """Files that this transaction read were deleted."""


class ConcurrentDeleteDeleteException(DeltaConcurrentModificationException):
    """Files that this transaction deletes were deleted by another."""


class ConcurrentTransactionException(DeltaConcurrentModificationException):
    """The same application transaction was committed by another writer."""


class ConcurrentWriteException(DeltaConcurrentModificationException):
    """Too many commits of other writers came first."""


class MetadataChangedException(DeltaConcurrentModificationException):
    """The table's metadata was changed by another writer."""


class ProtocolChangedException(DeltaConcurrentModificationException):
    """The table's protocol was changed by another writer."""


class CommitStateUnknownException(DeltaError):
    """The store did not report whether the commit was written; the message names the file to look for."""
