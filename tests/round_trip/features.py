"""The matrix's rows: features of tables, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DELTAMERGE, DELTA_SPARK, DELTA_RS = "deltamerge", "delta-spark", "delta-rs"
EVERYONE = frozenset({DELTAMERGE, DELTA_SPARK, DELTA_RS})
SPARKS = frozenset({DELTAMERGE, DELTA_SPARK})

KEYS = ("1", "2", "3", "4", "5", "6", "2", "7", "1", "8", "6", "9")
"""The keys of all rows that a table gets: six at first, then two by each of three merges."""

TEXTS = ("'a'", "'b'", "'c'", "'d'", "'e'", "'f'", "'B'", "'g'", "'A'", "'h'", "'F'", "'i'")


@dataclass(frozen=True)
class Feature:
    """A kind of table. Each has an INT key and a STRING text, and what makes it what it is.

    Args:
        name: How the matrix calls it.
        columns: Its other columns, as in CREATE TABLE.
        values: What these hold, as SQL: twelve each, beside `KEYS` and `TEXTS`; columns that the table fills by itself
            are not among them.
        computed: What a reader finds in columns, as SQL over the values, where that is not what was written.
        unforeseen: Columns in which every engine may put what it likes; they are compared between readers only.
        key: The key's name.
        text: The text's name.
        text_options: What follows the text's type.
        properties: The table's properties.
        partitioned_by: Its partition columns.
        clustered_by: Its clustering columns.
        constraints: CHECK constraints by name.
        widened: The types that columns of the merges' sources have, where the table's are narrower.
        inserts_only: Whether rows that are there may not be touched.
        violation: What a merge may not write, by column: each engine has to refuse it in the other's table.
        evidence: What is found in the log or among the files' names of a table that has the feature.
        makers: Who makes such tables.
        compacts_log: Whether who makes the table then compacts its log.
        folder: The table's folder.
    """

    name: str
    columns: str = ""
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    computed: Mapping[str, str] = field(default_factory=dict)
    unforeseen: tuple[str, ...] = ()
    key: str = "k"
    text: str = "v"
    text_options: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    partitioned_by: tuple[str, ...] = ()
    clustered_by: tuple[str, ...] = ()
    constraints: Mapping[str, str] = field(default_factory=dict)
    widened: Mapping[str, str] = field(default_factory=dict)
    inserts_only: bool = False
    violation: Mapping[str, str] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    makers: frozenset[str] = EVERYONE
    compacts_log: bool = False
    folder: str = "table"


_MAPPED_BY_NAME: Mapping[str, str] = {"delta.columnMapping.mode": "name"}

FEATURES = (
    Feature("plain"),
    Feature(
        "partitions",
        columns="p INT, d DATE",
        values={
            "p": ("1", "1", "2", "2", "NULL", "3", "2", "4", "1", "NULL", "3", "5"),
            "d": tuple(f"DATE'2024-02-{day}'" for day in (27, 28, 28, 29, 29, 27, 29, 28, 27, 29, 28, 1)),
        },
        partitioned_by=("p", "d"),
        evidence=(r'"partitionColumns":\s*\["p",\s*"d"\]',),
    ),
    Feature(
        "deletion vectors",
        properties={"delta.enableDeletionVectors": "true"},
        evidence=(r'"deletionVector":\s*\{',),
        makers=SPARKS,
    ),
    Feature(
        "column mapping: name",
        columns="s STRUCT<x: INT, y: ARRAY<STRUCT<z: STRING>>>",
        values={"s": tuple(f"named_struct('x', {n}, 'y', array(named_struct('z', 'z{n}')))" for n in range(12))},
        properties=_MAPPED_BY_NAME,
        evidence=(r"delta\.columnMapping\.physicalName", r'"delta\.columnMapping\.mode":\s*"name"'),
    ),
    Feature(
        "column mapping: id",
        properties={"delta.columnMapping.mode": "id"},
        evidence=(r"delta\.columnMapping\.physicalName", r'"delta\.columnMapping\.mode":\s*"id"'),
    ),
    Feature(
        "change data feed",
        properties={"delta.enableChangeDataFeed": "true"},
        evidence=(r'"cdc":\s*\{',),
    ),
    Feature(
        "row tracking",
        properties={"delta.enableRowTracking": "true"},
        evidence=(r'"baseRowId":\s*\d',),
        makers=SPARKS,
    ),
    Feature(
        "in-commit timestamps",
        properties={"delta.enableInCommitTimestamps": "true"},
        evidence=(r'"inCommitTimestamp":\s*\d',),
        makers=SPARKS,
    ),
    Feature(
        "identity columns",
        columns="i BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 5 INCREMENT BY 3)",
        unforeseen=("i",),
        violation={"i": "5"},
        evidence=(r"delta\.identity\.start",),
        makers=SPARKS,
    ),
    Feature(
        "generated columns",
        columns="g INT GENERATED ALWAYS AS (CAST(k + 1 AS INT))",
        computed={"g": "k + 1"},
        violation={"g": "-1"},
        evidence=(r"delta\.generationExpression",),
    ),
    Feature(
        "column defaults",
        columns="n INT DEFAULT 42",
        computed={"n": "42"},
        properties={"delta.feature.allowColumnDefaults": "supported"},
        evidence=("CURRENT_DEFAULT",),
        makers=SPARKS,
    ),
    Feature(
        "CHECK constraints",
        constraints={"no_x": "v <> 'x'"},
        violation={"v": "'x'"},
        evidence=(r"delta\.constraints\.no_x",),
    ),
    Feature("NOT NULL", text_options="NOT NULL", violation={"v": "NULL"}, evidence=(r'nullable\\":\s*false',)),
    Feature(
        "append-only",
        properties={"delta.appendOnly": "true"},
        inserts_only=True,
        violation={"k": "1"},
        evidence=(r'"delta\.appendOnly":\s*"true"',),
    ),
    Feature(
        "type widening",
        columns="n INT",
        values={"n": ("1", "2", "3", "4", "5", "6", "7", "3000000000L", "-3000000000L", "8", "9", "4000000000L")},
        properties={"delta.enableTypeWidening": "true"},
        widened={"n": "BIGINT"},
        evidence=(r"delta\.typeChanges",),
        makers=SPARKS,
    ),
    Feature(
        "TIMESTAMP_NTZ",
        columns="x TIMESTAMP_NTZ",
        values={"x": tuple(f"TIMESTAMP_NTZ'2024-03-31 02:30:00.1234{n:02}'" for n in range(12))},
        evidence=("timestamp_ntz",),
    ),
    Feature(
        "VARIANT",
        columns="x VARIANT",
        values={"x": tuple(f"""parse_json('{{"a": [{n}, null, "é"]}}')""" for n in range(12))},
        evidence=(r'"type\\":\s*\\"variant',),
    ),
    Feature("clustered tables", clustered_by=("v",), evidence=(r"delta\.clustering",), makers=SPARKS),
    Feature(
        "V2 checkpoints",
        properties={"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "2"},
        evidence=(r"\.checkpoint\.[0-9a-f]+-[0-9a-f-]+\.", "_sidecars/"),
        makers=SPARKS,
    ),
    Feature("log compaction", evidence=(r"\.compacted\.json",), makers=frozenset({DELTA_RS}), compacts_log=True),
    Feature("special characters: path", folder="a b%:=#+é漢"),
    Feature("special characters: path with %20", folder="a%20b"),
    Feature(
        "special characters: partition values",
        columns="p STRING",
        values={
            "p": (
                "'a b'",
                "'50%'",
                "'x:y'",
                "'a=b'",
                "'a/b'",
                "''",
                "'1+%2B'",
                "'é'",
                "'漢'",
                "'#1'",
                "'a?b'",
                "'{c}'",
            )
        },
        computed={"p": "nullif(p, '')"},
        partitioned_by=("p",),
    ),
    Feature(
        "special characters: column names",
        columns="`p % : = / # +` STRING",
        values={"p % : = / # +": tuple(f"'p{n % 3}'" for n in range(12))},
        key="a key é",
        text="漢,;{}()=.",
        partitioned_by=("p % : = / # +",),
        properties=_MAPPED_BY_NAME,
    ),
)
