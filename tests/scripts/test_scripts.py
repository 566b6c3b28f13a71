"""Scripts in the shape of public ones, of which only the import and the session's set-up are changed.

What each leaves behind is compared with what it should, as this library and as delta-rs read it.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import runpy
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable as DeltaRs
from deltalake import write_deltalake

import deltamerge
from combinations import ALL
from conftest import CONNECT, SERVER
from deltamerge import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from oracle.client import LineProcess

pytestmark = [
    pytest.mark.sessions,
    pytest.mark.usefixtures("pyspark_as_it_was"),
    # PySpark's client says so of the JAR's settings where the session is there already.
    pytest.mark.filterwarnings("ignore:Failed to set spark.sql.extensions"),
]

FOLDER = Path(__file__).parent / "jobs"


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def day(text: str) -> dt.date:
    return dt.date.fromisoformat(text)


# By script: by table the columns that are compared, and their rows.
EXPECTED: dict[str, dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]]] = {
    "bronze_to_silver": {
        "silver/events": (
            ("event_id", "user", "amount", "day"),
            [
                ("e1", "ann", Decimal("11.00"), day("2024-05-01")),
                ("e2", "bob", Decimal("20.00"), day("2024-05-02")),
                ("e3", "cid", Decimal("30.00"), day("2024-05-02")),
            ],
        ),
    },
    "cdc_with_deletes": {
        "customers": (("id", "name", "city"), [(1, "Anna", "Paris"), (3, "Cid", "Bonn")]),
        "feed": (
            ("id", "name", "_change_type"),
            [(1, "Ann", "update_preimage"), (1, "Anna", "update_postimage"), (2, "Bob", "delete")],
        ),
    },
    "dedupe": {
        "readings": (("device", "at", "value"), [("a", 1, 1.0), ("a", 2, 2.0), ("b", 1, 3.5), ("c", 1, 4.0)]),
    },
    "append_without_duplicates": {
        "logs": (("line", "message"), [(i, f"message {i}") for i in range(40)]),
    },
    "daily_snapshot": {
        "snapshots": (
            ("id", "balance", "day"),
            [
                (1, 10.0, day("2024-06-01")),
                (1, 11.0, day("2024-06-02")),
                (2, 20.0, day("2024-06-01")),
                (2, 20.0, day("2024-06-02")),
                (3, 30.0, day("2024-06-02")),
            ],
        ),
        "accounts": (
            ("id", "balance", "since", "until"),
            [
                (1, 10.0, day("2024-06-01"), day("2024-06-02")),
                (1, 11.0, day("2024-06-02"), None),
                (2, 20.0, day("2024-06-01"), None),
                (3, 30.0, day("2024-06-02"), None),
            ],
        ),
    },
    "late_data": {
        "hourly": (
            ("hour", "page", "views", "last_event"),
            [
                (at("2024-07-01 10:00"), "home", 3, at("2024-07-01 10:30")),
                (at("2024-07-01 11:00"), "shop", 2, at("2024-07-01 11:59")),
                (at("2024-07-01 12:00"), "home", 1, at("2024-07-01 12:00")),
            ],
        ),
    },
    "maintenance": {
        "stock": (
            ("id", "n"),
            [(i, i // 10 if i % 10 < 5 and 1 <= i // 10 <= 3 else -1 if i % 4 == 3 else 0) for i in range(95)],
        ),
    },
    "restore_bad_load": {"prices": (("product", "price"), [("apple", 1.0), ("pear", 2.0)])},
    "streaming_upsert": {
        "latest": (("id", "v", "seq"), [(1, "aa", 2), (2, "bb", 2), (3, "cc", 2), (4, "d", 1)]),
    },
    "multi_table_job": {
        "customers": (("id", "name"), [(1, "Ann"), (2, "Bob"), (3, "Cecil")]),
        "orders": (("id", "customer", "day"), [(10, 1, day("2024-02-01")), (11, 1, day("2024-02-02"))]),
        "totals": (
            ("name", "total", "last_day"),
            [("Ann", Decimal("12.50"), day("2024-02-02")), ("Bob", Decimal(0), None), ("Cecil", Decimal(0), None)],
        ),
    },
}
QUICK = ("cdc_with_deletes",)


EXTENSION, CATALOG = "io.delta.sql.DeltaSparkSessionExtension", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
NAMES_JAR = f'.config("spark.sql.extensions", "{EXTENSION}").config("spark.sql.catalog.spark_catalog", "{CATALOG}")'
# What the scripts have instead of what they would have for delta-spark, whose JAR the session names.
FOR_DELTA_SPARK = (
    (r"import deltamerge\n", ""),
    (r"from deltamerge\.tables import", "from delta.tables import"),
    (r"from deltamerge\.exceptions import Delta(\w+)", r"from pyspark.errors import \1"),
    (r"\bDelta(AnalysisException)", r"\1"),
    (r"deltamerge\.register\(spark\)\n", ""),
    (r"\.getOrCreate\(\)", f"{NAMES_JAR}.getOrCreate()"),
)
CHANGED_LINE = "import deltamerge; deltamerge.install_in_pyspark()"


def run(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch, text: str | None = None) -> None:
    if SERVER in os.environ:
        # Scripts over Connect find their server here.
        monkeypatch.setenv("SPARK_REMOTE", os.environ[SERVER])
    monkeypatch.setattr(sys, "argv", [f"{script}.py", str(folder)])
    file = FOLDER / f"{script}.py"
    if text is not None:
        file = folder / f"{script}.py"
        file.write_text(text)
    runpy.run_path(str(file), run_name="__main__")


def with_one_changed_line(script: str) -> str:
    """Returns a script as it is for delta-spark, but for one line before its imports."""
    text = (FOLDER / f"{script}.py").read_text()
    for pattern, written in FOR_DELTA_SPARK:
        text = re.sub(pattern, written, text)
    assert "deltamerge" not in text
    first = re.search(r"^(import|from) ", text, re.MULTILINE)
    assert first is not None
    return f"{text[: first.start()]}{CHANGED_LINE}\n{text[first.start() :]}"


# Over Connect foreachBatch runs in a process of the server, which lacks the changed line.
NOT_BY_ONE_LINE = ("streaming_upsert",) if CONNECT else ()
BY_ONE_LINE = [script for script in EXPECTED if script not in NOT_BY_ONE_LINE]
SCRIPTS = [pytest.param(s, marks=() if s in QUICK else pytest.mark.slow) for s in EXPECTED]


@pytest.mark.parametrize("script", SCRIPTS if ALL else SCRIPTS[::2])
def test_a_script_runs(script: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(script, tmp_path, monkeypatch)
    check_tables(script, spark, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("script", BY_ONE_LINE if ALL else BY_ONE_LINE[1::2])
def test_a_script_for_delta_spark_runs_with_one_changed_line(
    script: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(script, tmp_path, monkeypatch, with_one_changed_line(script))
    check_tables(script, spark, tmp_path)


def check_tables(script: str, spark: SparkSession, folder: Path) -> None:
    for table, (columns, expected) in EXPECTED[script].items():
        path = f"{folder}/{table}"
        frame = DeltaTable.forPath(spark, path).toDF().select(*columns)
        assert sorted(map(tuple, frame.collect()), key=repr) == sorted(expected, key=repr), table
        by_rs = DeltaRs(path)
        if "deletionVectors" not in (by_rs.protocol().reader_features or ()):
            read = by_rs.to_pyarrow_table(columns=list(columns)).to_pylist()
            values = [tuple(map(without_zone, row.values())) for row in read]
            assert sorted(values, key=repr) == sorted(expected, key=repr), table


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("script", list(EXPECTED))
def test_other_engines_go_on_with_what_a_script_leaves(
    script: str, spark: SparkSession, oracle: LineProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(script, tmp_path, monkeypatch, with_one_changed_line(script))
    for table, (columns, expected) in EXPECTED[script].items():
        path = f"{tmp_path}/{table}"
        line = f"to_json(struct({', '.join(columns)}), map('ignoreNullFields', 'false')) AS line"
        read = oracle.ask("sql", statements=[f"SELECT {line} FROM delta.`{path}`"])
        here = DeltaTable.forPath(spark, path).toDF().selectExpr(line).collect()
        assert sorted(row["line"] for row in read) == sorted(row["line"] for row in here), table
        oracle.ask("sql", statements=[f"INSERT INTO delta.`{path}` SELECT * FROM delta.`{path}` LIMIT 1"])
        by_rs, appended = DeltaRs(path), 1
        if "deletionVectors" not in (by_rs.protocol().reader_features or ()):
            write_deltalake(path, by_rs.to_pyarrow_table().slice(0, 1), mode="append")
            appended = 2
        rows = DeltaTable.forPath(spark, path).toDF().select(*columns).collect()
        assert len(rows) == len(expected) + appended, table
        assert set(map(tuple, rows)) == set(expected), table


def without_zone(value: object) -> object:
    """Returns a timestamp as Spark does in the tests, whose zone is UTC."""
    return value.astimezone(dt.timezone.utc).replace(tzinfo=None) if isinstance(value, dt.datetime) else value


@pytest.mark.slow
@pytest.mark.parametrize("changed", [False, True])
def test_a_notebook_runs(changed: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        run("notebook", tmp_path, monkeypatch, with_one_changed_line("notebook") if changed else None)
        rows = deltamerge.sql(spark, "SELECT * FROM notebook_db.people ORDER BY id").collect()
        assert [tuple(row) for row in rows] == [(1, "Anna", 1970), (2, "Bobby", 1980), (3, "Cid", 1990)]
        location = DeltaTable.forName(spark, "notebook_db.people").detail().collect()[0]["location"]
        assert len(DeltaRs(location.removeprefix("file:")).to_pyarrow_table()) == 3
    finally:
        deltamerge.sql(spark, "DROP DATABASE IF EXISTS notebook_db CASCADE")
