"""Groups: what is integrated, with its constants, is the integral; and a mixed model's evidence is that of a grid."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import logsumexp

import tallbayes as tb
from tallbayes.evidence.constants import log_constant
from tallbayes.evidence.densities import LogPosterior
from tallbayes.groups.placing import gather
from tallbayes.model.groups.mixed import with_effects
from tallbayes.model.groups.terms import EffectTerm
from tallbayes.rows.table import make_table

COEFFICIENT, SD = 0.4, 0.7


def counts() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    school = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2])
    return {"x": rng.normal(size=(9, 1)), "y": rng.poisson(1.5, 9).astype(float), "school": school}


def by_quadrature(rows: dict[str, np.ndarray]) -> float:
    """log p(y, coefficient, sd)."""
    total = stats.norm.logpdf(COEFFICIENT, 0, 1) + stats.halfnorm.logpdf(SD, scale=0.5)
    for group in range(3):
        own = rows["school"] == group
        x, y = rows["x"][own, 0], rows["y"][own]

        def density(b: float, x: Any = x, y: Any = y) -> float:
            return float(np.prod(stats.poisson.pmf(y, np.exp(COEFFICIENT * x + b))) * stats.norm.pdf(b, 0, SD))

        total += np.log(integrate.quad(density, -6, 6, epsabs=0, epsrel=1e-10)[0])
    return float(total)


def test_the_joint_density_of_a_mixed_model_is_whole() -> None:
    rows = counts()
    model = with_effects(tb.families.poisson(), EffectTerm("school", scale=0.5))
    gathered = gather(model, rows)
    target, _ = gathered.bound
    table = make_table(gathered.units, "float64")
    theta = {"coefficients": np.array([COEFFICIENT]), "scales0": np.array([SD])}
    point, jacobian = free_point(target, theta)
    found = float(LogPosterior(target, table, nodes=31)(point[None])[0]) - jacobian + log_constant(target, table)
    assert np.isclose(found, by_quadrature(rows), atol=1e-6)


def free_point(target: Any, theta: dict[str, np.ndarray]) -> tuple[np.ndarray, float]:
    """Its place in R^d, and the volume that a density has there."""
    half = tb.constraints.half_normal(0.5)
    free = float(half.unconstrain(SD))
    step = 1e-6
    slope = float(half.curve(np.array(free + step))[0] - half.curve(np.array(free - step))[0]) / (2 * step)
    point = np.array([theta["coefficients"][0], free])
    assert np.isclose(float(target.space.theta(point)["scales0"][0]), SD)
    return point, float(np.log(slope))


def delays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(8), 5)
    y = 1.0 + 0.8 * rng.normal(size=8)[group] + 0.9 * rng.normal(size=40)
    return {"y": y, "g": np.array([f"g{each}" for each in group])}


@cache
def delays_fit() -> tb.Result:
    options: Any = {"standardise": False, "family_options": {"noise_scale": 0.9}}
    return tb.fit("y ~ 1 + (1 | g)", delays(), "linear", tolerance=0.2, **options)


@cache
def on_a_grid() -> float:
    y, groups = delays()["y"].reshape(8, 5), 8
    log_sd = np.linspace(-16, 2.5, 800)
    total = []
    for sd in np.exp(log_sd):
        # The intercept is normal a priori, and so is y given sd.
        one = np.kron(np.eye(groups), np.full((5, 5), sd**2)) + 0.81 * np.eye(40) + 100.0
        total.append(stats.multivariate_normal.logpdf(y.ravel(), np.zeros(40), one) + stats.halfnorm.logpdf(sd))
    return float(logsumexp(np.array(total) + log_sd) + np.log(log_sd[1] - log_sd[0]))


@pytest.mark.slow
def test_a_mixed_model_by_its_closed_form() -> None:
    found = [delays_fit().evidence(0.01, seed=seed) for seed in range(3)]
    # Three intervals that cover 95% all miss once in 8,000; five of their errors once in a million.
    assert any(each.interval[0] <= on_a_grid() <= each.interval[1] for each in found)
    assert all(each.converged and abs(each.value - on_a_grid()) < 5 * each.error for each in found)


@pytest.mark.slow
def test_integrals_by_nodes_are_part_of_the_bias_bound() -> None:
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(10), 4)
    rows = {"y": rng.random(40) < 0.5, "g": np.array([f"g{each}" for each in group])}
    result = tb.fit("y ~ 1 + (1 | g)", rows, "logistic", tolerance=0.1)
    found = result.evidence(0.02)
    assert found.converged
    nodes, shares = np.polynomial.hermite_e.hermegauss(61)
    b0, log_sd = np.linspace(-4, 4, 81), np.linspace(-14, 2.5, 200)
    y, total = rows["y"].reshape(10, 4), []
    for sd in np.exp(log_sd):
        eta = b0[:, None, None, None] + sd * nodes
        each = (y[:, :, None] * eta - np.logaddexp(0, eta)).sum(axis=2)
        heights = logsumexp(each + np.log(shares / shares.sum()), axis=2).sum(axis=1)
        total.append(logsumexp(heights + stats.norm.logpdf(b0, 0, 10)) + stats.halfnorm.logpdf(sd) + np.log(sd))
    truth = logsumexp(total) + np.log((b0[1] - b0[0]) * (log_sd[1] - log_sd[0]))
    assert abs(found.value - truth) < 5 * found.error
