"""Budgets: a run that has to end at any look at the clock still ends in a result, which everything can read.

The clock is a counter here: the time is over at the k-th look, for every k that a run has. Real seconds are measured by
benchmarks/budgets.py.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scenarios import by_ladder, fit_by_ladder, logistic_by_hand, paper_rows

import tallbayes as tb
from tallbayes.anchor.gaussian_level import laplace_level
from tallbayes.estimator.randomised import _settle_laplace
from tallbayes.programs.compilation import compiled
from tallbayes.setup.preparation import prepare
from tallbayes.setup.quantities import make_estimands
from tallbayes.views.document import to_json
from tallbayes.watch import OutOfTime, Watch, aside, begin, begin_pass, count_rows, current, look, passed, watching

FAR = 1e6


class Looks:
    """A clock that says so at the k-th look of a watch with the budget `FAR`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counted, self.last = 0, np.inf
        real = Watch.passed.fget  # type: ignore[attr-defined]
        looks = self

        def counting(watch: Watch) -> bool:
            if watch.end - watch.started < FAR / 2 or watch.end == np.inf:
                return bool(real(watch))
            looks.counted += 1
            return watch.stopped or looks.counted >= looks.last

        monkeypatch.setattr(Watch, "passed", property(counting))

    def at(self, last: float) -> Looks:
        self.counted, self.last = 0, last
        return self


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


ROWS = paper_rows(300)
MODEL = logistic_by_hand(3)


def anchored(**options: Any) -> tb.Result:
    return by_ladder(tb.families.logistic(), ROWS, tolerance=0.2, **options)


def own(**options: Any) -> tb.Result:
    quantities = {"size": lambda theta: jnp.sum(theta**2)}
    return by_ladder(MODEL, ROWS, quantities, tolerance=0.3, **options)


def ends(**options: Any) -> tb.Result:
    return by_ladder(tb.families.logistic(), ROWS, tolerance=0.3, interval_tolerance=0.1, **options)


def papers(**options: Any) -> tb.Result:
    return by_ladder(tb.families.logistic(), ROWS, tolerance=0.3, method=tb.Multilevel(), **options)


def randomised(**options: Any) -> tb.Result:
    return by_ladder(tb.families.logistic(), ROWS, tolerance=0.3, method=tb.Randomised(), **options)


def formula(**options: Any) -> tb.Result:
    columns = {"y": ROWS["y"], "a": ROWS["x"][:, 0], "b": ROWS["x"][:, 1]}
    return fit_by_ladder("y ~ a + b", columns, tolerance=0.3, **options)


RUNS = {run.__name__: run for run in (anchored, own, ends, papers, randomised, formula)}


def read_everything(result: tb.Result, path: Path) -> None:
    """Whatever is asked of a result has an answer, or an error in words."""
    assert str(result.status) in str(result)
    assert result.summary()
    assert result._repr_html_()
    assert to_json(result, {})
    result.coefficients()
    result.report(path / "report.html")
    result.save(path / "result.npz")
    loaded = tb.load(path / "result.npz")
    assert str(loaded) == str(result)
    for name in result:
        estimate = result[name]
        assert not np.any(np.isnan(estimate.flat_standard_error))
        assert estimate.interval is not None


# The formula's walk is that of the others once its columns are there; the paper's is in every run of its own.
LONG = ("own", "ends", "randomised", "formula", "papers")
EVERY = [(name, np.inf) for name in RUNS if name not in LONG]
SOME = [("own", 6)]
SLOW = [pytest.param(name, np.inf, marks=pytest.mark.slow) for name in LONG]


@pytest.mark.parametrize(("name", "most"), [*EVERY, *SOME, *SLOW])
def test_the_time_may_be_over_at_any_look(name: str, most: float, looks: Looks, tmp_path: Path) -> None:
    """At every one, or at so many of them, evenly spread, and the last."""
    run = RUNS[name]
    run(max_seconds=FAR)
    looks.at(np.inf)
    whole = run(max_seconds=FAR)
    assert whole.converged
    number, statuses, seen = looks.counted, set(), set()
    assert number > 20
    for last in [*range(1, number, max(1, int(number / most))), number - 1]:
        looks.at(last)
        result = run(max_seconds=FAR)
        statuses.add(result.status)
        kind = len(result.levels), result.anchor is None, len(result["mean"].flat_value) if "mean" in result else 0
        if kind in seen:
            continue
        seen.add(kind)
        read_everything(result, tmp_path)
        looks.at(np.inf)
        again = result.extend(max_seconds=FAR)
        assert again.converged
        if not result.levels and result.anchor is None:
            for quantity in whole:
                np.testing.assert_array_equal(again[quantity].flat_value, whole[quantity].flat_value)
    assert tb.Status.max_seconds in statuses
    assert statuses <= {tb.Status.max_seconds, tb.Status.converged}
    assert {(levels, nowhere) for levels, nowhere, _ in seen} >= {(0, True), (0, False)}
    assert max(levels for levels, _, _ in seen) >= 2


