"""References of families against sums over a grid, and the quantile family's residuals against their density."""

from __future__ import annotations

import by_hand
import family_references
import numpy as np
import pytest
import simulations
from scipy.stats import kstest


def test_weighted_points_have_the_moments_of_a_grid() -> None:
    """Times of one column without an intercept; what is stated of the error holds five times over."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(30, 1))
    rows = {"x": x, **simulations.weibull_times(rng, 0.5 * x[:, 0], {})}
    found = family_references.solve(family_references.Written("exponential", rows, family_references.normal([0.7])))
    grid = np.linspace(-2.0, 3.0, 4_001)
    total = -0.5 * (grid / 0.7) ** 2
    for i in range(30):
        row = {name: np.full(len(grid), each[i]) for name, each in rows.items() if name != "x"}
        total += by_hand.log_density("exponential", row, grid * x[i, 0], {})
    weight = np.exp(total - total.max()) / np.exp(total - total.max()).sum()
    mean = float(weight @ grid)
    sd = float(np.sqrt(weight @ (grid - mean) ** 2))
    assert found.worst_error < 2e-3
    assert found.mean["coefficients"][0] == pytest.approx(mean, abs=5 * found.worst_error * sd)
    assert found.sd["coefficients"][0] == pytest.approx(sd, abs=5 * found.worst_error * sd)
    # The control: a prior half as wide.
    narrow = family_references.Written("exponential", rows, family_references.normal([0.35]))
    assert abs(family_references.solve(narrow).mean["coefficients"][0] - mean) > 5 * found.worst_error * sd


def test_residuals_of_a_quantile_are_those_of_the_smoothed_loss() -> None:
    """Kolmogorov and Smirnov at 1e-6; another level is seen."""
    level, smoothing = simulations.LEVEL, simulations.SMOOTHING
    y = simulations.about_quantile(np.random.default_rng(2), np.zeros(4_000), {"noise_scale": np.array(0.5)})
    grid = np.linspace(-60.0, 60.0, 120_001)

    def p_value(at: float) -> float:
        share = np.cumsum(np.exp(by_hand.smoothed_quantile(grid, 0.0, 0.5, at, smoothing))) * (grid[1] - grid[0])
        assert share[-1] == pytest.approx(1.0, abs=1e-3)
        return float(kstest(y, lambda each: np.interp(each, grid, share)).pvalue)

    assert p_value(level) > 1e-6
    assert p_value(0.7) < 1e-6
