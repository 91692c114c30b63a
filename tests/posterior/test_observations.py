"""New observations: sds and intervals of every family, against closed forms and against averages over draws.

Ends are judged by the CDF of scipy's distributions at them, averaged over independent draws of the posterior: to five
standard errors of that average and 2e-5 for the nodes, a false alarm in 10^6 or so a number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import nbinom, norm, poisson, t
from still import still_posterior

import tallbayes as tb
from tallbayes.model.linear import Layout
from tallbayes.model.links import Wanted
from tallbayes.model.noise import Noise
from tallbayes.posterior.observations import make_observer
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.prediction import Observation
from tallbayes.posterior.predictor import FamilyResponse, make_predictor

X = np.array([[0.0], [0.5], [-1.0], [2.0]])
ROWS = np.column_stack([X, np.ones(4)])
TAILS = (0.05, 0.95)
NODES = 2e-5


def observed(posterior: Posterior, noise: Noise, layout: Layout, probability: float | None = 0.9) -> Observation:
    kind, rows = FamilyResponse(Wanted(noise.family), layout), (X, np.zeros(len(X)))
    observer = make_observer(posterior, kind, noise, probability)
    assert observer is not None
    return observer(make_predictor(posterior, kind, rows).all(rows), rows)


def with_extra(log_scale: float, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Slope, intercept and the log of a scale, correlated; all sds are about `width`."""
    correlation = np.array([[1.0, 0.3, 0.4], [0.3, 1.0, -0.5], [0.4, -0.5, 1.0]])
    return np.array([0.6, 1.0, log_scale]), width**2 * correlation


def draws_of(mode: np.ndarray, covariance: np.ndarray, count: int = 200_000) -> tuple[np.ndarray, np.ndarray]:
    """eta by (draws, rows), and exp of the last parameter."""
    theta = np.random.default_rng(7).multivariate_normal(mode, covariance, count, method="cholesky")
    return theta[:, :2] @ ROWS.T, np.exp(theta[:, -1:])


def chance(family: str, y: Any, eta: np.ndarray, scale: np.ndarray, freedom: float | None) -> np.ndarray:
    """P(Y <= y) in scipy's own words."""
    mu = np.exp(eta)
    laws = {
        "linear": lambda: norm(eta, scale),
        "student_t": lambda: t(freedom, eta, scale),
        "poisson": lambda: poisson(mu),
        "negative_binomial": lambda: nbinom(1 / scale, 1 / (1 + scale * mu)),
    }
    return laws[family]().cdf(y)


def variance_given(family: str, eta: np.ndarray, scale: np.ndarray, freedom: float | None) -> np.ndarray:
    mu = np.exp(eta)
    return {
        "linear": scale**2 + 0 * eta,
        "student_t": scale**2 * (freedom or 3.0) / ((freedom or 3.0) - 2) + 0 * eta,
        "poisson": mu,
        "negative_binomial": mu + scale * mu**2,
    }[family]


CASES = {
    "linear": ("linear", None, np.log(0.8), (0.02, 0.3, 1.5)),
    "student t": ("student_t", 4.0, np.log(0.8), (0.02, 0.3, 1.5)),
    "student t without a variance": ("student_t", 1.5, np.log(0.8), (0.02, 0.3)),
    "poisson": ("poisson", None, None, (0.002, 0.05, 0.3, 0.8)),
    "negative binomial": ("negative_binomial", None, np.log(0.4), (0.01, 0.1, 0.4)),
}


# A width of every law; the others take long along a line of many nodes, or with a law that is slow to tell.
QUICK = {
    "linear": 0.3,
    "student t": 0.3,
    "student t without a variance": 0.02,
    "poisson": 0.05,
    "negative binomial": 0.4,
}


@pytest.mark.parametrize(
    ("name", "width"),
    [
        pytest.param(name, width, marks=() if QUICK[name] == width else pytest.mark.slow)
        for name, case in CASES.items()
        for width in case[3]
    ],
)
def test_ends_and_sds_are_those_of_a_gaussian_posterior(name: str, width: float) -> None:
    """Where eta and s are normal, nothing is approximate but the nodes."""
    family, freedom, log_scale, _ = CASES[name]
    mode, covariance = with_extra(0.0 if log_scale is None else log_scale, width)
    extras = int(log_scale is not None)
    if not extras:
        mode, covariance = mode[:2], covariance[:2, :2]
    found = observed(
        still_posterior(mode, np.linalg.inv(covariance)), Noise(family, None, freedom), Layout(1, True, extras)
    )
    eta, scale = draws_of(mode, covariance)
    assert found.lower is not None
    assert found.upper is not None
    for tail, end in zip(TAILS, (found.lower, found.upper), strict=True):
        here = chance(family, end, eta, scale, freedom)
        slack = 5 * here.std(axis=0) / np.sqrt(len(here)) + NODES
        if family in ("linear", "student_t"):
            assert np.all(np.abs(here.mean(axis=0) - tail) < slack)
        else:
            assert np.all(end == np.floor(end))
            assert np.all(here.mean(axis=0) > tail - slack)
            assert np.all(chance(family, end - 1, eta, scale, freedom).mean(axis=0) < tail + slack)
    if freedom == 1.5:
        assert np.all(np.isinf(found.sd))
        return
    mean = eta if family in ("linear", "student_t") else np.exp(eta)
    parts = variance_given(family, eta, scale, freedom) + (mean - mean.mean(axis=0)) ** 2
    slack = 5 * parts.std(axis=0) / np.sqrt(len(parts))
    assert np.all(np.abs(found.sd**2 - parts.mean(axis=0)) < slack + 2 * found.sd * found.sd_error + 1e-9)


