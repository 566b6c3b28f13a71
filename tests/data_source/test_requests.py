"""What queries ask for, read without a session."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, IntegerType, StringType, StructField, StructType

from deltamerge.data_source.conditions import condition_of
from deltamerge.data_source.file_parts import grouped
from deltamerge.data_source.filters import predicate_of
from deltamerge.data_source.request import Request, parse_bytes
from deltamerge.data_source.write_options import asked_write, option_properties
from deltamerge.exceptions import DeltaAnalysisException, DeltaIllegalArgumentException, DeltaTableException
from deltamerge.log.schema import parse_schema
from deltamerge.skipping.predicates import And, ColumnRef, Comparison, In, Not, StartsWith, Unknown
from deltamerge.spark.data_source import source_settings
from deltamerge.workers.conditions import Constant, Operation
from deltamerge.workers.table_rows import FilePart
from deltamerge.write.overwrite_kind import PARTITION_OVERWRITE_MODE
from deltamerge.write.property_names import default_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = StructType([StructField("d", DateType()), StructField("p", IntegerType()), StructField("s", StringType())])


@pytest.mark.parametrize("version", ["latest", "-1", "1.5", "²"])
def test_versions_of_changes(version: str) -> None:
    request = Request({"startingversion": version, "endingversion": "7"}, {})
    with pytest.raises(DeltaAnalysisException, match="DELTA_VERSION_INVALID"):
        request.boundary("startingVersion")
    assert request.boundary("endingVersion") == 7


@pytest.mark.parametrize(
    ("string", "zone", "milliseconds"),
    [
        ("1970-01-02", "UTC", 86_400_000),
        ("1970-01-01 01:00:00.5", "Europe/Berlin", 500),
        ("1970-01-01T01:00:00+01:00", "America/New_York", 0),
    ],
)
def test_timestamps(string: str, zone: str, milliseconds: int) -> None:
    request = Request({"timestampasof": string}, {"spark.sql.session.timeZone": zone})
    assert request.milliseconds("timestampAsOf") == milliseconds


def test_timestamps_are_those_that_spark_casts(spark: SparkSession) -> None:
    days = ["2024", "2024-05", "2024-5-1", " 2024-05-01 ", "2024-05-1T", "2024-13-01", "24-05-01", "now", "2024-5-"]
    clocks = ["12", "1:2", "12:30", "12:30:", "1:2:3", "12:30:15.", "12:30:15.1234567", "24:00:00"]
    zones = ["Z", "+1", "+01:30", "-0752", " UTC", "GMT+1", "Europe/Berlin"]
    strings = [*days, *(f"2024-05-1 {clock}" for clock in clocks), *(f"2024-5-01T1:2:3.5{zone}" for zone in zones)]
    strings += [f"2024-05-01 12:30{zone}" for zone in zones]
    cast = F.expr("unix_millis(try_cast(s AS TIMESTAMP))").alias("m")
    found = spark.createDataFrame([(each,) for each in strings], "s STRING").select("s", cast).collect()
    expected = {row.s: row.m for row in found}
    settings = {"spark.sql.session.timeZone": str(spark.conf.get("spark.sql.session.timeZone"))}

    def milliseconds(string: str) -> int | None:
        with suppress(DeltaAnalysisException):
            return Request({"timestampasof": string}, settings).milliseconds("timestampAsOf")
        return None

    assert {string: milliseconds(string) for string in strings} == expected


@pytest.mark.parametrize(
    ("string", "zone"),
    [("2024-05-01", "CET"), ("1969-05-01 12:30:00", "America/New_York"), ("2024-05-01 12:30:00 EST", "UTC")],
)
def test_timestamps_that_depend_on_a_zone(string: str, zone: str) -> None:
    request = Request({"timestampasof": string}, {"spark.sql.session.timeZone": zone})
    zone = "EST" if "EST" in string else zone
    with pytest.raises(DeltaAnalysisException, match=f"depends on the time zone {zone}.*with its offset") as raised:
        request.milliseconds("timestampAsOf")
    assert raised.value.getCondition() == "DELTA_TIMESTAMP_INVALID"


def test_wrong_options() -> None:
    for wrong in ("now", "2024-02-30"):
        with pytest.raises(DeltaAnalysisException, match=r"DELTA_TIMESTAMP_INVALID.*valid timestamp"):
            Request({"timestampasof": wrong}, {}).milliseconds("timestampAsOf")
    with pytest.raises(DeltaIllegalArgumentException, match="'maybe' for option 'mergeSchema'"):
        Request({"mergeschema": "maybe"}, {}).flag("mergeSchema")
    with pytest.raises(DeltaIllegalArgumentException, match="no table property"):
        option_properties(Request({"delta.nosuch": "1"}, {}))
    dynamic = {PARTITION_OVERWRITE_MODE: "dynamic"}
    with pytest.raises(DeltaIllegalArgumentException, match="DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE"):
        asked_write(Request({"partitionby": "p", "overwriteschema": "true"}, dynamic), overwrite=True)


@pytest.mark.parametrize("option", ["replaceUsing", "replaceOn"])
def test_options_that_would_replace_only_some_rows_are_refused(option: str) -> None:
    with pytest.raises(DeltaAnalysisException, match=f"{option}.*replaceWhere.*MERGE") as caught:
        asked_write(Request({option.lower(): "id"}, {}), overwrite=True)
    assert caught.value.getSqlState() == "0A000"


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(
        Request({"fs.s3a.secret.key": "hunter2"}, {"spark.hadoop.fs.s3a.secret.key": "hunter2"})
    )


def test_a_single_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links")

    monkeypatch.setattr(os, "link", no_links)
    Request({"path": str(tmp_path), "single_writer": "true"}, {}).store.put_if_absent("x", b"1")
    with pytest.raises(DeltaTableException, match="single_writer=true"):
        Request({"path": str(tmp_path)}, {}).store.put_if_absent("y", b"1")


def test_name_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of a session, and options, whose names Spark has in lower case."""
    asked: list[Any] = []
    monkeypatch.setattr("deltamerge.data_source.request.open_store", lambda *given: asked.append(given))
    settings = {
        "spark.hadoop.dfs.nameservices": "ns",
        "spark.hadoop.dfs.ha.namenodes.ns": "a,b",
        "dfs.namenode.rpc-address.ns.a": "host:1",
        "spark.hadoop.fs.s3a.secret.key": "secret",
    }
    options = {"path": "hdfs://ns/t", "fs.defaultfs": "hdfs://ns", "dfs.namenode.rpc-address.ns.b": "host:2"}
    assert Request({**options, "single_writer": "true"}, settings).store is None
    given = {"fs.defaultFS": "hdfs://ns", "dfs.namenode.rpc-address.ns.b": "host:2", "single_writer": "true"}
    session = {
        "dfs.nameservices": "ns",
        "dfs.ha.namenodes.ns": "a,b",
        "dfs.namenode.rpc-address.ns.a": "host:1",
    }
    assert asked == [("hdfs://ns/t", given, session)]


