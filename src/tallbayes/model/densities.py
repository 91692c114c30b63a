"""Densities: log p(y | eta) of one row as a function of its linear predictor, up to a constant.

    logistic           y eta - n log(1 + exp eta), n trials
    probit             y log Phi(eta) + (n - y) log Phi(-eta)
    linear             -((y - eta) / sigma)^2 / 2 - log sigma
    student t          -(nu + 1) / 2 log(1 + ((y - eta) / sigma)^2 / nu) - log sigma
    poisson            y eta - exp eta
    negative binomial  mean mu = exp eta, variance mu + a mu^2
    multinomial        eta_y - log sum_k exp eta_k, eta_0 = 0
    ordinal            log [F(c_k - eta) - F(c_(k-1) - eta)], cut points c in their order
    gamma              mean exp eta, variance mean^2 / shape
    beta               mean 1 / (1 + exp -eta), variance mean (1 - mean) / (1 + precision)
    zero-inflated      log [pi + (1 - pi) p(0)] of a zero, else log (1 - pi) + log p(y)
    hurdle             log pi of a zero, else log (1 - pi) + log p(y) - log (1 - p(0))
    quantile           -t r - h log(1 + exp(-r / h)) - log(h B(h t, h (1 - t))) - log sigma,  r = (y - eta) / sigma

Those of times are in `times`. A row may carry an offset, which is added to eta. Where there are extras eta is a vector
and they follow the linear predictor, each by its place in R^d: the log of what is positive, the logit of a chance, the
first cut point and the logs of the steps to the others. The same lines serve JAX, one row at a time, and NumPy, where
eta is (predictors, rows, points), without the first axis where there is one predictor, and a row's numbers are (rows,
1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tallbayes.programs.functions import functions_of

Numbers = Any
LEAST = 1e-30
HALF_LOG_TWO_PI = 0.9189385332046727


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


def ordinal(log_cdf: Callable[[Numbers], Numbers] | None, eta: Numbers, row: Any) -> Numbers:
    """By F's logarithm; of the logistic F, which is F(b) F(-a) (1 - exp(a - b)) between a and b, without."""
    f, steps = functions_of(eta), eta[1:]
    centre, y, last = _shifted(eta[0], row), row["y"], len(eta) - 1
    cuts = f.cumsum(f.concatenate([steps[:1], f.exp(steps[1:])], axis=0), axis=0)
    places = _along_first(f.arange(last, dtype=eta.dtype), centre)
    above = f.sum(f.where(places == y, cuts, 0), axis=0) - centre
    below = f.sum(f.where(places == y - 1, cuts, 0), axis=0) - centre
    step = f.sum(f.where((places == y) & (places > 0), steps, 0), axis=0)
    inside = (y > 0) & (y < last)
    if log_cdf is None:
        total = f.where(y < last, -f.softplus(-above), 0) + f.where(y > 0, -f.softplus(below), 0)
        return total + f.where(inside, log_one_less(f.exp(step)), 0)
    # The smaller of the two tails has no digits to lose.
    ends = f.where(inside, above, 1.0), f.where(inside, below, -1.0)
    flip = ends[0] + ends[1] > 0
    high, low = f.where(flip, -ends[1], ends[0]), f.where(flip, -ends[0], ends[1])
    far, near = log_cdf(high), log_cdf(low)
    between = far + log_one_less(far - near)
    return f.where(inside, between, log_cdf(f.where(y > 0, -below, above)))


def ordinal_logit(eta: Numbers, row: Any) -> Numbers:
    return ordinal(None, eta, row)


def ordinal_probit(eta: Numbers, row: Any) -> Numbers:
    return ordinal(functions_of(eta).log_normal_cdf, eta, row)


def gamma(eta: Numbers, row: Any) -> Numbers:
    """With z = log(y / mean): shape (z + 1 - exp z) - log y - (log Gamma(shape) - shape log shape + shape)."""
    f = functions_of(eta)
    shape, log_y = f.exp(eta[1]), log_of(row["y"])
    z = log_y - _shifted(eta[0], row)
    return shape * (z - f.expm1(z)) - log_y - gamma_rest(shape)


