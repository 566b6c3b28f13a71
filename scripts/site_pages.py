"""Pages of the docs site: the README is its first one, and links to files that are no pages become their names."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:  # noqa: ANN401
    """Add the README as the first page."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=LINK.sub(_from_docs, readme)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401
    """Replace links to what is not on the site."""
    folder = posixpath.dirname(page.file.src_uri)

    def replaced(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, link.group(2)))
        if "://" in link.group(2) or (path.startswith("docs/") and (ROOT / path).is_file()) or path == "docs/index.md":
            return link.group()
        text = link.group(1).strip("`")
        return f"{text} (`{path}`)" if posixpath.basename(path) != text else f"`{path}`"

    return LINK.sub(replaced, markdown)


def _from_docs(link: re.Match[str]) -> str:
    """Turn a link of the README, which is beside the folder of the docs, into one from inside of it."""
    path = link.group(2)
    if "://" in path:
        return link.group()
    inside = path.removeprefix("docs/") if path.startswith("docs/") else f"../{path}"
    return f"[{link.group(1)}]({inside}{link.group(3) or ''})"