def test_the_source_takes_along_how_hdfs_is_reached(spark: SparkSession) -> None:
    key = "spark.hadoop.dfs.ha.namenodes.ns"
    spark.conf.set(key, "a,b")
    try:
        assert source_settings(spark)[key] == "a,b"
    finally:
        spark.conf.unset(key)


def test_sizes() -> None:
    assert [parse_bytes("x", value) for value in ("10", "1k", "128MB", "2 gb")] == [10, 1024, 128 << 20, 2 << 30]


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, "dynamic"),
        ({"partitionoverwritemode": "static"}, "overwrite"),
        ({"replacewhere": "p = 1"}, "replace_where"),
        ({"overwriteschema": "true"}, "overwrite_schema"),
    ],
)
def test_the_session_says_how_partitions_are_overwritten(options: dict[str, str], kind: str) -> None:
    request = Request(options, {"spark.sql.sources.partitionOverwriteMode": "DYNAMIC"})
    assert asked_write(request, overwrite=True).kind == kind
    assert asked_write(Request({}, request.settings), overwrite=False).kind == "append"


STATIC = {"spark.sql.sources.partitionOverwriteMode": "static"}


def test_null_among_partitions_that_are_overwritten() -> None:
    option = {"usenullintolerantequalitywithdpo": "true"}
    dynamic = Request({**option, "partitionoverwritemode": "dynamic"}, {})
    assert asked_write(dynamic, overwrite=True).keeps_null_partitions
    assert asked_write(Request({**option, "replacewhere": "p = 1"}, {}), overwrite=True).kind == "replace_where"
    assert asked_write(Request(option, {}), overwrite=False).kind == "append"
    with pytest.raises(DeltaIllegalArgumentException, match=r"DELTA_ILLEGAL_OPTION.*WithDPO.*Dynamic Partition"):
        asked_write(Request(option, STATIC), overwrite=True)
    # The session's mode is not known yet.
    assert asked_write(Request(option, {}), overwrite=True).kind == "overwrite"
    with pytest.raises(DeltaIllegalArgumentException, match="must be 'true' or 'false'"):
        asked_write(Request({"usenullintolerantequalitywithdpo": "x"}, STATIC), overwrite=True)


