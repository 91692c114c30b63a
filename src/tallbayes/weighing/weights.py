"""Draws with weights: what they say of a function of theta, and whether they can be trusted.

    w = pi / q,   w_0 = phi / q,   mean w_0 = 1 under q,   both of draws from q
    E h ~ E_phi h + mean_i Delta_i,   Delta_i = w_i (h_i - m) - w_0i (h_i - m_0) + m - m_0

with both kinds of weights divided by their means, m = mean w h and m_0 = mean w_0 h. What is taken off is the same
estimate of E_phi h, which is known: where the posterior is that Gaussian, nothing is left. The variance of Delta / n is
that of the difference to first order; its bias, -mean [w^2 (h - m) - w_0^2 (h - m_0)] / n, is of order 1 / n.

Weights behave where no few draws hold a large part of them: by their efficiency n / mean (w / W)^2, by their largest,
and by the index k of a generalised Pareto tail (Zhang and Stephens' estimate), which is finite moments up to 1 / k.
A shoulder, as that of a scale near 0, has a tail that looks heavy though its weights are bounded: of the mean of the
weights themselves k says nothing where no draw holds more than a hundredth of their variance, which laws with k near
0.5 and above have next to never.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tallbayes.moments import Floats

LEAST_EFFICIENCY = 0.2
MOST_TAIL = 0.35
# Of the sum of all weights: what one draw may hold.
LARGEST_SHARE = 0.05
# Of the variance of all weights: so little in one draw that a tail does not matter to their mean.
LARGEST_OF_VARIANCE = 0.01


@dataclass(frozen=True, eq=False)
class Weights:
    """Of some draws: w and w_0, both with mean one."""

    posterior: Floats
    gaussian: Floats

    @classmethod
    def of(cls, log_posterior: Floats, log_gaussian: Floats) -> Weights:
        """From log pi / q, up to a constant, and log phi / q; a draw where pi is no number makes all of them none."""
        most = log_posterior.max() if len(log_posterior) else 0.0
        with np.errstate(invalid="ignore"):
            raw = np.exp(log_posterior - most)
            control = np.exp(log_gaussian)
            return cls(raw / raw.mean(), control / control.mean())

    def first(self, count: int) -> Weights:
        """Those of the first draws, as if there were no others."""
        parts = self.posterior[:count], self.gaussian[:count]
        return Weights(*(part / part.mean() for part in parts))

    def differences(self, values: Floats) -> Floats:
        """Delta of every draw, for values (draws, components)."""
        return weighted_differences(values.T, self.posterior, self.gaussian).T

    def ratio_bias(self, values: Floats) -> Floats:
        """How far their mean is off by the divisions, to first order."""
        return _ratio_bias(self.posterior, values) - _ratio_bias(self.gaussian, values)

    @property
    def efficiency(self) -> float:
        """The part of the draws that counts."""
        return float(1 / np.mean(self.posterior**2))

    @property
    def largest(self) -> float:
        """Of a mean of one."""
        return float(self.posterior.max())

    @cached_property
    def tail(self) -> float:
        """k of the largest weights; minus infinity where they are all but equal."""
        ranked = np.sort(self.posterior)
        count = int(min(0.2 * len(ranked), 3 * np.sqrt(len(ranked))))
        beyond = ranked[-count:] - ranked[-count - 1]
        return _pareto_index(beyond) if beyond[-1] > 1e-6 else -np.inf

    @property
    def largest_of_variance(self) -> float:
        """The part of their variance that one draw holds."""
        squares = (self.posterior - 1) ** 2
        return float(squares.max() / max(squares.sum(), np.finfo(float).tiny))

    @property
    def trouble(self) -> str:
        """What is wrong with them, in words; empty where nothing is."""
        return self._trouble_of_few or self._trouble_of_tail

    @property
    def trouble_of_mean(self) -> str:
        """The same where nothing but their own mean is asked for."""
        few = self._trouble_of_few
        return few if few or self.largest_of_variance < LARGEST_OF_VARIANCE else self._trouble_of_tail

    @property
    def _trouble_of_few(self) -> str:
        if not np.all(np.isfinite(self.posterior)):
            return "the posterior is no number at some draws"
        if self.efficiency < LEAST_EFFICIENCY:
            return f"they are worth {self.efficiency:.0%} of as many equal ones"
        if self.largest > LARGEST_SHARE * len(self.posterior):
            return f"one draw holds {self.largest / len(self.posterior):.0%} of all weight"
        return ""

    @property
    def _trouble_of_tail(self) -> str:
        return f"their tail is heavy (k = {self.tail:.2f})" if self.tail > MOST_TAIL else ""


def weighted_differences(values: Any, posterior: Any, gaussian: Any) -> Any:
    """Delta of draws along the last axis, for arrays of NumPy or JAX."""
    mean, base = (values * posterior).mean(axis=-1), (values * gaussian).mean(axis=-1)
    shift = mean - base
    return posterior * (values - mean[..., None]) - gaussian * (values - base[..., None]) + shift[..., None]


def _ratio_bias(weights: Floats, values: Floats) -> Floats:
    square = weights**2
    return -(square @ values - square.sum() * (weights @ values / len(weights))) / len(weights) ** 2


def _pareto_index(beyond: Floats) -> float:
    """k of excesses, ascending, that are distributed as a generalised Pareto law."""
    count = len(beyond)
    tried = 30 + int(np.sqrt(count))
    quarter = max(beyond[int(count / 4 + 0.5) - 1], np.finfo(float).tiny)
    b = 1 / beyond[-1] + (1 - np.sqrt(tried / (np.arange(1, tried + 1) - 0.5))) / (3 * quarter)
    k = -np.log1p(-b[:, None] * beyond).mean(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        profile = count * (np.log(b / k) + k - 1)
    profile = np.where(np.isfinite(profile), profile, -np.inf)
    weights = np.exp(profile - profile.max())
    found = float(np.sum(b * weights) / weights.sum())
    index = float(np.log1p(-found * beyond).mean())
    # Towards 0.5 as ten more would have it, which matters where there are few.
    return (index * count + 0.5 * 10) / (count + 10)
