"""Posteriors that are hard for a ladder anchored to a Gaussian: whole runs by default, against NumPy.

Every answer must be within four tolerances of a reference that shares no code with the sampler: quadrature on a grid
for two parameters, importance sampling for more. An RMSE of one tolerance and Gaussian errors would pass that once in
16,000 components by chance; the seeds are fixed. What cannot be answered must end in a status that says so.
"""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from scenarios import by_ladder, logistic_rows

import tallbayes as tb
from tallbayes.errors import ModelError

TOLERANCE = 0.15


def quadrature(log_density, centre, sd, width=9.0, points=161):
    """Means and sds of two parameters on a grid of `width` Laplace sds to all sides."""
    axes = [np.linspace(c - width * s, c + width * s, points) for c, s in zip(centre, sd, strict=True)]
    theta = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    value = np.concatenate([log_density(part) for part in np.array_split(theta, 40)])
    weight = np.exp(value - value.max())
    return _moments(theta, weight)


def importance_sampling(log_density, anchor, draws=200_000):
    """The same for any number of parameters, with draws from a multivariate t with 5 degrees of freedom."""
    rng, d = np.random.default_rng(7), len(anchor.mode)
    z = rng.standard_normal((draws, d)) / np.sqrt(rng.chisquare(5, size=(draws, 1)) / 5) * 1.3
    theta = anchor.mode + z @ anchor.whitening.T
    log_proposal = -0.5 * (5 + d) * np.log1p(np.sum((z / 1.3) ** 2, axis=1) / 5)
    value = np.concatenate([log_density(part) for part in np.array_split(theta, 40)]) - log_proposal
    weight = np.exp(value - value.max())
    assert weight.sum() ** 2 / np.sum(weight**2) > 10_000
    return _moments(theta, weight)


def _moments(theta, weight):
    weight = weight / weight.sum()
    mean = weight @ theta
    return mean, np.sqrt(weight @ (theta - mean) ** 2)


def assert_right(result, mean, sd):
    assert result.converged, str(result)
    for name, exact in (("mean", mean), ("sd", sd)):
        error = (result[name].value - exact) / result[name].tolerance
        assert np.abs(error).max() < 4, (name, error)


def logistic_density(rows, prior_scale):
    x, y = rows["x"], rows["y"]

    def log_density(theta):
        eta = theta @ x.T
        return eta @ y - np.logaddexp(0, eta).sum(axis=1) - 0.5 * np.sum((theta / prior_scale) ** 2, axis=1)

    return log_density


FEW = 60


def large_coefficients():
    return logistic_rows(FEW, (3.0, -2.5, 3.5, -3.0, 1.0), seed=1)


def nearly_separated():
    """One row alone is on the wrong side."""
    rng = np.random.default_rng(2)
    x = np.column_stack([rng.normal(size=(FEW, 4)), np.ones(FEW)])
    y = (x[:, 0] + 0.5 * x[:, 1] > 0).astype(float)
    closest = np.argmin(np.abs(x[:, 0] + 0.5 * x[:, 1]))
    y[closest] = 1 - y[closest]
    return {"x": x, "y": y}


@pytest.mark.parametrize(
    "rows",
    [pytest.param(large_coefficients(), marks=pytest.mark.slow), nearly_separated()],
    ids=["large coefficients", "separated"],
)
def test_logistic_regression_far_from_gaussian(rows):
    """Laplace is off by more than a tolerance here, so that something is to be found."""
    result = by_ladder(tb.families.logistic(prior_scale=3.0), rows, tolerance=TOLERANCE, seed=1)
    mean, sd = importance_sampling(logistic_density(rows, 3.0), result.anchor)
    assert np.abs((result.anchor.laplace.mode - mean) / sd).max() > TOLERANCE
    assert_right(result, mean, sd)


def poisson(eta, row):
    return row["y"] * eta - jnp.exp(eta)


POISSON = tb.Model(
    log_prior=lambda theta: -0.5 * jnp.sum((theta / 5) ** 2),
    log_likelihood=lambda theta, row: poisson(row["x"] @ theta, row),
    initial=np.zeros(2),
    predictor=poisson,
)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [100.0, 0.05])
def test_poisson_regression(rate):
    """Many events, where a step from far out explodes; and about twelve in all."""
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.normal(size=240), np.ones(240)])
    rows = {"x": x, "y": rng.poisson(np.exp(x @ [0.4, np.log(rate)])).astype(float)}
    result = by_ladder(POISSON, rows, tolerance=TOLERANCE, seed=1)

    def log_density(theta):
        eta = theta @ x.T
        return eta @ rows["y"] - np.exp(eta).sum(axis=1) - 0.5 * np.sum((theta / 5) ** 2, axis=1)

    assert_right(result, *quadrature(log_density, result.anchor.mode, result.anchor.sd))


