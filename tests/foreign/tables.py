"""The tables that other engines wrote: those of tests/data/tables, or of the folder ``DELTAMERGE_GOLDEN``."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

OWN = Path(__file__).parents[1] / "data" / "tables"
FOLDER = Path(os.environ.get("DELTAMERGE_GOLDEN") or OWN).resolve()


def manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what delta-spark reads in each table of a folder, by its name."""
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


MANIFEST = manifest(FOLDER)

REFUSED = {"collations": "collations", "iceberg-compat": "icebergCompatV2"}
"""What is refused for writing by its feature's name, by the manifest's name of it."""
REFUSED_TABLES = {
    name: REFUSED[feature]
    for name, recorded in MANIFEST.items()
    for feature in recorded["features"]
    if feature in REFUSED
}
WRITABLE = [
    name
    for name, recorded in MANIFEST.items()
    if "rows" in recorded
    and name not in REFUSED_TABLES
    and "writeError" not in recorded
    # What an update sets changes the values of other columns, too.
    and "generated-columns" not in recorded["features"]
]


def next_numbers(name: str) -> dict[str, int]:
    """Return the next value of each identity column whose values no merge may assign."""
    if "identityColumns" not in MANIFEST[name]["protocol"].get("writerFeatures", ()):
        return {}
    fields = {field["name"]: field["metadata"] for field in MANIFEST[name]["schema"]["fields"]}
    return {
        column: metadata["delta.identity.highWaterMark"] + metadata["delta.identity.step"]
        for column, metadata in fields.items()
        if metadata.get("delta.identity.allowExplicitInsert") is False
    }


def copied(name: str, folder: Path, origin: Path = FOLDER) -> str:
    """Copy a table to where it can be written; return its path."""
    path = folder / "table"
    shutil.copytree(origin / name, path)
    for item in (path, *path.rglob("*")):
        item.chmod(0o755 if item.is_dir() else 0o644)
    return str(path)


def checksum(lines: list[str]) -> str:
    """Return the manifest's checksum of canonical rows."""
    return hashlib.sha256("".join(line + "\n" for line in lines).encode()).hexdigest()