def test_control_the_posterior_left_out_would_be_noticed() -> None:
    """At the mean of theta alone the chance below an end is off by more than the test allows."""
    mode, covariance = with_extra(np.log(0.8), 0.3)
    eta, scale = draws_of(mode, covariance)
    end = norm(ROWS @ mode[:2], 0.8).ppf(0.95)
    here = chance("linear", end, eta, scale, None)
    assert np.all(np.abs(here.mean(axis=0) - 0.95) > 20 * (5 * here.std(axis=0) / np.sqrt(len(here)) + NODES))


def test_a_known_scale_has_a_closed_form() -> None:
    covariance = np.array([[0.04, 0.01], [0.01, 0.09]])
    found = observed(
        still_posterior(np.array([0.5, 1.0]), np.linalg.inv(covariance)), Noise("linear", 0.7), Layout(1, True)
    )
    spread = np.sqrt(0.49 + np.einsum("ni,ij,nj->n", ROWS, covariance, ROWS))
    np.testing.assert_allclose(found.sd, spread, rtol=1e-6)
    np.testing.assert_allclose(found.upper, ROWS @ [0.5, 1.0] + norm.ppf(0.95) * spread, rtol=1e-6)
    np.testing.assert_allclose(found.lower, ROWS @ [0.5, 1.0] - norm.ppf(0.95) * spread, rtol=1e-6, atol=1e-6)


def test_a_class_has_an_sd_and_no_interval() -> None:
    posterior = still_posterior(np.array([0.5, -0.3]), 4 * np.eye(2))
    found = observed(posterior, Noise("logistic"), Layout(1, True))
    rows = X, np.zeros(4)
    p = make_predictor(posterior, FamilyResponse(Wanted("logistic"), Layout(1, True)), rows).all(rows).mean[:, 0]
    np.testing.assert_allclose(found.sd, np.sqrt(p * (1 - p)), rtol=1e-12)
    assert found.lower is None
    assert list(found.columns()) == ["observation_sd", "observation_sd_error"]
    kind = FamilyResponse(Wanted("multinomial"), Layout(2, True))
    assert make_observer(posterior, kind, Noise("multinomial"), 0.9) is None


def test_no_interval_is_computed_that_was_not_asked_for() -> None:
    posterior = still_posterior(np.array([0.5, 1.0]), 4 * np.eye(2))
    assert observed(posterior, Noise("poisson"), Layout(1, True), None).upper is None
    # A scale that nobody knows: a result of before it was written down.
    kind = FamilyResponse(Wanted("linear"), Layout(1, True))
    assert make_observer(posterior, kind, Noise("linear"), 0.9) is None


def test_counts_of_a_gamma_are_negative_binomial() -> None:
    """An intercept alone under a flat prior: mu is Gamma(sum y, N), which is skewed, and a new count is negative
    binomial; the ends are exact or differ by no more than they say."""
    y = np.random.default_rng(3).poisson(2.5, 25)
    result = tb.fit("y ~ 1", {"y": y}, family="poisson", tolerance=0.02, intercept_scale=1e3)
    total, count = y.sum(), len(y)
    for interval in (0.5, 0.8, 0.95, 0.999):
        found = result.predict({"y": [0]}, interval=interval)
        exact = nbinom(total, count / (count + 1))
        lower, upper = found.observation_interval
        ends = exact.ppf([(1 - interval) / 2, (1 + interval) / 2])
        assert abs(lower[0] - ends[0]) <= found.observation.interval_error[0]
        assert abs(upper[0] - ends[1]) <= found.observation.interval_error[0]
    assert abs(found.observation_sd[0] - exact.std()) < 5 * found.observation.sd_error[0]
    assert abs(found.sd[0] - np.sqrt(total) / count) < 5 * found.sd_error[0]


def test_few_rows_of_a_line_scatter_as_by_quadrature() -> None:
    """Mean and noise unknown, 12 rows: the exact law by a fine grid over both, with the priors of the fit."""
    y = np.random.default_rng(5).normal(1.0, 2.0, 12)
    options = {"noise_prior_scale": 3.0}
    result = tb.fit("y ~ 1", {"y": y}, "linear", tolerance=0.02, standardise=False, family_options=options)
    found = result.predict({"y": [0.0]})
    mu, log_sigma = np.meshgrid(np.linspace(-6, 8, 401), np.linspace(-1.0, 2.5, 401), indexing="ij")
    sigma = np.exp(log_sigma)
    log_posterior = norm.logpdf(mu, 0, 10) + norm.logpdf(sigma, 0, 3) + log_sigma
    log_posterior = log_posterior + norm.logpdf(y[:, None, None], mu, sigma).sum(axis=0)
    weights = np.exp(log_posterior - log_posterior.max())
    weights /= weights.sum()
    mean = (weights * mu).sum()
    sd = np.sqrt((weights * (sigma**2 + (mu - mean) ** 2)).sum())
    assert abs(found.observation_sd[0] - sd) < 5 * found.observation.sd_error[0]
    lower, upper = found.observation_interval
    for end, tail in ((lower[0], 0.025), (upper[0], 0.975)):
        here, step = ((weights * norm.cdf(y0, mu, sigma)).sum() for y0 in (end, end + 1e-3))
        off = (here - tail) / ((step - here) / 1e-3)
        assert abs(off) < found.observation.interval_error[0]
    assert found.observation.interval_error[0] < 0.1 * sd
