"""Importance sampling as one would write it in NumPy: Student's t at the mode, and weights that sum to one.

    theta = mode + A z,   A A' = precision^-1,   z ~ t_nu,   w = pi(theta | X) / q(z),   sum w = 1
    E theta_j ~ m_j = sum w theta_j,   sd_j^2 = sum w (theta_j - m_j)^2
    error of m_j:  e_j^2 = sum w^2 (theta_j - m_j)^2;   of sd_j:  sum w^2 ((theta_j - m_j)^2 - sd_j^2)^2 / (2 sd_j)^2

It draws until the worst of these errors, in posterior sds, is the goal, or until the effort is spent. That takes a few
hundredths of a second where rows are few; so the same is done with further seeds, and the seconds are the median.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import lgamma

import numpy as np

from .contract import Answer, Contestant, Cost, Effort, Stopwatch
from .laws import GOAL
from .posteriors import LOGISTIC, MULTINOMIAL, POISSON, Posterior, Response

CHUNK, TILE_NUMBERS = 256, 1 << 15
FIRST_DRAWS, MARGIN = 2_048, 1.05
LEAST_FREEDOM, FREEDOM_SHARE = 5.0, 0.75
CALLS = 5


def _softplus(eta: np.ndarray) -> np.ndarray:
    return np.maximum(eta, 0) + np.log1p(np.exp(-np.abs(eta)))


def _log_sum_exp(eta: np.ndarray) -> np.ndarray:
    """Over the classes, the first axis, of which the base has zero."""
    top = np.maximum(eta.max(axis=0), 0)
    return top + np.log(np.exp(-top) + np.exp(eta - top).sum(axis=0))


# log p(y | eta) = eta_y - fit(eta), from eta (heads, rows, draws).
FITS: dict[Response, Callable[[np.ndarray], np.ndarray]] = {
    LOGISTIC: lambda eta: _softplus(eta[0]),
    POISSON: lambda eta: np.exp(eta[0]),
    MULTINOMIAL: _log_sum_exp,
}


def log_density(posterior: Posterior, moment: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Of every draw, so many rows at a time as a cache holds; `moment` multiplies theta in what is linear in it."""
    heads, columns = posterior.response.heads, posterior.x.shape[1]
    coefficients = np.ascontiguousarray(theta.reshape(len(theta), heads, columns).transpose(1, 2, 0))
    total = theta @ moment - 0.5 * np.sum(theta**2, axis=1)
    size = max(16, TILE_NUMBERS // (heads * len(theta)))
    for start in range(0, posterior.num_rows, size):
        eta = np.asarray(posterior.x[start : start + size], np.float64) @ coefficients
        total -= FITS[posterior.response](eta).sum(axis=0)
    return total


def linear_part(posterior: Posterior) -> np.ndarray:
    """sum_i x_i y_i, class by class where there are several."""
    if posterior.response.heads == 1:
        return np.asarray(posterior.y @ posterior.x, np.float64)
    own = posterior.y[:, None] == np.arange(1, posterior.response.heads + 1)
    return (own.T.astype(np.float64) @ posterior.x).ravel()


def freedom_of(dimension: int) -> float:
    """Of several that were tried, the best on the whole: heavy tails are wasted where d is large."""
    return max(LEAST_FREEDOM, FREEDOM_SHARE * dimension)


class Weighed:
    """Draws with weights, and what they say."""

    def __init__(self, theta: np.ndarray, log_weights: np.ndarray) -> None:
        self.draws, weights = len(theta), np.exp(log_weights - log_weights.max())
        self.weights = weights / weights.sum()
        self.mean = self.weights @ theta
        squares = (theta - self.mean) ** 2
        self.sd = np.sqrt(self.weights @ squares)
        self.mean_error = np.sqrt(self.weights**2 @ squares) / self.sd
        self.sd_error = np.sqrt(self.weights**2 @ (squares - self.sd**2) ** 2) / (2 * self.sd**2)

    @property
    def worst(self) -> float:
        return float(max(self.mean_error.max(), self.sd_error.max()))


def sample(posterior: Posterior, root: np.ndarray, moment: np.ndarray, effort: Effort, seed: int) -> Weighed:
    """Round after round, each of as many draws as the last one says."""
    d, began = posterior.dimension, time.perf_counter()
    freedom, rng = freedom_of(d), np.random.default_rng(seed)
    constant = lgamma((freedom + d) / 2) - lgamma(freedom / 2) - d / 2 * np.log(freedom / 2)
    thetas, log_weights, wanted = [], [], float(FIRST_DRAWS)
    while True:
        z = rng.standard_normal((CHUNK, d)) * np.sqrt(freedom / rng.chisquare(freedom, (CHUNK, 1)))
        proposal = constant - 0.5 * (freedom + d) * np.log1p(np.sum(z**2, axis=1) / freedom)
        thetas.append(posterior.mode + z @ root.T)
        log_weights.append(log_density(posterior, moment, thetas[-1]) - proposal)
        drawn, over = CHUNK * len(thetas), time.perf_counter() - began >= effort.seconds
        if drawn < wanted and not (over and drawn >= effort.least_draws):
            continue
        found = Weighed(np.concatenate(thetas), np.concatenate(log_weights))
        if found.worst <= GOAL or over:
            return found
        wanted = min(4.0 * drawn, MARGIN * drawn * (found.worst / GOAL) ** 2)


def importance(posterior: Posterior, effort: Effort) -> Answer:
    """A draw costs N, and Newton's passes are charged."""
    stopwatch, seconds, runs = Stopwatch(), [], []
    with stopwatch.timed() as preparing:
        root = np.linalg.inv(np.linalg.cholesky(np.asarray(posterior.precision, np.float64))).T
        moment = linear_part(posterior)
    while len(runs) < CALLS and sum(seconds) < effort.seconds:
        with stopwatch.timed() as drawing:
            runs.append(sample(posterior, root, moment, effort, effort.seed + len(runs)))
        seconds.append(drawing())
    first, num_rows = runs[0], posterior.num_rows
    return Answer(
        mean=first.mean,
        sd=first.sd,
        law="sampling",
        setup=Cost(float(posterior.newton_passes * num_rows), posterior.newton_seconds + preparing()),
        sampling=Cost(float(np.mean([run.draws for run in runs]) * num_rows), float(np.median(seconds))),
        compiling=stopwatch.compiling,
        settings={
            "proposal": f"Student's t at the mode (a gift), {freedom_of(posterior.dimension):g} degrees",
            "draws": first.draws,
            "stops": f"the worst mean and sd to {GOAL:g} posterior sds",
            "float": "float64",
            "numpy": np.__version__,
        },
        ess=float(first.mean_error.max() ** -2),
        sd_noise=float(first.sd_error.max()),
        error=first.worst,
        remarks={
            "efficiency": float(1 / np.sum(first.weights**2) / first.draws),
            "largest weight": float(first.weights.max()),
            "draws_by_seed": [run.draws for run in runs],
            "seconds_by_seed": seconds,
        },
    )


CONTESTANTS: dict[str, Contestant] = {"importance sampling (NumPy)": importance}
