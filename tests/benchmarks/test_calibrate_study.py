"""The calibration study can fail: its tests pass where errors are what they are said to be, and find out what is not.

Runs are made up: errors N(0, se^2), with a part shared by all quantities of a seed, so that these depend on each other.
Seeds are fixed. A bound of 1e-5 a test, of which there are some fifty, makes a false alarm in 5e-4.
"""

from __future__ import annotations

from dataclasses import replace

import calibrate
import calibration
import calibration_questions
import calibration_references
import numpy as np
import problems
import pytest
from scipy.special import stdtrit

BOUND = 1e-5
SEEDS, QUANTITIES = 200, 6
TOLERANCE = 0.1


def made_up(
    seed: int = 0, bar: float = 1.0, bias: float = 0.0, shared: float = 0.6, freedom: float = np.inf, size: float = 0.05
) -> calibration.Runs:
    """Errors of size `size`, a bar `bar` times as long, and a bias in tolerances; the part `shared` is of the seed."""
    rng = np.random.default_rng(seed)
    common, own = rng.normal(size=(SEEDS, 1)), rng.normal(size=(SEEDS, QUANTITIES))
    z = np.sqrt(shared) * common + np.sqrt(1 - shared) * own
    scale = np.ones((SEEDS, QUANTITIES))
    if np.isfinite(freedom):
        scale = np.sqrt(rng.chisquare(freedom, size=z.shape) / freedom)
    everywhere = np.ones((SEEDS, QUANTITIES))
    truth = np.arange(QUANTITIES, dtype=float)
    return calibration.Runs(
        seeds=np.arange(SEEDS),
        names=tuple(f"q{number}" for number in range(QUANTITIES)),
        value=truth + size * z + bias * TOLERANCE,
        standard_error=bar * size * scale,
        bias_bound=0.02 * everywhere,
        freedom=freedom * everywhere,
        tolerance=TOLERANCE * everywhere,
        truth=truth,
        blur=np.zeros(QUANTITIES),
    )


@pytest.mark.parametrize("freedom", [np.inf, 8.0])
def test_true_error_bars_are_green(freedom):
    verdict = calibration.judge(made_up(freedom=freedom), BOUND)
    assert str(verdict) == "green"
    assert not verdict.stated


def test_quantities_of_one_seed_may_depend_on_one_another():
    """Pooled over quantities as if they were independent, the shift of their common part would be red."""
    studies = [made_up(seed, shared=0.999) for seed in range(20)]
    moments = [calibration.moments_p(runs) for runs in studies]
    assert np.mean(np.array(moments) < 0.05) < 0.25
    errors = [calibration.coverage(runs, 0.8, "t se").error for runs in studies]
    shares = [calibration.coverage(runs, 0.8, "t se").pooled for runs in studies]
    assert np.mean(errors) == pytest.approx(np.sqrt(0.8 * 0.2 / SEEDS), rel=0.1)
    assert np.std(shares, ddof=1) == pytest.approx(np.mean(errors), rel=0.5)


def test_bars_half_as_long_are_red():
    verdict = calibration.judge(made_up().halved(), BOUND)
    assert "narrow" in verdict.broken
    assert "pooled" in verdict.broken["narrow"]


def test_bars_twice_as_long_are_stated_but_not_red():
    verdict = calibration.judge(made_up(bar=2.0), BOUND)
    assert not verdict.is_red
    assert str(verdict) == "green, wide"


def test_a_value_off_by_one_tolerance_is_red():
    verdict = calibration.judge(made_up().shifted(), BOUND)
    assert verdict.broken["bias"] == ["q0"]


def test_a_bias_within_its_share_is_stated_in_tolerances():
    """The bias bound of 0.2 tolerances is true, so the published interval still covers."""
    runs = made_up(bias=0.2)
    verdict = calibration.judge(runs, BOUND)
    assert not verdict.is_red
    assert "shifted" in verdict.stated
    mean, error = calibration.mean_error(runs)
    assert np.all(np.abs(mean - 0.2) < 5 * error)


def test_where_no_bias_is_allowed_a_shift_is_red():
    assert "bias" in calibration.judge(replace(made_up(bias=0.2), allowed_bias=0.0), BOUND).broken


def test_an_interval_whose_bias_bound_is_too_small_is_red():
    assert "interval" in calibration.judge(made_up(bias=0.6), BOUND).broken


