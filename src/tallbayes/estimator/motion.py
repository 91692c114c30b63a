"""Motion: what the estimator knows of how paths move.

    weak_order       alpha, |E Delta_l| ~ 2^(-alpha l), and
    variance_rate    beta, Var Delta_l ~ 2^(-beta l), by exact gradients
    length           dT to begin with, in that of a path that forgets like e^-t
    memory           an average over a window forgets like e^(-t / memory)
    kicked           the variance of a position whose drift has a noise of variance 1 at every step

The default is a path z' = e^-h z + (1 - e^-h) r + s_h xi, on a gradient that may be an estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# A window is tried in the hope that what is averaged forgets twice as fast as z itself, as squares do.
HOPED_MEMORY = 0.5


def kicked(step: float) -> float:
    """(1 - e^-h) / (1 + e^-h)."""
    decay = np.exp(-step)
    return float((1 - decay) / (1 + decay))


@dataclass(frozen=True)
class Motion:
    """Exponential steps, unless told otherwise."""

    weak_order: float = 1.0
    variance_rate: float = 2.0
    length: float = 1.0
    memory: float = HOPED_MEMORY
    kicked: Callable[[float], float] = kicked
