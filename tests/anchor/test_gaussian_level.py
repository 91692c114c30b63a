"""The Laplace level in closed forms: expectations under N(theta_0, H^-1), exact or by draws that cost no data."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenarios import gaussian_posterior, gaussian_rows
from scipy.stats import norm

import tallbayes as tb
from tallbayes.anchor.gaussian_level import BLOCK_DRAWS, _block, laplace_level
from tallbayes.anchor.mode import find_anchor
from tallbayes.estimator.estimands import summarise
from tallbayes.model.model import bind
from tallbayes.rows.table import check_rows, make_table
from tallbayes.setup.quantities import make_estimands

MODEL = tb.families.linear(noise_scale=2.0)
ROWS = gaussian_rows(30, 2, 2.0, seed=5)
MEAN, PRECISION = gaussian_posterior(ROWS, noise_scale=2.0, prior_scale=1.0)
SD = np.sqrt(np.diag(np.linalg.inv(PRECISION)))
THRESHOLDS, KINK = MEAN + [0.5, -0.8] * SD, MEAN[0] + 0.3 * SD[0]


@cache
def prepared():
    data = MODEL.check(check_rows(ROWS))
    target, start = bind(MODEL, jax.tree.map(lambda leaf: leaf[0], data))
    table = make_table(data, "float64")
    return target, table, find_anchor(target, table, start)


def level_of(quantities, seed=0):
    target, _, anchor = prepared()
    estimands = make_estimands(quantities, target, anchor)
    return estimands, laplace_level(target, estimands.observables, anchor, estimands.jump, seed)


@cache
def many():
    """One level with quantities of every kind: the programs are compiled once."""
    return level_of(
        {
            "mean": "mean",
            "linear": lambda theta: 3 * theta[0] - theta[1] + 1,
            "quadratic": lambda theta: theta[0] * theta[1] + 2 * theta[1] ** 2,
            "growth": lambda theta: jnp.exp(theta),
            "positive": lambda theta: theta > THRESHOLDS,
            "far": lambda theta: theta[0] > 50.0,
            "kink": lambda theta: jnp.abs(theta[0] - KINK),
        }
    )


def columns(name):
    estimands, level = many()
    quantity = next(q for q in estimands.quantities if q.name == name)
    return quantity.columns, level


def test_moments_of_theta_are_exact():
    anchor = prepared()[2]
    _, level = level_of(("mean", "sd"))
    assert level.draws == 0
    np.testing.assert_array_equal(level.mean, np.concatenate([np.zeros(2), anchor.sd**2]))
    assert np.all(level.variance == 0)
    assert level.extended(1e9) is level
    # They stay so beside quantities that are not.
    beside = many()[1]
    np.testing.assert_array_equal(beside.mean[:4], level.mean)
    assert np.all(beside.variance[:4] == 0)


def test_linear_and_quadratic_functions_are_exact():
    anchor = prepared()[2]
    (a, b), cov = anchor.mode, anchor.covariance
    for name, expected in (("linear", 3 * a - b + 1), ("quadratic", a * b + cov[0, 1] + 2 * (b**2 + cov[1, 1]))):
        part, level = columns(name)
        assert level.controlled[part].all()
        np.testing.assert_allclose(level.mean[part], expected, rtol=1e-12)
        assert np.all(level.variance[part] < 1e-24)


def test_a_smooth_function_is_right_and_cheap():
    """E exp(theta) = exp(mu + s^2 / 2) within 5 standard errors (a false alarm in 1e-6 for two of them), and the
    variance of a draw more than 40 times smaller than that of exp(theta) itself."""
    anchor = prepared()[2]
    part, level = columns("growth")
    level = level.extended(16 * BLOCK_DRAWS)
    s2 = anchor.sd**2
    expected = np.exp(anchor.mode + s2 / 2)
    error = np.sqrt(level.variance[part] / level.draws)
    assert np.all(error > 0)
    assert np.all(np.abs(level.mean[part] - expected) < 5 * error)
    plain = np.exp(2 * anchor.mode + s2) * np.expm1(s2)
    assert np.all(level.variance[part] < plain / 40)


def test_an_indicator_is_averaged_as_it_is():
    """Against the normal distribution function: 5 standard errors, a false alarm in 1e-6 for two of them."""
    anchor = prepared()[2]
    part, level = columns("positive")
    level = level.extended(4 * BLOCK_DRAWS)
    expected = norm.sf(THRESHOLDS, loc=anchor.mode, scale=anchor.sd)
    np.testing.assert_allclose(level.variance[part], expected * (1 - expected), rtol=0.1)
    assert np.all(np.abs(level.mean[part] - expected) < 5 * np.sqrt(expected * (1 - expected) / level.draws))


def test_a_kink_is_no_worse_than_without_a_control():
    """E |theta - m| by the folded normal's formula, 5 standard errors."""
    anchor = prepared()[2]
    part, level = columns("kink")
    shift, sd = anchor.mode[0] - KINK, anchor.sd[0]
    expected = sd * np.sqrt(2 / np.pi) * np.exp(-(shift**2) / (2 * sd**2)) + shift * (1 - 2 * norm.cdf(-shift / sd))
    variance = shift**2 + sd**2 - expected**2
    assert np.all(level.variance[part] < 1.1 * variance)
    assert abs(level.mean[part][0] - expected) < 5 * np.sqrt(level.variance[part][0] / level.draws)