def beta(eta: Numbers, row: Any) -> Numbers:
    f, g = functions_of(eta), functions_of(row["y"])
    y = g.where((row["y"] > 0) & (row["y"] < 1), row["y"], 0.5)
    centre, precision = _shifted(eta[0], row), f.exp(eta[1])
    log_mean, log_other = -f.softplus(-centre), -f.softplus(centre)
    a, b, log_y, log_rest = precision * f.exp(log_mean), precision * f.exp(log_other), g.log(y), g.log1p(-y)
    total = a * (log_y - log_mean) + b * (log_rest - log_other) - log_y - log_rest
    return total + gamma_rest(precision) - gamma_rest(a) - gamma_rest(b)


def zero_inflated_poisson(eta: Numbers, row: Any) -> Numbers:
    return _zero_inflated(poisson(eta[0], row), _log_no_count(eta, row), eta[1], row)


def zero_inflated_negative_binomial(eta: Numbers, row: Any) -> Numbers:
    return _zero_inflated(negative_binomial(eta, row), _log_no_count(eta, row), eta[2], row)


def hurdle_poisson(eta: Numbers, row: Any) -> Numbers:
    return _over_hurdle(poisson(eta[0], row), _log_no_count(eta, row), eta[1], row)


def hurdle_negative_binomial(eta: Numbers, row: Any) -> Numbers:
    return _over_hurdle(negative_binomial(eta, row), _log_no_count(eta, row), eta[2], row)


def _log_no_count(eta: Numbers, row: Any) -> Numbers:
    """log p(0) of the counts."""
    return log_no_count(_shifted(eta[0], row), eta[1] if len(eta) > 2 else None)


def log_no_count(log_mean: Numbers, log_excess: Numbers | None) -> Numbers:
    """log P(y = 0) of a Poisson or a negative binomial count."""
    f = functions_of(log_mean)
    if log_excess is None:
        return -f.exp(log_mean)
    return -f.softplus(log_mean + log_excess) * f.exp(-log_excess)


def _zero_inflated(log_count: Numbers, log_none: Numbers, logit: Numbers, row: Any) -> Numbers:
    f = functions_of(logit)
    log_chance, log_rest = -f.softplus(-logit), -f.softplus(logit)
    return f.where(row["y"] == 0, f.log_add_exp(log_chance, log_rest + log_none), log_rest + log_count)


def _over_hurdle(log_count: Numbers, log_none: Numbers, logit: Numbers, row: Any) -> Numbers:
    f, none = functions_of(log_none), row["y"] == 0
    some = log_one_less(f.where(none, 1.0, -log_none))
    return f.where(none, -f.softplus(-logit), log_count - f.softplus(logit) - some)


def quantile(level: float, width: float, eta: Numbers, row: Any) -> Numbers:
    """The check loss in units of a scale, rounded at the corner over so many of these."""
    f, log_scale = functions_of(eta), eta[1]
    r = (row["y"] - _shifted(eta[0], row)) * f.exp(-log_scale)
    return -level * r - width * f.softplus(-r / width) - log_scale


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


def log_of(y: Numbers) -> Numbers:
    """log y; of the places that fill up a unit of several rows, where y is 0, a number whose slopes are finite."""
    f = functions_of(y)
    return f.log(f.where(y > 0, y, 1.0))


def gamma_rest(a: Numbers) -> Numbers:
    """log Gamma(a) - a log a + a, without a difference of large numbers: as above."""
    f = functions_of(a)
    # In float32 what is less has no reciprocal.
    a = f.where(a > LEAST, a, LEAST)
    z = a + 8
    steps = f.sum(f.log1p(_along_first(f.arange(8, dtype=a.dtype), a) / a), axis=0)
    return (a + 7.5) * f.log1p(8 / a) - 8 + HALF_LOG_TWO_PI + _stirling_rest(z) - steps - f.log(a) / 2


def log_one_less(x: Numbers) -> Numbers:
    """log(1 - exp(-x)), x > 0."""
    f = functions_of(x)
    small = x < 0.5
    return f.where(small, f.log(-f.expm1(-f.where(small, x, 0.5))), f.log1p(-f.exp(-f.where(small, 0.5, x))))


def _along_first(numbers: Numbers, like: Numbers) -> Numbers:
    """Numbers along an axis before those of an array."""
    return numbers.reshape(-1, *(1,) * like.ndim)


def _stirling_rest(z: Numbers) -> Numbers:
    square = 1 / z**2
    return (1 / 12 - square * (1 / 360 - square / 1260)) / z
