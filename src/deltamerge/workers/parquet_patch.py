"""A Parquet file without some of its rows, all else as it was: types, encodings, compression, metadata."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltamerge.workers.answers import answer
from deltamerge.workers.file_systems import is_of_machine
from deltamerge.workers.files import Files, WholeParquet, read_rows
from deltamerge.workers.left_to_spark import leaving_to_spark
from deltamerge.workers.nan_columns import NAN_COLUMNS
from deltamerge.workers.patched_file import Changed, PatchedFile
from deltamerge.workers.row_blocks import Blocks, mask_of, read_blocks
from deltamerge.workers.row_tracking import NO_ORIGIN, HiddenColumns, Origin
from deltamerge.workers.staged_rows import is_of_other_calendar
from deltamerge.workers.table_columns import FIELD_ID, can_become, has_times, in_type, leaves_of, plain_schema

# So much of a row group, without compression, may be kept beside another.
_AHEAD_BYTES = 256 << 20
PATCH_SCHEMA = "path STRING, rows BIGINT, size BIGINT, footer BINARY"
# Of a column that takes less, its encoding does not matter.
_SMALL_COLUMN_BYTES = 64 << 10
_BYTES_OF_A_VALUE = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# An index into a dictionary takes no more; where a page has more, it has the values themselves.
_BYTES_OF_AN_INDEX = 4
_DELTA_ENCODINGS = frozenset(
    {"DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"}
)
_PLAIN_INTEGER = re.compile(r" \(Int\(bitWidth=(32|64), isSigned=true\)\)")
# Spark's own record of a file's columns, which must not name other types than the file has.
SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_CODECS = {"UNCOMPRESSED": "NONE", "LZ4_RAW": "LZ4"}


def reason_not_to_patch(file: pq.ParquetFile) -> str | None:
    """Return why PyArrow cannot write a file's schema exactly as it is; None where it can."""
    if is_of_other_calendar(file.metadata) and any(map(has_times, file.schema_arrow.types)):
        return "its dates and times are in the calendar of Spark 2"
    for index in range(len(file.schema)):
        if file.schema.column(index).physical_type == "INT96":
            return f"column {file.schema.column(index).path} is INT96"
    try:
        schema = plain_schema(file.schema_arrow)
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, schema, **writer_options(file)) as writer:
            writer.add_key_value_metadata(own_metadata(file))
        written = pq.ParquetFile(sink)
    except (pa.ArrowException, ValueError, TypeError, OSError) as error:
        return f"PyArrow cannot write it: {error}"
    if _columns(written) != _columns(file):
        return "PyArrow writes its types in another form"
    if own_metadata(written) != own_metadata(file):
        return "PyArrow writes other metadata"
    return None


def _columns(file: pq.ParquetFile) -> list[str]:
    """Print a schema without its root's name and without redundant annotations of INT32 and INT64."""
    lines = str(file.schema).splitlines()[2:]
    return [_PLAIN_INTEGER.sub("", line) for line in lines]


def own_metadata(file: pq.ParquetFile) -> dict[bytes, bytes]:
    """Return a file's key-value metadata without what belongs to one file: Arrow's schema and the columns with NaN."""
    metadata = file.metadata.metadata or {}
    return {key: value for key, value in metadata.items() if key not in (b"ARROW:schema", NAN_COLUMNS)}


def writer_options(file: pq.ParquetFile) -> dict[str, Any]:
    """Return the arguments of ``ParquetWriter`` by which a file was written."""
    metadata = file.metadata
    dictionaries: list[str] = []
    encodings: dict[str, str] = {}
    compression: dict[str, str] = {}
    has_index = False
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for index in range(metadata.num_columns if groups else 0):
        column = groups[0].column(index)
        path = column.path_in_schema
        compression[path] = _CODECS.get(column.compression, column.compression)
        has_index |= column.has_column_index
        if any("DICTIONARY" in encoding for encoding in column.encodings):
            if _is_worth_a_dictionary([group.column(index) for group in groups], file.schema.column(index).length):
                dictionaries.append(path)
        else:
            for name in _DELTA_ENCODINGS.intersection(column.encodings):
                encodings[path] = name
    columns = [file.schema.column(index) for index in range(len(file.schema))]
    return {
        "compression": compression or "NONE",
        "use_dictionary": dictionaries,
        "column_encoding": encodings or None,
        "store_decimal_as_integer": any(
            column.converted_type == "DECIMAL" and column.physical_type in ("INT32", "INT64") for column in columns
        ),
        "store_schema": b"ARROW:schema" in (metadata.metadata or {}),
        "write_page_index": has_index,
    }


