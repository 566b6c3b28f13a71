"""Logs written by hand, line by line, and the plain model of what they mean."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltamerge.log.actions import Json
from deltamerge.log.paths import canonical_path
from deltamerge.storage.store import Store, open_store

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "part", "type": "string", "nullable": True, "metadata": {}},
        ],
    },
    separators=(",", ":"),
)
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def metadata(**changes: Any) -> Json:
    content = {
        "id": "7e2a1106-198b-4653-a612-2aa44685cb27",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA,
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 1_700_000_000_000,
    }
    return {"metaData": {**content, **changes}}


def add(path: str, **changes: Any) -> Json:
    content = {"path": path, "partitionValues": {}, "size": 10, "modificationTime": 1, "dataChange": True}
    return {"add": {**content, **changes}}


def remove(path: str, **changes: Any) -> Json:
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True, **changes}}


def info(**values: Any) -> Json:
    return {"commitInfo": {"timestamp": 1, "operation": "WRITE", **values}}


@dataclass
class Log:
    """A log that grows by the commits that a test writes."""

    root: Path
    versions: int = 0
    written: list[Sequence[Json]] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.root / "_delta_log"

    @property
    def store(self) -> Store:
        return open_store(str(self.root))

    def path(self, version: int, ending: str = "json") -> Path:
        return self.folder / f"{version:020d}.{ending}"

    def commit(self, *actions: Json, time_ms: int | None = None) -> int:
        """Writes the next version and gives its number."""
        version = self.versions
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(version)
        path.write_text("".join(json.dumps(action, ensure_ascii=False) + "\n" for action in actions))
        if time_ms is not None:
            set_time(path, time_ms)
        self.written.append(list(actions))
        self.versions += 1
        return version

    def compact(self, start: int, end: int) -> None:
        """Writes a log compaction file, reconciled as the protocol asks."""
        files: dict[str, Json] = {}
        others: dict[tuple[str, ...], Json] = {}
        for actions in self.written[start : end + 1]:
            for action in actions:
                (name, content), *_ = action.items()
                if name in ("add", "remove"):
                    files[canonical_path(content["path"], str(self.root))] = action
                elif name == "txn":
                    others[name, content["appId"]] = action
                elif name == "domainMetadata":
                    others[name, content["domain"]] = action
                elif name in ("protocol", "metaData"):
                    others[name,] = action
        lines = (json.dumps(action) + "\n" for action in (*others.values(), *files.values()))
        self.path(start, f"{end:020d}.compacted.json").write_text("".join(lines))


def set_time(path: Path, time_ms: int) -> None:
    """Sets when a file was last modified."""
    os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))


def simple_log(root: Path, commits: int = 5, **properties: str) -> Log:
    """A log whose version v adds the file ``f<v>`` and removes the one of two versions before."""
    log = Log(Path(root))
    log.commit(PROTOCOL, metadata(configuration=properties), add("f0"))
    for version in range(1, commits):
        taken_back = [remove(f"f{version - 2}")] if version >= 2 else []
        log.commit(info(), *taken_back, add(f"f{version}"))
    return log


def live_at(version: int) -> set[str]:
    """The files of `simple_log` at a version."""
    return {f"f{number}" for number in range(max(0, version - 1), version + 1)}
