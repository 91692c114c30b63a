"""Families: the cheap per-row form is the model written by hand, to rounding; and y outside its support is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln

import tallbayes as tb
from tallbayes.anchor.expansion import expand
from tallbayes.anchor.sums import Curvature
from tallbayes.errors import DataError, ModelError
from tallbayes.model import densities
from tallbayes.model.catalogue import CATALOGUE
from tallbayes.model.families import FAMILIES
from tallbayes.model.links import LINKS, TAILS
from tallbayes.model.model import Model, bind
from tallbayes.model.parts.laws import LAWS
from tallbayes.model.responses import CHECKS
from tallbayes.model.weights import weigh
from tallbayes.rows.table import make_table

ROWS, COLUMNS, CLASSES = 300, 3, 4
OPTIONS = {name: {"num_classes": CLASSES} for name in ("multinomial", "ordinal", "ordinal_probit")}
# Those of `parts.laws` and the loss are held against SciPy in test_more_families.
PLAIN = sorted(name for name, record in CATALOGUE.items() if record.is_plain)
KNOWN_NOISE = {"linear": {"noise_scale": 0.8}, "student_t": {"noise_scale": 0.8, "degrees_of_freedom": 3.0}}


def response(name: str, rng: np.random.Generator) -> np.ndarray:
    draws = {
        "logistic": rng.integers(0, 2, ROWS),
        "probit": rng.integers(0, 2, ROWS),
        "linear": rng.normal(size=ROWS),
        "student_t": rng.standard_t(3, ROWS),
        "poisson": rng.poisson(2.0, ROWS),
        "negative_binomial": rng.negative_binomial(2, 0.3, ROWS),
        "multinomial": rng.integers(0, CLASSES, ROWS),
    }
    return draws[name].astype(np.float64)


def log_density(name: str, y: Any, eta: Any, extra: Any) -> Any:
    """log p(y | eta) by JAX's own distributions, constants and all."""
    stats = jax.scipy.stats
    match name:
        case "logistic":
            return stats.bernoulli.logpmf(y.astype(int), jax.nn.sigmoid(eta))
        case "probit":
            return stats.norm.logcdf(jnp.where(y == 1, eta, -eta))
        case "linear":
            return stats.norm.logpdf(y, eta, extra)
        case "student_t":
            return stats.t.logpdf(y, 4.0, eta, extra)
        case "poisson":
            return stats.poisson.logpmf(y.astype(int), jnp.exp(eta))
        case "negative_binomial":
            mean, r = jnp.exp(eta), 1 / extra
            return stats.nbinom.logpmf(y.astype(int), r, r / (r + mean))
        case "multinomial":
            return jax.nn.log_softmax(jnp.concatenate([jnp.zeros(1), eta]))[y.astype(int)]
    raise AssertionError(name)