def _is_worth_a_dictionary(chunks: Sequence[Any], fixed_length: int) -> bool:
    """Return whether dictionaries made a column's chunks smaller, as far as the footer tells.

    Without them, values that are mostly distinct are written several times as fast, and take less.

    Args:
        fixed_length: The bytes of a value, if its type is FIXED_LEN_BYTE_ARRAY.
    """
    size = sum(chunk.total_uncompressed_size for chunk in chunks)
    if size < _SMALL_COLUMN_BYTES:
        return True
    values = sum(chunk.num_values for chunk in chunks)
    width = _BYTES_OF_A_VALUE.get(chunks[0].physical_type) or max(fixed_length, 0)
    if width:
        return bool(size < values * width)
    return bool(sum(map(_bytes_of_data_pages, chunks)) <= values * _BYTES_OF_AN_INDEX)


def _bytes_of_data_pages(chunk: Any) -> float:  # noqa: ANN401
    """Return about how many bytes a chunk has after its dictionary, without compression."""
    if not chunk.total_compressed_size:
        return 0.0
    dictionary = chunk.data_page_offset - chunk.dictionary_page_offset if chunk.has_dictionary_page else 0
    return float(chunk.total_uncompressed_size * (1 - dictionary / chunk.total_compressed_size))


@dataclass(frozen=True)
class FileForm:
    """What a file has once it is written again, besides what it had.

    Args:
        columns: The table's columns as data files have them, those that have a type in Arrow; an older file may have
            narrower ones, and ones without some fields.
        new: Those of them that the table gets now: NULL in older rows, and there for readers that require every column
            in every file.
        hidden: Where it keeps the ids of its rows; None without row tracking.
    """

    columns: pa.Schema
    new: tuple[str, ...] = ()
    hidden: HiddenColumns | None = None

    @property
    def filled(self) -> tuple[str, ...]:
        """The columns that change in every row group of a file that is written again."""
        return () if self.hidden is None else self.hidden.names

    def schema_of(self, file: pq.ParquetFile) -> pa.Schema:
        schema = plain_schema(file.schema_arrow)
        for index, field in enumerate(schema):
            place = self.columns.get_field_index(field.name)
            if place >= 0 and can_become(field.type, self.columns.field(place).type):
                schema = schema.set(index, field.with_type(self.columns.field(place).type))
        for name in self.new:
            schema = with_column(schema, self.columns.field(name))
        return schema if self.hidden is None else self.hidden.added_to(schema)


def with_column(schema: pa.Schema, field: pa.Field) -> pa.Schema:
    """Add a column that a file lacks.

    Raises:
        ValueError: It has the column's name in another case.
    """
    if field.name in schema.names:
        return schema
    if field.name.lower() in {name.lower() for name in schema.names}:
        raise ValueError(f"the file spells column {field.name} in another case")
    # Readers that go by ids find no column without one in a file that has some.
    has_ids = any(FIELD_ID in (other.metadata or {}) for other in schema)
    return schema.append(field if has_ids else field.remove_metadata())


AS_IT_WAS = FileForm(pa.schema([]))


def opened_writer(
    files: Files,
    target: str,
    schema: pa.Schema,
    source: WholeParquet,
    changed: Sequence[Changed],
    compression: str | None = None,
) -> PatchedFile:
    """Return the writer of a file that takes the place of another one, and may have more columns or wider ones.

    Args:
        compression: The codec of new columns; None for that of the file's own.
    """
    file = source.file
    before = plain_schema(file.schema_arrow)
    leaves = {path for field in before for path, _ in leaves_of(field)}
    added = [path for field in schema for path, _ in leaves_of(field) if path not in leaves]
    widened = [field for field in before if schema.field(field.name).type != field.type]
    wider = {path for field in widened for path, _ in leaves_of(field)}
    options, metadata = writer_options(file), own_metadata(file)
    if added:
        codecs = options["compression"]
        if isinstance(codecs, dict):
            codecs = {**codecs, **dict.fromkeys(added, compression or next(iter(codecs.values())))}
        options |= {"compression": codecs, "use_dictionary": [*options["use_dictionary"], *added]}
    if widened:
        encodings = {name: kind for name, kind in (options["column_encoding"] or {}).items() if name not in wider}
        has_decimals = any(pa.types.is_decimal(kind) for field in before for _, kind in leaves_of(field))
        options |= {
            "column_encoding": encodings or None,
            "store_decimal_as_integer": options["store_decimal_as_integer"] or not has_decimals,
        }
        metadata.pop(SPARK_SCHEMA, None)
    return PatchedFile(files, target, source, schema, options, metadata, changed)


