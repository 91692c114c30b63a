"""Densities: log p(y | eta) of one row as a function of its linear predictor, up to a constant.

    logistic           y eta - log(1 + exp eta)
    probit             log Phi((2 y - 1) eta)
    linear             -((y - eta) / sigma)^2 / 2 - log sigma
    student t          -(nu + 1) / 2 log(1 + ((y - eta) / sigma)^2 / nu) - log sigma
    poisson            y eta - exp eta
    negative binomial  mean mu = exp eta, variance mu + a mu^2
    multinomial        eta_y - log sum_k exp eta_k, eta_0 = 0

A row may carry an offset, which is added to eta. Where a scale is unknown, eta is a pair and its second half the log
of that scale.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def logistic(eta: jax.Array, row: Any) -> jax.Array:
    eta = _shifted(eta, row)
    return row["y"] * eta - softplus(eta)


def probit(eta: jax.Array, row: Any) -> jax.Array:
    return log_normal_cdf((2 * row["y"] - 1) * _shifted(eta, row))


def linear(noise_scale: float, eta: jax.Array, row: Any) -> jax.Array:
    return -0.5 * ((row["y"] - _shifted(eta, row)) / noise_scale) ** 2


def linear_unknown(eta: jax.Array, row: Any) -> jax.Array:
    mean, log_scale = _shifted(eta[0], row), eta[1]
    return -0.5 * ((row["y"] - mean) * jnp.exp(-log_scale)) ** 2 - log_scale


def student_t(freedom: float, noise_scale: float, eta: jax.Array, row: Any) -> jax.Array:
    return _student(freedom, (row["y"] - _shifted(eta, row)) / noise_scale)


def student_t_unknown(freedom: float, eta: jax.Array, row: Any) -> jax.Array:
    mean, log_scale = _shifted(eta[0], row), eta[1]
    return _student(freedom, (row["y"] - mean) * jnp.exp(-log_scale)) - log_scale


def poisson(eta: jax.Array, row: Any) -> jax.Array:
    eta = _shifted(eta, row)
    return row["y"] * eta - jnp.exp(eta)


def negative_binomial(eta: jax.Array, row: Any) -> jax.Array:
    """With r = 1 / a: log Gamma(y + r) - log Gamma(r) - y log r + y eta - (y + r) log(1 + a mu)."""
    y, log_mean, log_excess = row["y"], _shifted(eta[0], row), eta[1]
    r = jnp.exp(-log_excess)
    return rising_factorial(y, r) + y * log_mean - (y + r) * softplus(log_mean + log_excess)


def multinomial(eta: jax.Array, row: Any) -> jax.Array:
    own = jnp.arange(1, eta.size + 1, dtype=eta.dtype) == row["y"]
    return jnp.sum(jnp.where(own, eta, 0)) - jax.nn.logsumexp(jnp.append(eta, jnp.zeros((), eta.dtype)))


def _shifted(eta: jax.Array, row: Any) -> jax.Array:
    return eta + row["offset"] if "offset" in row else eta


def _student(freedom: float, residual: jax.Array) -> jax.Array:
    return -0.5 * (freedom + 1) * jnp.log1p(residual**2 / freedom)


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


def rising_factorial(y: jax.Array, r: jax.Array) -> jax.Array:
    """log Gamma(y + r) - log Gamma(r) - y log r, for r from next to nothing (all excess) to very large (none).

    The difference of two log Gammas is lost to rounding where r is large. So both are moved up by eight factors, where
    Stirling's series holds, and the parts that cancel are never formed.
    """
    z = r + 8
    stirling = (z - 0.5) * jnp.log1p(y / z) - y + _stirling_rest(y + z) - _stirling_rest(z)
    steps = jnp.sum(jnp.log1p(y / (r + jnp.arange(8, dtype=r.dtype))))
    return stirling + y * jnp.log1p((y + 8) / r) - steps


def _stirling_rest(z: jax.Array) -> jax.Array:
    square = 1 / z**2
    return (1 / 12 - square * (1 / 360 - square / 1260)) / z
