"""Of a linear mixed model groups are left out, and rows: against closed forms on a grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from left_out import exact_loo

import tallbayes as tb


@pytest.mark.slow
def test_groups_and_rows_are_left_out() -> None:
    """Errors are held against the stated ones: 5 of them are passed by chance once in 2 million numbers."""
    rng = np.random.default_rng(6)
    counts = rng.integers(2, 7, 40)
    group = np.repeat(np.arange(40), counts)
    y = 3.0 + 2.0 * rng.normal(size=40)[group] + 1.5 * rng.normal(size=len(group))
    result = tb.fit("y ~ 1 + (1 | g)", {"y": y, "g": group.astype(str)}, family="linear", tolerance=0.1)
    assert result.encoding is not None
    scale, mean = result.encoding["response_scale"], result.encoding["response_mean"]
    z = (y - mean) / scale
    sums, squares = (np.bincount(group, each) for each in (z, z**2))

    def log_p(theta: Any) -> Any:
        """In fitted units: b, log tau, log sigma."""
        b, tau2, sigma2 = theta[:, :1], np.exp(2 * theta[:, 1:2]), np.exp(2 * theta[:, 2:3])
        square = squares - 2 * b * sums + counts * b**2
        total = sums - counts * b
        spread = sigma2 + counts * tau2
        fit = square / sigma2 - tau2 * total**2 / (sigma2 * spread)
        log_det = (counts - 1) * np.log(sigma2) + np.log(spread)
        return -0.5 * (fit + log_det + counts * np.log(2 * np.pi)) - counts * np.log(scale)

    def log_prior(theta: Any) -> Any:
        scales = np.exp(theta[:, 1:])
        return -0.5 * (theta[:, 0] / 10) ** 2 - 0.5 * np.sum(scales**2, axis=1) + theta[:, 1:].sum(axis=1)

    exact = exact_loo(log_prior, log_p, np.array([0.0, -0.3, -0.3]))
    found = result.loo(pointwise=True)
    assert found.unit == "group"
    assert found.num_rows == 40
    assert found.pointwise is not None
    # Groups are in the order of their names.
    order = np.argsort(np.arange(40).astype(str))
    assert np.abs(found.pointwise - exact[order]).max() < 0.1
    assert tb.rank(result, result, names=["a", "b"])["b"].sampling_error == 0
    assert found.certified
    assert abs(found.elpd - exact.sum()) < 5 * found.standard_error + found.bias_bound

    def log_p_of_rows(theta: Any) -> Any:
        """Of each given the others of its group: [V^-1 e]_i / [V^-1]_ii."""
        b, tau2, sigma2 = theta[:, :1], np.exp(2 * theta[:, 1:2]), np.exp(2 * theta[:, 2:3])
        shrunk = tau2 / (sigma2 + counts * tau2)
        total = (sums - counts * b) * shrunk
        precision = (1 - shrunk)[:, group] / sigma2
        off = (z - b - total[:, group]) / sigma2 / precision
        return 0.5 * (np.log(precision) - precision * off**2 - np.log(2 * np.pi)) - np.log(scale)

    exact = exact_loo(log_prior, log_p_of_rows, np.array([0.0, -0.3, -0.3]), lambda theta: log_p(theta).sum(axis=1))
    found = result.loo(pointwise=True, unit="row")
    assert (found.unit, found.num_rows) == ("row", len(y))
    assert found.pointwise is not None
    assert np.abs(found.pointwise - exact).max() < 0.1
    assert found.certified
    assert abs(found.elpd - exact.sum()) < 5 * found.standard_error + found.bias_bound
