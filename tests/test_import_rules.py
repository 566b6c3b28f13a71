"""Lower modules never import higher ones, and some libraries belong to one room only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("sqlstates",),
    ("exceptions", "version"),
    ("workers",),
    ("spark.config", "merge.plan", "merge.limits"),
    ("merge.outcome",),
    ("storage",),
    ("log",),
    ("skipping",),
    ("txn",),
    ("sql",),
    ("spark",),
    ("scan",),
    ("write",),
    ("merge.statement",),
    ("merge.analysis", "merge.steps"),
    ("merge.source", "merge.output"),
    ("merge.planning",),
    ("merge.executors",),
    ("merge.result",),
    ("merge.begin", "merge.command", "merge.execute_plan", "merge.preparation", "merge.reruns"),
    ("merge.explain", "merge"),
    ("commands",),
    ("data_source",),
    ("render",),
    ("api",),
    ("tables",),
    ("recipes",),
    ("streaming",),
    ("as_delta", "as_jar"),
    ("",),
    ("cli",),
)
"""From the bottom up; a module may import what stands in its own line or below. A room stands for all its modules,
except those that have a line of their own; the empty name is the package itself."""

OPTIONAL = {
    "typer",
    "IPython.display",
    "hdfs_native",
    "obstore",
    "obstore.exceptions",
    "obstore.store",
    "deltamerge.cli.app",
}
"""May be imported inside functions: where they are missing, that is said in words."""

ONLY_IN = {
    "rich": ("render", "cli"),
    "jinja2": ("render",),
    "IPython": ("render",),
    "typer": ("cli",),
    "hdfs_native": ("storage", "workers"),
    "obstore": ("storage", "txn", "workers.obstore_client"),
    "deltalake": (),
    "delta": (),
    "pytest": (),
}
"""Libraries by the rooms that may import them."""

WITHOUT_SPARK = (
    "storage",
    "log",
    "skipping",
    "txn",
    "sql",
    "render",
    "merge.outcome",
    "merge.plan",
    "spark.config",
)
"""Rooms that import no PySpark, but for the types in their signatures."""

SPARK_ALLOWED = {"sql": {"pyspark.errors"}, "render": set()}


@dataclass(frozen=True)
class Import:
    """One import statement.

    Args:
        importer: The module that it stands in, without the package's name.
        imported: The module that it names, in full.
        line: Its line.
        typing_only: Whether it stands under ``if TYPE_CHECKING``.
        in_function: Whether it stands inside a function.
    """

    importer: str
    imported: str
    line: int
    typing_only: bool
    in_function: bool

    def __str__(self) -> str:
        return f"{self.importer or '__init__'} line {self.line} imports {self.imported}"


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE / "deltamerge").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports_of(path: Path) -> Iterator[Import]:
    importer = module_name(path)

    def visit(node: ast.AST, *, typing_only: bool, in_function: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            names: list[str] = []
            line = getattr(child, "lineno", 0)
            if isinstance(child, ast.Import):
                names = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}: line {child.lineno}: relative import"
                assert child.module is not None
                # `from deltamerge.sql import names` names a module, `from deltamerge.sql.names import x` does not.
                for alias in child.names:
                    inner = f"{child.module}.{alias.name}"
                    is_module = inner.removeprefix("deltamerge.") in MODULES
                    names.append(inner if is_module else child.module)
            for name in dict.fromkeys(names):
                yield Import(importer, name, line, typing_only, in_function)
            checks_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from visit(child, typing_only=typing_only or checks_types, in_function=in_function or is_function)

    return visit(ast.parse(path.read_text(encoding="utf-8")), typing_only=False, in_function=False)


FILES = sorted((SOURCE / "deltamerge").rglob("*.py"))
MODULES = frozenset(map(module_name, FILES))


@cache
def all_imports() -> list[Import]:
    return [found for path in FILES for found in imports_of(path)]


def is_in(module: str, room: str) -> bool:
    return module == room or (room != "" and module.startswith(room + "."))


def layer(module: str) -> int:
    """Gives the number of a module's layer: of the longest name that fits."""
    found = [(len(room), number) for number, rooms in enumerate(LAYERS) for room in rooms if is_in(module, room)]
    if not found:
        raise AssertionError(f"deltamerge.{module} has no place in LAYERS: give it one")
    return max(found)[1]


def report(broken: list[Import]) -> None:
    assert not broken, "\n".join(str(found) for found in broken)


@pytest.mark.parametrize("path", FILES, ids=[module_name(path) or "__init__" for path in FILES])
def test_every_module_has_a_layer(path: Path) -> None:
    layer(module_name(path))


def test_lower_modules_never_import_higher_ones() -> None:
    own = [found for found in all_imports() if found.imported.split(".")[0] == "deltamerge"]
    assert own
    report(
        [
            found
            for found in own
            if layer(found.imported.removeprefix("deltamerge").removeprefix(".")) > layer(found.importer)
        ]
    )


def test_the_package_itself_is_imported_by_the_command_line_only() -> None:
    report([found for found in all_imports() if found.imported == "deltamerge" and not is_in(found.importer, "cli")])


def test_renderings_know_of_the_merge_only_its_outcome() -> None:
    report(
        [
            found
            for found in all_imports()
            if is_in(found.importer, "render")
            and found.imported.startswith("deltamerge.")
            and not found.imported.startswith("deltamerge.render.")
            and found.imported not in ("deltamerge.merge.outcome", "deltamerge.merge.plan")
        ]
    )


def test_libraries_stay_in_their_rooms() -> None:
    report(
        [
            found
            for found in all_imports()
            if (library := found.imported.split(".")[0]) in ONLY_IN
            and not any(is_in(found.importer, room) for room in ONLY_IN[library])
        ]
    )


def test_these_rooms_do_without_spark() -> None:
    report(
        [
            found
            for found in all_imports()
            if found.imported.split(".")[0] == "pyspark"
            and not found.typing_only
            and any(is_in(found.importer, room) for room in WITHOUT_SPARK)
            and found.imported not in SPARK_ALLOWED.get(found.importer.split(".")[0], set())
        ]
    )


def test_imports_stand_at_the_top() -> None:
    report([found for found in all_imports() if found.in_function and found.imported not in OPTIONAL])


def test_what_tasks_run_imports_nothing_of_the_package_but_itself() -> None:
    report(
        [
            found
            for found in all_imports()
            if is_in(found.importer, "workers")
            and found.imported.startswith("deltamerge.")
            and not found.imported.startswith("deltamerge.workers.")
        ]
    )
