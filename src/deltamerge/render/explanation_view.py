"""The content of an explanation, before it is laid out for a terminal or a page."""

from __future__ import annotations

from dataclasses import dataclass

from deltamerge.merge.outcome import MergeExplanation, MergeForecast
from deltamerge.render.plan_view import PlanView, plan_view
from deltamerge.render.printable import count, printable, size
from deltamerge.render.view import one_line, statement_lines


@dataclass(frozen=True)
class ExplanationView:
    """The content of an explanation; `clauses` are row counts and clauses, `failure` an error's message or empty."""

    table: str
    result: str
    statement: str
    warnings: tuple[str, ...]
    failure: str
    clauses: tuple[tuple[str, str], ...]
    plan: PlanView
    facts: tuple[tuple[str, tuple[str, ...]], ...]


def explanation_view(explanation: MergeExplanation) -> ExplanationView:
    explanation = printable(explanation)
    forecast = explanation.forecast
    failure = (forecast.failure or "") if forecast is not None else ""
    clauses = forecast.clauses if forecast is not None and not failure else ()
    return ExplanationView(
        table=explanation.table,
        result=_result(explanation),
        statement=statement_lines(explanation.statement),
        warnings=explanation.warnings,
        failure=failure.strip(),
        clauses=tuple((count(clause.rows, "row"), one_line(clause.text)) for clause in clauses),
        plan=plan_view(explanation.plan),
        facts=_facts(explanation, None if failure else forecast),
    )


def _result(explanation: MergeExplanation) -> str:
    read = f"Nothing was written; version {explanation.version} was read."
    forecast = explanation.forecast
    if forecast is None:
        return read
    if forecast.failure is not None:
        return f"This merge would fail. {read}"
    changed = sum(clause.rows for clause in forecast.clauses)
    return f"{count(changed, 'row') if changed else 'No row'} would change. {read}"


def _facts(explanation: MergeExplanation, forecast: MergeForecast | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    source: tuple[str, ...] = ()
    change: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    if forecast is not None:
        files, to_write = forecast.files_touched, forecast.bytes_to_write
        source = _source(forecast)
        change = (f"{count(files, 'file')} ({size(forecast.bytes_touched)})" if files else "no file",)
        write = (f"about {size(to_write)}" if to_write else "nothing",)
    facts = (
        ("Source", source),
        ("To read", (_files_to_read(explanation), *_rows_to_read(explanation))),
        ("To change", change),
        ("To write", write),
        ("Features", explanation.features),
        ("Conflicts", explanation.conflicts),
    )
    return tuple((label, lines) for label, lines in facts if lines)


def _files_to_read(explanation: MergeExplanation) -> str:
    before, after = explanation.files, explanation.files_to_read
    if before == 0:
        return "nothing: the table has no files"
    files = count(before, "file")
    if after == 0:
        return f"none of the table's {files} ({size(explanation.bytes)})"
    if after == before:
        which = "the table's only file" if before == 1 else f"all of the table's {files}"
        return f"at most {which} ({size(explanation.bytes)})"
    sizes = f"{size(explanation.bytes_to_read)} of {size(explanation.bytes)}"
    return f"at most {after:,} of the table's {files} ({sizes})"


def _rows_to_read(explanation: MergeExplanation) -> tuple[str, ...]:
    rows = explanation.read_predicate
    return (rows,) if explanation.files_to_read and rows != "any row" else ()


def _source(forecast: MergeForecast) -> tuple[str, ...]:
    rows = count(forecast.source_rows, "row")
    if forecast.null_keys == 0 and forecast.repeated_keys == 0 and forecast.source_rows:
        return (f"{rows}; no key is NULL or occurs twice",)
    lines = [rows]
    if forecast.null_keys:
        verbs = "has NULL in a key and matches" if forecast.null_keys == 1 else "have NULL in a key and match"
        lines.append(f"{count(forecast.null_keys, 'row')} {verbs} nothing")
    if forecast.repeated_keys:
        verb = "has" if forecast.repeated_keys == 1 else "have"
        lines.append(f"{count(forecast.repeated_keys, 'row')} {verb} the same key as another row")
    return tuple(lines)
