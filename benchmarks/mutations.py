"""Would the tests notice? Deliberate bugs, one at a time in a copy of the project; each must turn a test red.

    python benchmarks/mutations.py [NAME ...] [--all-tests] [--jobs 2]

A mutation replaces one piece of text in one file of src/tallbayes. The same tests, a selection of those of `make test`
with its settings, run on the copy as it is (the control: all green) and on every mutant. `--all-tests` runs all of
`make test` instead, which takes minutes a mutant. A text that is not found exactly once is an error, so that the study
cannot outlive the code it is about.

Tests are of two kinds. Exact ones compare numbers to rounding. Statistical ones hold samples against a closed form,
quadrature or a rate, and would notice a bug that no one thought of in a formula that is written but once.

That the two coarse paths of the antithetic coupling trade their batches is no bug: their mean is the same. So the batch
that is swapped here is one that goes to both of them, or twice to the fine path.
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
import pytest
from lines import describe_commit
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

LAW = "tests/laws/test_telescoping.py::test_fine_and_coarse_paths_have_the_exact_law"
POSTERIOR = "tests/laws/test_telescoping_anchored.py::test_levels_telescope_to_the_posterior"
DECAY = "tests/laws/test_telescoping_anchored.py::test_differences_vary_less_and_less"
ORDER = "tests/laws/test_orders.py::test_antithetic_is_of_order_two"
STEP_LAW = "tests/laws/test_exponential.py::test_the_ornstein_uhlenbeck_step_has_its_law"
STAYS = "tests/laws/test_exponential.py::test_paths_stay_in_the_gaussian_they_start_from"
STOPS = "tests/sampler/test_stops.py::test_coarse_stops_have_the_law_of_fine_ones_a_level_below"
CONTROLLED = "tests/laws/test_telescoping_controlled.py::test_controlled_levels_telescope_to_the_posterior"
FORMS = "tests/sampler/test_control.py::test_means_are_those_of_the_closed_forms"
UNTAMED = "tests/sampler/test_control.py::test_a_tamed_path_leaves_the_control_as_it_is"
STATISTICAL = (LAW, POSTERIOR, DECAY, ORDER, STEP_LAW, STAYS, STOPS, CONTROLLED, FORMS, UNTAMED)
BY_HAND = "tests/sampler/test_control.py::test_means_by_hand"
AVERAGES = "tests/anchor/test_expansion.py::test_of_a_gaussian_posterior_they_are_exact"

EQUATIONS = "tests/sampler/test_paths.py::test_paths_are_what_the_equations_say"
SLABS = "tests/sampler/test_slabs.py::test_a_batch_in_slabs_is_the_sum_over_its_rows"
UNBIASED = "tests/sampler/test_slabs.py::test_batches_are_unbiased"
REMAINDER = "tests/sampler/test_slabs.py::test_the_whitened_remainder_is_the_gradient_without_its_gaussian_part"
TWO_STEPS = "tests/laws/test_exponential.py::test_two_steps_are_one_step_of_twice_the_size"
GAUSSIAN = "tests/laws/test_exponential.py::test_a_gaussian_posterior_is_exact_at_any_step"
ANCHOR = "tests/anchor/test_anchor.py::test_linear_regression_has_its_closed_form"
FAMILY = "tests/model/test_families.py::test_a_family_is_the_model_written_by_hand"
JACOBIAN = "tests/model/test_constraints.py::test_the_jacobian_is_the_determinant_of_the_derivative"
CANCELS = "tests/house/test_moments.py::test_variance_does_not_cancel_far_from_zero"
RARE_ROW = "tests/laws/test_rows_that_matter.py::test_rows_that_decide_are_read"
UNITS = "tests/anchor/test_tails.py::test_the_gaussian_levels_error_has_its_unit"
MERGES = "tests/house/test_moments.py::test_merge_equals_numpy_for_any_split_and_grouping"

CODES = "tests/model/test_indexed.py::test_codes_stand_for_columns"
ARROW = "tests/model/test_indexed.py::test_the_arrow_of_a_layout_is_its_curvature"
HARD_LEVEL = "tests/formula/test_rare_levels.py::test_a_hard_level_fails_alone"

REPLACED, DISTINCT = "sampling=WithReplacement()", "sampling=WithoutReplacement()"
PLAIN_BLEND = "partner=<class 'tallbayes.sampler.gradients.Plain'>"
SELECTION = (
    f"{LAW}[Full(batch_size=None)-Antithetic()]",
    f"{LAW}[Plain(batch_size=2, {REPLACED})-Antithetic()]",
    f"{LAW}[Blend(batch_size=2, {DISTINCT}, {PLAIN_BLEND}, radius=0.5)-Antithetic()]",
    f"{POSTERIOR}[Taylor(batch_size=1, sampling=Blocks())-Antithetic()-False]",
    f"{POSTERIOR}[Plain(batch_size=1, sampling=Blocks())-Antithetic()-True]",
    f"{POSTERIOR}[Blend(batch_size=3, {DISTINCT}, {PLAIN_BLEND}, radius=2.0)-Antithetic()-False]",
    DECAY,
    f"{ORDER}[taylor-512]",
    STEP_LAW,
    STAYS,
    STOPS,
    f"{EQUATIONS}[Taylor(batch_size=3, {REPLACED})-Antithetic()-Euler()]",
    f"{EQUATIONS}[Blend(batch_size=3, {REPLACED}, {PLAIN_BLEND}, radius=1.5)-Antithetic()-Euler()]",
    SLABS,
    UNBIASED,
    REMAINDER,
    TWO_STEPS,
    GAUSSIAN,
    ANCHOR,
    f"{FAMILY}[linear-intercept]",
    JACOBIAN,
    "tests/house/test_moments.py",
    f"{RARE_ROW}[category_of_one_row]",
    f"{UNITS}[0.0001]",
    f"{CONTROLLED}[Taylor(batch_size=1, sampling=Blocks())-Antithetic()-False]",
    FORMS,
    UNTAMED,
    BY_HAND,
    AVERAGES,
    CODES,
    ARROW,
    HARD_LEVEL,
)


@dataclass(frozen=True)
class Mutation:
    """A bug: `before`, found exactly once in a file of src/tallbayes, becomes `after`. The tests that must turn red are
    `expected`, as file::function."""

    name: str
    file: str
    before: str
    after: str
    expected: tuple[str, ...]

    def applied(self, source: Path) -> str:
        """The file's text with the bug in it."""
        text = (source / self.file).read_text()
        if text.count(self.before) != 1:
            raise ValueError(
                f"{self.name}: expected the text once in {self.file}; got it {text.count(self.before)} times. "
                f"Try the lines as they read now in place of\n{self.before}"
            )
        return text.replace(self.before, self.after)


