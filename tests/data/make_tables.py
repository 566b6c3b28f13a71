"""Makes ``tests/data/tables`` anew, by delta-spark and delta-rs.

    PYTHONPATH=tests python tests/data/make_tables.py                   # all
    PYTHONPATH=tests python tests/data/make_tables.py types checkpoint  # two of them

Each feature of docs/compatibility.md has a table that was made, merged into and changed; `special_tables` has more.
What delta-spark makes of each table goes into ``manifest.json``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from corpus.sql import path_relation
from data.special_tables import TABLES, Table
from oracle.client import LineProcess, RequestFailed
from oracle.sessions import both_sessions
from round_trip.engines import DeltaRsEngine, DeltaSpark, Engine
from round_trip.features import DELTA_RS, DELTA_SPARK, FEATURES, Feature
from round_trip.tables import merges

FOLDER = Path(__file__).with_name("tables")
MANIFEST = FOLDER / "manifest.json"

BY_DELTA_RS = ("plain", "partitions", "log compaction")
"""Features whose table delta-rs makes, too, or delta-rs alone."""
OF_THE_PATH = ("special characters: path", "special characters: path with %20")
"""Features of a table's folder: any table has them once it is copied there."""


class Maker(NamedTuple):
    """A table to be made, and what tests have to know of it."""

    name: str
    features: tuple[str, ...]
    make: Callable[[Path], None]


def makers(engines: Sequence[Engine], oracle: LineProcess) -> Iterator[Maker]:
    """List the tables."""
    for engine in engines:
        for feature in FEATURES:
            chosen = engine.name == DELTA_SPARK or feature.name in BY_DELTA_RS
            if chosen and engine.name in feature.makers and feature.name not in OF_THE_PATH:
                slug = re.sub(r"\W+", "-", feature.name).lower()
                name = slug if engine.name == DELTA_SPARK else f"{slug}-by-{DELTA_RS}"
                yield Maker(name, (slug,), partial(make_by_feature, engine, feature))
    for table in TABLES:
        yield Maker(table.name, table.features, partial(make_by_statements, oracle, table))


def make_by_feature(engine: Engine, feature: Feature, path: Path) -> None:
    """Make a table of a feature, merge into it and change it."""
    engine.make(feature, str(path))
    engine.merge(feature, str(path), merges(feature)[0])
    engine.change(feature, str(path))


def make_by_statements(oracle: LineProcess, table: Table, path: Path) -> None:
    """Make a table by its statements and edit it."""
    relation = path_relation(str(path))
    statements = [
        *(f"SET {name} = {value}" for name, value in table.conf.items()),
        *(statement.replace("{t}", relation) for statement in table.statements),
        *(f"RESET {name}" for name in table.conf),
    ]
    oracle.ask("sql", statements=statements)
    table.edit(path)


def without_needless_files(path: Path) -> None:
    """Delete Hadoop's checksums and all version checksums but the newest: they are most of a table's bytes."""
    checksums = sorted((path / "_delta_log").glob("[0-9]*.crc"))
    for file in (*path.rglob(".*.crc"), *checksums[:-1]):
        file.unlink()


def described(oracle: LineProcess, path: Path, features: Sequence[str]) -> dict[str, Any]:
    """Return what delta-spark makes of a table, as the manifest has it."""
    found = oracle.ask("describe", path=str(path))
    entry: dict[str, Any] = {"features": features}
    if "version" in found:
        metadata, files = found["metadata"], found["files"]
        vectors = [file["deletionVector"] for file in files if "deletionVector" in file]
        entry |= {
            "version": found["version"],
            "history": found["version"],
            "schema": json.loads(metadata["schemaString"]),
            "protocol": found["protocol"],
            "partitionColumns": metadata.get("partitionColumns", []),
            "configuration": metadata.get("configuration", {}),
            "files": {
                "count": len(files),
                "bytes": sum(file["size"] for file in files),
                "paths": sorted(file["path"] for file in files),
                "deletionVectors": len(vectors),
                "deletedRows": sum(vector["cardinality"] for vector in vectors),
                "withoutStatistics": sum("stats" not in file for file in files),
            },
        }
    if "error" in found:
        return {**entry, "error": found["error"]}
    checksum = hashlib.sha256("".join(line + "\n" for line in found["lines"]).encode()).hexdigest()
    rows = {"count": len(found["lines"]), "checksum": checksum, "full": found["lines"]}
    refusal = write_error(oracle, path)
    return {**entry, "ddl": found["ddl"], "rows": rows, **({"writeError": refusal} if refusal else {})}


def write_error(oracle: LineProcess, path: Path) -> str | None:
    """Return the error of delta-spark when a merge deletes all rows of a table."""
    statement = f"MERGE INTO {path_relation(str(path))} t USING (SELECT 1) s ON true WHEN MATCHED THEN DELETE"
    try:
        oracle.ask("sql", statements=[statement])
    except RequestFailed as error:
        found = re.search(r"\[[A-Z][A-Z0-9_.]+\].*", str(error))
        return found[0] if found else str(error)
    return None


def main() -> None:
    """Make the tables that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE")
    chosen = parser.parse_args().tables
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8")) if chosen else {}
    if not chosen:
        shutil.rmtree(FOLDER, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder, both_sessions(Path(folder)) as (spark, oracle):
        engines = (DeltaSpark(oracle), DeltaRsEngine(spark, Path(folder)))
        for maker in makers(engines, oracle):
            if chosen and maker.name not in chosen:
                continue
            path = Path(folder, "made", maker.name)
            maker.make(path)
            without_needless_files(path)
            shutil.rmtree(FOLDER / maker.name, ignore_errors=True)
            shutil.copytree(path, FOLDER / maker.name)
            # In a folder that is new to it delta-spark has nothing cached.
            copy = shutil.copytree(path, Path(folder, "copies", maker.name))
            entry = json.dumps(described(oracle, copy, maker.features)).replace(str(copy), "<table>")
            manifest[maker.name] = json.loads(entry)
            print(maker.name, manifest[maker.name].get("error", ""), flush=True)
            MANIFEST.write_text(
                json.dumps(dict(sorted(manifest.items())), indent=1, ensure_ascii=False) + "\n",
                encoding="utf-8",
            )


if __name__ == "__main__":
    main()
