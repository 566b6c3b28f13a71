"""Merges into lineitem tables with the features that tables are made with today, one feature each and several at once.

    python benchmarks/merge_features.py
    python benchmarks/merge_features.py --first --source query

Into each table go an upsert of all columns, a counter (``l_quantity = t.l_quantity + s.l_quantity``), change data with
a delete flag, change data of which only newer rows count, and an upsert that deletes and updates rows of one day that
the source does not have. The source has 10 % of the rows of one of the 20 files under their own keys and 10 % under new
ones. The engines take turns, and a time counts only where both have made the same rows. With ``--first`` each merge is
the first of a process, which has a session.

It needs what merge_lineitem.py needs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltamerge.log.features.deletion_vectors import read_deletion_vectors
from deltamerge.log.paths import decode_path
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.store import open_store
from merge_cases import CASES
from merge_checksum import Checksum, rows_checksum
from merge_data import Layout, make_source, prepare, read
from merge_engines import ROOT, Engine, lineitem_settings

SOURCE_CASE = "upsert-.05-.1-.1"
KEYS = {
    "columns": "t.l_orderkey = s.l_orderkey AND t.l_linenumber = s.l_linenumber",
    "computed": "t.l_orderkey = CAST(CAST(s.l_orderkey AS STRING) AS BIGINT) AND t.l_linenumber = s.l_linenumber",
}
_DAY = "t.l_shipdate = DATE'1995-03-15'"
# A table with a column that the source does not have gets the source's columns by name.
MERGES = {
    "upsert": "WHEN MATCHED THEN UPDATE SET {update} WHEN NOT MATCHED THEN INSERT {insert}",
    "counter": (
        "WHEN MATCHED THEN UPDATE SET l_quantity = t.l_quantity + s.l_quantity WHEN NOT MATCHED THEN INSERT {insert}"
    ),
    "delete flag": (
        "WHEN MATCHED AND s.l_returnflag = 'R' THEN DELETE WHEN MATCHED THEN UPDATE SET {update} "
        "WHEN NOT MATCHED AND s.l_returnflag <> 'R' THEN INSERT {insert}"
    ),
    "newer wins": (
        "WHEN MATCHED AND s.l_orderkey % 3 <> 0 AND s.l_quantity > t.l_quantity THEN UPDATE SET "
        "l_quantity = s.l_quantity, l_comment = concat(t.l_comment, ' ', s.l_comment) "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT {insert}"
    ),
    "by source": (
        "WHEN MATCHED THEN UPDATE SET {update} WHEN NOT MATCHED THEN INSERT {insert} "
        f"WHEN NOT MATCHED BY SOURCE AND {_DAY} AND t.l_linenumber = 1 THEN DELETE "
        f"WHEN NOT MATCHED BY SOURCE AND {_DAY} THEN UPDATE SET l_comment = 'not in the source'"
    ),
}
ROWS_OF_IDS = "delta.rowTracking"


@dataclass(frozen=True)
class DerivedColumn:
    """A column that the table computes.

    Args:
        values: What it has in a file, from the file's rows and its number.
        compared: Whether all engines must write the same; they give out identities in orders of their own.
    """

    name: str
    type: str
    metadata: Mapping[str, Any]
    values: Callable[[pa.Table, int], pa.Array]
    compared: bool = True


@dataclass(frozen=True)
class Feature:
    """What a table has.

    Args:
        reader: The reader features of its protocol.
        writer: The writer features besides these.
        mapped: Whether columns have ids and physical names, as ``ALTER TABLE`` gives them to a table that has files.
        widened: Whether files hold a narrower type of ``l_linenumber`` than the table has.
        tracked: Whether rows have ids.
        clustered: Whether it is clustered by ``l_orderkey``.
        derived: A column besides, which the source does not have.
    """

    name: str
    properties: Mapping[str, str] = field(default_factory=dict)
    reader: tuple[str, ...] = ()
    writer: tuple[str, ...] = ()
    mapped: bool = False
    widened: bool = False
    tracked: bool = False
    clustered: bool = False
    derived: DerivedColumn | None = None

    @property
    def is_mapped_by_id(self) -> bool:
        """Whether files have column names of their own."""
        return self.properties.get("delta.columnMapping.mode") == "id"

    def __and__(self, other: Feature) -> Feature:
        return Feature(
            f"{self.name} + {other.name}",
            {**self.properties, **other.properties},
            (*self.reader, *other.reader),
            (*self.writer, *other.writer),
            mapped=self.mapped or other.mapped,
            widened=self.widened or other.widened,
            tracked=self.tracked or other.tracked,
            clustered=self.clustered or other.clustered,
            derived=self.derived or other.derived,
        )


VECTORS = Feature("deletion vectors", {"delta.enableDeletionVectors": "true"}, ("deletionVectors",))
MAPPED = Feature("column mapping", {"delta.columnMapping.mode": "name"}, ("columnMapping",), mapped=True)
TRACKED = Feature(
    "row tracking",
    {
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": "_row-id-col",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col",
    },
    writer=("rowTracking", "domainMetadata"),
    tracked=True,
)
YEAR = DerivedColumn(
    "l_year",
    "integer",
    {"delta.generationExpression": "year(l_shipdate)"},
    lambda rows, _: pc.year(rows["l_shipdate"]).cast(pa.int32()),
)
_FILE_ROWS = 1_000_000
IDENTITY = DerivedColumn(
    "l_id",
    "long",
    {
        "delta.identity.start": 1,
        "delta.identity.step": 1,
        "delta.identity.highWaterMark": 100 * _FILE_ROWS,
        "delta.identity.allowExplicitInsert": False,
    },
    lambda rows, number: pa.array(np.arange(1, len(rows) + 1) + number * _FILE_ROWS),
    compared=False,
)
FEATURES = (
    Feature("plain"),
    Feature("change data", {"delta.enableChangeDataFeed": "true"}, writer=("changeDataFeed",)),
    MAPPED,
    Feature("mapping by id", {"delta.columnMapping.mode": "id"}, ("columnMapping",), mapped=True),
    TRACKED,
    Feature("type widening", {"delta.enableTypeWidening": "true"}, ("typeWidening",), widened=True),
    Feature("constraint", {"delta.constraints.positive": "l_quantity > 0"}, writer=("checkConstraints",)),
    Feature("generated column", writer=("generatedColumns",), derived=YEAR),
    Feature("identity column", writer=("identityColumns",), derived=IDENTITY),
    Feature("clustering", writer=("clustering", "domainMetadata"), clustered=True),
    VECTORS & TRACKED & MAPPED,
)


def files_with(layout: Layout, feature: Feature) -> Layout:
    """Return the layout with files as a feature needs them: with ids of columns, or with another column."""
    derived, by_id = feature.derived, feature.is_mapped_by_id
    if derived is None and not by_id:
        return layout
    table = layout.path.with_name(f"{layout.name}-{feature.name.replace(' ', '-')}")
    description = table.with_suffix(".json")
    if not description.exists():
        shutil.rmtree(table, ignore_errors=True)
        shutil.copytree(layout.path / "_delta_log", table / "_delta_log")
        for number, name in enumerate(sorted(layout.files)):
            rows = read(layout.path / name)
            if derived is not None:
                rows = rows.append_column(derived.name, derived.values(rows, number))
            if by_id:
                fields = [f.with_metadata({"PARQUET:field_id": str(place)}) for place, f in enumerate(rows.schema, 1)]
                rows = rows.cast(pa.schema(fields)).rename_columns(physical_names(rows.schema.names, feature))
            pq.write_table(rows, table / name, row_group_size=1 << 17)
        names = [*column_names(layout), *([derived.name] if derived is not None else [])]
        sums = {name: rows_checksum(read_with(table / name, names, feature)) for name in layout.files}
        description.write_text(json.dumps({name: asdict(value) for name, value in sums.items()}))
    sums = {name: Checksum(**value) for name, value in json.loads(description.read_text()).items()}
    return Layout(layout.name, table, sums)


def column_names(layout: Layout) -> list[str]:
    """Return the columns of a layout's files."""
    return list(pq.read_schema(layout.path / min(layout.files)).names)


