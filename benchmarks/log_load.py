"""Seconds and memory to load the log of a table with many files.

Makes synthetic logs and loads each in a process of its own::

    python benchmarks/log_load.py --files 100000
    python benchmarks/log_load.py --files 1000000 --variant checkpoint_and_tail
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

VARIANTS = (
    "one_commit",
    "commits",
    "checkpoint",
    "parsed_stats",
    "checkpoint_and_commits",
    "checkpoint_and_tail",
    "escaped_paths",
)
_TAIL = 10


def main() -> None:
    """Parse the arguments; make and load logs, or (with ``--load``) load one and print a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000, help="live files of the table")
    parser.add_argument("--columns", type=int, default=9, help="columns with statistics")
    parser.add_argument("--variant", choices=(*VARIANTS, "all"), default="all")
    parser.add_argument("--directory", type=Path, help="where to make the logs, which stay there")
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.load:
        print(json.dumps(load(arguments.load)))
        return
    variants = VARIANTS if arguments.variant == "all" else (arguments.variant,)
    with tempfile.TemporaryDirectory(prefix="log-load-") as temporary:
        directory = arguments.directory or Path(temporary)
        print(f"{'variant':24}{'log MB':>8}{'seconds':>9}{'CPU s':>7}{'again':>8}{'peak MB':>9}{'kept MB':>9}")
        for variant in variants:
            root = directory / f"{variant}-{arguments.files}-{arguments.columns}"
            if not root.exists():
                make(root, variant, arguments.files, arguments.columns)
            command = [sys.executable, __file__, "--load", str(root)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for count in ("files", "paths", "records"):
                if found[count] != arguments.files:
                    raise SystemExit(f"{variant}: {found[count]:,.0f} {count}, not {arguments.files:,}")
            log = sum(file.stat().st_size for file in (root / "_delta_log").rglob("*") if file.is_file())
            print(
                f"{variant:24}{log / 1e6:8.1f}{found['seconds']:9.2f}{found['cpu']:7.2f}{found['again']:8.2f}"
                f"{found['peak']:9.0f}{found['kept']:9.0f}"
            )


def load(root: Path) -> dict[str, float]:
    """Load one log, then advance the snapshot by nothing; peak and kept memory are above the imports'."""
    from deltamerge.log.snapshot import load_snapshot
    from deltamerge.skipping.statistics import read_statistics
    from deltamerge.storage.store import open_store

    store = open_store(str(root))
    before = _memory("VmRSS")
    begin, begin_cpu = time.perf_counter(), time.process_time()
    snapshot = load_snapshot(store)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    peak, kept = _memory("VmHWM"), _memory("VmRSS")
    begin = time.perf_counter()
    load_snapshot(store, previous=snapshot)
    again = time.perf_counter() - begin
    statistics = read_statistics(snapshot.files.arrow.column("stats"), [])
    return {
        "files": snapshot.files.num_files,
        "paths": len(set(snapshot.files.paths())),
        "records": len(statistics.num_records.drop_null()),
        "seconds": seconds,
        "cpu": cpu,
        "again": again,
        "peak": peak - before,
        "kept": kept - before,
    }


def _memory(key: str) -> float:
    # Not `getrusage`: its peak begins with that of the parent process.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    return 0.0


def make(root: Path, variant: str, files: int, columns: int) -> None:
    """Write a log.

    Args:
        root: The table's folder, to be made.
        variant: One of `VARIANTS`.
        files: How many live files it has.
        columns: How many columns have statistics.
    """
    (root / "_delta_log").mkdir(parents=True)
    few = {"commits": 100, "checkpoint_and_commits": 1000, "checkpoint_and_tail": max(files // 100, 1)}
    per_commit = few.get(variant, files)
    version = _write_commits(root, files, columns, per_commit, escaped=variant == "escaped_paths")
    if variant in ("checkpoint", "parsed_stats"):
        _write_checkpoint(root, version, parsed=variant == "parsed_stats")
    elif variant == "checkpoint_and_commits":
        _write_checkpoint(root, version // 2, parsed=False)
    elif variant == "checkpoint_and_tail":
        begin = max(version - _TAIL, 0)
        _write_checkpoint(root, begin, parsed=False)
        # The log as its clean-up leaves it.
        for number in range(begin):
            (root / "_delta_log" / f"{number:020d}.json").unlink()


def _write_commits(root: Path, files: int, columns: int, per_commit: int, *, escaped: bool) -> int:
    partition = "time" if escaped else "date"
    names = [f"column_{index}" for index in range(columns)]
    types = ["long", "string", "double"]
    fields = [
        {"name": name, "type": types[index % 3], "nullable": True, "metadata": {}} for index, name in enumerate(names)
    ]
    fields.append({"name": partition, "type": "string", "nullable": True, "metadata": {}})
    head: list[dict[str, object]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [partition],
                "configuration": {},
                "createdTime": 1_700_000_000_000,
            }
        },
    ]
    adds = _adds(random.Random(1), files, names, partition, escaped=escaped)
    version = 0
    # Every commit but the first removes a file and adds it again, so that replay has something to do.
    previous: dict[str, object] | None = None
    for begin in range(0, files, per_commit):
        actions: list[dict[str, object]] = [
            {"commitInfo": {"timestamp": 1_700_000_000_000 + version, "operation": "WRITE"}}
        ]
        actions.extend(head if version == 0 else [])
        if previous is not None:
            actions.append({"remove": {"path": previous["path"], "deletionTimestamp": 1, "dataChange": True}})
        batch = [next(adds) for _ in range(min(per_commit, files - begin))]
        if previous is not None:
            actions.append({"add": {**previous, "path": f"again-{version}.parquet"}})
        actions.extend({"add": add} for add in batch)
        previous = batch[-1]
        text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
        (root / "_delta_log" / f"{version:020d}.json").write_text(text)
        version += 1
    return version - 1


def _adds(
    source: random.Random, files: int, names: list[str], partition: str, *, escaped: bool
) -> Iterator[dict[str, object]]:
    for number in range(files):
        low: dict[str, object] = {}
        high: dict[str, object] = {}
        for index, name in enumerate(names):
            begin = source.randrange(1 << 30)
            low[name], high[name] = [
                (begin, begin + 10_000),
                (f"aaa-{begin:x}", f"zzz-{begin:x}"),
                (begin / 7, begin / 7 + 100.5),
            ][index % 3]
        stats = {
            "numRecords": source.randrange(1, 100_000),
            "minValues": low,
            "maxValues": high,
            "nullCount": dict.fromkeys(names, 0),
        }
        day = f"2024-{number % 12 + 1:02d}-{number % 28 + 1:02d}"
        value = f"{day} 10:{number % 60:02d}:00" if escaped else day
        folder = value.replace(" ", "%20").replace(":", "%253A")
        unique = uuid.UUID(int=source.getrandbits(128))
        yield {
            "path": f"{partition}={folder}/part-{number:06d}-{unique}-c000.snappy.parquet",
            "partitionValues": {partition: value},
            "size": source.randrange(1 << 20, 1 << 27),
            "modificationTime": 1_700_000_000_000 + number,
            "dataChange": True,
            "stats": json.dumps(stats, separators=(",", ":")),
        }


def _write_checkpoint(root: Path, version: int, *, parsed: bool) -> None:
    import io

    import pyarrow as pa
    import pyarrow.json as pj
    import pyarrow.parquet as pq

    from deltamerge.log.checkpoint.writing import write_checkpoint
    from deltamerge.log.snapshot import load_snapshot
    from deltamerge.storage.store import open_store

    store = open_store(str(root))
    write_checkpoint(load_snapshot(store, version), now_ms=1_700_000_000_000)
    if not parsed:
        return
    # The same checkpoint, with statistics as structs only.
    path = root / "_delta_log" / f"{version:020d}.checkpoint.parquet"
    table = pq.read_table(path)
    add = table.column("add").combine_chunks()
    fields = {add.type.field(index).name: add.field(index) for index in range(add.type.num_fields)}
    stats = fields.pop("stats")
    text = "\n".join("{}" if line is None else line for line in stats.to_pylist())
    parsed_stats = pj.read_json(io.BytesIO(text.encode())).to_struct_array().combine_chunks()
    fields["stats_parsed"] = parsed_stats
    structs = pa.StructArray.from_arrays(list(fields.values()), names=list(fields), mask=add.is_null())
    table = table.set_column(table.schema.get_field_index("add"), "add", structs)
    pq.write_table(table, path)


if __name__ == "__main__":
    main()