NAMED = (
    "noise-scale",
    "batch-factor",
    "coarse-reuses-fine-state",
    "window-off-by-one",
    "biased-blend",
    "wrong-hessian",
    "swapped-antithetic-batch",
    "dropped-jacobian",
    "coarse-start-from-wrong-law",
    "raw-second-moments-float32",
    "listing-switched-off",
    "sd-error-in-the-wrong-unit",
    "control",
    "balance",
    "codes-off-by-one",
    "slow-parameter-keeps-its-error",
)

MUTATIONS = (
    Mutation(
        "noise-scale",
        "sampler/dynamics.py",
        "return np.array([step, np.sqrt(2 * step)])",
        "return np.array([step, np.sqrt(step)])",
        (LAW, EQUATIONS),
    ),
    Mutation(
        "noise-scale, to first order in h",
        "sampler/dynamics.py",
        "np.sqrt(-np.expm1(-2 * step)), np.sqrt(-np.expm1(-4 * step))",
        "np.sqrt(2 * step), np.sqrt(4 * step)",
        (STEP_LAW, STAYS, POSTERIOR, TWO_STEPS),
    ),
    Mutation(
        "batch-factor",
        "sampler/gradients.py",
        "return inputs.runs.length.astype(displacement.dtype) / count.astype(displacement.dtype) * total",
        "return inputs.num_rows.astype(displacement.dtype) / count.astype(displacement.dtype) * total",
        (POSTERIOR, UNBIASED),
    ),
    Mutation(
        "batch-factor, left out",
        "sampler/gradients.py",
        "return num_rows / estimator.batch_size * _centred_terms(",
        "return num_rows / num_rows * _centred_terms(",
        (LAW, POSTERIOR, EQUATIONS),
    ),
    Mutation(
        "coarse-reuses-fine-state",
        "sampler/paths.py",
        "own(coarse, u, coarse_y, merged, seen)",
        "own(jnp.broadcast_to(carry[0].state, coarse.shape), u, coarse_y, merged, seen)",
        (LAW, POSTERIOR, EQUATIONS),
    ),
    Mutation(
        "window-off-by-one",
        "sampler/levels.py",
        "coarse_window=np.int32(ladder.window(level - 1) if level else 0),",
        "coarse_window=np.int32(max(ladder.window(level - 1) - 1, 0) if level else 0),",
        (LAW, EQUATIONS),
    ),
    Mutation(
        "window-off-by-one, a point left out",
        "sampler/paths.py",
        "inside = index >= schedule.solo_steps - schedule.solo_window",
        "inside = index > schedule.solo_steps - schedule.solo_window",
        (LAW, EQUATIONS),
    ),
    Mutation(
        "window-off-by-one, all stops of level 0 at the end",
        "sampler/levels.py",
        "stride=np.int32(stride << max(level - 1, 0)),",
        "stride=np.int32(stride << level - 1 if level else 0),",
        (STOPS,),
    ),
    Mutation(
        "biased-blend",
        "sampler/gradients.py",
        "exact += _times(c, centre.likelihood_bend(centre.apart(displacement), bend))",
        "exact += centre.likelihood_bend(centre.apart(displacement), bend)",
        (LAW, EQUATIONS),
    ),
    Mutation(
        "biased-blend, by the prior's share of H",
        "sampler/gradients.py",
        "rest += (c - 1) * centre.likelihood_bend(apart, prior_bend)",
        "rest += (1 - c) * centre.whitening.times(displacement)",
        (POSTERIOR, REMAINDER),
    ),
    Mutation(
        "wrong-hessian",
        "anchor/expansion.py",
        "hessian=-(hessian + prior_hessian),",
        "hessian=-hessian,",
        (POSTERIOR, ANCHOR, FAMILY),
    ),
    Mutation(
        "wrong-hessian, the prior's counted twice",
        "anchor/expansion.py",
        "likelihood_hessian=hessian,",
        "likelihood_hessian=hessian + prior_hessian,",
        (POSTERIOR, REMAINDER),
    ),
    Mutation(
        "codes-off-by-one",
        "model/linear.py",
        'codes = jnp.where(rows["codes"] < d, rows["codes"] + head * d, dimension)',
        'codes = jnp.where(rows["codes"] < d, rows["codes"] + head * d + 1, dimension)',
        (CODES,),
    ),
    Mutation(
        "codes-off-by-one, in an arrow",
        "model/linear.py",
        "own = head.codes[:, arms.code] - arms.first",
        "own = head.codes[:, arms.code] - arms.first - 1",
        (ARROW,),
    ),
    Mutation(
        "slow-parameter-keeps-its-error",
        "setup/quantities.py",
        "reported, start = np.any(np.asarray(slopes) != 0, axis=0), 0",
        "reported, start = np.any(np.asarray(slopes) > 2, axis=0), 0",
        (HARD_LEVEL,),
    ),
    Mutation(
        "swapped-antithetic-batch",
        "sampler/couplings.py",
        "    def coarse_batches(self, draws: Draws, batch_size: int, fine: Any) -> Any:\n        return fine\n",
        "    def coarse_batches(self, draws: Draws, batch_size: int, fine: Any) -> Any:\n"
        "        return jax.tree.map(lambda leaf: leaf[jnp.array([0, 0])], fine)\n",
        (ORDER, DECAY),
    ),
    Mutation(
        "swapped-antithetic-batch, in the fine path",
        "sampler/paths.py",
        "jax.lax.scan(onward, (fine, u, y), (noise, expanded))",
        "jax.lax.scan(onward, (fine, u, y), (noise, jax.tree.map(lambda leaf: leaf[jnp.array([0, 0])], expanded)))",
        (LAW, EQUATIONS),
    ),
    Mutation(
        "dropped-jacobian",
        "model/model.py",
        "return model.log_prior(space.theta(vector)) + space.log_jacobian(vector)",
        "return model.log_prior(space.theta(vector))",
        (FAMILY,),
    ),
    Mutation(
        "dropped-jacobian, of the last break",
        "model/constraints.py",
        "return jnp.sum(log_value[..., :-1] + log_left)",
        "return jnp.sum(log_value[..., :-1]) + jnp.sum(log_left[..., :-1])",
        (JACOBIAN,),
    ),
    Mutation(
        "coarse-start-from-wrong-law",
        "sampler/paths.py",
        "coarse = start_coarse(u if plan.laplace else start, coupling.num_coarse, fine.state)",
        "coarse = start_coarse(jnp.zeros_like(start), coupling.num_coarse, fine.state)",
        (POSTERIOR, GAUSSIAN),
    ),
    Mutation(
        "coarse-start-from-wrong-law, where the shift has led",
        "sampler/paths.py",
        "return jnp.stack([start] * num_coarse)",
        "return jnp.stack([fine] * num_coarse)",
        (POSTERIOR, EQUATIONS),
    ),
    Mutation(
        "control, with a tamed remainder",
        "sampler/control.py",
        "dynamics.follow(coefficients, y, beside)",
        "dynamics.step(coefficients, y, beside, jnp.zeros_like(noise))",
        (UNTAMED,),
    ),
    Mutation(
        "control",
        "sampler/levels.py",
        "delta - (control - known.mean(self.ladder, level))",
        "delta - control",
        (CONTROLLED,),
    ),
    Mutation(
        "control, one coarse y shares the fine path's",
        "sampler/paths.py",
        "coarse_y = start_coarse_control(coupling.num_coarse, y) if",
        "coarse_y = start_coarse_control(coupling.num_coarse, y).at[0].set(y) if",
        (FORMS,),
    ),
    Mutation(
        "control, of the step after",
        "sampler/dynamics.py",
        "second = float(np.mean(-np.expm1(-2 * times))) * np.exp(-step) / (1 + np.exp(-step))",
        "second = float(np.mean(-np.expm1(-2 * times))) / (1 + np.exp(-step))",
        (FORMS, BY_HAND),
    ),
    Mutation(
        "balance",
        "anchor/expansion.py",
        "gradient + prior_gradient, -(hessian + prior_hessian)\n",
        "gradient + prior_gradient, -hessian\n",
        (AVERAGES,),
    ),
    Mutation(
        "raw-second-moments-float32",
        "moments.py",
        "sum2=square.sum(axis=0),",
        "sum2=np.float64(np.sum(np.float32(values) ** 2, axis=0) - len(values) * np.float32(mean) ** 2),",
        (CANCELS, MERGES),
    ),
    Mutation(
        "listing-switched-off",
        "setup/preparation.py",
        "    listing = list_rows(prepared.target, prepared.table, prepared.anchor, executor, folder)",
        "    listing = None",
        (RARE_ROW,),
    ),
    Mutation(
        "sd-error-in-the-wrong-unit",
        "estimator/estimands.py",
        "_sd_variance(estimands, total, variance[None], covariance[None])[0]",
        "variance[quantity.columns]",
        (UNITS,),
    ),
)


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
    tests, limit = ((), WHOLE_LIMIT) if whole else (SELECTION, SELECTION_LIMIT)
    verdicts, commit = [], describe_commit()
    with tempfile.TemporaryDirectory(prefix="mutations-") as scratch:
        # All mutants are of the project as it is now, whoever works on it meanwhile.
        project = Path(scratch).resolve() / "project"
        copy_project(ROOT, project)
        control = examine(project, None, tests, jobs, limit)
        require_green(control)
        print(f"control: {control.tests} tests green in {control.seconds:.0f} s", file=sys.stderr, flush=True)
        for mutation in mutations:
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
