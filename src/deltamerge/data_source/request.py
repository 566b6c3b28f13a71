"""What a query asks of the data source: its options and the settings of its session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from deltamerge.exceptions import DeltaAnalysisException, DeltaIllegalArgumentException
from deltamerge.log.change_feed import invalid_version
from deltamerge.log.snapshot import Snapshot
from deltamerge.skipping.timestamps import parse_instant, parse_timestamp, split_cast
from deltamerge.spark.config import MergeConf, read_conf
from deltamerge.spark.default_file_system import in_known_bases
from deltamerge.spark.table import SNAPSHOTS
from deltamerge.storage.hadoop_options import keys_of_store, prefixes_of_store
from deltamerge.storage.store import Store, open_store
from deltamerge.storage.stored_file import SCHEME, SINGLE_WRITER
from deltamerge.storage.task_files import NotOpened
from deltamerge.workers.files import Files
from deltamerge.write.layout import bytes_of
from deltamerge.write.overwrite_kind import illegal_option

_HADOOP = "spark.hadoop."
_WHOLE_NUMBER = re.compile(r"-?[0-9]+")
_TIMESTAMPS = ("timestampasof", "startingtimestamp", "endingtimestamp")


@dataclass(frozen=True)
class Request:
    """A query's options, by their names in lower case, and its session's settings; both may be secret."""

    options: Mapping[str, str] = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)

    @cached_property
    def conf(self) -> MergeConf:
        return read_conf(MergeConf, self.settings.get)

    @cached_property
    def path(self) -> str:
        path = self.options.get("path")
        if path is None:
            raise DeltaAnalysisException(
                "DELTA_TABLE_PATH_NOT_GIVEN",
                "No path was given, and Spark does not tell a data source in Python which table of the catalog it "
                "reads or writes. To read one by its name, make it of an existing table: CREATE TABLE name USING delta "
                "LOCATION 'path', without columns. To write one: df.write.format('delta').mode('append').save(path), "
                "or deltamerge.write_delta(df, path).",
            )
        return in_known_bases(self.settings, path)

    @cached_property
    def store(self) -> Store:
        scheme = SCHEME.match(self.path)
        alone = {SINGLE_WRITER: self.options[SINGLE_WRITER]} if SINGLE_WRITER in self.options else {}
        if scheme is None:
            return open_store(self.path, alone)
        name, authority = scheme.group(1).lower(), self.path[scheme.end() :].lstrip("/").partition("/")[0]
        known, prefixes = keys_of_store(name, authority), prefixes_of_store(name)
        given = _of_hadoop(self.options, {key.lower(): key for key in known}, prefixes)
        session = _of_hadoop(self.settings, {key: key for key in known}, prefixes)
        return open_store(self.path, {**given, **alone}, session)

    @cached_property
    def files(self) -> Files:
        """How tasks open the table's files."""
        files = self.store.files
        if isinstance(files, NotOpened):
            raise DeltaAnalysisException(
                "DELTAMERGE_STORE_NOT_OPENED_BY_TASKS",
                f"The data source delta cannot open the files of {self.path}: {files.reason}. Read it with "
                "DeltaTable.forPath(spark, path).toDF(), write it with deltamerge.write_delta(df, path).",
                parameters={"path": self.path},
            )
        return files

    def snapshot(self, version: int | None = None) -> Snapshot:
        return SNAPSHOTS.load(self.store, version)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.options.get(name.lower())
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise illegal_option(name, value, "must be 'true' or 'false'")
        return value.lower() == "true"

    def number(self, name: str) -> int | None:
        """Return an option that is a non-negative whole number; None where it is not given."""
        value = self.options.get(name.lower())
        if value is None:
            return None
        if not (value.isascii() and value.isdigit()):
            raise illegal_option(name, value, "must be a non-negative integer")
        return int(value)

    def boundary(self, name: str) -> int | None:
        """Return an option that is the first or the last version of a batch of changes; None where it is not given."""
        value = self.options.get(name.lower())
        if value is not None and not (value.isascii() and value.isdigit()):
            raise invalid_version(value)
        return None if value is None else int(value)

    @property
    def version(self) -> int | None:
        """The version to read, which the table need not have; None where the option is not given."""
        value = self.options.get("versionasof")
        if value is None:
            return None
        if not _WHOLE_NUMBER.fullmatch(value):
            raise DeltaIllegalArgumentException(
                "DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE",
                f"versionAsOf needs to be a valid begin value: a whole number, not '{value}'.",
                parameters={"timeTravelKey": "versionAsOf"},
            )
        return int(value)

    def bytes(self, name: str) -> int | None:
        """Return an option that is a size, in bytes or such as ``100mb``; None where it is not given."""
        value = self.options.get(name.lower())
        return None if value is None else parse_bytes(name, value)

    def milliseconds(self, name: str) -> int | None:
        """Return an option that is a timestamp, in milliseconds since 1970; None where it is not given."""
        value = self.options.get(name.lower())
        if value is None:
            return None
        local, zone = split_cast(value) or ("", None)
        zone = zone or self.conf.session_time_zone
        micros = parse_instant(local, zone)
        if micros is not None:
            return micros // 1000
        why = "cannot be converted to a valid timestamp. Write it as '2024-05-01 12:30:00', or with its offset as"
        if parse_timestamp(local) is not None:
            why = f"depends on the time zone {zone}, which Python may not know as Spark does. Write it with its offset:"
        raise DeltaAnalysisException(
            "DELTA_TIMESTAMP_INVALID",
            f"The provided timestamp ('{value}') {why} '2024-05-01 12:30:00+02:00'.",
            parameters={"expr": f"'{value}'"},
        )

    @property
    def gives_timestamps(self) -> bool:
        return not self.options.keys().isdisjoint(_TIMESTAMPS)

    def setting_bytes(self, name: str, default: int) -> int:
        value = self.settings.get(name)
        return default if value is None else parse_bytes(name, value)


def _of_hadoop(values: Mapping[str, str], names: Mapping[str, str], prefixes: tuple[str, ...]) -> dict[str, str]:
    """Return Hadoop's settings under their own names: those known by some names, and those that begin with a prefix."""
    found: dict[str, str] = {}
    # A setting without the prefix of Spark's wins.
    for name in sorted(values, key=lambda name: not name.startswith(_HADOOP)):
        key = name.removeprefix(_HADOOP)
        if values[name] and (key in names or key.startswith(prefixes)):
            found[names.get(key, key)] = values[name]
    return found


def parse_bytes(name: str, value: str) -> int:
    """Return a size such as ``128MB`` in bytes."""
    found = bytes_of(value)
    if found is None:
        raise illegal_option(name, value, "must be a size in bytes, or such as '128mb'")
    return found