def test_the_alias_of_a_condition() -> None:
    request = Request({"replacewhere": "t.p = 1", "targetalias": "T"}, {})
    condition = asked_write(request, overwrite=True).condition
    assert condition is not None
    assert condition.text == "p = 1"


def test_properties_of_options_and_of_the_session() -> None:
    request = Request(
        {"delta.enablechangedatafeed": "true", "partitionby": "a, b"},
        {"spark.databricks.delta.properties.defaults.appendOnly": "true"},
    )
    wanted = asked_write(request, overwrite=False)
    assert option_properties(request) == {"delta.enableChangeDataFeed": "true"}
    assert default_properties(request.settings) == {"delta.appendOnly": "true"}
    assert wanted.partition_columns == ("a", "b")


@pytest.mark.parametrize(("sql", "value"), [("d = '2024-01-01'", date(2024, 1, 1)), ("p = '7'", 7), ("s = '7'", "7")])
def test_strings_are_cast_to_what_they_are_compared_with(sql: str, value: object) -> None:
    found = condition_of(sql, COLUMNS, COLUMNS, Request({}, {}))
    assert isinstance(found, Operation)
    assert isinstance(found.operands[1], Constant)
    assert found.operands[1].value == value


@pytest.mark.parametrize("sql", ["s = 7", "upper(s) = 'A'", "other = 1", "p = 1.5D"])
def test_conditions_that_need_spark(sql: str) -> None:
    assert condition_of(sql, COLUMNS, COLUMNS, Request({}, {})) is None


@pytest.mark.parametrize("sql", ["c LIKE '%ab'", "c LIKE 'ab'", "startswith(c, 'ab')"])
def test_patterns_beside_char_need_spark(sql: str) -> None:
    """Spark pads what is compared with CHAR, but no pattern."""
    table = StructType([StructField("c", StringType(), metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(5)"})])
    given = StructType([StructField("c", StringType())])
    assert condition_of(sql, given, table, Request({}, {})) is None
    for compared in ("c = 'ab' OR c IN ('cd')", "c IS NOT NULL", "c BETWEEN 'a' AND 'b' OR c IS NULL"):
        assert condition_of(compared, given, table, Request({}, {})) is not None


def filter_of(kind: str, **values: object) -> object:
    return type(kind, (SimpleNamespace,), {})(**values)


def test_filters_of_spark() -> None:
    schema = parse_schema(COLUMNS.json())
    filters = [
        filter_of("EqualTo", attribute=("p",), value=1),
        filter_of("Not", child=filter_of("In", attribute=("s",), value=("a", "b"))),
        filter_of("StringStartsWith", attribute=("s",), value="x"),
        filter_of("StringEndsWith", attribute=("s",), value="x"),
        filter_of("EqualTo", attribute=("gone",), value=1),
    ]
    assert predicate_of(filters, schema) == And(
        (
            Comparison("=", ColumnRef(("p",)), 1, "int"),
            Not(In(ColumnRef(("s",)), ("a", "b"), "string")),
            StartsWith(ColumnRef(("s",)), "x"),
            Unknown(),
            Unknown(),
        )
    )


def test_files_are_divided_among_tasks() -> None:
    request = Request({}, {"spark.default.parallelism": "2", "spark.sql.files.maxPartitionBytes": "100m"})
    small = [(FilePart(f"/{number}"), 1 << 20) for number in range(8)]
    assert [len(group) for group in grouped(request, small)] == [4, 4]
    (only,) = [(FilePart("/large"), 250 << 20)]
    groups = grouped(request, [only])
    ranges = [part.bytes for group in groups for part in group]
    assert ranges == [(0, 100 << 20), (100 << 20, 200 << 20), (200 << 20, 250 << 20)]