def test_more_draws_extend_the_same_stream():
    """The first block's moments, merged with those of the next three, are those of four blocks at once, to the bit."""
    level = many()[1]
    assert level.draws == BLOCK_DRAWS
    more = level.extended(4 * BLOCK_DRAWS)
    merged = level.sampled
    for number in (1, 2, 3):
        merged = merged.merge(_block(level, number))
    assert more.draws == 4 * BLOCK_DRAWS
    for name in ("mean", "sum2", "sum4"):
        np.testing.assert_array_equal(getattr(more.sampled, name), getattr(merged, name))
    steps = level.extended(BLOCK_DRAWS + 1).extended(4 * BLOCK_DRAWS)
    np.testing.assert_array_equal(steps.sampled.mean, more.sampled.mean)
    assert level.draws == BLOCK_DRAWS


def test_another_seed_gives_other_draws():
    part, one = columns("growth")
    two = level_of({"growth": lambda theta: jnp.exp(theta)}, seed=1)[1]
    assert np.all(one.mean[part] != two.mean)
    # Independent estimates of one number: 5 standard errors of the difference.
    error = np.sqrt(one.variance[part] / one.draws + two.variance / two.draws)
    assert np.all(np.abs(one.mean[part] - two.mean) < 5 * error)


def test_a_jump_that_no_draw_has_shown_is_not_known_exactly():
    """P(theta > far): no draw says more than that it is rarer than 3 in M, at 95%."""
    estimands, level = many()
    part, _ = columns("far")
    assert level.sampled.variance[part] == 0
    assert level.mean[part] == 0
    np.testing.assert_allclose(level.variance[part], 3 / level.draws)
    assert np.all(estimands.jump[part] == 1)
    assert np.all(estimands.laplace_sd[part] > 0)
    nothing = [type(level.sampled).of(np.zeros((64, len(level.mean))), estimands.pairs)]
    error = np.sqrt(summarise(estimands, nothing, level).laplace_error[-2])
    assert error == pytest.approx(np.sqrt(3) / level.draws)


def test_what_is_smooth_is_no_jump():
    estimands, _ = many()
    for name in ("linear", "quadratic", "growth", "kink"):
        assert np.all(estimands.jump[columns(name)[0]] == 0)


def test_a_function_with_no_second_derivative_at_the_mode():
    """sqrt |theta - theta_0| has infinite derivatives there: averaged as it is, and finite."""
    mode = prepared()[2].mode
    _, level = level_of({"root": lambda theta: jnp.sqrt(jnp.abs(theta[0] - mode[0]))})
    assert not level.controlled.any()
    assert np.all(np.isfinite(level.mean))
    assert np.all(level.variance > 0)


def test_an_interval_of_something_never_seen_has_a_width():
    """P(theta > far) of a whole run: between 0 and a little, and a tolerance that it could not have met is not met."""
    result = tb.estimate(MODEL, ROWS, {"far": lambda theta: theta[0] > 50.0}, absolute_tolerance=0.02, seed=1)
    low, high = result["far"].interval
    assert low <= 0 < high < 0.1
    assert result["far"].value == 0
    assert result.converged
