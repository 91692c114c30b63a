"""The mutation study can be run as it stands, and its record is of the mutations that it lists."""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path
from typing import Any

import mutations
import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tallbayes"


every = pytest.mark.parametrize("mutation", mutations.MUTATIONS, ids=lambda mutation: mutation.name)


@cache
def functions(file: str) -> dict[str, ast.FunctionDef]:
    tree = ast.parse((ROOT / file).read_text())
    return {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}


def is_slow(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(each) == "pytest.mark.slow" for each in function.decorator_list)


def require_test(node: str) -> None:
    """A function of that name is in that file, and `make test` runs it."""
    file, _, name = mutations.function_of(node).partition("::")
    assert (ROOT / file).exists(), node
    assert not name or (name in functions(file) and not is_slow(functions(file)[name])), node


@every
def test_a_mutation_applies_and_leaves_python_behind(mutation: Any) -> None:
    text = mutation.applied(SOURCE)
    assert text != (SOURCE / mutation.file).read_text()
    ast.parse(text)


@every
def test_what_it_is_expected_to_turn_red_is_run(mutation: Any) -> None:
    assert mutation.expected
    chosen = {mutations.function_of(node) for node in mutations.tests_of(mutation)}
    for node in mutation.expected:
        require_test(node)
        assert node in chosen or node.split("::")[0] in chosen


@pytest.mark.parametrize("node", mutations.SELECTION + mutations.STATISTICAL)
def test_selected_tests_exist(node: str) -> None:
    require_test(node)


def test_the_kinds_that_are_asked_for_are_there() -> None:
    names = [mutation.name for mutation in mutations.MUTATIONS]
    assert len(set(names)) == len(names)
    assert len(mutations.mutants_of_answers.MUTATIONS) >= 20


@pytest.mark.parametrize("before", ["no such text", "import"])
def test_control_a_text_that_is_not_there_once_is_refused(before: str) -> None:
    lost = mutations.Mutation("lost", "sampler/levels.py", before, "", ())
    with pytest.raises(ValueError, match=r"lost: expected the text once in sampler/levels\.py; got it \d+ times"):
        lost.applied(SOURCE)


@pytest.mark.parametrize("node", ["tests/sampler/test_paths.py::test_nothing", "tests/test_none.py"])
def test_control_a_test_that_does_not_exist_is_noticed(node: str) -> None:
    with pytest.raises(AssertionError, match="tests/"):
        require_test(node)


def test_control_a_slow_test_is_noticed() -> None:
    with pytest.raises(AssertionError, match="unknown_noise"):
        require_test("tests/model/test_families.py::test_unknown_noise_against_its_closed_form")


def test_it_runs_with_the_settings_of_make_test() -> None:
    makefile = (ROOT / "Makefile").read_text()
    stated = makefile.split("QUICKLY :=")[1].split("\n\n")[0].replace("\\\n", " ")
    assert tuple(stated.split()) == mutations.QUICKLY


def test_the_record_is_of_these_mutations_and_none_survived() -> None:
    recorded = {each["name"]: each for each in json.loads(mutations.RESULTS.read_text())["mutations"]}
    assert set(recorded) == {mutation.name for mutation in mutations.MUTATIONS}
    for mutation in mutations.MUTATIONS:
        record = recorded[mutation.name]
        assert (record["before"], record["after"]) == (mutation.before, mutation.after)
        red = {mutations.function_of(node) for node in record["red"]}
        assert set(mutation.expected) <= red, mutation.name


def test_a_report_is_read(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(
        '<testsuites><testsuite><testcase classname="tests.test_a" name="test_b[x-1]"><failure/></testcase>'
        '<testcase classname="tests.test_a" name="test_c"/><testcase classname="tests.test_d" name="test_e"><error/>'
        "</testcase></testsuite></testsuites>"
    )
    red = ("tests/test_a.py::test_b[x-1]", "tests/test_d.py::test_e")
    assert mutations.read_report(tmp_path / "report.xml") == (3, red)
