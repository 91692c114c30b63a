"""From weights to a log mean, with its errors.

    log Z = shift + log A,   A = E_q w,   w = exp(log pi - log q - shift),   g = phi / q with E_q g = 1
    A^ = mean_s D_s,   D_s = w_s - beta (g_s - 1),   beta = Cov(w, g) / Var g

phi is the Gaussian that the draws are about: what it explains is taken off exactly, and where the posterior is phi
nothing is left. To first order

    se = sd(D) / (A sqrt n),   bias = -se^2 / 2 - mean[ (g - 1)^2 (D - A) ] / (n A Var g),

the parts of the logarithm and of a beta that is estimated; both are bounds here, and so is what skewness takes off an
end of the interval, |gamma| (2 q^2 + 1) / (6 sqrt n) standard errors. Few draws know their variance roughly: it is made
larger by a standard error of itself, and its degrees of freedom come from the kurtosis.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallbayes.estimator.allocation import degrees_of_freedom
from tallbayes.moments import Floats, Moments

QUANTILE = 1.96
LEAST_FREEDOM = 15.0


class LogMean(NamedTuple):
    """log A with its errors."""

    value: float
    standard_error: float
    freedom: float
    bias_bound: float

    @property
    def error(self) -> float:
        return float(np.hypot(self.standard_error, self.bias_bound))


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def log_mean(log_weights: Floats, log_gaussian: Floats) -> LogMean:
    """Of draws with log pi - log q and log phi - log q; not a number where the density is none somewhere."""
    n, most = len(log_weights), float(np.max(log_weights))
    scale = float(np.mean(np.exp(log_weights - most)))
    w, g = np.exp(log_weights - most) / scale, np.exp(log_gaussian)
    apart = g - 1
    spread = float(np.var(g))
    beta = float(np.cov(w, g)[0, 1] / np.var(g, ddof=1)) if spread > 0 else 0.0
    d = w - beta * apart
    moments = Moments.of(d[:, None])
    mean, kurtosis = float(moments.mean[0]), moments.kurtosis
    if not (np.isfinite(mean) and mean > 0):
        return LogMean(np.nan, np.inf, 1.0, np.inf)
    variance = moments.variance * (1 + np.sqrt((kurtosis - 1) / n))
    freedom = degrees_of_freedom(variance[None], kurtosis, np.array([float(n)]))
    variance = variance * np.maximum(LEAST_FREEDOM / freedom, 1.0)
    error = float(np.sqrt(variance[0] / n)) / mean
    by_beta = 0.0
    if spread > 0:
        by_beta = abs(float(np.mean(apart**2 * (d - mean)) - np.mean(apart) * np.mean(apart * (d - mean))))
        by_beta /= n * mean * spread
    skewed = abs(float(moments.skewness[0])) * (2 * QUANTILE**2 + 1) / (6 * np.sqrt(n)) * error
    bias = error**2 / 2 + by_beta + skewed
    return LogMean(most + np.log(scale) + np.log(mean), error, float(freedom[0]), bias)


class Mean(NamedTuple):
    """A mean over the Gaussian, and its standard error."""

    value: float
    standard_error: float


@np.errstate(invalid="ignore", over="ignore")
def mean_over_gaussian(values: Floats, log_gaussian: Floats) -> Mean:
    """E_phi of values at draws from q."""
    g = np.exp(log_gaussian)
    finite = np.where(g > 0, values, 0.0)
    share = g / g.sum()
    mean = float(share @ finite)
    return Mean(mean, float(np.sqrt(np.sum((share * (finite - mean)) ** 2))))
