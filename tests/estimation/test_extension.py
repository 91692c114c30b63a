"""A run can be stopped, by a budget or Ctrl-C, watched, and carried on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from equal_results import assert_identical
from small_runs import PAPERS, run, small_run

import tallbayes as tb


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return small_run()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "result.tallbayes"


@pytest.fixture(scope="module")
def extended(result: tb.Result) -> tb.Result:
    return result.extend(tolerance=0.1)


def test_extending_pays_only_the_difference(result: tb.Result, extended: tb.Result) -> None:
    fresh = run(tolerance=0.1)
    assert extended.converged
    assert extended.cost.evaluations > result.cost.evaluations
    assert extended.cost.evaluations < result.cost.evaluations + fresh.cost.evaluations
    np.testing.assert_allclose(extended["mean"].tolerance, 0.1 * extended["sd"].value)
    assert extended.settings["tolerance"] == 0.1
    for before, after in zip(result.levels, extended.levels, strict=False):
        assert after.samples >= before.samples


def test_extending_goes_through_the_same_samples_as_a_fresh_run(extended: tb.Result) -> None:
    """Where both end with as many samples of a level, they are the same samples."""
    fresh = run(tolerance=0.1)
    pairs = [(one, two) for one, two in zip(extended.levels, fresh.levels, strict=False) if one.samples == two.samples]
    assert pairs
    for one, two in pairs:
        assert_identical(one.variance["mean"], two.variance["mean"])


def test_a_budget_that_ends_after_the_tolerance_was_met_is_no_failure(result: tb.Result) -> None:
    """A run looks for a margin, error and bias each within their share; without it the tolerance may still be met."""
    parts = [
        np.maximum(each.flat_error, each.half_width() / 1.96) / each.flat_tolerance
        for each in result.estimates.values()
    ]
    tolerance = result.settings["tolerance"] * float(np.concatenate(parts).max())
    just_met = result.extend(tolerance=1.001 * tolerance, max_evaluations=1)
    assert just_met.converged
    assert not result.extend(tolerance=0.5 * tolerance, max_evaluations=1).converged


def test_extending_leaves_the_old_result_as_it_was(path: Path) -> None:
    before = run()
    before.save(path)
    text = str(before)
    before.extend(tolerance=0.1)
    assert str(before) == text
    assert_identical(before, tb.load(path))
    assert_identical(before.extend(tolerance=0.1).estimates, before.extend(tolerance=0.1).estimates)


def test_extending_to_what_is_met_costs_nothing(result: tb.Result) -> None:
    again = result.extend(tolerance=0.25)
    assert again.converged
    assert again.cost.evaluations == result.cost.evaluations
    np.testing.assert_array_equal(again["mean"].value, result["mean"].value)


def test_extending_by_an_unknown_keyword_is_refused(result: tb.Result) -> None:
    with pytest.raises(tb.InputError, match=r"expected .*; got .*seed.* Try: "):
        result.extend(seed=3)


def test_a_stopped_run_can_be_carried_on(result: tb.Result) -> None:
    stopped = run(max_seconds=1e-9)
    finished = stopped.extend(max_seconds=1e9)
    assert finished.converged
    assert_identical(finished.estimates, result.estimates)


def test_carrying_on_does_not_forget_why_a_run_was_stopped(result: tb.Result) -> None:
    """Paths too short for the tolerance stay too short, whatever is asked of them next."""
    step = result.levels[0].step
    short = run(method=tb.Multilevel(ladder=tb.Ladder(first_step=step / 16, start_steps=1, added_steps=1)))
    assert short.status in (tb.Status.paths_too_short, tb.Status.no_contraction)
    assert not any(short[name].met for name in short) or not short.converged
    assert short.extend(tolerance=2.0).status is short.status


BALANCED = tb.Anchored(anchor="balanced")
BUDGETS = {
    "max_evaluations": (PAPERS, {"tolerance": 0.01, "max_evaluations": 150_000}),
    "max_seconds": (PAPERS, {"tolerance": 0.01, "max_seconds": 1e-9}),
    "max_levels": (PAPERS, {"tolerance": 0.05, "max_levels": 3}),
    "max_evaluations, anchored": (None, {"tolerance": 0.01, "max_evaluations": 20_000}),
    "max_seconds, anchored": (None, {"tolerance": 0.01, "max_seconds": 1e-9}),
    # Steps are kept large, for three levels of smaller ones leave next to no bias.
    "max_levels, anchored": (
        tb.Anchored(first_step=0.7, batch_size=32, anchor="mode"),
        {"tolerance": {"mean": 0.0015, "sd": 10.0}, "max_levels": 3},
    ),
    # Dear enough for a second look at the choices, by another gradient too.
    "max_levels, anchored, reconsidered": (
        tb.Anchored(first_step=1.0, batch_size=16, anchor="mode"),
        {"tolerance": {"mean": 0.001, "sd": 10.0}, "max_levels": 3},
    ),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow if "reconsidered" in case else ()) for case in BUDGETS]
)
def test_a_budget_ends_the_run_with_its_status(case: str) -> None:
    (method, options), name = BUDGETS[case], case.split(",")[0]
    stopped = run(method=method, **options)
    assert stopped.status is tb.Status[name]
    assert not stopped.converged
    assert name in str(stopped).split("\n\n")[-1]
    assert not all(stopped[quantity].met for quantity in stopped)
    for quantity in stopped:
        known = bool(stopped.levels)
        assert np.all(np.isfinite(stopped[quantity].value) == known)
        assert np.all(np.isfinite(stopped[quantity].standard_error) == known)
    assert bool(stopped.levels) == (name != "max_seconds")
    if name == "max_evaluations":
        assert stopped.cost.evaluations <= options["max_evaluations"]
    if name == "max_levels":
        assert len(stopped.levels) == 3


@pytest.mark.parametrize(
    ("method", "evaluations"),
    [
        *((PAPERS, n) for n in (32_000, 40_000, 60_000, 90_000)),
        *((None, n) for n in (4_500, 5_000, 20_000)),
        *((BALANCED, n) for n in (4_500, 5_000, 6_000)),
    ],
    ids=lambda part: {PAPERS: "papers", None: "anchored", BALANCED: "balanced"}.get(part, str(part)),
)
def test_a_budget_that_ends_within_the_pilot_still_gives_values(method: Any, evaluations: int) -> None:
    stopped = run(method=method, tolerance=0.001, max_evaluations=evaluations)
    assert stopped.status is tb.Status.max_evaluations
    assert len(stopped.levels) <= 3
    assert stopped.cost.evaluations <= evaluations
    assert np.all(np.isfinite(stopped["mean"].value))
    assert str(stopped)


class Interrupter:
    """A progress callback that presses Ctrl-C at its n-th look at samples."""

    def __init__(self, calls: int) -> None:
        self.calls, self.last = calls, None

    def __call__(self, progress: tb.Progress) -> None:
        if not progress.has_error:
            return
        self.last, self.calls = progress, self.calls - 1
        if self.calls == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("calls", [1, 3])
def test_ctrl_c_keeps_what_was_computed(calls: int) -> None:
    interrupter = Interrupter(calls)
    stopped = run(tolerance=0.02, progress=interrupter)
    assert stopped.status is tb.Status.interrupted
    assert not stopped.converged
    assert interrupter.last is not None
    assert tuple(level.samples for level in stopped.levels) == interrupter.last.samples
    assert stopped.cost.evaluations == interrupter.last.evaluations
    assert np.all(np.isfinite(stopped["mean"].value))


def test_ctrl_c_and_carrying_on_give_the_numbers_of_an_unbroken_run() -> None:
    whole = run(tolerance=0.04)
    stopped = run(tolerance=0.04, progress=Interrupter(2))
    assert stopped.status is tb.Status.interrupted
    assert_identical(stopped.extend().estimates, whole.estimates)


def test_progress_sees_errors_and_targets_and_changes_nothing(result: tb.Result) -> None:
    seen: list[tb.Progress] = []
    watched = run(progress=seen.append)
    assert_identical(watched.estimates, result.estimates)
    phases = [progress.phase for progress in seen if not progress.has_error]
    set_up = ["checking rows", "placing rows", "mode", "second mode", "recentring", "quantities", "rows that matter"]
    assert list(dict.fromkeys(phases)) == [*set_up, "tails", "Gaussian level", "tuning", "sampling"]
    seen = [progress for progress in seen if progress.has_error]
    assert seen
    labels = {"mean[0]", "mean[1]", "sd[0]", "sd[1]"}
    for progress in seen:
        assert progress.quantity in labels
        assert progress.error > 0
        assert progress.target > 0
        assert progress.levels == len(progress.samples)
        assert progress.seconds > 0
    assert [progress.evaluations for progress in seen] == sorted(progress.evaluations for progress in seen)
    assert seen[-1].error <= seen[-1].target
    assert seen[-1].evaluations == watched.cost.evaluations


def test_an_error_in_the_callback_is_the_callers_own() -> None:
    def raising(progress: tb.Progress) -> None:
        raise ZeroDivisionError("my own mistake")

    with pytest.raises(ZeroDivisionError, match="my own mistake"):
        run(progress=raising)
