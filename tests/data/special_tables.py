"""Tables that delta-spark makes by statements: checkpoints and types of all kinds, and logs that are then broken."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ALL_TYPES = (
    "b BOOLEAN, i1 TINYINT, i2 SMALLINT, i4 INT, i8 BIGINT, f4 FLOAT, f8 DOUBLE, d1 DECIMAL(5,2), d2 DECIMAL(15,4), "
    "d3 DECIMAL(38,18), s STRING, x BINARY, d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, a ARRAY<INT>, m MAP<STRING, DATE>, "
    "st STRUCT<p: ARRAY<STRUCT<q: DECIMAL(9,3)>>, r: STRING>"
)
ALL_VALUES = (
    (
        "(true, 1, 2, 3, 4, 1.5, 'NaN', 123.45, 12345.6789, 0.000000000000000001, 'é漢', X'00FF', DATE'2024-02-29', "
        "TIMESTAMP'2024-03-31 01:30:00.123456', TIMESTAMP_NTZ'2024-03-31 02:30:00.123456', array(1, NULL), "
        "map('k', DATE'1582-10-15', 'n', NULL), named_struct('p', array(named_struct('q', 1.5)), 'r', 'y'))"
    ),
    f"({', '.join(['NULL'] * 18)})",
)


@dataclass(frozen=True)
class Table:
    """A table that delta-spark makes by statements.

    Args:
        name: Its folder.
        statements: What makes it; ``{t}`` stands for the table.
        edit: What is then done to its folder by hand.
        features: What tests have to know of it.
        conf: Spark settings while it is made.
    """

    name: str
    statements: tuple[str, ...]
    edit: Callable[[Path], None] = lambda _: None
    features: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)


def three_versions(options: str = "", columns: str = "k INT, v STRING") -> tuple[str, ...]:
    """Return statements that make a table of three versions, with a file from each of the last two."""
    return (
        f"CREATE TABLE {{t}} ({columns}) USING delta {options}",
        *(f"INSERT INTO {{t}} (k, v) SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}" for rows in (
            "(1, 'a'), (2, 'b'), (3, NULL)", "(4, 'd'), (5, 'e')"
        )),
    )  # fmt: skip


def properties(**values: str) -> str:
    """Return a TBLPROPERTIES clause of Delta's properties."""
    return f"TBLPROPERTIES ({', '.join(f'delta.{k} = {v!r}' for k, v in values.items())})"


def commit_file(table: Path, version: int) -> Path:
    """Return the path of a commit."""
    return table / "_delta_log" / f"{version:020d}.json"