def test_errors_beyond_the_tolerance_are_red():
    assert set(calibration.judge(made_up(size=0.2), BOUND).broken) == {"rmse"}


def test_an_exact_class_is_judged_by_its_errors_alone():
    runs = made_up(size=1e-8)
    assert runs.is_exact
    assert str(calibration.judge(runs, BOUND)) == "green"
    assert calibration.judge(runs.shifted(), BOUND).broken == {"rmse": ["q0"]}


def test_intervals_of_other_levels():
    runs = made_up(freedom=8.0)
    for level in calibration.LEVELS:
        half = stdtrit(8.0, 0.5 + level / 2) * runs.standard_error
        assert np.array_equal(runs.covers(level, "t se"), np.abs(runs.error) <= half)
        assert np.array_equal(runs.covers(level, "published"), np.abs(runs.error) <= half + 0.02)
        assert np.array_equal(runs.covers(level, "published"), runs.needed_level <= level)
        assert abs(calibration.coverage(runs, level, "t se").pooled - level) < 0.06


def test_scores_are_standard_normal_where_the_bar_is_true():
    scores = calibration.scores(made_up(freedom=8.0))
    assert abs(scores.mean) < 4 * scores.mean_error
    assert abs(scores.sd - 1) < 4 * scores.sd_error
    assert calibration.scores(made_up(bar=0.5)).sd == pytest.approx(2.0, abs=0.2)


def test_an_error_of_the_truth_lengthens_the_bar():
    runs = replace(made_up(), blur=np.full(QUANTITIES, 0.05))
    assert runs.reference_margin == pytest.approx(2.0)
    assert np.allclose(runs.spread, np.hypot(0.05, 0.05))


def test_runs_far_off_are_found_by_their_seeds():
    runs = made_up()
    runs.value[17, 3] += 4 * TOLERANCE
    worst = calibration.outliers(runs)[0]
    assert (worst.seed, worst.quantity) == (17, "q3")
    assert worst.is_far


def test_the_bound_shares_the_false_alarm_among_all_tests():
    runs = made_up()
    tests = calibration.number_of_tests(runs)
    assert tests == 7 * QUANTITIES + 3
    assert calibration.bonferroni([runs, runs], 0.01) == pytest.approx(0.01 / (2 * tests))


def test_derivatives_of_the_multinomial_reference():
    _, rows = problems.make("multinomial-60-2")
    posterior = calibration_references.MultinomialPosterior(rows["x"], rows["y"], 2)
    mode, hessian = posterior.mode
    line = np.array([0.3, -0.2, 0.5, 0.1])

    def along(*steps: float) -> np.ndarray:
        return posterior.log_density(mode + np.outer(steps, line))

    step = 1e-2
    left, middle, right = along(-step, 0.0, step)
    assert (right - left) / (2 * step) == pytest.approx(0.0, abs=1e-4)
    assert (right - 2 * middle + left) / step**2 == pytest.approx(-line @ hessian @ line, rel=1e-4)
    two_left, left, right, two_right = along(-10 * step, -5 * step, 5 * step, 10 * step)
    third = (two_right - 2 * right + 2 * left - two_left) / (2 * (5 * step) ** 3)
    assert third == pytest.approx(np.einsum("jkl,j,k,l", posterior.cubic(np.eye(4)), *3 * [line]), rel=0.02)


def test_every_class_has_a_problem_and_a_name_of_its_own():
    names = [str(each) for each in calibrate.CLASSES]
    assert len(set(names)) == len(names)
    standard = [each.problem for each in calibrate.CLASSES if each.problem not in calibration_questions.QUESTIONS]
    assert all(problems.split(each)[0] in problems.KINDS for each in standard)


def test_questions_know_their_truth():
    for name in calibration_questions.QUESTIONS:
        known, blur = calibration_references.truth(name)
        assert np.all(np.isfinite(known)), name
        assert not blur.any()


def test_a_run_whose_error_cannot_be_trusted_is_not_judged():
    line = {field: [1.0] for field in calibrate.FIELDS}
    assert calibrate.knows_error(line | {"status": "converged"})
    assert calibrate.knows_error(line | {"status": "max_evaluations"})
    assert not calibrate.knows_error(line | {"status": "heavy_tails"})
    assert not calibrate.knows_error({"status": "IndexError"})
    assert not calibrate.knows_error(line | {"status": "converged", "standard_error": [None]})
