"""Newton's climb where the gradient is not quite that of the value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tallbayes.anchor.ascent import climb
from tallbayes.anchor.expansion import Expansion
from tallbayes.errors import NoConvergenceError

PRECISION = 4.0


def told_wrong(by: float) -> Callable[[np.ndarray], Expansion]:
    """A Gaussian about 0 whose gradient says that its mode is at `by`."""

    def evaluate(theta: np.ndarray) -> Expansion:
        gradient, hessian = -PRECISION * (theta - by), PRECISION * np.eye(1)
        return Expansion(theta, float(-PRECISION * theta[0] ** 2 / 2), gradient, hessian, gradient, hessian)

    return evaluate


def test_a_climb_ends_where_no_step_rises_and_the_mode_is_near() -> None:
    evaluate = told_wrong(0.1)
    # From far away the gradient leads up; near 0 it does not, with 0.2 sds to go by what it says.
    for start in (-3.0, 0.0):
        found = climb(evaluate, evaluate(np.array([start])), 0.02, 100, near=0.5)
        assert abs(found.theta[0]) < 0.11


def test_far_from_the_mode_that_is_an_error() -> None:
    evaluate = told_wrong(10.0)
    with pytest.raises(NoConvergenceError, match="in 100 iterations; got a decrement of 20"):
        climb(evaluate, evaluate(np.zeros(1)), 0.02, 100, near=0.5)
    with pytest.raises(NoConvergenceError):
        climb(told_wrong(0.1), told_wrong(0.1)(np.zeros(1)), 0.02, 100)
