"""Reading checkpoints: classic, multi-part, and V2 with JSON or Parquet top level and sidecars.

Source: Delta protocol, "Checkpoints", "Sidecar Files". All kinds are read alike: some files hold actions, a
``sidecar`` action names more files that hold file actions only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltamerge.log.actions import Action, Sidecar, camel_case, from_json
from deltamerge.log.arrays import EMPTY, empty_table, repeat, scalar, strings
from deltamerge.log.commits import damaged
from deltamerge.log.file_actions import ADD_SCHEMA, REMOVE_SCHEMA, from_parquet
from deltamerge.log.paths import decode_path, names_no_file_of_table
from deltamerge.log.replay import LogLines, parse_log_files
from deltamerge.log.segment import SIDECAR_FOLDER, Checkpoint
from deltamerge.storage.store import Store
from deltamerge.workers.table_columns import in_plain_types

_OTHER_ACTIONS = ("protocol", "metaData", "txn", "domainMetadata", "sidecar")
_ROWS = 1 << 13


@dataclass(frozen=True, eq=False)
class CheckpointActions:
    """The actions of a checkpoint that are no file actions, and where the file actions are.

    `parquet_files` are the checkpoint's own and its sidecars, `json_lines` those of a JSON top-level file.
    """

    actions: tuple[Action, ...]
    parquet_files: tuple[str, ...]
    json_lines: LogLines | None


def read_checkpoint_actions(store: Store, checkpoint: Checkpoint) -> CheckpointActions:
    """Read all of a checkpoint but its file actions, so that a table can be refused before those are read."""
    actions: list[Action] = []
    parquet_files: list[str] = []
    lines = None
    for file in checkpoint.files:
        if file.name.endswith(".json"):
            with _readable(store, checkpoint, file.path):
                lines = parse_log_files([(file.path, store.get(file.path))], store.root, remove_schema=REMOVE_SCHEMA)
            actions.extend(lines.actions)
        else:
            actions.extend(_parquet_actions(store, checkpoint, file.path))
            parquet_files.append(file.path)
    with _readable(store, checkpoint, checkpoint.files[0].path):
        sidecars = [_sidecar_path(action) for action in actions if isinstance(action, Sidecar)]
    others = tuple(action for action in actions if not isinstance(action, Sidecar))
    return CheckpointActions(others, (*parquet_files, *sidecars), lines)


def read_checkpoint_files(
    store: Store, checkpoint: Checkpoint, found: CheckpointActions, action: Literal["add", "remove"]
) -> pa.Table:
    """Return a checkpoint's live files, rows of `ADD_SCHEMA`, or its tombstones, rows of `REMOVE_SCHEMA`.

    Statistics are always JSON.
    """
    schema = ADD_SCHEMA if action == "add" else REMOVE_SCHEMA
    tables = [empty_table(schema)]
    if found.json_lines is not None:
        tables.append(found.json_lines.adds if action == "add" else found.json_lines.removes)
    for path in found.parquet_files:
        with (
            _readable(store, checkpoint, path),
            store.open_input(path) as source,
            pq.ParquetFile(
                source,
                pre_buffer=not store.is_local,
                page_checksum_verification=True,
                coerce_int96_timestamp_unit="us",
            ) as file,
        ):
            tables.append(_read_file_actions(file, action, schema))
    return pa.concat_tables(tables)


@contextmanager
def _readable(store: Store, checkpoint: Checkpoint, path: str) -> Iterator[None]:
    """Turn what goes wrong with a part of a checkpoint into a DeltaLogCorruptException."""
    try:
        yield
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        why = "it is missing" if isinstance(error, FileNotFoundError) else f"{type(error).__name__}: {error}"
        problem = damaged(store.absolute(path), f"part of the checkpoint of version {checkpoint.version}: {why}")
        problem.parameters["path"] = checkpoint.files[0].path
        raise problem from error


def _parquet_actions(store: Store, checkpoint: Checkpoint, path: str) -> list[Action]:
    with (
        _readable(store, checkpoint, path),
        store.open_input(path) as source,
        pq.ParquetFile(source, page_checksum_verification=True) as file,
    ):
        names = [name for name in _OTHER_ACTIONS if name in file.schema_arrow.names]
        if not names:
            return []
        actions = []
        for batch in _batches(file, names):
            for name in names:
                column = batch.column(name)
                for content in column.filter(column.is_valid()).to_pylist():
                    # Some writers have structs of NULLs in rows of other actions.
                    present = any(value is not None for value in content.values())
                    action = from_json({name: content}) if present else None
                    if action is not None:
                        actions.append(action)
        return actions


def _batches(file: pq.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    batches = file.iter_batches(_ROWS, columns=columns)
    # Arrow filters no strings that are views.
    return map(in_plain_types, batches) if "_view" in str(file.schema_arrow) else batches


def _read_file_actions(file: pq.ParquetFile, action: str, schema: pa.Schema) -> pa.Table:
    if action not in file.schema_arrow.names:
        return empty_table(schema)
    present = {field.name for field in file.schema_arrow.field(action).type}
    wanted = [f"{action}.{camel_case(name)}" for name in schema.names if camel_case(name) in present]
    tables = []
    for batch in _batches(file, wanted):
        column = batch.column(0)
        rows = pc.is_valid(pc.struct_field(column, "path"))
        tables.append(from_parquet(pa.chunked_array([column.filter(rows)]), schema))
    table = pa.concat_tables(tables) if tables else empty_table(schema)
    if "stats_parsed" in present and table.column("stats").null_count:
        return _with_parsed_stats(file, action, table)
    return table


def _with_parsed_stats(file: pq.ParquetFile, action: str, table: pa.Table) -> pa.Table:
    strings, name = [], f"{action}.stats_parsed"
    leaves = map(file.schema.column, range(len(file.schema)))
    # Arrow has these without a zone.
    instants = frozenset(leaf.path for leaf in leaves if leaf.physical_type == "INT96")
    for batch in _batches(file, [f"{action}.path", name]):
        column = batch.column(0)
        rows = column.filter(pc.is_valid(pc.struct_field(column, "path")))
        strings.append(stats_to_json(pc.struct_field(rows, "stats_parsed"), name, instants))
    parsed = pa.chunked_array(strings, pa.string())
    stats = pc.coalesce(table.column("stats"), parsed)
    return table.set_column(table.schema.get_field_index("stats"), table.schema.field("stats"), stats)


def _sidecar_path(sidecar: Sidecar) -> str:
    if names_no_file_of_table(sidecar.path):
        raise ValueError(f"the sidecar {sidecar.path!r:.200} is not in the log's folder")
    # Its path may be absolute; all sidecars are in this folder (Protocol: Sidecar File Information).
    return f"{SIDECAR_FOLDER}/{decode_path(sidecar.path).rpartition('/')[2]}"


def stats_to_json(structs: pa.Array, path: str = "", instants: frozenset[str] = frozenset()) -> pa.Array:
    """Return the statistics of many files as JSON, NULL where the struct is, column by column rather than row by row.

    Args:
        structs: Such as ``struct<numRecords, minValues, maxValues, nullCount>``.
        path: Where they are in their file.
        instants: The paths of times without a zone that are in UTC.
    """
    count = len(structs)
    parts = []
    for index, field in enumerate(structs.type):
        name = json.dumps(field.name, ensure_ascii=False)
        value = _value(pc.struct_field(structs, [index]), f"{path}.{field.name}", instants)
        parts.append(pc.coalesce(pc.binary_join_element_wise(scalar(f",{name}:"), value, EMPTY), EMPTY))
    empty = repeat("", count)
    # Every part begins with a comma, the first of them is one too many.
    body = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*parts, EMPTY) if parts else empty, 1)
    whole = pc.binary_join_element_wise(scalar("{"), body, scalar("}"), EMPTY)
    return pc.if_else(pc.is_valid(structs), whole, pa.nulls(count, pa.string()))


def _value(values: pa.Array, path: str, instants: frozenset[str]) -> pa.Array:
    kind = values.type
    if pa.types.is_struct(kind):
        return stats_to_json(values, path, instants)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return pc.cast(values, pa.string())
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(values), pc.cast(values, pa.string()), _special_float(values))
    if pa.types.is_date(kind):
        return _quoted(pc.cast(values, pa.string()))
    if pa.types.is_timestamp(kind):
        local = values if kind.unit == "us" else pc.cast(values, pa.timestamp("us", kind.tz), safe=False)
        naive = pc.cast(local, pa.timestamp("us")) if kind.tz else local
        local_time = pc.replace_substring(pc.cast(naive, pa.string()), " ", "T")
        is_instant = kind.tz or path in instants
        return _quoted(pc.binary_join_element_wise(local_time, scalar("Z"), EMPTY) if is_instant else local_time)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _string(values)
    # Lists, maps and binary have no minimum and no maximum; whatever is stored is not used.
    return pa.nulls(len(values), pa.string())


def _special_float(values: pa.Array) -> pa.Array:
    negative = pc.equal(pc.sign(values), pc.negate(pc.abs(pc.sign(values))))
    sign = pc.if_else(negative, scalar('"-Infinity"'), scalar('"Infinity"'))
    return pc.if_else(pc.is_nan(values), scalar('"NaN"'), sign)


def _string(values: pa.Array) -> pa.Array:
    values = pc.cast(values, pa.string())
    special = pc.match_substring_regex(values, r'[\x00-\x1f"\\]')
    if pc.any(special).as_py():
        escaped = [json.dumps(value, ensure_ascii=False)[1:-1] for value in values.filter(special).to_pylist()]
        values = pc.replace_with_mask(values, special, strings(escaped))
    return _quoted(values)


def _quoted(values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(scalar('"'), values, scalar('"'), EMPTY)
