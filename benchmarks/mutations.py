"""Would the tests notice? Deliberate bugs, one at a time in a copy of the project; each must turn a test red.

    python benchmarks/mutations.py [NAME ...] [--all-tests] [--jobs 2]

The bugs are those of `mutants`, in the engine, and of `mutants_of_answers`, in what stands on it. A selection of the
tests of `make test`, with its settings, runs on the copy as it is (the control: all green) and on every mutant of the
engine; on one of the answers those about its own part. `--all-tests` runs all of `make test` instead, which takes
minutes a mutant. A text that is not found exactly once is an error, so that the study cannot outlive the code.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ages
import mutants
import mutants_of_answers
import pytest
from lines import describe_commit
from mutants import SELECTION, STATISTICAL, Mutation
from processes import HIDDEN

import tallbayes as tb
from tallbayes.views.text import table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "mutations.json"
LEFT_OUT = (".git", ".venv", "__pycache__", "build", "dist", "*.html", "*.jsonl")
QUICKLY = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
SELECTION_LIMIT, WHOLE_LIMIT = 900.0, 3600.0
# The mutated copy is not what these are about.
ABOUT_THE_STUDY = "tests/benchmarks/test_mutations.py"
MUTATIONS = mutants.MUTATIONS + mutants_of_answers.MUTATIONS
NAMED = tuple(dict.fromkeys(mutation.name.split(",")[0] for mutation in MUTATIONS))


def tests_of(mutation: Mutation) -> tuple[str, ...]:
    """What is run on it: of the engine the whole selection, which may notice more than was thought of."""
    return SELECTION if mutation in mutants.MUTATIONS else mutation.expected


@dataclass(frozen=True)
class Run:
    """What pytest said: how many tests ran, which were red; seconds by the clock and of the processors; and whether it
    was stopped at its time limit."""

    tests: int
    red: tuple[str, ...]
    seconds: float
    processor_seconds: float
    stopped: bool = False


@dataclass(frozen=True)
class Verdict:
    """A mutation, the tests it turned red, those of them that are statistical, and those expected in vain."""

    mutation: Mutation
    run: Run

    @property
    def statistical(self) -> tuple[str, ...]:
        return tuple(node for node in self.run.red if function_of(node) in STATISTICAL)

    @property
    def missed(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.mutation.expected) - {function_of(node) for node in self.run.red}))

    def record(self) -> dict[str, Any]:
        """As it is stored."""
        bug = {field: getattr(self.mutation, field) for field in ("name", "file", "before", "after")}
        return bug | {
            "killed": bool(self.run.red),
            "num_red": len(self.run.red),
            "num_statistical": len(self.statistical),
            "red": self.run.red,
            "stopped": self.run.stopped,
            "tests": self.run.tests,
            "seconds": self.run.seconds,
            "processor_seconds": self.run.processor_seconds,
        }


def function_of(node: str) -> str:
    """file::function of a test, whatever its parameters."""
    return node.split("[", 1)[0]


def pytest_sessionstart(session: pytest.Session) -> None:
    """This file is a plugin of the runs it starts: no process of theirs may test another package than the copy's."""
    if not Path(tb.__file__).is_relative_to(Path.cwd()):
        pytest.exit(f"expected tallbayes of {Path.cwd()}; got {tb.__file__}", returncode=pytest.ExitCode.INTERNAL_ERROR)


def copy_project(project: Path, folder: Path, mutation: Mutation | None = None) -> None:
    """A project in a folder of its own, with the bug or without."""
    shutil.copytree(project, folder, ignore=shutil.ignore_patterns(*LEFT_OUT))
    if mutation is not None:
        source = folder / "src" / "tallbayes"
        (source / mutation.file).write_text(mutation.applied(source))


