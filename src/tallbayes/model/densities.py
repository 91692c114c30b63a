"""Densities: log p(y | eta) of one row as a function of its linear predictor, up to a constant.

    logistic           y eta - n log(1 + exp eta), n trials
    probit             y log Phi(eta) + (n - y) log Phi(-eta)
    linear             -((y - eta) / sigma)^2 / 2 - log sigma
    student t          -(nu + 1) / 2 log(1 + ((y - eta) / sigma)^2 / nu) - log sigma
    poisson            y eta - exp eta
    negative binomial  mean mu = exp eta, variance mu + a mu^2
    multinomial        eta_y - log sum_k exp eta_k, eta_0 = 0

A row may carry an offset, which is added to eta. Where a scale is unknown, eta is a pair and its second half the log
of that scale. The same lines serve JAX, one row at a time, and NumPy, where eta is (predictors, rows, points), without
the first axis where there is one predictor, and a row's numbers are (rows, 1).
"""

from __future__ import annotations

from typing import Any

from tallbayes.programs.functions import functions_of

Numbers = Any


def logistic(eta: Numbers, row: Any) -> Numbers:
    eta = _shifted(eta, row)
    failures = functions_of(eta).softplus(eta)
    return row["y"] * eta - (row["trials"] * failures if "trials" in row else failures)


def probit(eta: Numbers, row: Any) -> Numbers:
    eta = _shifted(eta, row)
    log_cdf = functions_of(eta).log_normal_cdf
    if "trials" in row:
        return row["y"] * log_cdf(eta) + (row["trials"] - row["y"]) * log_cdf(-eta)
    return log_cdf((2 * row["y"] - 1) * eta)


def linear(noise_scale: float, eta: Numbers, row: Any) -> Numbers:
    return -0.5 * ((row["y"] - _shifted(eta, row)) / noise_scale) ** 2


def linear_unknown(eta: Numbers, row: Any) -> Numbers:
    mean, log_scale = _shifted(eta[0], row), eta[1]
    return -0.5 * ((row["y"] - mean) * functions_of(eta).exp(-log_scale)) ** 2 - log_scale


def student_t(freedom: float, noise_scale: float, eta: Numbers, row: Any) -> Numbers:
    return _student(freedom, (row["y"] - _shifted(eta, row)) / noise_scale)


def student_t_unknown(freedom: float, eta: Numbers, row: Any) -> Numbers:
    mean, log_scale = _shifted(eta[0], row), eta[1]
    return _student(freedom, (row["y"] - mean) * functions_of(eta).exp(-log_scale)) - log_scale


def poisson(eta: Numbers, row: Any) -> Numbers:
    eta = _shifted(eta, row)
    return row["y"] * eta - functions_of(eta).exp(eta)


def negative_binomial(eta: Numbers, row: Any) -> Numbers:
    """With r = 1 / a: log Gamma(y + r) - log Gamma(r) - y log r + y eta - (y + r) log(1 + a mu)."""
    y, log_mean, log_excess = row["y"], _shifted(eta[0], row), eta[1]
    r = functions_of(eta).exp(-log_excess)
    return rising_factorial(y, r) + y * log_mean - (y + r) * functions_of(eta).softplus(log_mean + log_excess)


def multinomial(eta: Numbers, row: Any) -> Numbers:
    f = functions_of(eta)
    own = _along_first(f.arange(1, len(eta) + 1, dtype=eta.dtype), eta[0]) == row["y"]
    return f.sum(f.where(own, eta, 0), axis=0) - f.log_sum_exp(eta)


def _shifted(eta: Numbers, row: Any) -> Numbers:
    return eta + row["offset"] if "offset" in row else eta


def _student(freedom: float, residual: Numbers) -> Numbers:
    return -0.5 * (freedom + 1) * functions_of(residual).log1p(residual**2 / freedom)


def rising_factorial(y: Numbers, r: Numbers) -> Numbers:
    """log Gamma(y + r) - log Gamma(r) - y log r, for r from next to nothing (all excess) to very large (none).

    The difference of two log Gammas is lost to rounding where r is large. So both are moved up by eight factors, where
    Stirling's series holds, and the parts that cancel are never formed.
    """
    f, z = functions_of(r), r + 8
    stirling = (z - 0.5) * f.log1p(y / z) - y + _stirling_rest(y + z) - _stirling_rest(z)
    steps = f.sum(f.log1p(y / (r + _along_first(f.arange(8, dtype=r.dtype), r))), axis=0)
    return stirling + y * f.log1p((y + 8) / r) - steps


def _along_first(numbers: Numbers, like: Numbers) -> Numbers:
    """Numbers along an axis before those of an array."""
    return numbers.reshape(-1, *(1,) * like.ndim)


def _stirling_rest(z: Numbers) -> Numbers:
    square = 1 / z**2
    return (1 / 12 - square * (1 / 360 - square / 1260)) / z
