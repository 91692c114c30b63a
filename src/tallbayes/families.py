"""Families: generalised linear models as Models with a cheap per-row form.

    p(row | theta) = exp l(eta, row),   eta = row["x"] . theta,   theta ~ N(0, prior_scale^2 I)

A family is a scalar log density l and a check of the response; everything else is shared. Rows are
{"x": (d,), "y": scalar}; theta is the coefficient vector (d,).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.errors import DataError, ModelError, explain
from tallbayes.model import Model


def logistic(prior_scale: float = 1.0) -> Model:
    """Logistic regression: y in {0, 1}, P(y = 1) = 1 / (1 + exp(-eta)).

    >>> model = logistic(prior_scale=2.5)
    """
    return _family(_logistic_density, _check_binary, prior_scale, log_concave=True)


def linear(noise_scale: float, prior_scale: float = 1.0) -> Model:
    """Linear regression with known noise: y ~ N(eta, noise_scale^2).

    >>> model = linear(noise_scale=0.5)
    """
    if not (np.isfinite(noise_scale) and noise_scale > 0):
        raise ModelError(explain("noise_scale > 0", repr(noise_scale), "the known sd of y about its mean"))
    return _family(partial(_linear_density, float(noise_scale)), _check_real, prior_scale, log_concave=True)


def _family(density: Callable[..., Any], check: Callable[..., Any], prior_scale: float, log_concave: bool) -> Model:
    if not prior_scale > 0:
        raise ModelError(explain("prior_scale > 0", repr(prior_scale), "1.0, or float('inf') for a flat prior"))
    return Model(
        log_prior=partial(_gaussian_prior, float(prior_scale)),
        log_likelihood=partial(_predictor_likelihood, density),
        initial=_zero_coefficients,
        predictor=density,
        check=partial(_check_regression, check),
        log_concave=log_concave,
    )


def _gaussian_prior(scale: float, theta: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum((theta / scale) ** 2)


def _predictor_likelihood(density: Callable[..., Any], theta: jax.Array, row: Any) -> jax.Array:
    return density(row["x"] @ theta, row)


def _zero_coefficients(row: Any) -> np.ndarray:
    return np.zeros(np.shape(row["x"]))


def _logistic_density(eta: jax.Array, row: Any) -> jax.Array:
    return row["y"] * eta - _softplus(eta)


@jax.custom_jvp
def _softplus(eta: jax.Array) -> jax.Array:
    return jax.nn.softplus(eta)


@_softplus.defjvp
def _softplus_jvp(primals: Any, tangents: Any) -> Any:
    # The stock derivative handles infinities through several exponentials; this one is a single sigmoid.
    return _softplus(*primals), jax.nn.sigmoid(*primals) * tangents[0]


def _linear_density(noise_scale: float, eta: jax.Array, row: Any) -> jax.Array:
    return -0.5 * ((row["y"] - eta) / noise_scale) ** 2


def _check_regression(check_response: Callable[[np.ndarray], None], data: Any) -> Any:
    if not isinstance(data, dict) or not {"x", "y"} <= set(data):
        got = sorted(data) if isinstance(data, dict) else type(data).__name__
        raise DataError(explain('data {"x": (N, d), "y": (N,)}', f"{got}", "name the two arrays"))
    x, y = np.asarray(data["x"]), np.asarray(data["y"])
    if x.ndim != 2 or y.ndim != 1:
        raise DataError(
            explain(
                "x of shape (N, d) and y of shape (N,)",
                f"x {x.shape}, y {y.shape}",
                "reshape them, e.g. y.ravel()",
            )
        )
    check_response(y)
    return {**data, "x": _as_floats(x), "y": _as_floats(y)}


def _as_floats(array: np.ndarray) -> np.ndarray:
    """Whole numbers as the smallest type that holds them exactly."""
    if array.dtype.kind not in "biu":
        return array
    exact = int(array.max()) <= 2**24 and int(array.min()) >= -(2**24)
    return array.astype(np.float32 if exact else np.float64)


def _check_binary(y: np.ndarray) -> None:
    outside = (y != 0) & (y != 1)
    if np.any(outside):
        raise DataError(
            explain(
                "y in {0, 1}",
                f"{y[outside][0]} at row {int(np.argmax(outside))} ({int(outside.sum())} such rows)",
                "recode the two classes as 0 and 1 (for -1 and 1: (y + 1) / 2)",
            )
        )


def _check_real(y: np.ndarray) -> None:
    """Any finite number will do, and finiteness is checked for every array."""
