"""Merges into lineitem tables with the features that tables are made with today, one feature each and several at once.

    python benchmarks/merge_features.py

Into each table go an upsert of all columns, a counter (``l_quantity = t.l_quantity + s.l_quantity``), and change data
of which only newer rows count, with a DELETE. The source has 10 % of the rows of one of the 20 files under their own
keys and 10 % under new ones. The engines take turns, and a time counts only where both have made the same rows.

It needs what merge_lineitem.py needs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from deltamerge.log.features.deletion_vectors import read_deletion_vectors
from deltamerge.log.paths import decode_path
from deltamerge.log.snapshot import load_snapshot
from deltamerge.storage.store import open_store
from merge_cases import CASES
from merge_checksum import Checksum, rows_checksum
from merge_data import Layout, make_source, prepare, read
from merge_engines import ROOT, Engine, lineitem_settings

SOURCE_CASE = "upsert-.05-.1-.1"
_KEYS = "t.l_orderkey = s.l_orderkey AND t.l_linenumber = s.l_linenumber"
MERGES = {
    "upsert": "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "counter": ("WHEN MATCHED THEN UPDATE SET l_quantity = t.l_quantity + s.l_quantity WHEN NOT MATCHED THEN INSERT *"),
    "newer wins": (
        "WHEN MATCHED AND s.l_orderkey % 3 <> 0 AND s.l_quantity > t.l_quantity THEN UPDATE SET "
        "l_quantity = s.l_quantity, l_comment = concat(t.l_comment, ' ', s.l_comment) "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    ),
}
ROWS_OF_IDS = "delta.rowTracking"


@dataclass(frozen=True)
class Feature:
    """What a table has.

    Args:
        reader: The reader features of its protocol.
        writer: The writer features besides these.
        mapped: Whether columns have ids and physical names, as ``ALTER TABLE`` gives them to a table that has files.
        widened: Whether files hold a narrower type of ``l_linenumber`` than the table has.
        tracked: Whether rows have ids.
    """

    name: str
    properties: Mapping[str, str] = field(default_factory=dict)
    reader: tuple[str, ...] = ()
    writer: tuple[str, ...] = ()
    mapped: bool = False
    widened: bool = False
    tracked: bool = False

    def __and__(self, other: Feature) -> Feature:
        return Feature(
            f"{self.name} + {other.name}",
            {**self.properties, **other.properties},
            (*self.reader, *other.reader),
            (*self.writer, *other.writer),
            mapped=self.mapped or other.mapped,
            widened=self.widened or other.widened,
            tracked=self.tracked or other.tracked,
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
FEATURES = (
    Feature("plain"),
    Feature("change data", {"delta.enableChangeDataFeed": "true"}, writer=("changeDataFeed",)),
    MAPPED,
    TRACKED,
    Feature("type widening", {"delta.enableTypeWidening": "true"}, ("typeWidening",), widened=True),
    Feature("constraint", {"delta.constraints.positive": "l_quantity > 0"}, writer=("checkConstraints",)),
    VECTORS & TRACKED & MAPPED,
)


def make_table(layout: Layout, feature: Feature, path: Path) -> None:
    """Make a table of the layout's files; they are linked, since no engine changes them in place."""
    shutil.rmtree(path, ignore_errors=True)
    (path / "_delta_log").mkdir(parents=True)
    for name in layout.files:
        os.link(layout.path / name, path / name)
    log = f"{0:020}.json"
    actions = [json.loads(line) for line in (layout.path / "_delta_log" / log).read_text().splitlines()]
    commit = [_with(action, feature) for action in actions]
    if feature.tracked:
        first = 0
        for action in commit:
            if "add" in action:
                action["add"] |= {"baseRowId": first, "defaultRowCommitVersion": 0}
                first += json.loads(action["add"]["stats"])["numRecords"]
        configuration = json.dumps({"rowIdHighWaterMark": first - 1})
        commit.append({"domainMetadata": {"domain": ROWS_OF_IDS, "configuration": configuration, "removed": False}})
    (path / "_delta_log" / log).write_text("".join(json.dumps(action) + "\n" for action in commit))


