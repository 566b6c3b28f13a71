"""Types with CHAR and VARCHAR, as the metadata of columns spell them; in a schema both are STRING.

Spark: CharVarcharUtils.getRawType. PySpark's own parser of types needs a session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyspark.sql.types import ArrayType, CharType, DataType, MapType, NullType, StructField, StructType, VarcharType

from deltamerge.exceptions import DeltaLogCorruptException
from deltamerge.skipping.columns import CHAR_VARCHAR_TYPE
from deltamerge.sql.names import unquote

_LIMITED = re.compile(r"(var)?char\s*\(\s*(\d+)\s*\)", re.IGNORECASE)
_TOKEN = re.compile(r"`(?:[^`]|``)*`|\([^)]*\)|[<>,:]|[^`(<>,:]+")


def limited_type(field: StructField) -> DataType | None:
    """Return a column's type with the lengths of its strings, other types as VOID; None where no string has one."""
    ddl = field.metadata.get(CHAR_VARCHAR_TYPE)
    if ddl is None:
        return None
    try:
        return _Parser(str(ddl)).whole()
    except (ValueError, RecursionError) as error:
        raise DeltaLogCorruptException(
            "DELTA_STATE_RECOVER_ERROR",
            f"The type of column {field.name} cannot be read: {ddl!r:.200} is {CHAR_VARCHAR_TYPE} in its metadata, "
            "and no type. Correct the metadata with the engine that wrote it.",
            parameters={"operation": "column type"},
        ) from error


def length_limit(field: StructField) -> int | None:
    """Return how long a column's strings may be; None for one that is no CHAR or VARCHAR itself."""
    limited = limited_type(field)
    return limited.length if isinstance(limited, (CharType, VarcharType)) else None


class _Parser:
    def __init__(self, ddl: str) -> None:
        self._tokens: list[str] = [token for each in _TOKEN.findall(ddl) if (token := each.strip())]

    def whole(self) -> DataType:
        found = self._type()
        if self._tokens:
            raise ValueError(self._tokens[0])
        return found

    def _type(self) -> DataType:
        name = self._words()
        kind = name.upper()
        if kind == "ARRAY":
            (element,) = self._inner()
            return ArrayType(element)
        if kind == "MAP":
            key, value = self._inner()
            return MapType(key, value)
        if kind == "STRUCT":
            return StructType(list(self._fields()))
        limited = _LIMITED.fullmatch(name)
        if limited is None:
            return NullType()
        return VarcharType(int(limited[2])) if limited[1] else CharType(int(limited[2]))

    def _inner(self) -> Iterator[DataType]:
        while self._end() == ",":
            yield self._type()

    def _fields(self) -> Iterator[StructField]:
        while self._end() == ",":
            # A struct may have no fields.
            if self._tokens[:1] != [">"]:
                name = unquote(self._words())
                self._step(":")
                yield StructField(name, self._type())

    def _end(self) -> str:
        """Step over what comes before a part, returned as a comma, or after the last one."""
        return self._step("<,>").replace("<", ",")

    def _step(self, expected: str) -> str:
        if not self._tokens or self._tokens[0] not in expected:
            raise ValueError(f"expected one of {expected}")
        return self._tokens.pop(0)

    def _words(self) -> str:
        found = ""
        while self._tokens and self._tokens[0] not in "<>,:":
            found += self._tokens.pop(0)
        if not found:
            raise ValueError("expected a name")
        return found