def compact(value: object) -> str:
    """Return JSON as delta-spark writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def edited(kind: str, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Callable[[Path], None]:
    """Return an edit that changes the actions of one kind in all commits; None deletes one."""

    def edit(table: Path) -> None:
        for file in (table / "_delta_log").glob("*.json"):
            actions = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            changed = [{kind: change(a[kind])} if kind in a else a for a in actions]
            kept = [compact(action) + "\n" for action in changed if action.get(kind, action) is not None]
            file.write_text("".join(kept), encoding="utf-8")
        without_checksums(table)

    return edit


def with_protocol(reader: int, writer: int, *features: str, only_write: Sequence[str] = ()) -> Callable[[Path], None]:
    """Return an edit that replaces the protocol."""
    protocol: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": writer}
    if reader >= 3:
        protocol["readerFeatures"] = list(features)
    if writer >= 7:
        protocol["writerFeatures"] = [*features, *only_write]
    return edited("protocol", lambda _: protocol)


def with_field(name: str, **metadata: Any) -> Callable[[Path], None]:
    """Return an edit that adds metadata to a column."""

    def change(values: dict[str, Any]) -> dict[str, Any]:
        schema = json.loads(values["schemaString"])
        for column in schema["fields"]:
            column["metadata"] |= metadata if column["name"] == name else {}
        return {**values, "schemaString": compact(schema)}

    return edited("metaData", change)


def both(*edits: Callable[[Path], None]) -> Callable[[Path], None]:
    """Return several edits as one."""

    def edit(table: Path) -> None:
        for one in edits:
            one(table)

    return edit


def without_commits(*versions: int) -> Callable[[Path], None]:
    """Return an edit that deletes commits."""

    def edit(table: Path) -> None:
        for version in versions:
            commit_file(table, version).unlink()
        without_checksums(table)

    return edit


def without_checksums(table: Path) -> None:
    """Delete what an edit made wrong: version checksums, which hold the protocol and the schema, too."""
    for file in table.rglob("*.crc"):
        file.unlink()


def without_data(table: Path) -> None:
    """Delete one data file."""
    min(table.glob("*.parquet")).unlink()


def without_log(table: Path) -> None:
    """Delete the log."""
    shutil.rmtree(table / "_delta_log")


def last_checkpoint(content: str | None) -> Callable[[Path], None]:
    """Return an edit that replaces ``_last_checkpoint``; None deletes it."""

    def edit(table: Path) -> None:
        file = table / "_delta_log" / "_last_checkpoint"
        without_checksums(table)
        file.unlink() if content is None else file.write_text(content, encoding="utf-8")

    return edit


EVERY_SECOND = properties(checkpointInterval="2")
TABLES = (
    Table("checkpoint", three_versions(EVERY_SECOND)),
    Table("checkpoint-log-cleaned", three_versions(EVERY_SECOND), without_commits(0, 1)),
    Table("checkpoint-no-last", three_versions(EVERY_SECOND), last_checkpoint(None)),
    Table("checkpoint-last-corrupted", three_versions(EVERY_SECOND), last_checkpoint('{"version":')),
    Table(
        "checkpoint-multipart", three_versions(EVERY_SECOND), conf={"spark.databricks.delta.checkpoint.partSize": "1"}
    ),
    Table(
        "checkpoint-v2-parquet",
        three_versions(properties(checkpointInterval="2", checkpointPolicy="v2")),
        conf={"spark.databricks.delta.checkpointV2.topLevelFileFormat": "parquet"},
    ),
    Table(
        "checkpoint-statistics-as-structs",
        three_versions(
            properties(**{
                "checkpointInterval": "2",
                "checkpoint.writeStatsAsJson": "false",
                "checkpoint.writeStatsAsStruct": "true",
            })
        ),
        without_commits(0, 1),
    ),
    Table("statistics-of-no-column", three_versions(properties(dataSkippingNumIndexedCols="0"))),
    Table(
        "types", (f"CREATE TABLE {{t}} ({ALL_TYPES}) USING delta", f"INSERT INTO {{t}} VALUES {', '.join(ALL_VALUES)}")
    ),
    Table(
        "types-legacy-parquet",
        (f"CREATE TABLE {{t}} ({ALL_TYPES}) USING delta", f"INSERT INTO {{t}} VALUES {', '.join(ALL_VALUES)}"),
        conf={"spark.sql.parquet.writeLegacyFormat": "true", "spark.sql.parquet.outputTimestampType": "INT96"},
    ),
    Table(
        "variant-shredded",
        (
            f"CREATE TABLE {{t}} (k INT, x VARIANT) USING delta {properties(enableVariantShredding='true')}",
            """INSERT INTO {t} SELECT id, parse_json(concat('{"a": ', id, ', "b": "x"}')) FROM range(0, 3, 1, 1)""",
        ),
        conf={
            "spark.sql.variant.writeShredding.enabled": "true",
            "spark.sql.variant.forceShreddingSchemaForTest": "a INT, b STRING",
        },
    ),
    Table(
        "columns-added",
        (
            *three_versions(),
            "ALTER TABLE {t} ADD COLUMNS (n INT, s STRUCT<x: INT>)",
            "INSERT INTO {t} VALUES (6, 'f', 7, named_struct('x', 8))",
            "ALTER TABLE {t} ADD COLUMNS (s.y STRING AFTER x)",
        ),
    ),
    Table(
        "columns-renamed-and-dropped",
        (
            *three_versions(properties(**{"columnMapping.mode": "name"}), "k INT, v STRING, old INT"),
            "ALTER TABLE {t} RENAME COLUMN v TO `w x`",
            "ALTER TABLE {t} DROP COLUMN old",
            "INSERT INTO {t} VALUES (6, 'f')",
        ),
    ),
    Table("writer-feature", three_versions(properties(**{"feature.vacuumProtocolCheck": "supported"}))),
    Table("empty", three_versions()[:1]),
    Table(
        "identity-without-its-feature",
        (
            "CREATE TABLE {t} (id BIGINT, part INT, value STRING) USING delta",
            "INSERT INTO {t} VALUES (1, 1, 'one'), (2, 2, 'two'), (4, 3, 'three')",
        ),
        with_field("id", **{
            "delta.identity.start": 1, "delta.identity.step": 1,
            "delta.identity.highWaterMark": 4, "delta.identity.allowExplicitInsert": True,
        }),
    ),
    Table(
        "generated-by-the-time",
        (
            "CREATE TABLE {t} (letter STRING, int BIGINT, creation DATE) USING delta",
            "INSERT INTO {t} VALUES ('a', 604, DATE'2024-04-02'), ('b', 228, DATE'2024-04-02')",
        ),
        both(with_field("creation", **{"delta.generationExpression": "CAST(now() AS DATE)"}), with_protocol(1, 4)),
        ("generated-columns",),
    ),
    Table("collations", three_versions(), with_protocol(1, 7, only_write=["collations"]), ("collations",)),
    Table(
        "iceberg-compat",
        three_versions(properties(**{"columnMapping.mode": "name", "enableIcebergCompatV2": "true"})),
        features=("iceberg-compat",),
    ),
    Table("broken-no-columns", ("CREATE TABLE {t} USING delta",)),
    Table("broken-no-metadata", three_versions(), edited("metaData", lambda _: None)),
    Table("broken-no-log", three_versions(), without_log),
    Table("broken-no-data-file", three_versions(), without_data, ("no-data-files",)),
    Table("broken-no-commit", three_versions(), without_commits(1)),
    Table("broken-reader-version", three_versions(), with_protocol(99, 7)),
    Table(
        "broken-reader-version-with-features", three_versions(), with_protocol(5, 7, "deletionVectors")),
    Table("broken-unknown-feature", three_versions(), with_protocol(3, 7, "futureFeature")),
    Table(
        "broken-catalog-managed", three_versions(), with_protocol(3, 7, "catalogManaged"), ("catalog-managed",)
    ),
)  # fmt: skip
