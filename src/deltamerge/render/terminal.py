"""Reports and explanations for a terminal."""

from __future__ import annotations

import io
import re

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from deltamerge.merge.outcome import MergeExplanation, MergeOutcome
from deltamerge.render.explanation_view import page_view
from deltamerge.render.plan_view import PlanNode, PlanView
from deltamerge.render.view import ClauseLine, PageView, TimeLine

BAR = 20
"""The width of the whole time's bar, in characters."""

_KEYWORDS = re.compile(
    r"(?<![.`\w])(?:MERGE|WITH SCHEMA EVOLUTION|INTO|USING|ON|WHEN|NOT|MATCHED|BY SOURCE|BY TARGET|AND|OR"
    r"|THEN|UPDATE|SET|DELETE|INSERT|VALUES|DO NOTHING|AS)(?![.`\w])",
    re.IGNORECASE,
)
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_COLOURS = {"update": "yellow", "delete": "red", "insert": "green", "do_nothing": "default"}


def render_terminal(data: MergeOutcome | MergeExplanation) -> RenderableType:
    """Return a report or an explanation as a rich console prints it: at the console's width, also without colour."""
    view = page_view(data)
    style = "bold green" if view.changed else "bold red" if view.failure else "bold"
    parts: list[RenderableType] = [
        Text.assemble(f"{view.heading} ", (view.table, "bold"), overflow="fold"),
        Text(view.result, style=style),
        Text(),
        Padding(_statement(view.statement), (0, 0, 0, 4)),
    ]
    if view.failure:
        parts += [Text(), _marked("Error", "bold red", (view.failure,))]
    if view.warnings:
        parts += [Text(), _marked("Warning", "bold yellow", view.warnings)]
    if view.clauses:
        parts += [Text(), _clauses(view.clauses)]
    if view.plan is not None:
        parts += [Text(), _plan(view.plan)]
    if view.facts:
        parts += [Text(), _facts(view.facts)]
    if view.times:
        parts += [Text(), _times(view)]
    return Group(*parts)


def to_text(page: RenderableType, width: int = 100) -> str:
    """Return a page as plain text: lines of at most `width` characters, without colour or spaces at their ends."""
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(page)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().split("\n"))


def _statement(statement: str) -> Text:
    text = Text(statement, no_wrap=False, overflow="fold")
    text.highlight_regex(_KEYWORDS, "bold")
    return text


def _clauses(clauses: tuple[ClauseLine, ...]) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for clause in clauses:
        colour, done = _COLOURS.get(clause.action, "default"), f"{clause.done} " if clause.done else ""
        grid.add_row(Text(clause.rows, "bold"), Text(done, colour), Text(clause.when))
    return grid


def _plan(plan: PlanView) -> Tree:
    tree = Tree(Text.assemble("Plan: ", (plan.name, "bold")), guide_style="dim")
    for node in plan.nodes:
        branch = tree.add(_node(node))
        for choice, reason in node.declined:
            branch.add(Text(f"declined {choice}: {reason}", "dim"))
    return tree


def _node(node: PlanNode) -> Text:
    text = Text.assemble(f"{node.title}: ", (node.choice, "bold"))
    if node.done:
        text.append(f"\n{node.done}", "cyan")
    return text.append(f"\n{node.reason}")


def _marked(mark: str, style: str, messages: tuple[str, ...]) -> Table:
    grid = _labelled()
    for message in messages:
        grid.add_row(Text(mark, style), Text(message))
    return grid


def _facts(facts: tuple[tuple[str, tuple[str, ...]], ...]) -> Table:
    grid = _labelled()
    for label, lines in facts:
        for number, line in enumerate(lines):
            grid.add_row(Text("" if number else label, "dim"), Text(line))
    return grid


def _times(view: PageView) -> Table:
    steps = Table.grid(padding=(0, 2))
    steps.add_column(overflow="fold")
    steps.add_column(justify="right", no_wrap=True)
    steps.add_column(no_wrap=True, min_width=BAR)
    for line in view.times:
        steps.add_row(Text(line.what), Text(line.took), Text(_bar(line), "blue"))
    grid = _labelled()
    grid.add_row(Text("Time", "dim"), Text(view.total))
    grid.add_row(Text(), steps)
    return grid


def _labelled() -> Table:
    grid = Table.grid(padding=(0, 2))
    # As wide as the longest label, so that the report's parts line up.
    grid.add_column(no_wrap=True, min_width=len("Change data"))
    grid.add_column(overflow="fold")
    return grid


def _bar(line: TimeLine) -> str:
    eighths = max(1, round(line.share * BAR * 8))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