def physical_names(names: list[str], feature: Feature) -> list[str]:
    """Return what files call columns: under mapping by id they have names of their own."""
    return [f"col-{uuid.uuid5(uuid.NAMESPACE_OID, name)}" for name in names] if feature.is_mapped_by_id else names


def read_with(path: Path, names: list[str], feature: Feature) -> pa.Table:
    """Read the columns of a file that must be the same whichever engine has merged."""
    rows = read(path).select(physical_names(names, feature)).rename_columns(names)
    hidden = {feature.derived.name} if feature.derived is not None and not feature.derived.compared else set()
    return rows.select([name for name in names if name not in hidden])


def make_table(layout: Layout, feature: Feature, path: Path) -> None:
    """Make a table of the layout's files; they are linked, since no engine changes them in place."""
    shutil.rmtree(path, ignore_errors=True)
    (path / "_delta_log").mkdir(parents=True)
    for name in layout.files:
        os.link(layout.path / name, path / name)
    log = f"{0:020}.json"
    actions = [json.loads(line) for line in (layout.path / "_delta_log" / log).read_text().splitlines()]
    for action in actions:
        if "add" in action:
            # Spark splits a file by the size that the log has.
            action["add"]["size"] = (path / action["add"]["path"]).stat().st_size
    commit = [_with(action, feature) for action in actions]
    if feature.tracked:
        first = 0
        for action in commit:
            if "add" in action:
                action["add"] |= {"baseRowId": first, "defaultRowCommitVersion": 0}
                first += json.loads(action["add"]["stats"])["numRecords"]
        configuration = json.dumps({"rowIdHighWaterMark": first - 1})
        commit.append({"domainMetadata": {"domain": ROWS_OF_IDS, "configuration": configuration, "removed": False}})
    if feature.clustered:
        configuration = json.dumps({"clusteringColumns": [["l_orderkey"]], "domainName": "delta.clustering"})
        domain = {"domain": "delta.clustering", "configuration": configuration, "removed": False}
        commit.append({"domainMetadata": domain})
    (path / "_delta_log" / log).write_text("".join(json.dumps(action) + "\n" for action in commit))


