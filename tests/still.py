"""A posterior that is its own Gaussian."""

from __future__ import annotations

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.telescoping import Rungs


def still_posterior(mode: np.ndarray, precision: np.ndarray) -> Posterior:
    """A Gaussian, and paths that found nothing beyond it."""
    zero = np.zeros_like(mode)
    anchor = Anchor(mode, zero, -precision, precision, 0.0, 1.0, 10, zero)
    nothing = np.repeat(np.random.default_rng(0).normal(size=(64, 1, 1, len(mode))), 3, axis=2).astype(np.float32)
    return Posterior(anchor, (nothing,) * 3, (0.5,) * 3, True, True, Rungs(0.5, 2.0, np.ones(3)))
