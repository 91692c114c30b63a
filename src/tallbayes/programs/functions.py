"""Functions of arrays that densities are written in: NumPy's of NumPy's arrays, JAX's of all else.

softplus(x) = log(1 + exp x),   log_normal_cdf(x) = log Phi(x),   log_sum_exp(x) = log(1 + sum_k exp x_k)
log_gamma(x) = log Gamma(x)
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy import arange, concatenate, cumsum, exp, expm1, log, log1p, ravel, where
from numpy import logaddexp as log_add_exp
from numpy import sum as sum

__all__ = [
    "arange",
    "concatenate",
    "cumsum",
    "exp",
    "expm1",
    "functions_of",
    "log",
    "log1p",
    "log_add_exp",
    "log_gamma",
    "log_normal_cdf",
    "log_sum_exp",
    "ravel",
    "softplus",
    "sum",
    "where",
]


def functions_of(array: Any) -> ModuleType:
    """The module of functions for an array: this one for NumPy's."""
    if isinstance(array, np.ndarray | np.generic | float):
        from tallbayes.programs import functions

        return functions
    from tallbayes.programs import functions_in_jax

    return functions_in_jax


def softplus(x: np.ndarray) -> np.ndarray:
    # Half the time of logaddexp.
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def log_normal_cdf(x: np.ndarray) -> np.ndarray:
    from scipy.special import log_ndtr

    return np.asarray(log_ndtr(x))


def log_sum_exp(x: np.ndarray) -> np.ndarray:
    """Along the first axis."""
    most = np.maximum(x.max(axis=0), 0.0)
    return most + np.log(np.exp(-most) + np.exp(x - most).sum(axis=0))


def log_gamma(x: np.ndarray) -> np.ndarray:
    from scipy.special import gammaln

    return np.asarray(gammaln(x))