@pytest.mark.slow
def test_regression_with_cauchy_noise():
    """Student's t with one degree of freedom: the log posterior is not concave."""
    rng = np.random.default_rng(4)
    x = np.column_stack([rng.normal(size=80), np.ones(80)])
    rows = {"x": x, "y": x @ [1.0, -0.5] + rng.standard_t(1, size=80)}
    model = tb.Model(
        log_prior=lambda theta: -0.5 * jnp.sum((theta / 5) ** 2),
        log_likelihood=lambda theta, row: -jnp.log1p((row["y"] - row["x"] @ theta) ** 2),
        initial=np.zeros(2),
    )
    result = by_ladder(model, rows, tolerance=TOLERANCE, seed=1)

    def log_density(theta):
        return -np.log1p((rows["y"] - theta @ x.T) ** 2).sum(axis=1) - 0.5 * np.sum((theta / 5) ** 2, axis=1)

    assert_right(result, *quadrature(log_density, result.anchor.mode, result.anchor.sd))
    (note,) = result.notes
    assert note.startswith("modes: no second mode found from")


@pytest.mark.slow
def test_a_rare_category():
    """Six rows of 3,000: a uniform batch would see one of them every 500 rows."""
    rng = np.random.default_rng(5)
    rare = np.arange(3000) < 6
    x = np.column_stack([np.ones(3000), rare])
    rows = {"x": x, "y": np.where(rare, [1, 1, 1, 1, 1, 0] + [0] * 2994, rng.random(3000) < 0.4).astype(float)}
    result = by_ladder(tb.families.logistic(prior_scale=3.0), rows, tolerance=TOLERANCE, seed=1)
    groups = [(rows["y"][there].sum(), there.sum()) for there in (~rare, rare)]

    def log_density(theta):
        eta = [theta[:, 0], theta.sum(axis=1)]
        terms = [k * e - n * np.logaddexp(0, e) for (k, n), e in zip(groups, eta, strict=True)]
        return sum(terms) - 0.5 * np.sum((theta / 3) ** 2, axis=1)

    assert_right(result, *quadrature(log_density, result.anchor.mode, result.anchor.sd))
    assert result.cost.epochs < 200


def test_a_second_mode_is_told():
    """y ~ N(theta, 1) or N(-theta, 1), each with probability 1/2: the posterior is symmetric."""
    rng = np.random.default_rng(6)
    rows = {"y": rng.normal(size=60) + 2.5 * rng.choice([-1, 1], size=60)}
    model = tb.Model(
        log_prior=lambda theta: -0.5 * (theta / 5) ** 2,
        log_likelihood=lambda theta, row: jnp.logaddexp(-0.5 * (row["y"] - theta) ** 2, -0.5 * (row["y"] + theta) ** 2),
        initial=1.0,
    )
    method = tb.Anchored(gradient=tb.Full())
    result = by_ladder(model, rows, ["mean"], tolerance=TOLERANCE, seed=1, method=method)
    assert result.status is tb.Status.second_mode
    assert not result.converged
    mode = float(result.anchor.mode[0])
    (note,) = result.notes
    found = float(re.match(r"modes: second mode near \[(.*?)\]", note)[1])
    assert found == pytest.approx(-mode, abs=0.01)
    assert "0.5 of the posterior's mass" in note
    assert note in str(result)


def test_paths_that_are_far_too_short_end_in_a_status():
    """T_0 = dT = 0.01, where paths contract by 1% a level; the numbers are not given out as an answer."""
    method = tb.Anchored(ladder=tb.Ladder(first_step=0.01, start_steps=1, added_steps=1))
    rows = large_coefficients()
    result = by_ladder(tb.families.logistic(prior_scale=3.0), rows, tolerance=TOLERANCE, seed=1, method=method)
    assert result.status in (tb.Status.paths_too_short, tb.Status.no_contraction)
    assert not result.converged


def test_a_quantity_beyond_all_numbers_is_told_by_its_status_and_by_no_warning() -> None:
    """Warnings are errors here."""
    model = tb.Model(lambda m: -0.5 * m**2, lambda m, row: -0.5 * (row["y"] - m) ** 2, 0.0)
    rows = {"y": np.random.default_rng(0).normal(size=50)}
    result = by_ladder(model, rows, {"huge": lambda m: jnp.exp(200 * m)}, tolerance=0.1, max_seconds=120)
    assert result.status in (tb.Status.heavy_tails, tb.Status.infinite_variance)
    assert not result["huge"].met
    with pytest.raises(ModelError, match="too large to be squared"):
        by_ladder(model, rows, {"huge": lambda m: jnp.exp(800 * m)}, tolerance=0.1)