def in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of a file in a schema that may have more columns, which are NULL, and wider ones.

    Raises:
        ValueError: The file spells a column in another case.
    """
    lowered = {name.lower() for name in table.column_names}
    columns = []
    for field in schema:
        index = table.schema.get_field_index(field.name)
        if index < 0 and field.name.lower() in lowered:
            raise ValueError(f"the file spells column {field.name} in another case")
        found = pa.nulls(table.num_rows, field.type) if index < 0 else in_type(table.column(index), field.type)
        columns.append(found if found.type == field.type else found.cast(field.type))
    return pa.table(columns, schema=schema)


def patch_file(
    files: Files, source: str, target: str, deleted: Blocks, form: FileForm = AS_IT_WAS, origin: Origin = NO_ORIGIN
) -> PatchedFile:
    """Write a file again without some rows; return what has written it; without rows there is no file.

    Args:
        target: The path of the new file, in an existing folder; it appears whole or not at all.

    Raises:
        ValueError: A row to leave out is not in the file.
    """
    with files.whole_parquet(source) as whole_file:
        file = whole_file.file
        keep = ~mask_of(deleted, file.metadata.num_rows)
        schema, places = form.schema_of(file), row_places(file)
        changed: list[Changed] = [form.filled if keep[rows].all() else None for rows in places]
        with opened_writer(files, target, schema, whole_file, changed) as writer:
            asked = [writer.columns(number) if keep[rows].any() else None for number, rows in enumerate(places)]
            for group in row_groups(source, file, asked):
                rows = in_schema(group.table, pa.schema([schema.field(name) for name in group.columns]))
                if form.hidden is not None:
                    rows = origin.fill(rows, group.rows.start, form.hidden)
                mask = keep[group.rows]
                writer.write_group(group.number, rows if mask.all() else rows.filter(pa.array(mask)))
    return writer


@dataclass(frozen=True)
class RowGroup:
    """A row group that was read: its number, where its rows are in the file, and the columns that were asked for.

    Of these the table has those that are in the file.
    """

    number: int
    rows: slice
    columns: Collection[str]
    table: pa.Table


def row_places(file: pq.ParquetFile) -> list[slice]:
    ends = list(accumulate(file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)))
    return list(map(slice, [0, *ends][: len(ends)], ends))


def row_groups(path: str, file: pq.ParquetFile, asked: Sequence[Collection[str] | None]) -> Iterator[RowGroup]:
    """Read row groups, one of moderate size while the one before is worked on.

    Args:
        path: The file's, for errors.
        asked: For each row group which columns are read; None: it is left out.
    """
    return _naming(path, _row_groups(file, asked))


def _row_groups(file: pq.ParquetFile, asked: Sequence[Collection[str] | None]) -> Iterator[RowGroup]:
    own, places = file.schema_arrow.names, row_places(file)

    def read(number: int) -> RowGroup:
        columns = asked[number]
        assert columns is not None
        names = [name for name in own if name in columns]
        found = read_rows(file, [number], None if names == own else names)
        return RowGroup(number, places[number], columns, found)

    chosen = [number for number, columns in enumerate(asked) if columns is not None]
    with ThreadPoolExecutor(1) as pool:
        ahead = None
        for place, number in enumerate(chosen):
            group = read(number) if ahead is None else ahead.result()
            later = chosen[place + 1 : place + 2]
            is_moderate = later and file.metadata.row_group(later[0]).total_byte_size <= _AHEAD_BYTES
            ahead = pool.submit(read, later[0]) if is_moderate else None
            yield group


def _naming(path: str, groups: Iterable[RowGroup]) -> Iterator[RowGroup]:
    """Yield row groups; the error about one that cannot be read is Spark's, with the file's name."""
    waiting = iter(groups)
    while True:
        try:
            found = next(waiting, None)
        except (ValueError, OSError, pa.ArrowException) as error:
            # What PyArrow does not implement says nothing about the file.
            if is_of_machine(error) or isinstance(error, pa.ArrowNotImplementedError):
                raise
            raise ValueError(
                f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file {path}: {error}. SQLSTATE: KD001"
            ) from error
        if found is None:
            return
        yield found


def patching(files: Files, form: FileForm) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that patches files, for ``mapInArrow``.

    Returns:
        A function over batches of ``source``, ``target``, ``row_id`` and ``row_commit_version`` (what the log has of
        the file's rows) and the columns of `block_columns`, a row a file.
    """

    def patch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = ("source", "target", "row_id", "row_commit_version")
        for batch in batches:
            for row in range(batch.num_rows):
                source, target, row_id, version = (batch.column(name)[row].as_py() for name in names)
                path = files.attempt_path(target)
                with leaving_to_spark(source):
                    done = patch_file(files, source, path, read_blocks(batch, row), form, Origin(row_id, version))
                found = {"path": path, "rows": done.rows, "size": done.size, "footer": done.footer}
                yield answer(PATCH_SCHEMA, found)

    return patch