def test_the_gaussian_answers_where_nothing_was_sampled(looks: Looks) -> None:
    whole, found = anchored(max_seconds=FAR), []
    for last in range(1, 30):
        looks.at(last)
        found.append(anchored(max_seconds=FAR))
    early = [each for each in found if each.anchor is not None and not each.levels]
    gaussian = [each for each in early if any("at the mode alone" in note for note in each.notes)]
    assert 0 < len(gaussian) < len(early)
    for result in gaussian:
        assert result.status is tb.Status.max_seconds
        apart = (result["mean"].flat_value - whole["mean"].flat_value) / whole["sd"].flat_value
        assert np.all(np.abs(apart) < 0.5)
        assert np.all(np.isinf(result["mean"].flat_standard_error))
        assert not result["mean"].met
        assert any(note.startswith("setup: it ended at: ") for note in result.notes)
        with pytest.raises(tb.TallbayesError):
            result.predict({"x": ROWS["x"][:2]})
    nothing = found[0]
    assert np.all(np.isnan(nothing["mean"].flat_value))
    assert "answer: none, since no mode was found by then" in nothing.notes


def test_what_is_on_record_at_the_deadline_serves_the_next_call(looks: Looks, tmp_path: Path) -> None:
    plain = anchored(max_seconds=FAR)
    for last in (8, 20, 30, 36):
        looks.at(last)
        anchored(max_seconds=FAR, ledger=tmp_path / "run.ledger")
    looks.at(np.inf)
    whole = anchored(max_seconds=FAR, ledger=tmp_path / "run.ledger")
    for name in plain:
        np.testing.assert_array_equal(whole[name].flat_value, plain[name].flat_value)


def test_a_watch_inside_another_ends_with_it() -> None:
    look()
    with watching(FAR), watching(1e-9), pytest.raises(OutOfTime):
        look()
    with watching(1e-9), watching(FAR), pytest.raises(OutOfTime):
        look()
    with watching(1e-9), watching(FAR, apart=True):
        look()
    assert current() is None


def test_what_is_left_behind_sees_the_end_and_ends() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        try:
            while True:
                count_rows(1)
        finally:
            ended.set()

    with watching(FAR) as watch:
        watch.tell = lambda watch: watch.stop() if begun.is_set() else None
        with pytest.raises(OutOfTime):
            aside(work)
    assert ended.wait(60)


def test_errors_of_what_is_done_aside_are_the_callers_own() -> None:
    def fail() -> None:
        raise TimeoutError("their own")

    with watching(FAR), pytest.raises(TimeoutError, match="their own"):
        aside(fail)
    with pytest.raises(TimeoutError, match="their own"):
        aside(fail)


def test_a_watch_counts_passes_of_a_phase_and_rows_of_a_pass() -> None:
    with watching(FAR) as watch:
        begin("mode")
        for _ in range(2):
            begin_pass(100)
            count_rows(60)
        assert (watch.phase, watch.passes, watch.rows_done, watch.rows, watch.rows_read) == ("mode", 2, 60, 100, 120)
        begin("second mode")
        assert (watch.passes, watch.rows_done, watch.rows, watch.rows_read) == (0, 0, 0, 120)
        assert not passed()


def effects_of(num_groups: int, start: float = 1.0) -> tuple[tb.Model, np.ndarray]:
    """Centred: the density has no bound as the scale goes to nothing, and no climb ends."""
    model = tb.Model(
        lambda theta: -0.5 * jnp.sum((theta["effect"] / theta["scale"]) ** 2) - num_groups * jnp.log(theta["scale"]),
        lambda theta, row: -0.5 * (row - theta["effect"][0]) ** 2,
        {"effect": np.zeros(num_groups), "scale": start},
        constraints={"scale": tb.constraints.positive},
    )
    return model, np.linspace(-1.0, 1.0, 8)


def test_a_climb_of_many_parameters_that_runs_off_ends_in_a_result(tmp_path: Path) -> None:
    """Beyond 4,000 of them no balance is sought; it was an error, before or after the time was over by chance."""
    result = by_ladder(*effects_of(4_001), tolerance=0.1, max_seconds=FAR)
    assert result.status is tb.Status.no_mode
    assert np.all(np.isnan(result["mean"].flat_value))
    assert not result["mean"].met
    assert result.notes[0].startswith("mode: expected a posterior of more than 4,000 parameters to have a mode; got")
    assert "non-centred" in result.notes[0]
    assert "answer: none, since no mode was found by then" in result.notes
    read_everything(result, tmp_path)
    assert result.extend().status is tb.Status.no_mode


def test_control_bad_start_values_of_many_parameters_are_refused() -> None:
    model, rows = effects_of(4_001)
    with pytest.raises(tb.PosteriorError, match="start values"):
        by_ladder(model, np.full_like(rows, 1e200), tolerance=0.1)


def crossing_rows() -> dict[str, np.ndarray]:
    x = np.linspace(-1, 1, 40)
    y = 1.0 + 0.3 * x + np.random.default_rng(0).normal(size=40)
    return {"x": np.column_stack([np.ones(40), x]), "y": y}