def _with(action: dict[str, Any], feature: Feature) -> dict[str, Any]:
    if "protocol" in action:
        features = {"writerFeatures": sorted({"appendOnly", "invariants", *feature.reader, *feature.writer})}
        reader = {"minReaderVersion": 3, "readerFeatures": sorted(feature.reader)} if feature.reader else {}
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, **features, **reader}}
    if "metaData" in action:
        schema = json.loads(action["metaData"]["schemaString"])
        for number, column in enumerate(schema["fields"], 1):
            if feature.mapped:
                column["metadata"] |= {
                    "delta.columnMapping.id": number,
                    "delta.columnMapping.physicalName": column["name"],
                }
            if feature.widened and column["name"] == "l_linenumber":
                column["metadata"]["delta.typeChanges"] = [{"fromType": column["type"], "toType": "long"}]
                column["type"] = "long"
        most = {"delta.columnMapping.maxColumnId": str(len(schema["fields"]))} if feature.mapped else {}
        action["metaData"]["schemaString"] = json.dumps(schema)
        action["metaData"]["configuration"] = {**feature.properties, **most}
    return action


def checksum(path: Path, known: Mapping[str, Checksum]) -> Checksum:
    """Sum up the rows that a table has by its log.

    Args:
        path: The table's folder.
        known: Checksums of files by name that need not be read again.
    """
    store = open_store(str(path))
    snapshot, total = load_snapshot(store), Checksum(0, 0)
    for file in snapshot.files.add_files():
        if file.deletion_vector is None and file.path in known:
            total += known[file.path]
            continue
        rows = read(path / decode_path(file.path)).select(list(snapshot.schema.names))
        if file.deletion_vector is not None:
            vectors = read_deletion_vectors(store, [file.deletion_vector])
            keep = np.ones(len(rows), np.bool_)
            keep[vectors[file.deletion_vector.unique_id].to_array()] = False
            rows = rows.filter(pa.array(keep))
        total += rows_checksum(rows)
    return total


def run_case(
    engines: list[Engine], layout: Layout, source: Path, feature: Feature, merge: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Merge with each engine in turn and compare the tables.

    Raises:
        SystemExit: They differ.
    """
    seconds: dict[str, list[float]] = {engine.name: [] for engine in engines}
    found: dict[str, Any] = {}
    for _ in range(options.repeat):
        for engine in engines:
            target = options.folder / f"features-{engine.name}"
            make_table(layout, feature, target)
            statement = f"MERGE INTO delta.`{target}` t USING parquet.`{source}` s ON {_KEYS} {MERGES[merge]}"
            answer = engine.merge_sql(statement, {})
            seconds[engine.name].append(answer["seconds"])
            found |= {name: answer[name] for name in ("executor", "steps") if name in answer}
    sums = {engine.name: checksum(options.folder / f"features-{engine.name}", layout.files) for engine in engines}
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
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    layout = prepare(options.folder, options.scale, "sorted")
    source = make_source(layout, next(case for case in CASES if case.name == SOURCE_CASE)).path
    features = [f for f in FEATURES if any(fnmatch(f.name, p) for p in options.features.split(","))]
    merges = [name for name in MERGES if any(fnmatch(name, p) for p in options.merges.split(","))]
    results: dict[str, Any] = {}
    ratios: list[float] = []
    with ExitStack() as stack:
        engines = [
            stack.enter_context(Engine(name, lineitem_settings(name), options.folder / f"features-{name}.log"))
            for name in options.engines.split(",")
        ]
        for merge in merges:
            run_case(engines, layout, source, FEATURES[0], merge, options)
        for feature in features:
            for merge in merges:
                result = results[f"{feature.name}: {merge}"] = run_case(
                    engines, layout, source, feature, merge, options
                )
                seconds = result["seconds"]
                line = "  ".join(f"{name} {of_engine:5.2f} s" for name, of_engine in seconds.items())
                if len(seconds) > 1:
                    ratios.append(seconds["delta-spark"] / seconds["deltamerge"])
                    line += f"  ratio {ratios[-1]:5.1f}"
                print(f"{feature.name:50} {merge:12} {line}  {result.get('executor', '')}", flush=True)
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"geometric mean {mean:.2f}, least {min(ratios):.2f}")
    (options.folder / "merge_features.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
