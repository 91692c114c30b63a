"""Figures know their age: files of results say which version of the code they are of, and pages say which is older."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import age_notes
import ages
import pytest
from documents import ROOT
from figures import DRAWN, FIGURES, Figure

TABLE = (
    "## Speed\n\n`make bench-cost` ([cost.json](../benchmarks/results/cost.json)).\n\n| N | s |\n|---|---|\n| 1 | 2 |\n"
)


@pytest.mark.parametrize("name", FIGURES)
def test_every_file_of_results_has_an_age(name: str) -> None:
    assert ages.changed(name) != ["?"], f"run {FIGURES[name].command}, or python benchmarks/ages.py adopt {name}"


def test_every_file_of_results_is_known_with_its_command() -> None:
    found = {path.name for path in ages.RESULTS.glob("*.json") if not path.name.startswith("bench-quick")}
    assert found == set(FIGURES)
    assert all((ages.RESULTS / name).exists() for name in DRAWN)
    targets = (ROOT / "Makefile").read_text()
    for figure in FIGURES.values():
        program, name = figure.command.split()[:2]
        assert f"\n{name}:" in targets if program == "make" else (ROOT / name).exists()


@pytest.mark.parametrize("page", age_notes.PAGES)
def test_tables_name_their_commands_and_pages_say_what_is_old(page: str) -> None:
    text = (ROOT / page).read_text()
    assert [age_notes.wanting(table) for table in age_notes.tables(page, text) if age_notes.wanting(table)] == []
    assert age_notes.noted(page, text) == text, "run make stale-notes"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of results with two parts, measured by the code of a folder."""
    results, source = tmp_path / "results", tmp_path / "source"
    results.mkdir()
    for name in ("rows", "views"):
        (source / name).mkdir(parents=True)
        (source / name / "module.py").write_text('def f(x):\n    """What."""\n    return x\n')
    (results / "cost.json").write_text(json.dumps({"a": {"of": 1}, "b": {"of": 2}}))
    monkeypatch.setattr(ages, "RESULTS", results)
    monkeypatch.setitem(FIGURES, "cost.json", Figure("make bench-cost", ("rows",)))
    monkeypatch.setattr(ages, "digests", lambda _=None: ages.digests_of(source))
    ages.record(results / "cost.json")
    return source


def test_a_word_in_a_comment_ages_nothing_and_neither_does_another_package(small: Path) -> None:
    (small / "rows" / "module.py").write_text('def f(x):  # why\n    """Other words."""\n    return (x)\n')
    (small / "views" / "module.py").write_text("def f(x):\n    return 2 * x\n")
    assert ages.changed("cost.json") == []
    assert age_notes.noted("docs/x.md", TABLE) == TABLE


def test_control_a_changed_file_makes_the_page_red(small: Path) -> None:
    (small / "rows" / "module.py").write_text('def f(x):\n    """What."""\n    return 2 * x\n')
    assert ages.changed("cost.json") == ["rows"]
    noted = age_notes.noted("docs/x.md", TABLE)
    assert "earlier version of the code; `make bench-cost` would" in noted
    assert age_notes.noted("docs/x.md", noted) == noted
    shutil.copy(small / "views" / "module.py", small / "rows" / "module.py")
    assert age_notes.noted("docs/x.md", noted) == TABLE


def test_control_numbers_written_by_hand_have_no_age(small: Path) -> None:
    (ages.RESULTS / "cost.json").write_text(json.dumps({"a": {"of": 1}, "b": {"of": 3}}))
    assert ages.changed("cost.json") == ["?"]


def test_a_part_that_was_not_run_again_stays_old(small: Path) -> None:
    (small / "rows" / "module.py").write_text("def f(x):\n    return 2 * x\n")
    path = ages.RESULTS / "cost.json"
    ages.record(path, ages.renewed("cost.json", ("a", "b"), ["a"]))
    assert ages.changed("cost.json") == ["rows"]
    ages.record(path, ages.renewed("cost.json", ("a", "b"), ["b"]))
    assert ages.changed("cost.json") == []


def test_runs_that_were_added_leave_a_study_as_old_as_its_first(small: Path) -> None:
    old = {"coverage": {"kind": {"0": [1.0]}, "other": {"0": [2.0]}}}
    path = ages.RESULTS / "cost.json"
    ages.record(path, ages.grown("cost.json", {}, old))
    assert ages.changed("cost.json") == []
    (small / "rows" / "module.py").write_text("def f(x):\n    return 2 * x\n")
    new = {"coverage": {"kind": {"0": [1.0], "1": [3.0]}, "other": {"0": [4.0]}}}
    parts = ages.grown("cost.json", old, new)
    assert {name: len(each or ()) for name, each in parts.items()} == {"coverage/kind": 2, "coverage/other": 1}
    ages.record(path, parts)
    assert ages.changed("cost.json") == ["rows"]


def test_lines_have_the_method_they_were_run_with(small: Path) -> None:
    path = ages.RESULTS / "cost.json"
    now = ages.stamp(path.with_suffix(".jsonl"))
    ages.record(path, {"a": ages.of_lines([now, now])})
    assert ages.changed("cost.json") == []
    ages.record(path, {"a": ages.of_lines([now, {"commit": "before methods were told"}])})
    assert ages.changed("cost.json") == ["rows"]


@pytest.mark.parametrize("missing", ["`make bench-cost`", "([cost.json](../benchmarks/results/cost.json))"])
def test_control_a_table_without_command_or_file_is_noticed(missing: str) -> None:
    (table,) = age_notes.tables("docs/x.md", TABLE)
    assert age_notes.wanting(table) is None
    (table,) = age_notes.tables("docs/x.md", TABLE.replace(missing, ""))
    assert "name the" in str(age_notes.wanting(table))
