"""The commands of the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pyspark.sql import SparkSession
from rich.console import Console, RenderableType
from rich.text import Text

from deltamerge.api.merge_sql import merge_sql, plan_sql
from deltamerge.cli.failures import CommandError, ExitCode, explained
from deltamerge.cli.inspect import detail_values, render_detail, render_history
from deltamerge.cli.session import read_settings, spark_session
from deltamerge.cli.sources import check_names, read_source, read_target, source_frame
from deltamerge.log.history import read_history
from deltamerge.render.printable import printable, printable_json
from deltamerge.render.progress import TerminalProgress
from deltamerge.render.terminal import render_terminal
from deltamerge.storage.store import open_store
from deltamerge.version import __version__

app = typer.Typer(
    name="deltamerge",
    help="Delta Lake's MERGE in plain PySpark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _option(metavar: str, text: str, *flags: str, **more: Any) -> Any:  # noqa: ANN401
    return typer.Option(*flags, help=text, metavar=metavar, show_default=False, **more)


Sql = Annotated[str | None, _option("SQL", "The MERGE statement.")]
File = Annotated[Path | None, _option("FILE", "A file with the statement; - is standard input.", "--file", "-f")]
Target = Annotated[
    str | None, _option("PATH", "The Delta table named 'target' in the statement; NAME=PATH sets another name.")
]
Sources = Annotated[
    list[str] | None,
    _option(
        "PATH",
        "A .parquet, .csv, .json or .orc file or folder, or delta:PATH, named 'source' in the statement; NAME=PATH "
        "sets another name. Repeatable.",
    ),
]
Remote = Annotated[
    str | None,
    _option("sc://HOST:PORT", "A Spark Connect server; without it Spark runs in local mode.", envvar="SPARK_REMOTE"),
]
Conf = Annotated[list[str] | None, _option("KEY=VALUE", "A Spark setting. Repeatable.")]
Options = Annotated[
    list[str] | None,
    _option("KEY=VALUE", "An option of the tables' object store, such as region=eu-north-1. Repeatable.", "--option"),
]
DedupeBy = Annotated[
    list[str] | None,
    _option("COLUMN", "Of source rows with one key, merge the one with the greatest value in this column. Repeatable."),
]
SkipUnchanged = Annotated[
    bool, typer.Option("--skip-unchanged", help="Leave rows alone to which an UPDATE would give the values they have.")
]
TxnAppId = Annotated[
    str | None,
    _option("NAME", "The application that merges; with --txn-version it is done once, however often it is tried."),
]
TxnVersion = Annotated[
    int | None, _option("N", "The application's number for this merge, greater than those of its earlier merges.")
]
UserMetadata = Annotated[str | None, _option("STRING", "A string for the commit's userMetadata.")]
Table = Annotated[str, typer.Argument(metavar="PATH", help="The table's path or URL.", show_default=False)]
Html = Annotated[
    Path | None, _option("FILE", "Also save the report as an HTML page.", "--html", dir_okay=False, writable=True)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_Report = TypeVar("_Report")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"deltamerge {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Delta Lake's MERGE in plain PySpark."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A character that a terminal lacks is no error of the command.
            stream.reconfigure(errors="replace")


@app.command()
def merge(
    sql: Sql = None,
    file: File = None,
    target: Target = None,
    source: Sources = None,
    remote: Remote = None,
    conf: Conf = None,
    dedupe_by: DedupeBy = None,
    skip_unchanged: SkipUnchanged = False,
    txn_app_id: TxnAppId = None,
    txn_version: TxnVersion = None,
    user_metadata: UserMetadata = None,
    option: Options = None,
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Run a MERGE and print what it did.

    Example: deltamerge merge --target ./flights --source changes.parquet --file upsert.sql
    """
    with explained(_errors()):
        _check_page(html)
        run = partial(
            merge_sql,
            dedupe_by=dedupe_by,
            skip_unchanged=skip_unchanged,
            txn_app_id=txn_app_id,
            txn_version=txn_version,
            user_metadata=user_metadata,
            options=read_settings("--option", option or ()),
        )
        report = _in_session(run, sql, file, target, source, remote, conf)
        with _only_warning("the report was not printed"):
            _show(report.to_json() if as_json else render_terminal(report.outcome))
        if html is not None:
            with _only_warning(f"--html {html} was not written"):
                report.save_html(html)


