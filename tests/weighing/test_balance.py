"""The Gaussian in balance against closed forms and quadrature."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.model.model import Model
from tallbayes.model.parts.making import settled, with_width
from tallbayes.setup.preparation import check_data
from tallbayes.weighing.balance import another_mode, balanced, find_mode, whitening_of, width_at_mode
from tallbayes.weighing.regression import PlainRegression, plain_regression

RNG = np.random.default_rng(1)


def regression_of(model: Model, x: np.ndarray, y: np.ndarray, unit: float = np.inf) -> PlainRegression:
    return plain_regression(model, check_data(model, {"x": x, "y": y}), unit)


def test_of_a_gaussian_posterior_it_is_the_posterior() -> None:
    x = RNG.standard_normal((40, 3))
    y = x @ np.array([1.0, -2.0, 0.5]) + 0.3 * RNG.standard_normal(40)
    regression = regression_of(tb.families.linear(0.3, prior_scale=2.0), x, y, 0.3)
    precision = x.T @ x / 0.09 + np.eye(3) / 4
    found = find_mode(regression, np.zeros(3))
    assert found is not None
    centre, curvature, _ = balanced(regression, found[0], found[1].curvature)
    np.testing.assert_allclose(curvature, precision, rtol=1e-8)
    np.testing.assert_allclose(centre, np.linalg.solve(precision, x.T @ y / 0.09), rtol=1e-8)


def test_its_mean_is_nearer_to_the_posterior_s_than_the_mode() -> None:
    """A logistic regression of one coefficient, by quadrature: the mode is off by half an sd, the centre by a tenth."""
    x, y = np.linspace(0.2, 3.0, 12)[:, None], np.array([0.0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    regression = regression_of(tb.families.logistic(prior_scale=3.0), x, y)
    grid = np.linspace(-4, 12, 20_001)
    density = np.exp(regression.log_density(grid[:, None]) - regression.log_density(np.array([[1.5]])))
    mean = np.sum(grid * density) / density.sum()
    sd = np.sqrt(np.sum((grid - mean) ** 2 * density) / density.sum())
    found = find_mode(regression, np.zeros(1))
    assert found is not None
    centre, precision, _ = balanced(regression, found[0], found[1].curvature)
    assert abs(found[0][0] - mean) > 0.4 * sd
    assert abs(centre[0] - mean) < 0.1 * sd
    assert abs(precision[0, 0] ** -0.5 / sd - 1) < 0.15


def test_a_second_mode_is_found_and_one_is_not_taken_for_two() -> None:
    """Four rows of Student's t noise: three agree, and one far off pulls with a tight prior on its side."""
    model = tb.families.student_t(1.0, 0.1, prior_scale=100.0)
    x = np.ones((6, 1))
    apart = regression_of(model, x, np.array([5.0, 5.01, 4.99, -5.0, -5.01, -4.99]), 0.1)
    found = find_mode(apart, np.array([4.0]))
    assert found is not None
    assert another_mode(apart, found[0], whitening_of(found[1].curvature))
    together = regression_of(model, x, np.array([5.0, 5.01, 4.99, 5.02, 5.0, 4.98]), 0.1)
    found = find_mode(together, np.zeros(1))
    assert found is not None
    assert not another_mode(together, found[0], whitening_of(found[1].curvature))


def test_a_climb_that_does_not_end_says_so() -> None:
    x = RNG.standard_normal((50, 2))
    separated = regression_of(tb.families.logistic(prior_scale=np.inf), x, (x[:, 0] > 0).astype(float))
    assert find_mode(separated, np.zeros(2)) is None


def test_climbs_of_a_shape_start_where_rows_are_near() -> None:
    """Times of few rows: climbs end at the one mode, from where the shape is small. The control starts where it is
    large, from where Newton's steps go one by one and do not arrive."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((100, 3))
    times = np.exp(x @ np.array([-0.1, -0.4, 0.2])) * rng.weibull(0.5, size=100)
    regression = regression_of(tb.families.weibull(intercept_scale=0.5), x, times)
    found = find_mode(regression, np.zeros(regression.dimension))
    assert found is not None
    whitening = whitening_of(found[1].curvature)
    assert not any(another_mode(regression, found[0], whitening, seed) for seed in range(10))
    (shape,) = regression.extras
    tight = replace(regression, extras=(replace(shape, prior=shape.prior._replace(law="half-normal")),))
    assert any(another_mode(tight, found[0], whitening, seed) for seed in range(10))


def test_the_width_of_an_excess_is_that_of_its_mode_where_rows_are_few() -> None:
    """About 0.8 and its sd 0.35: k of the weights falls. Of no excess, and of one that is known well, it stays."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2_000, 2))
    rate = np.exp(2 + x @ np.array([0.2, -0.1]))
    poisson, spread = rng.poisson(rate), rng.poisson(rate * rng.gamma(1.25, 0.8, size=2_000))
    model = tb.families.negative_binomial(intercept_scale=1.0)
    many = settled(model, {"x": x, "y": spread})
    few = settled(model, {"x": x[:20], "y": spread[:20]})
    assert width_at_mode(regression_of(settled(model, {"x": x, "y": poisson}), x, poisson)) is None
    assert width_at_mode(regression_of(many, x, spread)) is None
    own = width_at_mode(regression_of(few, x[:20], spread[:20]))
    assert few.parts is not None
    assert own is not None
    assert own > 1.5 * few.parts.extras[0].width
    # In the same theta: a value and the density of it are what they were.
    old, new = (each.parts.extras[0] for each in (few, with_width(few, own)) if each.parts is not None)
    places = [float(np.ravel(each.constraint.unconstrain(np.array(0.7)))[0]) for each in (old, new)]
    densities = [
        float(each.log_density(np.array(u)) - np.log(each.curve(np.array(u))[1]))
        for each, u in zip((old, new), places, strict=True)
    ]
    assert densities[0] == pytest.approx(densities[1], rel=1e-9)
