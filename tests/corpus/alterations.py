"""The ALTER TABLE statements of cases as commits of metadata, as delta-spark writes them; deltamerge has none."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_ALTER = re.compile(r"\s*ALTER\s+TABLE\s+(?:\{target\}|\S+)\s+(.*)", re.IGNORECASE | re.DOTALL)
_NAME = r"(`(?:[^`]|``)+`|\w+)"
_ID, _PHYSICAL_NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"
_MAX_ID = "delta.columnMapping.maxColumnId"


def check_alterations(statements: Sequence[str]) -> None:
    """Raises NotImplementedError where a statement is none that `alter_table` knows."""
    for statement in statements:
        _alteration(statement)


def alter_table(path: str, statement: str) -> None:
    """Commits what an ALTER TABLE statement does to the metadata of a table without checkpoints."""
    change, match = _alteration(statement)
    log = Path(path, "_delta_log")
    versions = sorted(int(file.stem) for file in log.glob("*.json"))
    actions = [json.loads(line) for v in versions for line in _commit(log, v).read_text().splitlines()]
    metadata = [a["metaData"] for a in actions if "metaData" in a][-1]
    schema = json.loads(metadata["schemaString"])
    configuration = dict(metadata["configuration"])
    made: list[dict[str, Any]] = []
    change(match, schema, configuration, made)
    made.append({"metaData": {**metadata, "schemaString": json.dumps(schema), "configuration": configuration}})
    info = {"commitInfo": {"timestamp": 0, "operation": "ALTER TABLE", "operationParameters": {}}}
    text = "\n".join(json.dumps(action) for action in [info, *made])
    _commit(log, versions[-1] + 1).write_text(text + "\n")


def _commit(log: Path, version: int) -> Path:
    return log / f"{version:020d}.json"


def _rename(match: re.Match[str], schema: dict[str, Any], _: Mapping[str, str], __: list[dict[str, Any]]) -> None:
    _field(schema, match[1])["name"] = _plain(match[2])


def _drop(match: re.Match[str], schema: dict[str, Any], _: Mapping[str, str], __: list[dict[str, Any]]) -> None:
    schema["fields"].remove(_field(schema, match[1]))


def _add(match: re.Match[str], schema: dict[str, Any], configuration: dict[str, str], _: list[dict[str, Any]]) -> None:
    from pyspark.sql.types import DataType

    field = {"name": _plain(match[1]), "type": DataType.fromDDL(match[2]).jsonValue(), "nullable": True}
    configuration[_MAX_ID] = str(int(configuration[_MAX_ID]) + 1)
    mapping = {_ID: int(configuration[_MAX_ID]), _PHYSICAL_NAME: f"col-{uuid.uuid4()}"}
    schema["fields"].append({**field, "metadata": mapping})


def _set_properties(
    match: re.Match[str],
    schema: dict[str, Any],
    configuration: dict[str, str],
    made: list[dict[str, Any]],
) -> None:
    given = dict(re.findall(r"'([^']+)'\s*=\s*'([^']*)'", match[1]))
    versions = {key: given.pop(f"delta.{key}", None) for key in ("minReaderVersion", "minWriterVersion")}
    if all(versions.values()):
        made.append({"protocol": {key: int(value or 0) for key, value in versions.items()}})
    configuration.update(given)
    if configuration.get("delta.columnMapping.mode") == "name" and _MAX_ID not in configuration:
        # The files that are there know the columns by their own names.
        for number, field in enumerate(schema["fields"], start=1):
            field["metadata"] |= {_ID: number, _PHYSICAL_NAME: field["name"]}
        configuration[_MAX_ID] = str(len(schema["fields"]))


_CHANGES: dict[str, Callable[..., None]] = {
    rf"RENAME\s+COLUMN\s+{_NAME}\s+TO\s+{_NAME}": _rename,
    rf"DROP\s+COLUMN\s+{_NAME}": _drop,
    rf"ADD\s+COLUMNS?\s+\(?{_NAME}\s+([\w()<>:, ]+?)\)?": _add,
    r"SET\s+TBLPROPERTIES\s*\((.*)\)": _set_properties,
}


def _alteration(statement: str) -> tuple[Callable[..., None], re.Match[str]]:
    altered = _ALTER.fullmatch(statement)
    for pattern, change in _CHANGES.items():
        match = altered and re.fullmatch(pattern, altered[1].strip(), re.IGNORECASE | re.DOTALL)
        if match:
            return change, match
    raise NotImplementedError(f"there is no {' '.join(statement.split()[:2])} here: {statement}")


def _field(schema: dict[str, Any], name: str) -> dict[str, Any]:
    return next(field for field in schema["fields"] if field["name"] == _plain(name))


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
