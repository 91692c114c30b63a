"""The functions of `functions` in JAX, with derivatives that cost little."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.numpy import arange, concatenate, cumsum, exp, expm1, log, log1p, ravel, sum, where
from jax.numpy import logaddexp as log_add_exp
from jax.scipy.special import gammaln as log_gamma

__all__ = [
    "arange",
    "concatenate",
    "cumsum",
    "exp",
    "expm1",
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


@jax.custom_jvp
def softplus(eta: jax.Array) -> jax.Array:
    """log(1 + exp eta)."""
    return jax.nn.softplus(eta)


@softplus.defjvp
def _softplus_jvp(primals: Any, tangents: Any) -> Any:
    # The stock derivative handles infinities through several exponentials; this one is a single sigmoid.
    return softplus(*primals), jax.nn.sigmoid(*primals) * tangents[0]


@jax.custom_jvp
def log_normal_cdf(z: jax.Array) -> jax.Array:
    """log Phi(z)."""
    return jax.scipy.special.log_ndtr(z)


@log_normal_cdf.defjvp
def _log_normal_cdf_jvp(primals: Any, tangents: Any) -> Any:
    return log_normal_cdf(*primals), _mills(*primals) * tangents[0]


@jax.custom_jvp
def _mills(z: jax.Array) -> jax.Array:
    """phi(z) / Phi(z)."""
    return jnp.exp(-0.5 * z**2 - 0.918938533204672742 - jax.scipy.special.log_ndtr(z))


@_mills.defjvp
def _mills_jvp(primals: Any, tangents: Any) -> Any:
    (z,) = primals
    ratio = _mills(z)
    return ratio, -ratio * (z + ratio) * tangents[0]


def log_sum_exp(eta: jax.Array) -> jax.Array:
    """Of a vector, and 0 beside it."""
    return jax.nn.logsumexp(jnp.append(eta, jnp.zeros((), eta.dtype)))
