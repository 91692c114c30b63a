"""The telescoping sum: what samples of the levels say of a quantity that was asked for afterwards.

    value = base + sum_l mean_i Delta_il,   the base being its expectation under Laplace's Gaussian
    Delta_il = mean over stops k of [ h(fine_ilk) - mean_c h(taken off_ilkc) ]

Errors are those of `allocation`: the statistical one, and a bound on the bias that is left of the levels not taken. An
answer also says how fast its own levels decay (beta: 2 where the quantity is smooth, less where it jumps), and what it
would cost to have it to another accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tallbayes.estimator.allocation import (
    TRUSTED_SAMPLES,
    Least,
    degrees_of_freedom,
    floored_variance,
    sum_errors,
    unseen_jumps,
)
from tallbayes.estimator.estimates import Estimate
from tallbayes.estimator.rates import variance_decay
from tallbayes.moments import Floats, Moments
from tallbayes.structure import Structure
from tallbayes.weighing.weights import Weights


@dataclass(frozen=True, eq=False)
class Rungs:
    """What the errors need to know of the ladder: the factor by which level means fall, the rate at which variances
    do for a smooth quantity, and the row gradients of one sample, by level.

    Where `rho` is 0 nothing is left out, as of draws with weights. Along the `slow` places of theta paths do not
    settle: what hangs on them has no bound. All else is within `left` sds of what it would be otherwise.
    """

    rho: float
    variance_rate: float
    costs: Floats
    slow: tuple[int, ...] = ()
    left: float = 0.0

    def along(self, direction: Floats | None) -> Rungs:
        """For a number that moves along a direction of theta; None may be any."""
        if not self.slow or (direction is not None and not np.any(direction[list(self.slow)])):
            return self
        return replace(self, rho=np.inf)


def differences(readings: Any, alone: bool, stops: int = 1, sides: int = 2, weights: Weights | None = None) -> Any:
    """Delta of every path from what it reads, an array of NumPy or JAX by (paths, stops, 1 + taken off, ...), or with
    the latter two along other axes; of a path that stands `alone`, with nothing taken off, what it reads itself. Draws
    with `weights` have one side, first axis or last."""
    means, before = readings.mean(axis=stops), (slice(None),) * (sides - (stops < sides))
    fine = means[*before, 0]
    if weights is not None:
        return weights.differences(fine)
    return fine if alone else fine - means[*before, 1:].mean(axis=len(before))


def combine(
    name: str,
    structure: Structure,
    samples: Sequence[Floats],
    rungs: Rungs,
    base: Floats | float = 0.0,
    base_variance: Floats | float = 0.0,
    jump: Floats | float = 0.0,
    rate: float | None = None,
    least: Least | None = None,
) -> Estimate:
    """An estimate from samples (paths, components) of every level.

    `base_variance` is that of the base itself; `jump` as in `quantities`, `rate` where variances fall more slowly than
    those of a smooth quantity, `least` what is known of the variance of level 0 without a sample.
    """
    levels = [Moments.of(each) for each in samples]
    counts = np.array([level.count for level in levels], float)
    mean, kurtosis = (np.stack([getattr(level, each) for level in levels]) for each in ("mean", "kurtosis"))
    variance = np.stack([level.variance for level in levels])
    width = mean.shape[1]
    scale = np.sqrt(np.maximum(variance[0], np.finfo(float).tiny))
    beta = variance_decay(variance, kurtosis, counts, scale).value
    variance[0] = unseen_jumps(variance[0], np.broadcast_to(jump, width), counts[0])
    variance = floored_variance(variance, counts, rate or rungs.variance_rate, TRUSTED_SAMPLES, least)
    errors = sum_errors(mean, variance, counts, rungs.rho, base_variance)
    return Estimate(
        name=name,
        structure=structure,
        flat_value=base + mean.sum(axis=0),
        flat_standard_error=errors.standard_error,
        flat_bias_bound=errors.bias_bound,
        flat_freedom=degrees_of_freedom(variance, kurtosis, counts),
        flat_tolerance=np.full(width, np.nan),
        beta=beta,
        flat_work=np.sum(np.sqrt(variance * rungs.costs[: len(levels), None]), axis=0) ** 2,
        level_variance=variance,
    )


def cautious(estimate: Estimate) -> Estimate:
    """With standard errors as large as what is known of them allows: of nu degrees of freedom a variance may be too low
    by twice its own relative error, sqrt(2 / nu).

    Of products of what is already skewed, few draws show a variance that is mostly too low.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        margin = np.nan_to_num(np.sqrt(1 + 2 * np.sqrt(2 / estimate.flat_freedom)), nan=1.0, posinf=1.0)
    return replace(estimate, flat_standard_error=estimate.flat_standard_error * margin)


@np.errstate(invalid="ignore")
def scaled(estimate: Estimate, factor: Floats) -> Estimate:
    """The estimate of a multiple."""
    return replace(
        estimate,
        flat_value=estimate.flat_value * factor,
        flat_standard_error=estimate.flat_standard_error * factor,
        flat_bias_bound=estimate.flat_bias_bound * factor,
        flat_work=None if estimate.flat_work is None else estimate.flat_work * factor**2,
        level_variance=None if estimate.level_variance is None else estimate.level_variance * factor**2,
    )
