"""The content of an explanation, before it is laid out for a terminal or a page."""

from __future__ import annotations

from deltamerge.merge.outcome import MergeExplanation, MergeForecast, MergeOutcome
from deltamerge.render.plan_view import plan_view
from deltamerge.render.printable import count, printable, size
from deltamerge.render.view import ClauseLine, PageView, files_read, one_line, report_view, statement_lines


def page_view(data: MergeOutcome | MergeExplanation) -> PageView:
    """Return the content of a report's or an explanation's page."""
    return _explanation_view(data) if isinstance(data, MergeExplanation) else report_view(data)


def _explanation_view(explanation: MergeExplanation) -> PageView:
    explanation = printable(explanation)
    forecast = explanation.forecast
    failure = (forecast.failure or "") if forecast is not None else ""
    clauses = forecast.clauses if forecast is not None and not failure else ()
    return PageView(
        kind="plan",
        heading="Plan of a merge into",
        table=explanation.table,
        result=_result(explanation),
        statement=statement_lines(explanation.statement),
        clauses=tuple(ClauseLine(count(each.rows, "row"), "", "", one_line(each.text)) for each in clauses),
        plan=plan_view(explanation.plan),
        facts=_facts(explanation, None if failure else forecast),
        failure=failure.strip(),
        warnings=explanation.warnings,
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
    files, to_read = explanation.files, explanation.files_to_read
    read = files_read(files, to_read, explanation.bytes, explanation.bytes_to_read)
    return f"at most {read}" if to_read else read


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
