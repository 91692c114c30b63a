"""Leave-one-out of every family against exact answers, in the response's own units with every constant.

Errors are held against the stated ones: 5 of them are passed by chance once in 2 million numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from left_out import exact_loo
from scipy import stats

import tallbayes as tb

COUNT = 40
Problem = tuple[tb.Model, dict[str, np.ndarray], Callable[[Any], Any], np.ndarray]
RNG = np.random.default_rng(4)
X = np.column_stack([RNG.normal(size=COUNT), np.ones(COUNT)])
THETA = np.array([0.7, 0.4])
ETA = X @ THETA
NOISE = RNG.normal(size=COUNT)


def logistic() -> Problem:
    y = (RNG.random(COUNT) < 1 / (1 + np.exp(-ETA))).astype(float)
    return tb.families.logistic(), {"x": X, "y": y}, lambda t: stats.bernoulli.logpmf(y, expit(t @ X.T)), THETA


def probit() -> Problem:
    y = (NOISE + ETA > 0).astype(float)
    return tb.families.probit(), {"x": X, "y": y}, lambda t: stats.norm.logcdf((2 * y - 1) * (t @ X.T)), THETA


def linear() -> Problem:
    y = ETA + 0.5 * NOISE
    return tb.families.linear(0.5), {"x": X, "y": y}, lambda t: stats.norm.logpdf(y, t @ X.T, 0.5), THETA


def linear_unknown() -> Problem:
    y = ETA + 0.5 * NOISE

    def log_p(t: Any) -> Any:
        return stats.norm.logpdf(y, t[:, :2] @ X.T, np.exp(t[:, 2:]))

    return tb.families.linear(), {"x": X, "y": y}, log_p, np.append(THETA, -0.7)


def student_t() -> Problem:
    y = ETA + 0.5 * NOISE
    y[3] += 6.0
    return tb.families.student_t(4.0, 0.5), {"x": X, "y": y}, lambda t: stats.t.logpdf(y, 4, t @ X.T, 0.5), THETA


def poisson() -> Problem:
    y = RNG.poisson(np.exp(ETA)).astype(float)
    y[5] += 7.0
    offset = 0.3 * NOISE
    rows = {"x": X, "y": y, "offset": offset}
    return tb.families.poisson(), rows, lambda t: stats.poisson.logpmf(y, np.exp(t @ X.T + offset)), THETA


def negative_binomial() -> Problem:
    y = RNG.negative_binomial(2, 1 / (1 + np.exp(ETA) / 2)).astype(float)

    def log_p(t: Any) -> Any:
        r = np.exp(-t[:, 2:])
        return stats.nbinom.logpmf(y, r, r / (r + np.exp(t[:, :2] @ X.T)))

    return tb.families.negative_binomial(), {"x": X, "y": y}, log_p, np.append(THETA, -0.5)


def multinomial() -> Problem:
    x = X[:, :1]
    y = np.argmax(np.column_stack([np.zeros(COUNT), x, -x]) + RNG.gumbel(size=(COUNT, 3)), axis=1).astype(float)

    def log_p(t: Any) -> Any:
        eta = np.stack([0 * t[:, :1] @ x.T, t[:, :1] @ x.T, t[:, 1:] @ x.T])
        return eta[y.astype(int), :, np.arange(COUNT)].T - np.logaddexp.reduce(eta, axis=0)

    return tb.families.multinomial(3), {"x": x, "y": y}, log_p, np.array([0.5, -0.5])


def expit(eta: Any) -> Any:
    return 1 / (1 + np.exp(-eta))


QUICK, LONGER = (linear_unknown, poisson), (logistic, probit, linear, student_t, negative_binomial, multinomial)
PROBLEMS = [*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in LONGER)]


def log_prior(extra: bool) -> Callable[[Any], Any]:
    """N(0, 1) of coefficients; a half-normal of the extra, whose log is the last of theta."""

    def value(theta: Any) -> Any:
        own = np.column_stack([theta[:, :2], np.exp(theta[:, 2:])])
        return -0.5 * np.sum(own**2, axis=1) + theta[:, 2:].sum(axis=1)

    return value


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda each: each.__name__)
def test_loo_is_that_of_brute_force(problem: Callable[[], Problem]) -> None:
    model, rows, log_p, start = problem()
    exact = exact_loo(log_prior(len(start) > 2), log_p, start)
    result = tb.estimate(model, rows, tolerance=0.1)
    found = result.loo(pointwise=True)
    assert found.certified
    assert abs(found.elpd - exact.sum()) < 5 * found.standard_error + found.bias_bound + 1e-6
    assert found.pointwise is not None
    assert np.abs(found.pointwise - exact).max() < 0.02 + found.error
    assert found.sampling_error == pytest.approx(np.sqrt(COUNT * np.var(exact)), rel=0.02)
