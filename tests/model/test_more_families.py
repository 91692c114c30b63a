"""Families with laws of their own: densities are SciPy's, in NumPy and in JAX; posteriors are those of a grid."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import EXTRAS, draw_rows, law, log_density
from scipy.special import gammaln

import tallbayes as tb
from tallbayes.errors import DataError, InputError, ModelError
from tallbayes.estimation import small
from tallbayes.model import constraints
from tallbayes.model.catalogue import CATALOGUE
from tallbayes.model.families import FAMILIES
from tallbayes.model.normalisers import log_normaliser
from tallbayes.model.parts.extras import ExtraPart, width_for
from tallbayes.model.parts.laws import LAWS

ROWS = 60
OPTIONS: dict[str, Any] = {name: {"num_classes": 4} for name in ("ordinal", "ordinal_probit")}


def made(name: str, **options: Any) -> tb.Model:
    return FAMILIES[name](**OPTIONS.get(name, {}), **options)


def places(model: tb.Model, extras: dict[str, Any]) -> np.ndarray:
    assert model.parts is not None
    found = [
        np.ravel(np.asarray(each.constraint.unconstrain(np.asarray(extras[each.name])))) for each in model.parts.extras
    ]
    return np.concatenate([np.empty(0), *found])


def rows_of(name: str, count: int = ROWS, seed: int = 0) -> tuple[dict[str, Any], np.ndarray]:
    rng = np.random.default_rng(seed)
    eta = 0.5 + 0.7 * rng.normal(size=count)
    return draw_rows(name, eta, EXTRAS[name], rng), eta


@pytest.mark.parametrize("name", EXTRAS)
def test_densities_are_those_of_scipy(name: str) -> None:
    """In NumPy over rows and points, and in JAX row by row."""
    model, (rows, eta) = made(name), rows_of(name)
    assert model.predictor is not None
    shape = places(model, EXTRAS[name])
    exact = log_density(name, rows, eta, EXTRAS[name])
    left = np.zeros(ROWS) if name.startswith("ordinal") else log_normaliser(model.noise, rows)
    stack = np.stack([eta[:, None], *(np.full((ROWS, 1), each) for each in shape)])
    columns = {key: each[:, None] for key, each in rows.items()}
    plain = model.predictor(stack if len(shape) else stack[0], columns)
    np.testing.assert_allclose(plain[:, 0] + left, exact, rtol=1e-9, atol=1e-9)
    with jax.enable_x64(True):
        own = jnp.asarray(np.column_stack([eta, *(np.full(ROWS, each) for each in shape)]))
        density = jax.vmap(lambda e, row: model.predictor(e if len(shape) else e[0], row))
        device = {key: jnp.asarray(each) for key, each in rows.items()}
        value, slopes = jax.jit(lambda e: (density(e, device), jax.grad(lambda x: density(x, device).sum())(e)))(own)
        np.testing.assert_allclose(np.asarray(value) + left, exact, rtol=1e-9, atol=1e-9)
        step = 1e-6
        moved = exact_slope(name, rows, eta, step)
        np.testing.assert_allclose(np.asarray(slopes)[:, 0], moved, rtol=1e-5, atol=1e-6)
        assert np.all(np.isfinite(slopes))


def exact_slope(name: str, rows: dict[str, Any], eta: np.ndarray, step: float) -> np.ndarray:
    both = [log_density(name, rows, eta + sign * step, EXTRAS[name]) for sign in (1, -1)]
    return np.asarray((both[0] - both[1]) / (2 * step))


@pytest.mark.parametrize("y", [1e-8, 1.0, 1e4])
@pytest.mark.parametrize("shape", [1e-3, 1.0, 1e6])
def test_gamma_keeps_its_digits(y: float, shape: float) -> None:
    """log Gamma(a) - a log a + a is lost to rounding where a is large, if it is taken at its word."""
    from tallbayes.model.densities import gamma_rest

    found = gamma_rest(np.array([shape]))[0]
    exact = gammaln(shape) - shape * np.log(shape) + shape
    assert found == pytest.approx(exact, rel=1e-8, abs=1e-9 * max(1.0, shape * 1e-5))


def test_a_prior_s_derivatives() -> None:
    for space, prior in product(("positive",), ("half-normal", "log-normal")):
        part = ExtraPart("x", space, CATALOGUE["gamma"].extras[0].prior._replace(law=prior))
        u = np.linspace(-3, 2, 2_001)
        with jax.enable_x64(True):
            exact = [float(part.log_prior(jnp.exp(each)) + each) for each in u[::500]]
        np.testing.assert_allclose(part.log_density(u)[::500], exact, rtol=1e-9, atol=1e-9)
    chance = ExtraPart("x", "chance", CATALOGUE["hurdle_poisson"].extras[0].prior)
    u = np.linspace(-30, 30, 60_001)
    assert np.exp(chance.log_density(u)).sum() * 1e-3 == pytest.approx(1.0, rel=1e-6)
    slope, bend = chance.derivatives(0.7)
    assert slope == pytest.approx(-np.tanh(0.35), rel=1e-6)
    assert bend == pytest.approx(-0.5 / np.cosh(0.35) ** 2, rel=1e-4)


def test_priors_of_extras_are_normalised() -> None:
    """Evidences count them: sums over a grid of theta are 1."""
    value = np.linspace(1e-4, 60, 400_001)
    for name in ("gamma", "beta", "weibull", "negative_binomial"):
        model = made(name)
        assert model.parts is not None
        part = model.parts.extras[0]
        u = np.linspace(-40, 40, 400_001) if part.space == "positive" else part.constraint.unconstrain(value)
        density = np.exp(part.log_density(np.asarray(u)) + part.log_constant)
        assert float(np.sum(density[1:] * np.diff(u))) == pytest.approx(1.0, abs=1e-3)
    cuts = made("ordinal", cut_scale=2.0).parts
    assert cuts is not None
    part = ExtraPart("cut_points", "ordered", cuts.extras[0].prior, 2)
    one, other = np.meshgrid(*[np.linspace(-12, 12, 801)] * 2)
    total = -0.5 * (one**2 + other**2) / 4 + part.log_constant
    assert float(np.exp(total)[one < other].sum()) * 0.03**2 == pytest.approx(1.0, abs=5e-3)


GRID = ("gamma", "beta", "exponential", "weibull", "log_normal", "zero_inflated_poisson", "hurdle_poisson")


def on_a_grid(name: str, rows: dict[str, Any], x: np.ndarray) -> dict[str, tuple[float, float]]:
    """Mean and sd of slope, intercept and extra, by sums over a grid in R^d about the truth."""
    model = made(name)
    assert model.parts is not None
    extras = model.parts.extras
    axes = [np.linspace(-1.5, 1.5, 71), np.linspace(-1.5, 2.5, 71)]
    axes += [places(model, EXTRAS[name])[0] + np.linspace(-3.5, 3.5, 71) for _ in extras]
    slope, start, *u = np.meshgrid(*axes, indexing="ij")
    total = -0.5 * (slope**2 + (start / 10) ** 2)
    natural: dict[str, Any] = {}
    for each, place in zip(extras, u, strict=True):
        natural[each.name] = each.curve(place)[0]
        total = total + each.log_density(place)
    for i in range(len(x)):
        row = {key: np.full(slope.shape, column[i]) for key, column in rows.items()}
        total += log_density(name, row, slope * x[i] + start, natural)
    weight = np.exp(total - total.max())
    weight /= weight.sum()
    edge = max(float(np.abs(weight.take(k, axis).sum())) for axis in range(weight.ndim) for k in (0, -1))
    assert edge < 1e-4
    values = {"coefficients": slope, "intercept": start, **natural}
    means = {key: float((weight * value).sum()) for key, value in values.items()}
    return {
        key: (means[key], float((weight * (value - means[key]) ** 2).sum() ** 0.5)) for key, value in values.items()
    }


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("beta", "weibull", "gamma"))) for name in GRID]
)
def test_posteriors_are_those_of_a_grid(name: str) -> None:
    """Within the tolerance of 0.02 posterior sds, of which the error is a third at the most: false alarm 1e-6."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=ROWS)
    rows = draw_rows(name, 0.5 + 0.5 * x, EXTRAS[name], rng)
    exact = on_a_grid(name, rows, x)
    result = tb.estimate(made(name, intercept_scale=10.0), {"x": x[:, None], **rows}, tolerance=0.02)
    assert result.converged
    for key, (mean, sd) in exact.items():
        found = result["mean"].value[key], result["sd"].value[key]
        assert abs(float(np.squeeze(found[0])) - mean) < 0.05 * sd, key
        assert abs(float(np.squeeze(found[1])) - sd) < 0.05 * sd, key


