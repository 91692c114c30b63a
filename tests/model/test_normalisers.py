"""Densities with their constants are those of SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from tallbayes.model import densities
from tallbayes.model.noise import Noise
from tallbayes.model.normalisers import log_normaliser

REAL, COUNTS, ETA = np.array([-0.3, 1.2, 4.0]), np.array([0.0, 3.0, 12.0]), np.array([0.1, 0.9, 2.0])
UNKNOWN = np.stack([ETA, np.full(3, np.log(0.7))])
R = 1 / 0.7
CASES: dict[str, tuple[Noise, np.ndarray, Any, Any]] = {
    "linear": (
        Noise("linear", 0.5),
        REAL,
        lambda row: densities.linear(0.5, ETA, row),
        stats.norm.logpdf(REAL, ETA, 0.5),
    ),
    "linear_unknown": (
        Noise("linear"),
        REAL,
        lambda row: densities.linear_unknown(UNKNOWN, row),
        stats.norm.logpdf(REAL, ETA, 0.7),
    ),
    "student_t": (
        Noise("student_t", 0.5, 4.0),
        REAL,
        lambda row: densities.student_t(4.0, 0.5, ETA, row),
        stats.t.logpdf(REAL, 4, ETA, 0.5),
    ),
    "student_t_unknown": (
        Noise("student_t", None, 3.0),
        REAL,
        lambda row: densities.student_t_unknown(3.0, UNKNOWN, row),
        stats.t.logpdf(REAL, 3, ETA, 0.7),
    ),
    "poisson": (
        Noise("poisson"),
        COUNTS,
        lambda row: densities.poisson(ETA, row),
        stats.poisson.logpmf(COUNTS, np.exp(ETA)),
    ),
    "negative_binomial": (
        Noise("negative_binomial"),
        COUNTS,
        lambda row: densities.negative_binomial(UNKNOWN, row),
        stats.nbinom.logpmf(COUNTS, R, R / (R + np.exp(ETA))),
    ),
    "logistic": (
        Noise("logistic"),
        np.array([0.0, 1.0, 1.0]),
        lambda row: densities.logistic(ETA, row),
        stats.bernoulli.logpmf([0, 1, 1], 1 / (1 + np.exp(-ETA))),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_densities_are_those_of_scipy(name: str) -> None:
    noise, y, density, exact = CASES[name]
    row = {"y": y}
    np.testing.assert_allclose(density(row) + log_normaliser(noise, row), exact, rtol=1e-6, atol=1e-6)


def test_own_units_take_the_scale_of_the_response() -> None:
    row = {"y": REAL}
    apart = log_normaliser(Noise("linear"), row) - log_normaliser(Noise("linear"), row, response_scale=3.0)
    np.testing.assert_allclose(apart, np.log(3.0))
    assert not log_normaliser(None, row).any()
    with_scale = log_normaliser(Noise("linear", 0.5), row, includes_scale=True)
    np.testing.assert_allclose(with_scale, -0.5 * np.log(2 * np.pi))
