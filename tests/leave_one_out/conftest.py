"""A small table with a row far out on the wrong side, which alone decides much."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from left_out import exact_loo

import tallbayes as tb

Outlier = tuple[dict[str, np.ndarray], np.ndarray, tb.Result]


@cache
def outlier_of() -> Outlier:
    rng = np.random.default_rng(2)
    x = np.column_stack([rng.normal(size=60), np.ones(60)])
    y = (rng.random(60) < 1 / (1 + np.exp(-x @ [1.0, 0.3]))).astype(float)
    x[7, 0], y[7] = 7.0, 0.0

    def log_p(theta: Any) -> Any:
        return -np.logaddexp(0, -(2 * y - 1) * (theta @ x.T))

    exact = exact_loo(lambda theta: -0.5 * np.sum(theta**2, axis=1), log_p, np.zeros(2))
    rows = {"x": x, "y": y}
    return rows, exact, tb.estimate(tb.families.logistic(), rows, tolerance=0.1)


@pytest.fixture(scope="package")
def outlier() -> Outlier:
    return outlier_of()
