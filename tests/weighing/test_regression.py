"""Regressions in NumPy against their own models in JAX, and averages over a Gaussian against closed forms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.model.linear import Indexed
from tallbayes.model.model import Model, bind
from tallbayes.model.parts.making import with_codes
from tallbayes.model.weights import weigh
from tallbayes.setup.preparation import check_data
from tallbayes.weighing import regression as module
from tallbayes.weighing.regression import PlainRegression, plain_regression, rule

RNG = np.random.default_rng(0)
ROWS, COLUMNS = 60, 3
X = RNG.standard_normal((ROWS, COLUMNS))
ETA = X @ np.array([0.5, -0.3, 0.2])
BINARY = (RNG.random(ROWS) < 1 / (1 + np.exp(-ETA))).astype(float)
REAL = ETA + 0.5 * RNG.standard_normal(ROWS)
COUNTS = RNG.poisson(np.exp(ETA)).astype(float)
CLASSES = RNG.integers(0, 4, ROWS).astype(float)

FAMILIES: dict[str, tuple[Model, np.ndarray]] = {
    "logistic": (tb.families.logistic(2.0, 3.0), BINARY),
    "probit": (tb.families.probit([1.0, 2.0, 3.0]), BINARY),
    "linear": (tb.families.linear(0.5, 1.0, 2.0), REAL),
    "linear, unknown noise": (tb.families.linear(None, 1.0, 2.0, 0.7), REAL),
    "student t": (tb.families.student_t(4.0, 0.5), REAL),
    "student t, unknown noise": (tb.families.student_t(4.0, None, 1.0, 2.0), REAL),
    "poisson": (tb.families.poisson(1.0, 2.0), COUNTS),
    "negative binomial": (tb.families.negative_binomial(1.0, 2.0), COUNTS),
    "multinomial": (tb.families.multinomial(4, 1.0, 2.0), CLASSES),
    "multinomial of two classes": (tb.families.multinomial(2, 1.0), BINARY),
}


def plain(model: Model, rows: Any, unit: float = np.inf) -> PlainRegression:
    return plain_regression(model, rows, unit)


def in_jax(model: Model, rows: Any) -> tuple[Any, np.ndarray]:
    target, start = bind(model, jax.tree.map(lambda leaf: np.asarray(leaf[0]), rows))

    def log_density(u: Any) -> Any:
        return target.log_prior.call(u) + jnp.sum(jax.vmap(target.log_likelihood.call, (None, 0))(u, rows))

    return log_density, start


def unit_of(name: str) -> float:
    return 0.5 if name in ("linear", "student t") else float(np.std(REAL)) if "unknown" in name else np.inf


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dressed", [False, True])
def test_the_log_posterior_is_that_of_the_model_in_jax(name: str, dressed: bool) -> None:
    model, y = FAMILIES[name]
    rows: dict[str, Any] = {"x": X, "y": y}
    if dressed and model.family != "multinomial":
        rows["offset"] = 0.1 * np.arange(ROWS) / ROWS
    rows = check_data(model, rows)
    if dressed:
        model, rows = weigh(model, rows, np.linspace(0.0, 2.0, ROWS))
    with jax.enable_x64(True):
        log_density, start = in_jax(model, rows)
        points = start + 0.3 * RNG.standard_normal((5, len(start)))
        expected = jax.jit(jax.vmap(log_density))(points)
    np.testing.assert_allclose(plain(model, rows).log_density(points), expected, rtol=1e-11)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_few_rows_and_points_at_a_time_make_the_same_sums(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, y = FAMILIES[name]
    model, rows = weigh(model, check_data(model, {"x": X, "y": y}), np.linspace(0.0, 2.0, ROWS))
    regression = plain(model, rows, unit_of(name))
    points = 0.3 * np.random.default_rng(1).standard_normal((5, regression.dimension))
    whitening = 0.2 * np.eye(regression.dimension)

    def found() -> list[Any]:
        return [regression.log_density(points), *regression.at(points[0]), *regression.about(points[0], whitening)]

    whole = found()
    monkeypatch.setattr(module, "PART_NUMBERS", 1)
    assert [part.stop for part in regression._parts(5)] == [module.LEAST_ROWS, ROWS]
    for one, other in zip(found(), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_slope_and_curvature_at_a_point_are_those_of_the_model_in_jax(name: str) -> None:
    model, y = FAMILIES[name]
    rows = check_data(model, {"x": X, "y": y})
    with jax.enable_x64(True):
        log_density, start = in_jax(model, rows)
        point = jnp.asarray(start + 0.2)
        gradient, hessian = jax.jit(lambda u: (jax.grad(log_density)(u), jax.hessian(log_density)(u)))(point)
    found = plain(model, rows, unit_of(name)).at(np.asarray(point))
    np.testing.assert_allclose(found.gradient, gradient, atol=3e-3 * np.abs(gradient).max())
    np.testing.assert_allclose(found.curvature, -hessian, atol=3e-3 * np.abs(hessian).max())


def test_codes_are_columns() -> None:
    model, codes = tb.families.logistic(prior_scale=2.0), RNG.integers(0, 4, (ROWS, 1)).astype(np.int32)
    indexed = with_codes(model, Indexed(COLUMNS + 3, tuple(range(COLUMNS))))
    rows = {"x": X, "codes": np.where(codes > 0, COLUMNS - 1 + codes, COLUMNS + 3).astype(np.int32), "y": BINARY}
    dense = np.hstack([X, codes == np.arange(1, 4)]).astype(float)
    points = RNG.standard_normal((4, COLUMNS + 3))
    expected = plain(model, check_data(model, {"x": dense, "y": BINARY})).log_density(points)
    np.testing.assert_allclose(plain(indexed, rows).log_density(points), expected, rtol=1e-12)


def test_averages_over_a_gaussian_have_the_closed_form_of_a_poisson_regression() -> None:
    """E exp eta = exp(m + s^2 / 2), and so are minus E l'' and y - E l'."""
    model = tb.families.poisson(prior_scale=1.0)
    regression = plain(model, check_data(model, {"x": X, "y": COUNTS}))
    theta, whitening = np.array([0.1, -0.2, 0.3]), np.linalg.cholesky(0.05 * np.eye(3) + 0.02)
    rate = np.exp(X @ theta + 0.5 * np.sum((X @ whitening) ** 2, axis=1) + 0.5 * 0.02**2)
    found = regression.about(theta, whitening)
    np.testing.assert_allclose(found.gradient, X.T @ (COUNTS - rate) - theta, rtol=1e-9)
    np.testing.assert_allclose(found.curvature, (X.T * rate) @ X + np.eye(3), rtol=1e-9)


