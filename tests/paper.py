"""The paper's problem for the tests: rows, mode and Hessian, and E |theta - theta_0|^2 by quadrature.

The reference is NumPy alone and shares no code with the sampler (see tallbayes.experiments.problem).
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import tallbayes as tb
from tallbayes.experiments import problem

MODEL = tb.families.logistic(prior_scale=1.0)


def rows(num_rows: int = 1000) -> dict[str, np.ndarray]:
    return problem.make_rows(num_rows).data


def mode_and_hessian(num_rows: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    made = problem.make_rows(num_rows)
    return made.mode, made.hessian


def distance(mode: np.ndarray):
    """g, with the mode as a constant of its own."""
    return lambda theta: jnp.sum((theta - mode) ** 2)


def expected_distance(num_rows: int = 1000, nodes: int = 24) -> float:
    return problem.expected_distance(problem.make_rows(num_rows), nodes)
