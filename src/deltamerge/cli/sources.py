"""The tables and files behind ``--target`` and ``--source``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from deltamerge.cli.failures import CommandError
from deltamerge.log.snapshot import table_exists
from deltamerge.storage.store import open_store

_SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
}


@dataclass(frozen=True)
class NamedPlace:
    """A table or file and its name in the statement.

    Args:
        kind: ``delta``, ``parquet``, ``csv``, ``tsv``, ``json`` or ``orc``.
    """

    name: str
    kind: str
    path: str


def read_target(option: str) -> NamedPlace:
    """Return the place of ``--target PATH`` or ``--target NAME=PATH``; its name is ``target`` by default."""
    name, path = _name_and_path(option, "target")
    return NamedPlace(name, "delta", path.removeprefix("delta:"))


def read_source(option: str) -> NamedPlace:
    """Return the place of ``--source``: a file or folder, or ``delta:PATH``, perhaps after ``NAME=``.

    Its name is ``source`` by default.
    """
    name, path = _name_and_path(option, "source")
    kind, colon, rest = path.partition(":")
    if colon and kind in {"delta", *_SUFFIXES.values()}:
        return NamedPlace(name, kind, rest)
    # A table's folder may be called orders.parquet; its files also have rows that were deleted.
    if _is_delta(path):
        return NamedPlace(name, "delta", path)
    # A compressed file such as changes.csv.gz has its kind before the last suffix.
    kinds = [_SUFFIXES[suffix.lower()] for suffix in Path(path).suffixes if suffix.lower() in _SUFFIXES]
    if kinds:
        return NamedPlace(name, kinds[-1], path)
    raise CommandError(
        f"--source {option}: what kind of file is it? Its name ends in none of {', '.join(_SUFFIXES)}; "
        f"write the kind before it, such as parquet:{path} or delta:{path}."
    )


def check_names(places: Sequence[NamedPlace]) -> None:
    """Refuse a name of several places: the statement would read only one of them. Case does not tell names apart."""
    times = Counter(place.name.lower() for place in places)
    for place in places:
        number = times[place.name.lower()]
        if number > 1:
            raise CommandError(
                f"--target and each --source need a name of its own: {place.name!r} is given {number} times. Write "
                "NAME=PATH."
            )


def source_frame(spark: SparkSession, place: NamedPlace) -> DataFrame:
    """Read a source that is no Delta table; a CSV file's first line names the columns, and their types are inferred."""
    if place.kind in ("csv", "tsv"):
        reader = spark.read.option("header", "true").option("inferSchema", "true")
        return reader.csv(place.path, sep="\t" if place.kind == "tsv" else ",")
    return spark.read.format(place.kind).load(place.path)


def _name_and_path(option: str, name: str) -> tuple[str, str]:
    before, equals, after = option.partition("=")
    # A folder such as month=10 is a path, not a name.
    if equals and after and before.isidentifier() and not Path(option).exists():
        return before, after
    return name, option


def _is_delta(path: str) -> bool:
    return "://" not in path and Path(path).is_dir() and table_exists(open_store(path))