def _with(action: dict[str, Any], feature: Feature) -> dict[str, Any]:
    if "protocol" in action:
        features = {"writerFeatures": sorted({"appendOnly", "invariants", *feature.reader, *feature.writer})}
        reader = {"minReaderVersion": 3, "readerFeatures": sorted(feature.reader)} if feature.reader else {}
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, **features, **reader}}
    if "metaData" in action:
        schema = json.loads(action["metaData"]["schemaString"])
        if (derived := feature.derived) is not None:
            column = {"name": derived.name, "type": derived.type, "nullable": True, "metadata": dict(derived.metadata)}
            schema["fields"].append(column)
        for number, column in enumerate(schema["fields"], 1):
            if feature.mapped:
                column["metadata"] |= {
                    "delta.columnMapping.id": number,
                    "delta.columnMapping.physicalName": physical_names([column["name"]], feature)[0],
                }
            if feature.widened and column["name"] == "l_linenumber":
                column["metadata"]["delta.typeChanges"] = [{"fromType": column["type"], "toType": "long"}]
                column["type"] = "long"
        most = {"delta.columnMapping.maxColumnId": str(len(schema["fields"]))} if feature.mapped else {}
        action["metaData"]["schemaString"] = json.dumps(schema)
        action["metaData"]["configuration"] = {**feature.properties, **most}
    if "add" in action and feature.is_mapped_by_id:
        statistics_of_file = json.loads(action["add"]["stats"])
        for kind in ("minValues", "maxValues", "nullCount"):
            values = statistics_of_file[kind]
            names = physical_names(list(values), feature)
            statistics_of_file[kind] = dict(zip(names, values.values(), strict=True))
        action["add"]["stats"] = json.dumps(statistics_of_file)
    return action


def checksum(path: Path, feature: Feature, known: Mapping[str, Checksum]) -> Checksum:
    """Sum up the rows that a table has by its log.

    Args:
        path: The table's folder.
        feature: What it has.
        known: Checksums of files by name that need not be read again.
    """
    store = open_store(str(path))
    snapshot, total = load_snapshot(store), Checksum(0, 0)
    for file in snapshot.files.add_files():
        if file.deletion_vector is None and file.path in known:
            total += known[file.path]
            continue
        rows = read_with(path / decode_path(file.path), list(snapshot.schema.names), feature)
        if file.deletion_vector is not None:
            vectors = read_deletion_vectors(store, [file.deletion_vector])
            keep = np.ones(len(rows), np.bool_)
            keep[vectors[file.deletion_vector.unique_id].to_array()] = False
            rows = rows.filter(pa.array(keep))
        total += rows_checksum(rows)
    return total