def test_an_overdispersion_of_nothing_is_that_of_a_grid() -> None:
    """Poisson counts under a negative binomial: what is next to 0 has its mean and sd, and the others theirs."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=ROWS)
    y = rng.poisson(np.exp(0.5 + 0.5 * x)).astype(float)
    axes = np.linspace(-0.3, 1.3, 61), np.linspace(-0.5, 1.5, 61), (np.arange(100) + 0.5) / 80
    slope, start, excess = np.meshgrid(*axes, indexing="ij")
    total = -0.5 * (slope**2 + (start / 10) ** 2 + excess**2)
    for x_i, y_i in zip(x, y, strict=True):
        total += law("negative_binomial", slope * x_i + start, {"overdispersion": excess}).logpmf(y_i)
    weight = np.exp(total - total.max())
    weight /= weight.sum()
    assert weight[:, :, -1].sum() < 1e-4
    result = tb.estimate(made("negative_binomial", intercept_scale=10.0), {"x": x[:, None], "y": y}, tolerance=0.02)
    assert result.converged
    for name, values in (("coefficients", slope), ("intercept", start), ("overdispersion", excess)):
        mean = float((weight * values).sum())
        sd = float((weight * (values - mean) ** 2).sum() ** 0.5)
        found = result["mean"].value[name], result["sd"].value[name]
        assert abs(float(np.squeeze(found[0])) - mean) < 0.05 * sd
        assert abs(float(np.squeeze(found[1])) - sd) < 0.05 * sd


def test_another_width_of_an_excess_is_the_same_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few rows that speak for an excess: answers of weights, and of programs compiled afterwards, are those of the
    width without a look at the mode, within five standard errors of both."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS, 1))
    y = rng.poisson(np.exp(0.8 + 0.5 * x[:, 0]) * rng.gamma(1.25, 0.8, size=ROWS)).astype(float)

    def answers() -> tuple[Any, ...]:
        model = made("negative_binomial", intercept_scale=1.0)
        result = tb.estimate(model, {"x": x, "y": y}, tolerance=0.02, seed=1)
        assert result.converged
        assert result.posterior is not None
        square = result.posterior.expectation(lambda theta: theta["overdispersion"] ** 2)
        return result.posterior.reading, *(result[each] for each in ("mean", "sd")), square

    reading, *found = answers()
    monkeypatch.setattr(small, "width_at_mode", lambda regression: None)
    before, *exact = answers()
    assert reading.excess_width > 2 * before.excess_width
    for one, other in zip(found, exact, strict=True):
        error = np.hypot(one.flat_error, other.flat_error)
        assert np.all(np.abs(one.flat_value - other.flat_value) < 5 * error)


def test_a_width_follows_from_the_rows() -> None:
    y = np.random.default_rng(0).poisson(3.0, 10_000).astype(float)
    assert width_for(y, 1.0) == pytest.approx(2**0.5 / 300, rel=0.1)
    assert width_for(y[:10], 0.1) == 0.1
    assert width_for(np.zeros(5), 1.0) == 1.0


@pytest.mark.parametrize("name", EXTRAS)
def test_laws_have_their_mean_variance_and_chances(name: str) -> None:
    """Draws within 5 standard errors: false alarm 6e-7 each."""
    rng, eta = np.random.default_rng(2), np.full((1, 100_000), 0.4)
    stack = np.stack([eta, *(np.full(eta.shape, each) for each in places(made(name), EXTRAS[name]))])
    own, y = LAWS[name], LAWS[name].draw(rng, stack)
    if own.cdf is None or own.variance is None:
        expected = np.exp(log_density(name, {"y": np.arange(4)}, np.full(4, 0.4), EXTRAS[name]))
        np.testing.assert_allclose(
            np.bincount(y[0].astype(int), minlength=4) / y.size, expected, atol=5 * 0.5 / y.size**0.5
        )
        return
    variance = float(own.variance(stack[:, 0, :1])[0])
    spread = ((y - y.mean()) ** 2).std() / y.size**0.5
    assert abs(y.var() - variance) < 5 * spread
    for at in (0.0, 0.15, 0.5) if name == "beta" else (0.0, 1.0, 2.0):
        chance = float(own.cdf(np.array([at]), stack[:, 0, :1])[0])
        assert abs(np.mean(y <= at) - chance) < 5 * (chance * (1 - chance) / y.size) ** 0.5 + 1e-12
    if name in ("gamma", "beta", "exponential", "weibull", "log_normal"):
        assert variance == pytest.approx(float(law(name, 0.4, EXTRAS[name]).var()), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "rows", "said"),
    [
        ("gamma", {"y": 0.0}, "numbers above 0"),
        ("beta", {"y": 1.0}, "strictly between 0 and 1"),
        ("weibull", {"y": -1.0}, "times above 0"),
        ("weibull", {"y": 1.0, "censored": 3.0}, r"censored of 0 \(event\)"),
        ("exponential", {"y": 1.0, "censored": 2.0}, "upper"),
        ("exponential", {"y": 1.0, "censored": 2.0, "upper": 0.5}, "upper bounds above"),
        ("zero_inflated_poisson", {"y": 0.5}, "counts"),
        ("ordinal", {"y": 4.0}, r"0\.\.3"),
    ],
)
def test_a_response_outside_the_support(name: str, rows: dict[str, float], said: str) -> None:
    good = {"y": 0.5, "censored": 0.0, "upper": 1.0}
    if name in ("zero_inflated_poisson", "ordinal"):
        good["y"] = 1.0
    data = {key: np.r_[np.full(9, good[key]), value] for key, value in rows.items()}
    with pytest.raises(DataError, match=said):
        tb.estimate(made(name), {"x": np.ones((10, 1)), **data}, tolerance=0.1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tb.families.gamma(shape_prior_scale=0.0), "shape_prior_scale > 0"),
        (lambda: tb.families.ordinal(1), "num_classes"),
        (lambda: tb.families.ordinal(3, cut_scale=float("inf")), "cut_scale"),
        (lambda: tb.families.quantile(1.0), "level between 0 and 1"),
        (lambda: tb.families.quantile(0.5, smoothing=0.0), "smoothing"),
    ],
)
def test_options_that_are_none(make: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        make()


def test_a_step_of_nothing_is_a_floor_of_the_ordinal_density() -> None:
    """Negative control of the digits: two cut points next to each other, where a difference of F's has none left."""
    density = made("ordinal").predictor
    assert density is not None
    u = constraints.ordered.unconstrain(np.array([0.0, 1e-12, 1.0]))
    eta = np.concatenate([[0.3], u])[:, None, None]
    found = float(density(eta, {"y": np.array([[1.0]])})[0, 0])
    slope = 1 / (1 + np.exp(0.3)) * (1 - 1 / (1 + np.exp(0.3)))
    assert found == pytest.approx(np.log(1e-12 * slope), rel=1e-9)
    with np.errstate(divide="ignore"):
        plain = np.log(1 / (1 + np.exp(-(1e-12 - 0.3))) - 1 / (1 + np.exp(0.3)))
    assert abs(plain - found) > 1e-6


def test_a_loss_says_nothing_of_rows() -> None:
    rng = np.random.default_rng(0)
    rows = {"x": rng.normal(size=200), "y": rng.standard_t(3, 200)}
    result = tb.fit("y ~ x", rows, family="quantile", family_options={"level": 0.9}, tolerance=0.1)
    assert any("pseudo-posterior" in note for note in result.notes)
    assert 0.8 < np.mean(rows["y"] < result["mean"].value["Intercept"] + result["mean"].value["x"] * rows["x"]) < 0.97
    for answer in (result.evidence, result.loo, result.checks, result.simulate):
        with pytest.raises(InputError, match="loss"):
            answer()
