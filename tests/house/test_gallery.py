"""The gallery: what its pages show is what their code printed and drew, and the code still runs."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT, blocks_of, words_of

FOLDER = ROOT / "docs" / "gallery"
GALLERY: dict[str, Any] = runpy.run_path(str(FOLDER / "execute.py"))
PAGES: list[Path] = GALLERY["pages"]()
# Run by the fast tests too: the smallest table, which needs no compiler to be fitted.
QUICK = "claims"
RUN = [pytest.param(page, marks=() if page.stem == QUICK else pytest.mark.slow, id=page.stem) for page in PAGES]
MOST_BYTES = 150_000


def pictures(text: str) -> set[str]:
    return set(GALLERY["SHOWN"].findall(text))


def printed(text: str) -> list[list[str]]:
    return [words_of(block.text) for block in blocks_of(text) if block.language == "text"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_its_code_printed_and_drew(page: Path) -> None:
    text = page.read_text()
    assert GALLERY["is_current"](text), f"run: make gallery, or python docs/gallery/execute.py {page.stem}"
    assert pictures(text)
    assert "pip install" in text or "come with scikit-learn" in text


def test_control_changes_of_code_output_and_pictures_are_noticed(tmp_path: Path) -> None:
    text, is_current = (FOLDER / f"{QUICK}.md").read_text(), GALLERY["is_current"]
    assert is_current(text.replace("Are they the bad risk?", "Are they?"))
    changes = [
        ("tolerance=0.01", "tolerance=0.02"),
        ("converged: every", "converged: no"),
        ("claims.svg)", "visits.svg)"),
    ]
    for old, new in changes:
        assert old in text
        assert not is_current(text.replace(old, new, 1))


def test_pictures_are_small_and_all_are_shown() -> None:
    shown = set().union(*(pictures(page.read_text()) for page in PAGES))
    files = {path.name: path.stat().st_size for path in (FOLDER / "pictures").iterdir()}
    assert shown == set(files)
    assert max(files.values()) < MOST_BYTES


def test_the_index_leads_to_every_page_with_its_picture() -> None:
    text = (FOLDER / "index.md").read_text()
    assert len(PAGES) >= 8
    for page in PAGES:
        assert f"]({page.name})" in text
        assert pictures(page.read_text()) & pictures(text)


@pytest.mark.parametrize("page", RUN)
def test_pages_run_and_print_what_they_show(page: Path, tmp_path: Path) -> None:
    text = GALLERY["run_page"](page, tmp_path)
    assert printed(text) == printed(page.read_text())
    assert all((tmp_path / name).stat().st_size for name in pictures(text))
