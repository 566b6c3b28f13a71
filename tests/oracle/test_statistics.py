"""Statistics beside delta-spark's, file by file; and filters, by either's statistics, lose no row."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as DeltaRs
from deltalake import QueryBuilder

from corpus.sql import string_literal
from deltamerge import merge_sql, write_delta
from deltamerge.log.snapshot import Snapshot, load_snapshot
from deltamerge.skipping.pruning import files_that_may_match
from deltamerge.sql.condition_reader import read_condition
from deltamerge.sql.conditions import shape_of_tree
from deltamerge.sql.resolution import Relation, Scope
from deltamerge.storage.store import open_store

from .client import LineProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.oracle

FILES = 30
CONDITIONS_PER_COLUMN = 6
# Of these columns one condition each is also a filter of delta-spark's own on our table.
FILTERED = ("f", "d38", "t", "ts", "n.m.ts")
SEED = 20240229

LONG_TEXTS = (
    "x" * 31, "x" * 32, "x" * 33, "y" * 31 + "\U0001f600", "y" * 31 + "\U0001f600z", "\U0001f600" * 16 + "\U0001f601",
    "\U0001f600" * 32, "\U0001f600" * 40, "z" * 32 + "\U0010ffff", "z" * 32 + "\x7f~", "z" * 32 + "é\ud7ff",
    "\ufffd" * 35, "\U0010ffff" * 70,
)  # fmt: skip
INSTANTS = (
    datetime(1, 1, 3), datetime(9999, 12, 29, 23, 59, 59, 999_999), datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(1969, 12, 31, 23, 59, 59, 999_000), datetime(1970, 1, 1), datetime(1883, 11, 18, 12, 3, 57, 1),
    datetime(2024, 2, 29, 0, 0, 0, 999_999), datetime(2024, 2, 29, 0, 0, 1),
)  # fmt: skip
DOUBLES = (math.nan, math.inf, -math.inf, 0.0, -0.0, 0.1, 1e300, -1e300, 5e-324, 2.0**53, 1e-7, 12345678.9)
FLOATS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 0.1, 3.4e38, -3.4e38, 1e-45, 16777217.0, 1e-7, 1e10)


@dataclass(frozen=True)
class Column:
    """A column, or a field of the struct ``n`` or of the struct ``n.m``.

    Args:
        type: Of its values.
        value: Makes one that is not NULL.
        literal: Spells one in SQL; None for a type that is not compared.
    """

    type: pa.DataType
    value: Callable[[random.Random], Any]
    literal: Callable[[Any], str] | None


def whole(bits: int) -> Callable[[random.Random], int]:
    ends = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return lambda source: source.choice(ends) if source.random() < 0.05 else source.randrange(-9, 10)


def decimal(precision: int, scale: int) -> Callable[[random.Random], Decimal]:
    def value(source: random.Random) -> Decimal:
        top = 10**precision - 1
        number = source.choice([top, -top, 1, -1]) if source.random() < 0.1 else source.randrange(-999, 999)
        return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))

    return value


def text(source: random.Random) -> str:
    if source.random() < 0.3:
        return source.choice(["", "a", "é", "\ufffd", "\U0001f600", "null", "it's", 'a "b" \\', "\n"])
    return source.choice(LONG_TEXTS) + "".join(source.choices("az\x7f\x80\U0010ffff", k=source.randrange(4)))


def local(source: random.Random) -> datetime:
    if source.random() < 0.3:
        return source.choice(INSTANTS)
    return datetime(2024, 2, 29) + timedelta(microseconds=source.randrange(-5000, 5000))


def day(source: random.Random) -> date:
    return source.choice(
        [date(1, 1, 3), date(9999, 12, 31), date(1969, 12, 31), date(2024, 2, 29 - source.randrange(9))]
    )


def floating(special: tuple[float, ...]) -> Callable[[random.Random], float]:
    return lambda source: source.choice(special) if source.random() < 0.3 else source.randrange(-9, 9) / 4


def number_literal(value: float) -> str:
    return f"CAST('{value}' AS DOUBLE)" if not math.isfinite(value) else f"{value!r}D"


def date_literal(value: date) -> str:
    return f"DATE'{value.isoformat()}'"


def timestamp_literal(value: datetime) -> str:
    return f"TIMESTAMP'{value.isoformat(sep=' ', timespec='microseconds')}+00:00'"


def local_literal(value: datetime) -> str:
    return f"TIMESTAMP_NTZ'{value.isoformat(sep=' ', timespec='microseconds')}'"


def decimal_literal(value: Decimal) -> str:
    return format(value, "f")


COLUMNS: dict[str, Column] = {
    "b": Column(pa.int8(), whole(8), str),
    "s": Column(pa.int16(), whole(16), str),
    "i": Column(pa.int32(), whole(32), str),
    "l": Column(pa.int64(), whole(63), str),
    "f": Column(pa.float32(), floating(FLOATS), number_literal),
    "d": Column(pa.float64(), floating(DOUBLES), number_literal),
    "d5": Column(pa.decimal128(5, 2), decimal(5, 2), decimal_literal),
    "d18": Column(pa.decimal128(18, 6), decimal(18, 6), decimal_literal),
    "d38": Column(pa.decimal128(38, 10), decimal(38, 10), decimal_literal),
    "t": Column(pa.string(), text, string_literal),
    "day": Column(pa.date32(), day, date_literal),
    "ts": Column(pa.timestamp("us", "UTC"), local, timestamp_literal),
    "ntz": Column(pa.timestamp("us"), local, local_literal),
    "flag": Column(pa.bool_(), lambda source: source.random() < 0.5, lambda value: str(value).upper()),
    "raw": Column(pa.binary(), lambda source: source.randbytes(3), None),
    "n.x": Column(pa.int32(), whole(32), str),
    "n.t": Column(pa.string(), text, string_literal),
    "n.m.ts": Column(pa.timestamp("us", "UTC"), local, timestamp_literal),
    "n.m.d": Column(pa.decimal128(10, 3), decimal(10, 3), decimal_literal),
    "arr": Column(pa.list_(pa.int32()), lambda source: source.choice([[1], [], [1, None], [None]]), None),
    "map": Column(
        pa.map_(pa.string(), pa.int32()),
        lambda source: source.choice([[("k", 1)], [], [("k", None)], [("k", 1), ("l", None)]]),
        None,
    ),
    "n.arr": Column(
        pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())])),
        lambda source: source.choice([[{"x": 1, "y": "a"}], [{"x": 1}, None], [None], []]),
        None,
    ),
}


def random_rows(source: random.Random) -> list[dict[str, Any]]:
    """Gives rows by the columns' names, each with its file's number; each file has its own mixture of NULLs."""
    rows = []
    for file in range(FILES):
        chances = {name: source.choice([0.0, 0.0, 0.3, 1.0]) for name in COLUMNS}
        no_struct = {"n": source.choice([0.0, 0.3, 1.0]), "n.m": source.choice([0.0, 0.3])}
        for _ in range(source.randrange(1, 9)):
            row = {name: None if source.random() < chances[name] else c.value(source) for name, c in COLUMNS.items()}
            for struct, chance in no_struct.items():
                row[struct] = source.random() >= chance
            rows.append({"file": file, **row})
    return rows


def source_table(rows: list[dict[str, Any]]) -> pa.Table:
    def column(name: str) -> pa.Array:
        return pa.array([row[name] for row in rows], COLUMNS[name].type)

    def struct(name: str, names: list[str]) -> pa.Array:
        fields = [(part.rsplit(".", 1)[1], column(part)) for part in names]
        if name == "n":
            fields.append(("m", struct("n.m", ["n.m.ts", "n.m.d"])))
        absent = pa.array([not row[name] for row in rows])
        return pa.StructArray.from_arrays([value for _, value in fields], [field for field, _ in fields], mask=absent)

    columns = {name: column(name) for name in COLUMNS if "." not in name}
    columns["n"] = struct("n", ["n.x", "n.t", "n.arr"])
    return pa.table({"file": pa.array([row["file"] for row in rows], pa.int32()), **columns})


def conditions(rows: list[dict[str, Any]], source: random.Random) -> list[str]:
    """Gives conditions about one column each, with literals that are in the column or close to it."""
    found = []
    for name, column in COLUMNS.items():
        present = [row[name] for row in rows if row[name] is not None]
        found += [f"{name} IS NULL", f"{name} IS NOT NULL"]
        spell = column.literal
        for _ in range(CONDITIONS_PER_COLUMN if spell else 0):
            assert spell is not None
            value, other = (close(source.choice(present), source) for _ in range(2))
            op = source.choice(["=", "<=>", "<>", "<", "<=", ">", ">="])
            literal = spell(value)
            found.append(
                source.choice(
                    [
                        f"{name} {op} {literal}",
                        f"NOT ({name} {op} {literal})",
                        f"{name} IN ({literal}, {spell(other)})",
                        f"{name} BETWEEN {literal} AND {spell(other)}",
                    ]
                )
            )
    return found


def as_float(value: Any) -> float:
    """Gives the FLOAT that a number stands for."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def close(value: Any, source: random.Random) -> Any:
    if isinstance(value, datetime):
        return value + timedelta(microseconds=source.choice([-1, 0, 0, 1]))
    if isinstance(value, str):
        return source.choice([value, value + "a", value[:32], value[:-1]])
    if isinstance(value, float):
        return source.choice([value, as_float(value), -value])
    return value