def stars(layout: Layout, feature: Feature) -> dict[str, str]:
    """Return what sets and what inserts all columns of the source."""
    if feature.derived is None:
        return {"update": "*", "insert": "*"}
    names = column_names(layout)
    values = ", ".join(f"s.{name}" for name in names)
    return {
        "update": ", ".join(f"{name} = s.{name}" for name in names),
        "insert": f"({', '.join(names)}) VALUES ({values})",
    }


Start = Callable[[str], AbstractContextManager[Engine]]


def run_case(
    start: Start, layout: Layout, source: Path, feature: Feature, merge: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Merge with each engine in turn and compare the tables.

    `start` returns a running engine by its name.

    Raises:
        SystemExit: They differ.
    """
    names = options.engines.split(",")
    seconds: dict[str, list[float]] = {name: [] for name in names}
    found: dict[str, Any] = {}
    clauses = MERGES[merge].format(**stars(layout, feature))
    layout = files_with(layout, feature)
    relation, queries = f"parquet.`{source}`", {}
    if options.source == "query":
        relation, queries = "changes", {"changes": f"SELECT * FROM {relation} WHERE l_quantity > 0"}
    for _ in range(options.repeat):
        for name in names:
            target = options.folder / f"features-{name}"
            make_table(layout, feature, target)
            statement = f"MERGE INTO delta.`{target}` t USING {relation} s ON {KEYS[options.keys]} {clauses}"
            with start(name) as engine:
                answer = engine.merge_sql(statement, queries)
            seconds[name].append(answer["seconds"])
            found |= {fact: answer[fact] for fact in ("executor", "steps") if fact in answer}
    sums = {name: checksum(options.folder / f"features-{name}", feature, layout.files) for name in names}
    if len(set(sums.values())) > 1:
        raise SystemExit(f"{merge} into a table with {feature.name}: the engines differ: {sums}")
    return {**found, "seconds": {name: statistics.median(times) for name, times in seconds.items()}}


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--repeat", type=int, default=1, help="merges of each engine; the median counts")
    parser.add_argument("--engines", default="deltamerge,delta-spark")
    parser.add_argument("--features", default="*", help="features by name, or patterns, between commas")
    parser.add_argument("--merges", default="*", help="merges by name, or patterns, between commas")
    parser.add_argument("--source", choices=["parquet", "query"], default="parquet")
    parser.add_argument("--keys", choices=[*KEYS], default="columns", help="what of the source ON compares")
    parser.add_argument("--first", action="store_true", help="each merge is the first of a process")
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    layout = prepare(options.folder, options.scale, "sorted")
    source = make_source(layout, next(case for case in CASES if case.name == SOURCE_CASE)).path
    features = [f for f in FEATURES if any(fnmatch(f.name, p) for p in options.features.split(","))]
    merges = [name for name in MERGES if any(fnmatch(name, p) for p in options.merges.split(","))]
    results: dict[str, Any] = {}
    ratios: list[float] = []

    running: dict[str, Engine] = {}

    def new_process(name: str) -> Engine:
        return Engine(name, lineitem_settings(name), options.folder / f"features-{name}.log")

    def start(name: str) -> AbstractContextManager[Engine]:
        return new_process(name) if options.first else nullcontext(running[name])

    with ExitStack() as stack:
        if not options.first:
            running |= {name: stack.enter_context(new_process(name)) for name in options.engines.split(",")}
            for merge in merges:
                run_case(start, layout, source, FEATURES[0], merge, options)
        for feature in features:
            for merge in merges:
                result = results[f"{feature.name}: {merge}"] = run_case(start, layout, source, feature, merge, options)
                seconds = result["seconds"]
                line = "  ".join(f"{name} {of_engine:5.2f} s" for name, of_engine in seconds.items())
                if len(seconds) > 1:
                    ratios.append(seconds["delta-spark"] / seconds["deltamerge"])
                    line += f"  ratio {ratios[-1]:5.1f}"
                print(f"{feature.name:50} {merge:12} {line}  {result.get('executor', '')}", flush=True)
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"geometric mean {mean:.2f}, least {min(ratios):.2f}")
    kind = ("_first" if options.first else "") + ("_query" if options.source == "query" else "")
    kind += "_computed_keys" if options.keys == "computed" else ""
    (options.folder / f"merge_features{kind}.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
