"""The Gaussian in balance against closed forms and quadrature."""

from __future__ import annotations

import numpy as np

import tallbayes as tb
from tallbayes.model.model import Model
from tallbayes.setup.preparation import check_data
from tallbayes.weighing.balance import another_mode, balanced, find_mode, whitening_of
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