CROSSING = {"crossing": lambda theta: -theta[0] / theta[1], "mean": "mean"}


def test_a_quantity_without_variance_under_the_gaussian_has_an_end() -> None:
    """Where a line crosses zero: -a / b. Under a Gaussian it is Cauchy far out, and no number of draws is enough."""
    result = tb.estimate(tb.families.linear(1.0), crossing_rows(), CROSSING, tolerance=0.02)
    assert result.status is tb.Status.heavy_tails
    assert result.levels
    assert np.all(np.isfinite(result["mean"].flat_value))
    assert str(result)


@pytest.mark.parametrize("function", ["crossing", "size"])
def test_draws_of_the_gaussian_end_for_the_unbiased_method_too(function: str) -> None:
    """The control has a variance, and its draws go on until they suffice."""
    known = {**CROSSING, "size": lambda theta: jnp.exp(theta[0])}
    prepared = prepare(tb.families.linear(1.0), crossing_rows(), "float64", False, None)
    estimands = make_estimands({function: known[function]}, prepared.target, prepared.anchor)
    parts = prepared.target, estimands.observables, prepared.anchor, estimands.jump
    run: Any = SimpleNamespace(estimands=estimands, laplace=laplace_level(*parts, seed=0))
    this: Any = SimpleNamespace(run=run, tail=SimpleNamespace(drawn=None))
    assert _settle_laplace(this, 2e-5 * estimands.laplace_sd) is (function == "crossing")
    assert run.laplace.draws >= 2**16


def test_draws_of_the_gaussian_end_with_the_time() -> None:
    """What an outline has no time for is not computed after it: a thread that went on was in the way of an exit."""
    prepared = prepare(tb.families.linear(1.0), crossing_rows(), "float64", False, None)
    estimands = make_estimands({"size": lambda theta: jnp.exp(theta[0])}, prepared.target, prepared.anchor)
    parts = prepared.target, estimands.observables, prepared.anchor, estimands.jump
    with watching(1e-9), pytest.raises(OutOfTime):
        laplace_level(*parts, seed=0)
    assert laplace_level(*parts, seed=0).draws > 0


def test_no_compiler_is_begun_when_the_time_is_over() -> None:
    begun = []

    def traced(static: int, x: Any) -> Any:
        begun.append(static)
        return x + static

    with watching(1e-9), pytest.raises(OutOfTime):
        compiled(traced)(1, np.ones(3))
    assert not begun
    assert compiled(traced)(1, np.ones(3))[0] == 2
    assert begun


INTERRUPTED = """
import os, signal, sys, threading
sys.path.insert(0, sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)
import numpy as np
import tallbayes as tb
from scenarios import by_ladder, logistic_by_hand, paper_rows

rows = paper_rows(400)

class Press:
    def __init__(self, phase):
        self.phase, self.pressed = phase, False

    def __call__(self, look):
        if look.phase == self.phase and not self.pressed:
            self.pressed = True
            os.kill(os.getpid(), signal.SIGINT)

for phase in sys.argv[3:]:
    ledger = os.path.join(sys.argv[2], f"{phase}.ledger")
    press = Press(phase)
    try:
        result = by_ladder(logistic_by_hand(3), rows, tolerance=0.1, progress=press, ledger=ledger)
        known = bool(np.all(np.isfinite(result["mean"].flat_value)))
        print(phase, result.status.name, known, len(result.levels) > 0, bool(str(result)), sep=",")
        assert result.extend().converged
    except KeyboardInterrupt:
        print(phase, "raised", sep=",")
    assert press.pressed
    assert by_ladder(logistic_by_hand(3), rows, tolerance=0.1, ledger=ledger).converged
"""


def test_ctrl_c_in_set_up_keeps_what_is_done(tmp_path: Path) -> None:
    phases = ["checking rows", "placing rows", "mode", "second mode", "quantities", "Gaussian level", "tuning"]
    command = [sys.executable, "-c", INTERRUPTED, str(Path(__file__).parents[1]), str(tmp_path), *phases]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=380)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = dict(line.split(",", 1) for line in ended.stdout.splitlines())
    assert [found[phase] for phase in phases[:3]] == ["raised"] * 3
    assert {found[phase] for phase in phases[3:]} == {"interrupted,True,False,True"}
    assert "Traceback" not in ended.stderr


def test_an_estimator_of_scikit_learn_has_its_columns_whenever_it_ends(looks: Looks) -> None:
    pytest.importorskip("sklearn")
    for last in (1, 12, 24, 30):
        looks.at(last)
        with pytest.warns(UserWarning, match="max_seconds"):
            found = tb.TallClassifier(max_seconds=FAR, tolerance=0.1, method=tb.Anchored()).fit(
                ROWS["x"][:, :2], ROWS["y"]
            )
        assert found.coef_.shape == (1, 2)
        assert found.result_.status is tb.Status.max_seconds
