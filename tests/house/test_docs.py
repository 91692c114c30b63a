"""The documents are true: their code runs, what they name exists, and what exists is named.

Blocks of code run in order in one namespace for each document; a text block after a block of code is what it prints.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from documents import NUMBER, ROOT, blocks_of, run_blocks

import tallbayes as tb

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GUIDES = [f"docs/{name}.md" for name in ("index", "getting-started", "reading-the-answer", "methods", "scale")]
LONGER = [
    pytest.param(f"docs/{name}.md", marks=pytest.mark.slow)
    for name in ("choosing", "how-it-works", "when-not", "workflow")
]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", *GUIDES, *LONGER])
def test_python_blocks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A worked case reads the data of the examples.
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    run_blocks((ROOT / name).read_text(), name)


def test_control_blocks_that_fail_are_noticed() -> None:
    run_blocks("```python\na = 1\n```\n\n```python\nprint(a, 'b')\n```\n\n```text\n2 b\n```\n", "")
    with pytest.raises(ZeroDivisionError):
        run_blocks("```python\n1 / 0\n```\n", "")
    with pytest.raises(AssertionError):
        run_blocks("```python\nprint('a')\n```\n\n```text\nb\n```\n", "")


def test_the_first_example_is_short_and_its_output_is_shown() -> None:
    _, example, output = blocks_of((ROOT / "README.md").read_text())[:3]
    assert (example.language, output.language) == ("python", "text")
    assert len([line for line in example.text.splitlines() if line.strip()]) <= 12
    # The posterior means shown lie in the intervals shown below them.
    value, lower, upper = np.array(NUMBER.findall(output.text)[:9], float).reshape(3, 3)
    assert np.all((lower < value) & (value < upper))


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 200


def make_targets() -> list[str]:
    return re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_readme_names_the_two_commands(target: str) -> None:
    assert target in make_targets()
    assert f"make {target}" in (ROOT / "README.md").read_text()


def test_every_target_is_in_make_help() -> None:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(["make", "help"], cwd=ROOT, env=outside, capture_output=True, text=True, check=True)
    described = set(re.findall(r"^make ([\w-]+) ", done.stdout, re.MULTILINE))
    assert described == set(make_targets()) - {"help"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_documents_are_targets(document: Path) -> None:
    assert set(re.findall(r"`make ([\w-]+)`", document.read_text())) <= set(make_targets())


@pytest.mark.parametrize("name", tb.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    changelog = ROOT / "CHANGELOG.md"
    texts = [path.read_text() for path in DOCUMENTS if path != changelog]
    assert any(re.search(rf"(?:tb\.|`){name}\b", text) for text in texts)


@cache
def names_in(path: Path) -> set[str]:
    """Names that a module defines: functions, classes, methods as Class.method, and constants."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def missing_references(document: str) -> list[str]:
    """Files in backquotes, `file::name`, and `name` in `file`, that do not exist."""
    files = re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w./-]+)(?:::[\w.]+)?`", document)
    missing = [file for file in files if not (ROOT / file).exists()]
    pairs = re.findall(r"`((?:src|tests)/[\w/]+\.py)::([\w.]+)`", document)
    pairs += [
        (file, name) for name, file in re.findall(r"`([\w.]+)`(?:\s+in)\s+`((?:src|tests)/[\w/]+\.py)`", document)
    ]
    present = {file: names_in(ROOT / file) for file, _ in pairs if file not in missing}
    return missing + [f"{file}::{name}" for file, name in pairs if name not in present.get(file, {name})]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_documents_refer_to_exists(document: Path) -> None:
    assert missing_references(document.read_text()) == []


def test_control_references_to_nothing_are_noticed() -> None:
    assert (
        missing_references(
            "`src/tallbayes/sampler/paths.py::sample_path`, `Ladder` in `src/tallbayes/estimator/ladder.py`"
        )
        == []
    )
    for text in (
        "`src/tallbayes/nothing.py`",
        "`src/tallbayes/sampler/paths.py::nothing`",
        "`src/tallbayes/estimator/ladder.py::Ladder.nothing`",
        "`tests/nothing.py::test_nothing`",
        "`nothing` in\n`src/tallbayes/estimator/ladder.py`",
    ):
        assert len(missing_references(text)) == 1


def test_every_equation_has_its_code_and_its_test() -> None:
    rows = [line for line in (ROOT / "docs" / "maths.md").read_text().splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.endswith("| code | test |")]
    assert len(rows) > 40
    for row in rows:
        _, code, test = row.strip("| ").split(" | ")
        assert "`src/tallbayes/" in code
        assert "`tests/" in test or test == "none yet"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_are_free_of_machine_paths_and_registries(document: Path) -> None:
    text = document.read_text()
    assert not re.search(r"(?<![\w.])/(?:work|tmp|root|home)\b", text)
    assert not re.search(r"pypi\.|pythonhosted\.|anaconda\.", text)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_local_links_resolve(document: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose) if "://" not in link]
    assert [link for link in links if not (document.parent / link).exists()] == []
