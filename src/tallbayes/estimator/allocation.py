"""Allocation and error of a multilevel sum: how many samples each level needs, and what remains.

N_l = ceil( eps_v^-2 sqrt(V_l / C_l) sum_k sqrt(V_k C_k) )                      samples
se^2 = sum_l v_l,  v_l = V_l / N_l,  nu = 2 (sum v_l)^2 / sum v_l^2 (kappa_l - 1) / N_l
bias <= max over the last three levels of (|mean_l| + 2 se_l) rho^(L-l) rho / (1 - rho)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallbayes.moments import Floats

TRUSTED_SAMPLES = 512
RARE_KURTOSIS = 50.0
PATHS_A_KURTOSIS, MOST_DOUBTED = 4, 4096


class Least(NamedTuple):
    """What is known of level 0 without a sample, by component: its least variance, and the kurtosis with it."""

    variance: Floats
    kurtosis: Floats

    @property
    def rare(self) -> np.ndarray:
        """Whether it hangs on few paths, so that a few dozen need not have seen any of them."""
        return self.kurtosis > RARE_KURTOSIS


def optimal_samples(variance: Floats, cost: Floats, tolerance: Floats) -> Floats:
    """Samples by level so that every component's statistical error meets its tolerance.

    `variance` is (levels, components), `cost` (levels,), `tolerance` (components,): the largest demand wins.
    """
    root = np.sqrt(variance * cost[:, None])
    with np.errstate(divide="ignore", invalid="ignore"):
        need = np.sqrt(variance / cost[:, None]) * root.sum(axis=0) / tolerance**2
    need = np.where(variance > 0, need, 0.0)
    return np.ceil(np.minimum(need.max(axis=1), 2.0**62))


def degrees_of_freedom(variance: Floats, kurtosis: Floats, samples: Floats) -> Floats:
    """nu of the t quantile, by component; infinite where nothing varies."""
    part = variance / samples[:, None]
    spread = np.sum(part**2 * (np.maximum(kurtosis, 3.0) - 1) / samples[:, None], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(spread > 0, 2 * part.sum(axis=0) ** 2 / spread, np.inf)


def bias_terms(size: Floats, rho: float) -> Floats:
    """The remaining bias that each of the last three levels (l >= 1) speaks for, given its size."""
    if rho >= 1:
        return np.full((min(len(size) - 1, 3), size.shape[1]), np.inf)
    tail = size[1:][-3:]
    below = np.arange(len(tail))[::-1, None]
    return tail * rho**below * rho / (1 - rho)


def samples_to_resolve(samples: Floats, by_mean: Floats, by_both: Floats, share: Floats) -> Floats:
    """Samples that shrink the levels' errors until what they speak for fits the share of the bias."""
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(by_both > share, ((by_both - by_mean) / (share - by_mean)) ** 2, 1.0)
    resolved = samples.copy()
    resolved[-len(by_both) :] *= np.maximum(factor.max(axis=1), 1.0)
    return resolved


class SumErrors(NamedTuple):
    """Of a sum of levels, by component: its standard error, and a bound on the bias of the levels not taken."""

    standard_error: Floats
    bias_bound: Floats


def sum_errors(
    mean: Floats, variance: Floats, samples: Floats, rho: float, base_variance: Floats | float = 0.0
) -> SumErrors:
    """Of what the levels, (levels, components), add to a base that has a variance of its own.

    The last three levels speak for the bias; of fewer it is not known, and infinite. Where rho is 0 no level is left
    out, however many there are.
    """
    error = np.sqrt(variance / samples[:, None])
    bias = np.full(error.shape[1], np.inf)
    if rho == 0:
        bias = np.zeros(error.shape[1])
    elif len(error) >= 3:
        bias = bias_terms(np.abs(mean) + 2 * error, rho).max(axis=0)
    return SumErrors(np.sqrt(np.sum(error**2, axis=0) + base_variance), bias)


def floored_variance(
    variance: Floats, samples: Floats, rate: float, trusted: int, least: Least | None = None
) -> Floats:
    """Variances by level that a small or lucky sample cannot make too small.

    A level with fewer than `trusted` samples is held above half of what the level below predicts; one that saw no
    variation at all among M samples, where level 0 varies, above 3 V_0 / M. With what is known of level 0 without a
    sample, level 1 is held above a quarter of that; and what hangs on few paths is held above half of the level below
    until there are enough samples to have seen some of these.
    """
    floored = variance.copy()
    if least is not None:
        floored[0] = np.maximum(floored[0], least.variance)
    for level in range(1, len(variance)):
        if samples[level] < trusted and (level > 1 or least is not None):
            predicted = floored[level - 1] * 2.0**-rate
            floored[level] = np.maximum(floored[level], predicted / (2 if level > 1 else 4))
        if least is not None:
            unsure = least.rare & (samples[level] < np.minimum(PATHS_A_KURTOSIS * least.kurtosis, MOST_DOUBTED))
            floored[level] = np.where(unsure, np.maximum(floored[level], floored[level - 1] / 2), floored[level])
        unseen = 3 * variance[0] / samples[level]
        floored[level] = np.where(floored[level] > 0, floored[level], unseen)
    return floored


def unseen_jumps(variance: Floats, jump: Floats, samples: float) -> Floats:
    """A jump that none of M samples showed has probability up to 3 / M (95%), and the variance of that."""
    return np.where((variance == 0) & (jump > 0), 3 * jump**2 / max(samples, 1), variance)
