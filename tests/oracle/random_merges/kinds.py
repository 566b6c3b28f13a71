"""Types of columns, and random values of them as SQL text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from corpus.sql import quote

Kind: TypeAlias = "Scalar | Struct | Array | Map"


@dataclass(frozen=True)
class Scalar:
    """A type without parts.

    Args:
        sql: Its name.
    """

    sql: str


@dataclass(frozen=True)
class Field:
    """A struct's field."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class Struct:
    """A STRUCT."""

    fields: tuple[Field, ...]

    @property
    def sql(self) -> str:
        """Gives the type as SQL."""
        return f"STRUCT<{', '.join(f'{quote(f.name)}: {f.kind.sql}' for f in self.fields)}>"


@dataclass(frozen=True)
class Array:
    """An ARRAY."""

    element: Kind

    @property
    def sql(self) -> str:
        """Gives the type as SQL."""
        return f"ARRAY<{self.element.sql}>"


@dataclass(frozen=True)
class Map:
    """A MAP."""

    key: Kind
    value: Kind

    @property
    def sql(self) -> str:
        """Gives the type as SQL."""
        return f"MAP<{self.key.sql}, {self.value.sql}>"


INT, BIGINT, STRING, DOUBLE = Scalar("INT"), Scalar("BIGINT"), Scalar("STRING"), Scalar("DOUBLE")
BOOLEAN, DATE, TIMESTAMP = Scalar("BOOLEAN"), Scalar("DATE"), Scalar("TIMESTAMP")
DECIMAL = Scalar("DECIMAL(10,2)")

# The first values of each stand in most rows, so that keys meet; the last ones are the edges.
VALUES: dict[str, tuple[str, ...]] = {
    "TINYINT": ("1", "2", "3", "0", "-3", "127"),
    "SMALLINT": ("1", "2", "3", "0", "-7", "300", "32767"),
    "INT": ("1", "2", "3", "4", "5", "0", "-1", "70000", "2147483647"),
    "BIGINT": ("1", "2", "3", "4", "5", "0", "-1", "9000000000", "9223372036854775807L"),
    "FLOAT": ("1.0F", "2.0F", "1.5F", "0.0F", "CAST('-0.0' AS FLOAT)", "CAST('NaN' AS FLOAT)"),
    "DOUBLE": (
        "1.0D",
        "2.0D",
        "1.5D",
        "0.0D",
        "CAST('-0.0' AS DOUBLE)",
        "CAST('NaN' AS DOUBLE)",
        "CAST('-Infinity' AS DOUBLE)",
        "1.0E300D",
    ),
    "DECIMAL(10,2)": ("1.00", "2.00", "1.50", "-7.25", "99999999.99"),
    "DECIMAL(5,0)": ("1", "2", "3", "99999"),
    "DECIMAL(20,6)": ("1.000000", "2.5", "1.500001", "12345678901234.5"),
    "STRING": ("'a'", "'b'", "'c'", "'1'", "'2'", "''", "'B'", "'ä €'", "'x/y=%z'", "'null'"),
    "VARCHAR(3)": ("'a'", "'b'", "'abc'", "''"),
    "CHAR(3)": ("'a'", "'b'", "'abc'", "''"),
    "DATE": (
        "DATE'2020-01-01'",
        "DATE'2020-01-02'",
        "DATE'2024-02-29'",
        "DATE'1899-12-31'",
        "DATE'0001-01-01'",
    ),
    "TIMESTAMP": (
        "TIMESTAMP'2020-01-01 00:00:00'",
        "TIMESTAMP'2020-01-02 12:30:00.123456'",
        "TIMESTAMP'1890-03-01 01:02:03'",
        "TIMESTAMP'2020-01-01 00:00:00.000999'",
    ),
    "TIMESTAMP_NTZ": (
        "TIMESTAMP_NTZ'2020-01-01 00:00:00'",
        "TIMESTAMP_NTZ'2020-01-02 12:30:00.123456'",
        "TIMESTAMP_NTZ'1890-03-01 01:02:03'",
    ),
    "BOOLEAN": ("true", "false"),
    "BINARY": ("X'01'", "X'00FF'", "X''"),
}
NUMBERS = (
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(10,2)",
    "DECIMAL(5,0)",
    "DECIMAL(20,6)",
)
TEXTS = ("STRING", "VARCHAR(3)", "CHAR(3)")
KEYS = (
    "INT",
    "INT",
    "INT",
    "BIGINT",
    "STRING",
    "STRING",
    "DOUBLE",
    "DECIMAL(10,2)",
    "DATE",
    "TIMESTAMP",
    "SMALLINT",
)
PARTITIONS = ("INT", "STRING", "STRING", "DATE", "BOOLEAN", "BIGINT", "TIMESTAMP", "DECIMAL(10,2)", "DOUBLE")
CLUSTERING = ("SMALLINT", "INT", "BIGINT", "STRING", "DOUBLE", "DECIMAL(10,2)", "DATE", "TIMESTAMP")
FIELD_NAMES = ("a", "b", "c", "D")


def value(random: Random, kind: Kind, nulls: float = 0.12) -> str:
    """Gives a random value of a type as SQL text."""
    if random.random() < nulls:
        return "NULL"
    if isinstance(kind, Scalar):
        known = VALUES[kind.sql]
        return known[min(int(random.expovariate(0.45)), len(known) - 1)]
    if isinstance(kind, Struct):
        parts = [f"'{f.name}', {_typed(value(random, f.kind, nulls), f.kind)}" for f in kind.fields]
        return f"named_struct({', '.join(parts)})"
    if isinstance(kind, Array):
        items = [value(random, kind.element, nulls) for _ in range(random.randint(0, 3))]
        return _typed(f"array({', '.join(items)})", kind)
    keys = random.sample(VALUES[kind.key.sql][:4], random.randint(0, 2))
    entries = [f"{key}, {value(random, kind.value, nulls)}" for key in keys]
    return _typed(f"map({', '.join(entries)})", kind)


def _typed(text: str, kind: Kind) -> str:
    # Fields need their exact types: values of several rows must be of one type, and a NULL has none.
    if isinstance(kind, Scalar) and kind.sql in (*TEXTS, "BOOLEAN", "DATE", "TIMESTAMP", "INT") and text != "NULL":
        return text
    return f"CAST({text} AS {kind.sql})"


def scalar(random: Random, names: Sequence[str] = tuple(VALUES)) -> Scalar:
    """Gives a random type without parts."""
    return Scalar(random.choice(names))


def kind(random: Random, depth: int = 2) -> Kind:
    """Gives a random type, more often one without parts."""
    drawn = random.random()
    if depth == 0 or drawn < 0.68:
        return scalar(random) if random.random() < 0.6 else scalar(random, ("INT", "STRING", "BIGINT"))
    if drawn < 0.86:
        return struct(random, depth)
    if drawn < 0.95:
        return Array(kind(random, depth - 1))
    return Map(scalar(random, ("STRING", "INT")), kind(random, depth - 1))


def struct(random: Random, depth: int) -> Struct:
    """Gives a random struct."""
    names = FIELD_NAMES[: random.randint(1, 3)]
    return Struct(tuple(Field(name, _field(random, depth - 1)) for name in names))


def _field(random: Random, depth: int) -> Kind:
    inner = kind(random, depth)
    # CHAR and VARCHAR inside of structs are plain strings in literals.
    return STRING if isinstance(inner, Scalar) and inner.sql in TEXTS else inner