@pytest.mark.parametrize("dimension", [1, 2, 3, 5])
def test_rules_are_exact_up_to_the_fifth_degree(dimension: int) -> None:
    nodes, weights = rule(dimension)
    assert weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose((weights * nodes.T) @ nodes, np.eye(dimension), atol=1e-12)
    np.testing.assert_allclose(weights @ nodes**3, 0.0, atol=1e-12)
    np.testing.assert_allclose(weights @ nodes**4, 3.0, rtol=1e-12)
    if dimension > 1:
        assert weights @ (nodes[:, 0] ** 2 * nodes[:, 1] ** 2) == pytest.approx(1.0)


PRECISE: dict[str, tuple[np.ndarray, float]] = {
    "gamma": (RNG.gamma(1e4, np.exp(ETA) / 1e4), np.log(1e4)),
    "beta": (RNG.beta(1e4 / (1 + np.exp(-ETA)), 1e4 / (1 + np.exp(ETA))), np.log(1e4)),
    "weibull": (np.exp(ETA) * RNG.weibull(60.0, size=ROWS), np.log(60.0)),
    "log_normal": (np.exp(ETA + 0.01 * RNG.standard_normal(ROWS)), np.log(0.01)),
}


@pytest.mark.parametrize("name", PRECISE)
def test_derivatives_at_a_point_are_of_a_point_however_little_a_row_scatters(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slope and the bend along the extra are those of differences; the control takes 0.02 for next to nothing, and
    what that adds to residuals for noise."""
    y, place = PRECISE[name]
    regression = plain(getattr(tb.families, name)(), {"x": X, "y": y})
    theta = np.array([0.5, -0.3, 0.2, place])
    step = 1e-3 * np.array([0.0, 0.0, 0.0, 1.0])
    below, here, above = regression.log_density(np.array([theta - step, theta, theta + step]))
    slope, bend = (above - below) / (2 * step[-1]), -(above - 2 * here + below) / step[-1] ** 2
    found = regression.at(theta)
    assert abs(found.gradient[-1] - slope) < 0.05 * np.sqrt(bend)
    assert found.curvature[-1, -1] == pytest.approx(bend, rel=0.05)
    monkeypatch.setattr(PlainRegression, "_point", lambda self, theta, mean: np.full((1, 2), 0.02))
    assert abs(regression.at(theta).gradient[-1] - slope) > np.sqrt(bend)
