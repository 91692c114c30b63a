"""The documentation site: every public name and every page has its place, and no link leaves it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import ROOT

import tallbayes as tb

DOCS = ROOT / "docs"
HOOKS: dict[str, Any] = runpy.run_path(str(DOCS / "site" / "hooks.py"))
# Of every decision there is a page, which a list leads to.
LISTED = "decisions"


def configured() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "mkdocs.yml").read_text()))


def pages(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for each in (nav.values() if isinstance(nav, dict) else nav) for page in pages(each)]


def test_every_public_name_stands_once_in_the_reference() -> None:
    text = "".join(path.read_text() for path in sorted((DOCS / "reference").glob("*.md")))
    named = re.findall(r"^::: tallbayes\.(\w+)$", text, re.MULTILINE)
    assert len(set(named)) == len(named)
    # Another spelling of a name that is there.
    assert set(tb.__all__) - set(named) == {"Randomized"}
    assert set(named) <= set(tb.__all__)


def test_every_page_is_in_the_navigation() -> None:
    found = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert {page for page in found if not page.startswith(LISTED)} | {f"{LISTED}/index.md"} == set(
        pages(configured()["nav"])
    )


def test_the_list_of_decisions_has_them_all() -> None:
    listed = HOOKS["list_of_decisions"](DOCS / LISTED)
    assert re.findall(r"\]\((.*?)\)", listed) == [path.name for path in sorted((DOCS / LISTED).glob("0*.md"))]


@pytest.mark.parametrize(
    ("page", "written", "shown"),
    [
        ("a.md", "[x.json](../benchmarks/x.json)", "`benchmarks/x.json`"),
        ("a.md", "[the demo](../examples/demo.py)", "the demo (`examples/demo.py`)"),
        ("b/a.md", "[x](../../src/x.py#L1)", "x (`src/x.py`)"),
        ("b/a.md", "![cost](../../benchmarks/cost.svg)", "![cost](../pictures/outside/cost.svg)"),
        ("a.md", "[b](b.md) [c](#c) ![d](pictures/d.svg)", "[b](b.md) [c](#c) ![d](pictures/d.svg)"),
    ],
)
def test_links_that_leave_the_site_are_named(page: str, written: str, shown: str) -> None:
    assert HOOKS["within"](written, page) == shown


def test_pictures_from_outside_are_taken_along() -> None:
    shown = {page: HOOKS["pictures"](page, (DOCS / page).read_text()) for page in ("performance.md", "calibration.md")}
    assert all(shown.values())
    assert all((ROOT / path).exists() for each in shown.values() for path in each)


def test_the_site_is_built_into_a_folder_that_is_no_part_of_it() -> None:
    assert Path(configured()["site_dir"]).parts[0] in (ROOT / ".gitignore").read_text().replace("/", " ").split()
