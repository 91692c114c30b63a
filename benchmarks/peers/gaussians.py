"""The Gaussian at the mode: nothing is drawn, and its error stays what it is."""

from __future__ import annotations

import numpy as np

from .contract import Answer, Contestant, Cost, Effort, Posterior, Stopwatch


def laplace(posterior: Posterior, effort: Effort) -> Answer:
    """Mean = mode, covariance = precision^-1. It costs Newton's passes over all rows, and asks for no effort."""
    stopwatch = Stopwatch()
    with stopwatch.timed() as inverting:
        covariance = np.linalg.inv(np.asarray(posterior.precision, np.float64))
    return Answer(
        mean=np.array(posterior.mode, np.float64),
        sd=np.sqrt(np.diag(covariance)),
        law="fixed",
        setup=Cost(float(posterior.newton_passes * posterior.num_rows), posterior.newton_seconds + inverting()),
        sampling=Cost(0.0, 0.0),
        compiling=stopwatch.compiling,
        settings={"mode": "Newton's method from 0", "passes": posterior.newton_passes, "float": "float64"},
        remarks={"seconds": "those of the search when the stored mode was found, and of inverting the precision"},
    )


CONTESTANTS: dict[str, Contestant] = {"Laplace": laplace}
