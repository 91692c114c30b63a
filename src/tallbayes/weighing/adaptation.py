"""Adaptation: the Gaussian of a posterior's own mean and covariance, by a few draws with weights about another.

    m = sum_i w_i theta_i / sum_i w_i,   C = sum_i w_i (theta_i - m)(theta_i - m)^T / sum_i w_i

Where groups are few their scales are skewed, and the mode is to one side of the mass: about the mean and as wide as the
posterior is, weights have lighter tails. The draws are apart from those of any answer, whatever its seed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tallbayes.estimator.levels import Stream
from tallbayes.moments import Floats
from tallbayes.weighing.proposal import Proposal
from tallbayes.weighing.weights import Weights

DRAWS = 512
LEAST_EFFICIENCY = 0.05


def weighted_moments(log_density: Callable[[Floats], Floats], dimension: int) -> tuple[Floats, Floats] | None:
    """Mean and covariance in whitened units; None where the weights of the draws say too little."""
    proposal = Proposal.about(dimension, 0)
    rng = np.random.default_rng(np.random.SeedSequence([int(Stream.WEIGHTED), dimension]))
    z = proposal.draws(rng, DRAWS)
    control = proposal.log_gaussian(z)
    weights = Weights.of(log_density(z) + 0.5 * np.sum(z**2, axis=1) + control, control)
    if not np.all(np.isfinite(weights.posterior)) or weights.efficiency < LEAST_EFFICIENCY:
        return None
    share = weights.posterior / len(z)
    mean = share @ z
    return mean, (z - mean).T @ (share[:, None] * (z - mean))
