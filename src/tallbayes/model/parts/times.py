"""Densities of times that may be censored: log p(row | eta), constants and all.

    exponential   H(t) = t / mean                               eta = log mean
    weibull       H(t) = (t Gamma(1 + 1/k) / mean)^k            eta = log mean, log k
    log-normal    log t = eta + sigma e, e ~ N(0, 1)            eta, log sigma

    event  log h(y) - H(y)      right  -H(y)      left  log(1 - exp -H(y))      interval  log(exp -H(y) - exp -H(upper))

h = H' is the hazard, exp(-H) the chance to outlast t. How a row is censored is 0, 1, -1 or 2, in that order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tallbayes.model.densities import HALF_LOG_TWO_PI, Numbers, log_of, log_one_less
from tallbayes.programs.functions import functions_of


class _Law(NamedTuple):
    """Of log t: log density of t, and log chance to outlast it; that to end between two times is a + log(1 - exp -x),
    of which a and x are told."""

    density: Callable[[Numbers], Numbers]
    outlasts: Callable[[Numbers], Numbers]
    between: Callable[[Numbers, Numbers], tuple[Numbers, Numbers]]


def exponential(eta: Numbers, row: Any) -> Numbers:
    centre = eta + row["offset"] if "offset" in row else eta
    return _of_row(_weibull(1.0, 0.0, centre), row)


def weibull(eta: Numbers, row: Any) -> Numbers:
    f = functions_of(eta)
    centre = eta[0] + row["offset"] if "offset" in row else eta[0]
    return _of_row(_weibull(f.exp(eta[1]), eta[1], centre - f.log_gamma(1 + f.exp(-eta[1]))), row)


def log_normal(eta: Numbers, row: Any) -> Numbers:
    f, log_scale = functions_of(eta), eta[1]
    centre, per = (eta[0] + row["offset"] if "offset" in row else eta[0]), f.exp(-log_scale)

    def density(log_t: Numbers) -> Numbers:
        return -0.5 * ((log_t - centre) * per) ** 2 - log_scale - log_t - HALF_LOG_TWO_PI

    def between(log_t: Numbers, log_end: Numbers) -> tuple[Numbers, Numbers]:
        low, high = (log_t - centre) * per, (log_end - centre) * per
        # The smaller of the two tails has no digits to lose.
        flip = low + high > 0
        near, far = f.where(flip, -high, low), f.where(flip, -low, high)
        log_far = f.log_normal_cdf(far)
        return log_far, log_far - f.log_normal_cdf(near)

    return _of_row(_Law(density, lambda log_t: f.log_normal_cdf((centre - log_t) * per), between), row)


def _weibull(shape: Numbers, log_shape: Numbers, log_scale: Numbers) -> _Law:
    f = functions_of(log_scale)

    def total(log_t: Numbers) -> Numbers:
        return f.exp(shape * (log_t - log_scale))

    def between(log_t: Numbers, log_end: Numbers) -> tuple[Numbers, Numbers]:
        so_far = total(log_t)
        return -so_far, total(log_end) - so_far

    def density(log_t: Numbers) -> Numbers:
        return log_shape + shape * (log_t - log_scale) - log_t - total(log_t)

    return _Law(density, lambda log_t: -total(log_t), between)


def _of_row(law: _Law, row: Any) -> Numbers:
    f = functions_of(row["y"])
    log_t = log_of(row["y"])
    found = law.density(log_t)
    if "censored" not in row:
        return found
    how, outlasts = row["censored"], law.outlasts(log_t)
    g = functions_of(outlasts)
    # Of rows of another kind any number will do that has a logarithm, and slopes.
    before = log_one_less(g.where(how == -1, -outlasts, 1.0))
    found = g.where(how == 1, outlasts, g.where(how == -1, before, found))
    if "upper" not in row:
        return found
    base, x = law.between(log_t, f.log(f.where(how == 2, row["upper"], 2 * f.exp(log_t))))
    return g.where(how == 2, base + log_one_less(g.where(how == 2, x, 1.0)), found)