@app.command()
def plan(
    sql: Sql = None,
    file: File = None,
    target: Target = None,
    source: Sources = None,
    remote: Remote = None,
    conf: Conf = None,
    dedupe_by: DedupeBy = None,
    skip_unchanged: SkipUnchanged = False,
    option: Options = None,
    analyze: Annotated[bool, typer.Option("--analyze", help="Also read the source and match its rows.")] = False,
    as_json: Json = False,
    html: Html = None,
) -> None:
    """Print what a MERGE would do; nothing is written.

    Example: deltamerge plan --target ./flights --source changes.parquet --file upsert.sql --analyze
    """
    with explained(_errors()):
        _check_page(html)
        store = read_settings("--option", option or ())
        run = partial(plan_sql, dedupe_by=dedupe_by, skip_unchanged=skip_unchanged, analyze=analyze, options=store)
        report = _in_session(run, sql, file, target, source, remote, conf)
        _show(report.to_json() if as_json else render_terminal(report.explanation))
        if html is not None:
            report.save_html(html)
    if report.forecast is not None and report.forecast.failure is not None:
        raise typer.Exit(ExitCode.WRONG_DATA)


def _in_session(
    run: Callable[[SparkSession, str, dict[str, str], TerminalProgress], _Report],
    sql: str | None,
    file: Path | None,
    target: str | None,
    sources: list[str] | None,
    remote: str | None,
    conf: list[str] | None,
) -> _Report:
    statement = _statement(sql, file)
    settings = read_settings("--conf", conf or ())
    places = [read_source(option) for option in sources or ()]
    if target is not None:
        places.append(read_target(target))
    check_names(places)
    tables = {place.name: place.path for place in places if place.kind == "delta"}
    with spark_session(remote, settings) as spark:
        for place in places:
            if place.kind != "delta":
                source_frame(spark, place).createOrReplaceTempView(place.name)
        with TerminalProgress(spark, _errors()) as progress:
            return run(spark, statement, tables, progress)


@app.command()
def history(
    table: Table,
    limit: Annotated[
        int | None, typer.Option(help="Only so many commits, the newest.", min=1, show_default=False)
    ] = None,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """List a table's commits, newest first."""
    with explained(_errors()):
        commits = read_history(open_store(table, read_settings("--option", option or ())), limit)
        _show(printable_json(commits, _plain) if as_json else render_history(commits))


@app.command()
def detail(table: Table, option: Options = None, as_json: Json = False) -> None:
    """Describe a table: its columns, partitions, files, properties and features."""
    with explained(_errors()):
        values = detail_values(open_store(table, read_settings("--option", option or ())))
        _show(printable_json(values, _plain) if as_json else render_detail(values))


def _statement(sql: str | None, file: Path | None) -> str:
    if (sql is None) == (file is None):
        raise CommandError("give the statement once: by --sql or by --file.")
    if sql is not None:
        return sql
    assert file is not None
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--file {file} cannot be read: {error.strerror}.") from error
    return text.removeprefix("\ufeff")


def _check_page(html: Path | None) -> None:
    """Find a wrong path before the merge, not after it."""
    if html is None:
        return
    folder = html.absolute().parent
    if not folder.is_dir():
        raise CommandError(f"--html {html}: there is no folder {folder}.")
    if not os.access(html if html.exists() else folder, os.W_OK):
        raise CommandError(f"--html {html}: the file cannot be written.")


@contextmanager
def _only_warning(what: str) -> Iterator[None]:
    """Warn of output that fails after the merge is done: a script that sees an error would run it again."""
    try:
        yield
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            # What is left to be printed would be an error at the process's end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _errors().print(Text(printable(f"Warning: {what}: {error}"), "yellow"))


def _show(page: RenderableType) -> None:
    if isinstance(page, str):
        # JSON is UTF-8, whatever text is here.
        typer.echo(page.encode())
        return
    console = Console()
    if console.is_terminal:
        console.print(page)
        return
    with console.capture() as capture:
        console.print(page)
    # rich pads lines with spaces; a file needs none.
    for line in capture.get().splitlines():
        typer.echo(line.rstrip())


def _errors() -> Console:
    return Console(stderr=True, highlight=False)


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
