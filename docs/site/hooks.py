"""Hooks of the documentation site: what pages lead to outside the site, and the list of decisions.

    [mixed.json](../benchmarks/results/mixed.json)   ->   `benchmarks/results/mixed.json`
    [the demo](../examples/demo.py)                  ->   the demo (`examples/demo.py`)
    ![cost](../benchmarks/results/cost.svg)          ->   the same picture, taken along

In the repository those links lead to the files; the site has no address of the repository.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)]*)?\)")
TAKEN_ALONG = "pictures/outside"
DECISIONS = """# Decisions

Why, where there was a choice: what was chosen, what was measured, what speaks against it.

"""


def outside(page: str, target: str) -> str | None:
    """From the root, the file that a page within docs leads to; None where that is in the site."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    return None if path.startswith("docs/") else path


def named(text: str, path: str) -> str:
    return f"`{path}`" if text.strip("`") in (path, posixpath.basename(path)) else f"{text} (`{path}`)"


def within(markdown: str, page: str) -> str:
    """A page's text without links that leave the site."""

    def replaced(found: re.Match[str]) -> str:
        path = outside(page, found[3])
        if path is None:
            return found[0]
        if not found[1]:
            return named(found[2], path)
        taken = posixpath.relpath(f"{TAKEN_ALONG}/{posixpath.basename(path)}", posixpath.dirname(page) or ".")
        return f"![{found[2]}]({taken})"

    return LINK.sub(replaced, markdown)


def pictures(page: str, markdown: str) -> set[str]:
    """From the root, those that a page shows and that are not in the site."""
    paths = {outside(page, found[3]) for found in LINK.finditer(markdown) if found[1]}
    return {path for path in paths if path is not None}


def list_of_decisions(folder: Path) -> str:
    titles = {note.name: note.read_text().partition("\n")[0].lstrip("# ") for note in sorted(folder.glob("0*.md"))}
    return DECISIONS + "".join(f"- [{title}]({name})\n" for name, title in titles.items())


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    shown: set[str] = set()
    for page in files.documentation_pages():
        shown |= pictures(page.src_uri, page.content_string)
    for path in sorted(shown):
        taken = f"{TAKEN_ALONG}/{posixpath.basename(path)}"
        files.append(File.generated(config, taken, abs_src_path=str(ROOT / path)))
    listed = list_of_decisions(Path(config["docs_dir"]) / "decisions")
    files.append(File.generated(config, "decisions/index.md", content=listed))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return within(markdown, page.file.src_uri)