def by_hand(name: str, intercept: bool, prior: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """The log posterior of all rows as a function of theta in its owner's space, written out."""

    def total(theta: Any, rows: Any) -> Any:
        parts = theta if isinstance(theta, dict) else {"coefficients": theta}
        eta = rows["x"] @ parts["coefficients"].T
        if intercept:
            eta = eta + parts["intercept"]
        if name != "multinomial":
            eta = eta + rows["offset"]
        extra = parts.get("noise_scale", parts.get("overdispersion"))
        return jnp.sum(jax.vmap(lambda y, e: log_density(name, y, e, extra))(rows["y"], eta)) + prior(parts)

    return total


def gaussian_prior(parts: Any) -> Any:
    scales = {"coefficients": 2.0, "intercept": 5.0, "noise_scale": 1.0, "overdispersion": 1.0}
    return sum(-0.5 * jnp.sum((part / scales[key]) ** 2) for key, part in parts.items())


@pytest.fixture(scope="module")
def table_of() -> Callable[[str], dict[str, np.ndarray]]:
    def make(name: str) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(7)
        rows = {"x": rng.normal(size=(ROWS, COLUMNS)), "y": response(name, rng)}
        return rows if name == "multinomial" else rows | {"offset": 0.3 * rng.normal(size=ROWS)}

    return make


def test_every_family_has_its_record() -> None:
    assert list(CATALOGUE) == list(FAMILIES)
    for name, record in CATALOGUE.items():
        model = FAMILIES[name](**OPTIONS.get(name, {}))
        assert model.family == record.name == name
        assert record.response in (*CHECKS, "class", "ordered")
        assert record.link in LINKS
        assert record.tail is None or record.tail in TAILS
        assert (record.response == "count" and record.is_plain) == (record.tail is not None)
        assert not record.has_law or name in LAWS
        names = [extra.name for extra in record.extras]
        assert sorted(model.constraints or ()) == names
        assert all(name > "intercept" or record.response == "ordered" for name in names)


@pytest.mark.parametrize(
    "intercept", [pytest.param(False, marks=pytest.mark.slow), True], ids=["no intercept", "intercept"]
)
@pytest.mark.parametrize("name", PLAIN)
def test_a_family_is_the_model_written_by_hand(name, intercept, table_of):
    """Differences of values, gradients and Hessians in R^d: constants that do not depend on theta cancel."""
    model = FAMILIES[name](prior_scale=2.0, intercept_scale=5.0 if intercept else None, **OPTIONS.get(name, {}))
    rows = model.check(table_of(name))
    target, start = bind(model, jax.tree.map(lambda array: array[0], rows))
    table = make_table(rows, "float64")
    rng = np.random.default_rng(3)
    here, there = start + 0.3 * rng.normal(size=start.size), start - 0.2 * rng.normal(size=start.size)
    ours = [expand(target, table, point) for point in (here, there)]
    reference = by_hand(name, intercept, gaussian_prior)
    with jax.enable_x64(True):
        device = {key: jnp.asarray(part) for key, part in rows.items()}

        def free(vector: Any) -> Any:
            return reference(target.space.theta(vector), device) + target.space.log_jacobian(vector)

        derivatives = jax.jit(lambda vector: (free(vector), jax.grad(free)(vector), jax.hessian(free)(vector)))
        value, gradient, hessian = (np.asarray(part) for part in derivatives(here))
        values = [float(value), float(derivatives(there)[0])]
    assert ours[0].value - ours[1].value == pytest.approx(values[0] - values[1], rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(ours[0].gradient, gradient, rtol=1e-8, atol=1e-7)
    np.testing.assert_allclose(-ours[0].hessian, hessian, rtol=1e-8, atol=1e-6)
    diagonal = expand(target, table, here, curvature=Curvature.DIAGONAL).hessian
    np.testing.assert_allclose(diagonal, np.diag(ours[0].hessian), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", sorted(KNOWN_NOISE))
def test_known_noise_is_unknown_noise_held_fixed(name, table_of):
    rows = table_of(name)
    known = FAMILIES[name](prior_scale=2.0, **KNOWN_NOISE[name])
    options = {k: v for k, v in KNOWN_NOISE[name].items() if k != "noise_scale"}
    unknown = FAMILIES[name](prior_scale=2.0, **options)
    row = jax.tree.map(lambda array: array[0], rows)
    table = make_table(rows, "float64")
    theta = np.array([0.3, -0.2, 0.5])
    one = expand(bind(known, row)[0], table, theta).gradient
    other = expand(bind(unknown, row)[0], table, np.append(theta, np.log(0.8))).gradient
    np.testing.assert_allclose(one, other[:COLUMNS], rtol=1e-12)


def test_two_classes_are_a_logistic_regression(table_of):
    rows = table_of("logistic")
    del rows["offset"]
    row = jax.tree.map(lambda array: array[0], rows)
    table, theta = make_table(rows, "float64"), np.array([0.3, -0.2, 0.5, 0.1])
    both = [tb.families.logistic(1.0, 5.0), tb.families.multinomial(2, 1.0, 5.0)]
    one, other = (expand(bind(model, row)[0], table, theta) for model in both)
    np.testing.assert_allclose(one.hessian, other.hessian, rtol=1e-12)
    assert bind(both[1], row)[0].structure.build(theta)["coefficients"].shape == (1, COLUMNS)


rising_factorial = jax.jit(jax.value_and_grad(densities.rising_factorial, argnums=1))
rising_factorial_slope = jax.jit(jax.grad(lambda y, s: densities.rising_factorial(y, jnp.exp(-s)), argnums=1))


@pytest.mark.parametrize("r", [1e-6, 0.3, 7.0, 1e3, 1e6])
@pytest.mark.parametrize("y", [0.0, 1.0, 12.0, 5_000.0])
def test_counts_keep_their_digits_from_all_excess_to_none(y, r):
    """log Gamma(y + r) - log Gamma(r) - y log r = sum_{k<y} log(1 + k/r): summed here, by Stirling there."""
    exact = np.sum(np.log1p(np.arange(y) / r))
    slope = np.sum(-np.arange(y) / (r * (r + np.arange(y))))
    with jax.enable_x64(True):
        value, gradient = rising_factorial(np.float64(y), np.float64(r))
        narrow = rising_factorial_slope(np.float32(y), np.float32(-np.log(r)))
    assert float(value) == pytest.approx(exact, rel=1e-8, abs=1e-9)
    assert float(gradient) == pytest.approx(slope, rel=1e-6, abs=1e-9 / r)
    assert narrow.dtype == np.float32
    assert float(narrow) == pytest.approx(-r * slope, rel=2e-3, abs=2e-4 * max(y, 1))


def test_the_plain_difference_of_log_gammas_would_not():
    """Negative control of the test above: what was avoided is wrong in the first digit."""
    y, r = 12.0, 1e6
    naive = np.float32(gammaln(np.float32(y + r))) - np.float32(gammaln(np.float32(r))) - np.float32(y * np.log(r))
    assert abs(naive - np.sum(np.log1p(np.arange(y) / r))) > 1e-2


def test_scales_by_column_and_for_the_intercept():
    scales = np.array([0.5, 1.0, 4.0])
    model = tb.families.logistic(prior_scale=scales, intercept_scale=10.0)
    theta = {"coefficients": jnp.array([1.0, 2.0, 3.0]), "intercept": jnp.asarray(4.0)}
    assert float(model.log_prior(theta)) == pytest.approx(-0.5 * (4 + 4 + 9 / 16 + 16 / 100))
    flat = tb.families.logistic(prior_scale=float("inf"), intercept_scale=float("inf"))
    assert float(flat.log_prior(theta)) == 0.0


@pytest.mark.parametrize("data", ["a dict of rows", "bare rows"])
def test_a_weight_is_that_many_equal_rows(data):
    rng = np.random.default_rng(0)
    y, counts = rng.normal(size=40), rng.integers(0, 4, 40)
    if data == "bare rows":
        model = Model(lambda t: -0.5 * t**2, lambda t, row: -0.5 * (row - t) ** 2, 0.0)
        rows, repeated = y, np.repeat(y, counts)
    else:
        model = tb.families.student_t(prior_scale=2.0)
        rows = {"x": rng.normal(size=(40, 2)), "y": y}
        repeated = {key: np.repeat(part, counts, axis=0) for key, part in rows.items()}
    theta = np.full(bind(model, jax.tree.map(lambda a: a[0], rows))[0].dimension, 0.3)
    weighted_model, weighted_rows = weigh(model, rows, counts)
    sums = []
    for each, arrays in ((model, repeated), (weighted_model, weighted_rows)):
        target = bind(each, jax.tree.map(lambda a: a[0], arrays))[0]
        sums.append(expand(target, make_table(arrays, "float64"), theta))
    np.testing.assert_allclose(sums[0].gradient, sums[1].gradient, rtol=1e-12)
    np.testing.assert_allclose(sums[0].hessian, sums[1].hessian, rtol=1e-12)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (np.ones(3), "one a row"),
        (np.r_[-1.0, np.ones(9)], "weights >= 0"),
        (np.r_[np.nan, np.ones(9)], "nan at row 0"),
        (np.zeros(10), "zeros alone"),
        (np.array(["a"] * 10), "numbers"),
    ],
    ids=["too few", "negative", "nan", "zeros", "text"],
)
def test_weights_that_are_none(weights, said):
    rows = {"x": np.ones((10, 1)), "y": np.ones(10)}
    with pytest.raises(DataError, match=said):
        tb.estimate(tb.families.linear(1.0), rows, tolerance=0.1, weights=weights)


@pytest.mark.parametrize(
    ("name", "y", "said"),
    [
        ("logistic", 2.0, r"\{0, 1\}"),
        ("probit", -1.0, r"\{0, 1\}"),
        ("poisson", -1.0, "counts"),
        ("poisson", 0.5, "counts"),
        ("negative_binomial", 1.5, "counts"),
        ("multinomial", 4.0, r"0\.\.3"),
        ("multinomial", 0.5, r"0\.\.3"),
    ],
)
def test_a_response_outside_the_support(name, y, said):
    rows = {"x": np.ones((10, 1)), "y": np.r_[np.zeros(9), y]}
    with pytest.raises(DataError, match=said) as error:
        tb.estimate(FAMILIES[name](**OPTIONS.get(name, {})), rows, tolerance=0.1)
    assert "at row 9 (1 such rows)" in str(error.value)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: tb.families.logistic(prior_scale=0.0), "prior_scale > 0"),
        (lambda: tb.families.logistic(prior_scale=[1.0, -1.0]), "prior_scale > 0"),
        (lambda: tb.families.logistic(intercept_scale=-1.0), "intercept_scale > 0"),
        (lambda: tb.families.linear(noise_scale=0.0), "noise_scale > 0"),
        (lambda: tb.families.linear(noise_prior_scale=float("inf")), "noise_prior_scale > 0"),
        (lambda: tb.families.student_t(degrees_of_freedom=0.0), "degrees_of_freedom > 0"),
        (lambda: tb.families.multinomial(1), "num_classes"),
    ],
)
def test_scales_that_are_none(make, said):
    with pytest.raises(ModelError, match=said):
        make()


