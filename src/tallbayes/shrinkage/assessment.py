"""What chains say of the posterior: values and errors, from one number a chain and what its weights change.

    E h = E_site h + sum w h / sum w - mean h        the first over all sweeps, the rest over draws that were weighed

w = p(y | u) / site(u) reads all rows, and differs little from a constant where rows are many: few draws tell what it
changes. Errors are the jackknife's over chains, which are independent of one another, so that nothing is assumed of how
draws of one hang together; the jackknife's bias, of the ratio and of an sd, is in the bias bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallbayes.moments import Floats
from tallbayes.weighing.weights import Weights

# Below this much is not told by a few hundred draws: sweeps a chain that count, and how far halves may be apart.
LEAST_EFFECTIVE, MOST_APART = 10.0, 5.0
# Weights that are worth so much are as good as equal, whatever their tail.
AS_GOOD_AS_EQUAL = 0.995


@dataclass(frozen=True, eq=False)
class WeighedSweeps:
    """Draws with log w, (draws, chains), and what is read of them, (draws, chains, numbers)."""

    log_weights: Floats
    values: Floats

    @property
    def weights(self) -> Weights:
        flat = self.log_weights.ravel()
        return Weights.of(flat, np.zeros_like(flat))

    @property
    def trouble(self) -> str:
        """As of other draws with weights, but for tails of what hardly differs."""
        weights = self.weights
        if np.all(np.isfinite(weights.posterior)) and weights.efficiency > AS_GOOD_AS_EQUAL:
            return ""
        return weights.trouble


@dataclass(frozen=True, eq=False)
class Readings:
    """Where numbers stand among those that are read: for an expectation a column, for an sd also that of the square.

    Columns are less `reference`, and `second` is -1 where an expectation is meant.
    """

    first: np.ndarray
    second: np.ndarray
    reference: Floats

    def of(self, means: Floats) -> Floats:
        """Answers (..., components) from means of what is read (..., numbers)."""
        first = means[..., self.first]
        variance = np.maximum(means[..., self.second] - first**2, 0.0)
        return np.where(self.second < 0, self.reference + first, np.sqrt(variance))


@dataclass(frozen=True, eq=False)
class Findings:
    """By component: value, standard error and bias, the part of the squared error that weights have, and the posterior
    sd of the number; and how chains mix.

    `effective` is how many independent sweeps those of a chain count for, `apart` the distance of the halves that
    started below and above, in standard errors; both are over what is read.
    """

    value: Floats
    standard_error: Floats
    bias: Floats
    weight_share: Floats
    sd: Floats
    effective: float
    apart: float

    @property
    def is_mixed(self) -> bool:
        return self.effective >= LEAST_EFFECTIVE and self.apart <= MOST_APART


@np.errstate(invalid="ignore", divide="ignore")
def assess(means: Floats, spread: Floats, weighed: WeighedSweeps | None, read: Readings) -> Findings:
    """`means` are those of every chain (chains, numbers), `spread` the variance of one sweep by number."""
    chains = len(means)
    total = means.sum(axis=0)
    whole, without = total / chains, (total - means) / (chains - 1)
    if weighed is None:
        shift, shifts = np.zeros_like(whole), np.zeros_like(without)
    else:
        shift, shifts = _shifts(weighed)
    value, parts = read.of(whole + shift), read.of(without + shifts)
    variance = _jackknife(parts)
    by_weights = _jackknife(read.of(whole + shifts))
    effective = spread / np.var(means, axis=0, ddof=1)
    told = spread > 1e-12 * np.max(spread)
    return Findings(
        value=value,
        standard_error=np.sqrt(variance),
        bias=np.abs((chains - 1) * (parts.mean(axis=0) - value)),
        weight_share=np.nan_to_num(by_weights / variance),
        sd=np.sqrt(spread[read.first]),
        effective=float(np.min(effective[told], initial=np.inf)),
        apart=_apart(means[:, told]),
    )


def _shifts(weighed: WeighedSweeps) -> tuple[Floats, Floats]:
    """sum w h / sum w - mean h, of all chains and without each."""
    weights = np.exp(weighed.log_weights - weighed.log_weights.max())
    heavy = np.einsum("nc,nck->ck", weights, weighed.values)
    plain, total = weighed.values.sum(axis=0), weights.sum(axis=0)
    count = weighed.log_weights.size
    rest = count - len(weights)
    whole = heavy.sum(axis=0) / total.sum() - plain.sum(axis=0) / count
    without = (heavy.sum(axis=0) - heavy) / (total.sum() - total)[:, None] - (plain.sum(axis=0) - plain) / rest
    return whole, without


def _jackknife(parts: Floats) -> Floats:
    return (len(parts) - 1) / len(parts) * np.sum((parts - parts.mean(axis=0)) ** 2, axis=0)


def _apart(means: Floats) -> float:
    """Of the halves that started below and above."""
    below, above = means[::2], means[1::2]
    error = below.var(axis=0, ddof=1) / len(below) + above.var(axis=0, ddof=1) / len(above)
    return float(np.max(np.abs(below.mean(axis=0) - above.mean(axis=0)) / np.sqrt(error), initial=0.0))