def statistics(snapshot: Snapshot) -> dict[int, dict[str, Any]]:
    """Gives each file's statistics by the number that its partition has."""
    found = {}
    for add in snapshot.files.add_files():
        assert add.stats is not None
        found[int(add.partition_values["file"] or -1)] = json.loads(add.stats, parse_float=Decimal)
    return found


def leaves(tree: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def comparable(name: str, value: Any) -> Any:
    """Gives a statistic as a value: numbers have several spellings."""
    column = name.split(".", 1)[1]
    if not isinstance(value, str) and column in ("f", "d"):
        return as_float(value) if column == "f" else float(value)
    return value


def test_statistics_of_both(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    source = random.Random(SEED)
    rows = random_rows(source)
    parquet, theirs, ours = (str(tmp_path / name) for name in ("source", "theirs", "ours"))
    pq.write_table(source_table(rows), parquet)
    asked = conditions(rows, source)
    truths = ", ".join(f"coalesce(bool_or({text}), false) AS c{at}" for at, text in enumerate(asked))
    answers = oracle.ask(
        "sql",
        statements=[
            (
                f"CREATE TABLE delta.`{theirs}` USING delta PARTITIONED BY (file) AS "
                f"SELECT /*+ COALESCE(1) */ * FROM parquet.`{parquet}`"
            ),
            f"SELECT file, {truths} FROM delta.`{theirs}` GROUP BY file",
        ],
    )
    write_delta(spark.read.parquet(parquet).coalesce(1), ours, partition_by="file")

    registered = QueryBuilder().register("t", DeltaRs(ours))
    for column in ("f", "d"):
        for bound in (math.inf, -math.inf):
            query = f"SELECT count(*) AS n FROM t WHERE {column} = CAST('{bound}' AS DOUBLE)"
            counted = pa.table(registered.execute(query))["n"].to_pylist()
            assert counted == [sum(row[column] == bound for row in rows)]

    tables = {"deltamerge": load_snapshot(open_store(ours)), "delta-spark": load_snapshot(open_store(theirs))}
    by_deltamerge, by_delta_spark = (statistics(table) for table in tables.values())
    assert by_deltamerge.keys() == by_delta_spark.keys() == set(range(FILES))
    for file, expected in by_delta_spark.items():
        found = dict(leaves(by_deltamerge[file]))
        for name, value in leaves(expected):
            assert name in found, f"file {file} has no {name}, delta-spark's is {value!r}"
            written, wanted = found.pop(name), value
            if "." in name:
                written, wanted = comparable(name, written), comparable(name, value)
            assert written == wanted, f"{name} of file {file}"
        assert found == {}, f"file {file}"

    nested = {"n": {"x": None, "t": None, "arr": None, "m": {"ts": None, "d": None}}}
    columns = {name: None for name in COLUMNS if "." not in name} | nested | {"file": None}
    scope = Scope(Relation((), columns), Relation((), {}), case_sensitive=False)
    skipped = dict.fromkeys(tables, 0)
    filters = {
        name: next(at for at, text in enumerate(asked) if text.startswith(f"{name} ") and "NULL" not in text)
        for name in FILTERED
    }
    answered = oracle.ask(
        "sql",
        statements=[
            " UNION ALL ".join(
                f"SELECT {at} AS c, array_sort(collect_set(file)) AS files FROM delta.`{ours}` WHERE {asked[at]}"
                for at in filters.values()
            )
        ],
    )
    found_by = {row["c"]: set(row["files"]) for row in answered}
    for at, text in enumerate(asked):
        matching = {answer["file"] for answer in answers if answer[f"c{at}"]}
        assert found_by.get(at, matching) == matching, text
        for engine, table in tables.items():
            predicate = shape_of_tree(read_condition(text), scope).target_predicate
            mask = files_that_may_match(predicate, table.files, table.schema, ["file"], "UTC")
            files = [int(add.partition_values["file"] or -1) for add in table.files.add_files()]
            kept = {file for file, is_kept in zip(files, mask, strict=True) if is_kept}
            assert matching <= kept, f"{engine}: {text}"
            skipped[engine] += FILES - len(kept)
    # Statistics that say nothing would pass, too.
    assert skipped["deltamerge"] >= 0.98 * skipped["delta-spark"] > FILES * len(asked) * 0.2


def statistics_by_file(
    oracle: LineProcess, ours: str, theirs: str
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Gives the statistics of our files, and what delta-spark makes of the same rows, by the names of our files."""
    oracle.ask(
        "sql",
        statements=[
            (
                f"CREATE TABLE delta.`{theirs}` USING delta PARTITIONED BY (origin) AS "
                f"SELECT /*+ COALESCE(1) */ *, _metadata.file_name AS origin FROM delta.`{ours}`"
            )
        ],
    )
    own, other = (load_snapshot(open_store(path)).files.add_files() for path in (ours, theirs))
    return (
        {add.path.rsplit("/", 1)[-1]: dict(leaves(json.loads(add.stats or ""))) for add in own},
        {add.partition_values["origin"] or "": dict(leaves(json.loads(add.stats or ""))) for add in other},
    )


@pytest.mark.parametrize("executor", ["low_shuffle", "key_lookup"])
def test_statistics_of_files_that_pyarrow_writes(
    oracle: LineProcess, spark: SparkSession, tmp_path: Path, executor: str
) -> None:
    parquet, theirs, ours = (str(tmp_path / name) for name in ("source", "theirs", "ours"))
    rows = source_table(random_rows(random.Random(SEED)))
    if executor == "key_lookup":
        rows = rows.select([field.name for field in rows.schema if not pa.types.is_nested(field.type)])
    rows = rows.append_column("id", pa.array(range(rows.num_rows), pa.int64()))
    pq.write_table(rows, parquet)
    write_delta(spark.read.parquet(parquet).repartitionByRange(FILES, "file"), ours)
    # Another row's values for some rows, or none at all.
    chosen = rows.take([(at * 7) % rows.num_rows for at in range(0, rows.num_rows, 3)])
    chosen = chosen.set_column(chosen.column_names.index("id"), "id", pa.array(range(0, rows.num_rows, 3), pa.int64()))
    pq.write_table(chosen, f"{parquet}-changes")
    action = "UPDATE SET *" if executor == "key_lookup" else "DELETE"
    settings = {"spark.deltamerge.merge.executor": executor, "spark.sql.files.maxRecordsPerFile": "8"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        report = merge_sql(
            spark,
            f"MERGE INTO delta.`{ours}` t USING parquet.`{parquet}-changes` s ON t.id = s.id "
            f"WHEN MATCHED THEN {action}",
        )
    finally:
        for name in settings:
            spark.conf.unset(name)
    assert report.outcome.executor == executor
    found, expected = statistics_by_file(oracle, ours, theirs)
    assert len(found) >= FILES // 2
    assert found.keys() == expected.keys()
    for file, of_file in expected.items():
        assert found[file].keys() == of_file.keys(), file
        for name, value in of_file.items():
            both = found[file][name], value
            if "." in name:
                both = comparable(name, both[0]), comparable(name, both[1])
            assert both[0] == both[1], f"{name} of {file}"


NESTED = """VALUES
  (1, array(1, NULL), map('k', 1), named_struct('a', array(named_struct('x', 1, 'y', 'z'), NULL)), {1}),
  (2, NULL, NULL, NULL, NULL), (3, array(), map(), named_struct('a', NULL), {2}),
  (4, array(NULL), map('k', NULL), named_struct('a', array()), NULL), (5, NULL, map('l', 2), NULL, {1}),
  (6, array(6), NULL, named_struct('a', NULL), {2}) AS x(k, arr, m, n, v)"""


def test_nulls_of_nested_columns_in_files_of_every_writer(
    oracle: LineProcess, spark: SparkSession, tmp_path: Path
) -> None:
    rows = "SELECT /*+ COALESCE(1) */ * FROM " + NESTED.replace("{1}", "1").replace("{2}", "2")
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    write_delta(spark.sql(rows), ours)
    statement = (
        f"MERGE INTO delta.`{ours}` t USING (SELECT 4 AS k, array() AS arr) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET arr = s.arr"
    )
    spark.conf.set("spark.deltamerge.merge.executor", "low_shuffle")
    try:
        report = merge_sql(spark, statement)
    finally:
        spark.conf.unset("spark.deltamerge.merge.executor")
    assert report.outcome.executor == "low_shuffle"
    found, expected = (
        {
            file: {name: value for name, value in of_file.items() if name.startswith("nullCount.")}
            for file, of_file in side.items()
        }
        for side in statistics_by_file(oracle, ours, theirs)
    )
    assert found == expected
    assert sorted(counts["nullCount.arr"] for counts in found.values()) == [0, 2]


def test_nulls_of_variants(oracle: LineProcess, spark: SparkSession, tmp_path: Path) -> None:
    values = NESTED.replace("{1}", """parse_json('{"a": 1}')""").replace("{2}", "parse_json('null')")
    rows = f"SELECT /*+ COALESCE(1) */ *, named_struct('v', v) AS s, array(v) AS a FROM {values}"
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    write_delta(spark.sql(rows), ours)
    shredding = "TBLPROPERTIES ('delta.enableVariantShredding' = 'true')"
    oracle.ask(
        "sql",
        statements=[
            f"CREATE TABLE delta.`{theirs}` USING delta AS {rows}",
            f"CREATE TABLE delta.`{theirs}-shredded` USING delta {shredding} AS {rows}",
        ],
    )
    found, expected, shredded = (
        [json.loads(add.stats or "") for add in load_snapshot(open_store(path)).files.add_files()]
        for path in (ours, theirs, f"{theirs}-shredded")
    )
    assert [dict(leaves(stats)) for stats in found] == [dict(leaves(stats)) for stats in expected]
    assert found[0]["nullCount"]["v"] == 2
    # Without settings that are off by default delta-spark has no bounds of variants.
    assert shredded[0]["nullCount"] == found[0]["nullCount"]
    assert "v" not in {**shredded[0]["minValues"], **shredded[0]["maxValues"]}