def test_as_many_scales_as_columns():
    rows = {"x": np.ones((10, 3)), "y": np.zeros(10)}
    with pytest.raises(ModelError, match="3 prior scales"):
        tb.estimate(tb.families.logistic(prior_scale=[1.0, 2.0]), rows, tolerance=0.1)
    with pytest.raises(DataError, match="offset of shape"):
        tb.estimate(tb.families.poisson(), rows | {"offset": np.ones((10, 2))}, tolerance=0.1)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_an_offset_that_would_not_be_read(num_classes):
    """Of two classes too, whose one predictor could take it: the family is one and the same for any number."""
    rows = {"x": np.ones((10, 1)), "y": np.zeros(10)}
    model = tb.families.multinomial(num_classes)
    assert set(model.check(rows)) == {"x", "y"}
    with pytest.raises(DataError, match="expected no offset in a multinomial regression; got data with"):
        tb.estimate(model, rows | {"offset": np.zeros(10)}, tolerance=0.1)


@pytest.mark.slow
def test_unknown_noise_against_its_closed_form():
    """y ~ N(0, s^2) with a flat-ish prior on log s: s^-2 is Gamma; and a row's offset moves its mean exactly.

    False alarms: the run's own interval is 95%, here eight standard errors and the bias bound (1e-6 with t_nu).
    """
    rng = np.random.default_rng(4)
    size, scale = 400, 2.0
    offset = 5 * rng.normal(size=size)
    rows = {"x": np.zeros((size, 1)), "y": offset + scale * rng.normal(size=size), "offset": offset}
    model = tb.families.linear(noise_prior_scale=1e6)
    model = replace(model, log_prior=lambda theta: -0.5 * theta["coefficients"][0] ** 2 - jnp.log(theta["noise_scale"]))
    result = tb.estimate(model, rows, tolerance=0.02, seed=2)
    assert result.converged
    half, square = size / 2, np.sum((rows["y"] - offset) ** 2) / 2
    mean = np.exp(0.5 * np.log(square) + gammaln(half - 0.5) - gammaln(half))
    sd = np.sqrt(square / (half - 1) - mean**2)
    for name, exact in (("mean", mean), ("sd", sd)):
        estimate = result[name]
        error = 8 * estimate.standard_error["noise_scale"] + estimate.bias_bound["noise_scale"]
        assert abs(estimate.value["noise_scale"] - exact) < max(error, 1e-5 * sd)
    assert result["mean"].value["coefficients"][0] == pytest.approx(0.0, abs=0.02)
    assert result["sd"].value["coefficients"][0] == pytest.approx(1.0, abs=0.02)