def environment_of(copy: Path) -> dict[str, str]:
    """The settings of `make test`; what is compiled is shared by the copies alone, and found by its program."""
    kept = {name: value for name, value in os.environ.items() if name not in HIDDEN}
    return kept | {
        "PYTHONPATH": os.pathsep.join([str(copy / "src"), str(copy / "benchmarks")]),
        "XLA_FLAGS": " ".join(QUICKLY),
        "JAX_COMPILATION_CACHE_DIR": str(copy.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
    }


def run_tests(copy: Path, tests: tuple[str, ...], jobs: int, limit: float) -> Run:
    """Run tests in a copy; an end that is neither green nor red is an error."""
    report = copy / "report.xml"
    options = ["-n", str(jobs), "--dist", "worksteal", "--tb=no", "-m", "not slow", f"--ignore={ABOUT_THE_STUDY}"]
    command = [sys.executable, "-m", "pytest", "-p", "mutations", f"--junitxml={report}", *options, *tests]
    started, before = time.monotonic(), children_seconds()
    with subprocess.Popen(
        command, cwd=copy, env=environment_of(copy), stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return Run(0, (), limit, 0.0, stopped=True)
        finally:
            end_group(process)
    if process.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"expected tests that pass or fail in {copy}; got exit code {process.returncode}:\n{said}")
    seconds = time.monotonic() - started, children_seconds() - before
    return Run(*read_report(report), *(round(each, 1) for each in seconds))


def children_seconds() -> float:
    """Processor seconds of all processes that were started here and have ended."""
    used = os.times()
    return used.children_user + used.children_system


def end_group(process: subprocess.Popen[str]) -> None:
    """End what a run has started and not ended."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def read_report(path: Path) -> tuple[int, tuple[str, ...]]:
    """How many tests ran, and which were red."""
    cases = list(ElementTree.parse(path).iter("testcase"))
    red = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    nodes = {f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}" for case in red}
    return len(cases), tuple(sorted(nodes))


def examine(project: Path, mutation: Mutation | None, tests: tuple[str, ...], jobs: int, limit: float) -> Run:
    """The tests on a copy with the bug, or without any."""
    copy = project.parent / (mutation.name.replace(" ", "-") if mutation else "control")
    copy_project(project, copy, mutation)
    run = run_tests(copy, tests, jobs, limit)
    shutil.rmtree(copy)
    return run


def require_green(control: Run) -> None:
    """Without a bug nothing may be red."""
    if control.red or control.stopped or not control.tests:
        raise RuntimeError(f"expected green tests of the project as it is; got {control}")


def line_of(verdict: Verdict) -> list[str]:
    run, name = verdict.run, verdict.mutation.name
    outcome = "stopped" if run.stopped else "killed" if run.red else "SURVIVES"
    shown = sorted(run.red, key=lambda node: (function_of(node) not in verdict.mutation.expected, node))
    example = shown[0].removeprefix("tests/").split("[")[0] if shown else "-"
    counts = [str(len(run.red)), str(len(verdict.statistical)), f"{run.processor_seconds:.0f}"]
    return [name, outcome, *counts, example]


def study(mutations: list[Mutation], whole: bool, jobs: int) -> list[Verdict]:
    """The control, then every mutation, told and stored as they come."""
    limit = WHOLE_LIMIT if whole else SELECTION_LIMIT
    verdicts, commit = [], describe_commit()
    every = () if whole else tuple(dict.fromkeys(test for mutation in mutations for test in tests_of(mutation)))
    with tempfile.TemporaryDirectory(prefix="mutations-") as scratch:
        # All mutants are of the project as it is now, whoever works on it meanwhile.
        project = Path(scratch).resolve() / "project"
        copy_project(ROOT, project)
        control = examine(project, None, every, jobs, limit)
        require_green(control)
        print(f"control: {control.tests} tests green in {control.seconds:.0f} s", file=sys.stderr, flush=True)
        for mutation in mutations:
            tests = () if whole else tests_of(mutation)
            verdicts.append(Verdict(mutation, examine(project, mutation, tests, jobs, limit)))
            print("  ".join(line_of(verdicts[-1])), file=sys.stderr, flush=True)
            if not whole:
                store(verdicts[-1].record() | {"commit": commit}, jobs)
    return verdicts


def store(record: dict[str, Any], jobs: int) -> None:
    """Put a record among those of the other mutations that there are now."""
    stored = json.loads(RESULTS.read_text())["mutations"] if RESULTS.exists() else []
    records = {each["name"]: each for each in [*stored, record]}
    current = [records[each.name] for each in MUTATIONS if each.name in records]
    document = {"selection": SELECTION, "jobs": jobs, "xla_flags": QUICKLY, "mutations": current}
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    ages.record(RESULTS, ages.renewed(RESULTS.name, [each["name"] for each in current], [record["name"]]))


def chosen(names: list[str]) -> list[Mutation]:
    """The mutations of these names, variants included; all if none is named."""
    found = [each for each in MUTATIONS if not names or each.name in names or each.name.split(",")[0] in names]
    unknown = set(names) - {name for each in found for name in (each.name, each.name.split(",")[0])}
    if unknown:
        raise SystemExit(f"expected names among {', '.join(NAMED)}; got {', '.join(sorted(unknown))}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Would the tests notice these bugs?")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(NAMED)}; all unless given")
    parser.add_argument("--all-tests", action="store_true", help="all tests of `make test`, not the selection")
    parser.add_argument("--jobs", type=int, default=2, help="processes that run tests")
    options = parser.parse_args()
    # The default would end this process alone and leave its tests and its folder behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    mutations = chosen(options.names)
    for mutation in mutations:
        mutation.applied(ROOT / "src" / "tallbayes")
    verdicts = study(mutations, options.all_tests, options.jobs)
    header = ("mutation", "outcome", "red", "statistical", "processor s", "for example")
    print(table(header, [line_of(verdict) for verdict in verdicts]))
    wrong = [verdict.mutation.name for verdict in verdicts if not verdict.run.red or verdict.missed]
    if wrong:
        raise SystemExit(f"survived, or left a test green that was expected to turn red: {'; '.join(wrong)}")


if __name__ == "__main__":
    main()
