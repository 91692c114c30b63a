"""Gaussians of an evidence: the one that draws are made about, and Laplace's at the mode.

    log phi(u) = -|z|^2 / 2 - d/2 log 2 pi - log det W,   u = m + W z
    Laplace: log pi(mode) + d/2 log 2 pi - log det H / 2

Where draws about the anchor are worth little, the Gaussian moves to the mean and covariance of these draws by their
weights, none of which may be more than sqrt(n) times their mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.mode import find_anchor
from tallbayes.errors import InputError, PosteriorError, explain
from tallbayes.evidence.constants import LOG_TWO_PI
from tallbayes.evidence.densities import LogPosterior
from tallbayes.moments import Floats

# A covariance by few draws is drawn towards the one that they were made about.
KEPT = 0.1


@dataclass(frozen=True, eq=False)
class DrawCentre:
    """N(m, W W^T)."""

    mean: Floats
    root: Floats

    @classmethod
    def of(cls, anchor: Anchor) -> DrawCentre:
        """An anchor's own; refused where it is no matrix, since it then knows no correlations."""
        if not isinstance(anchor.precision, np.ndarray) or anchor.precision.ndim < 2:
            got = f"{len(anchor.mode):,} parameters, whose correlations no matrix holds"
            raise InputError(explain("fewer parameters for an evidence", got, "a model without its largest category"))
        return cls(np.asarray(anchor.mode, np.float64), np.asarray(anchor.whitening, np.float64))

    def points(self, z: Floats) -> Floats:
        return self.mean + z @ self.root.T

    def log_density(self, z: Floats) -> Floats:
        """At points that z leads to."""
        size = float(np.linalg.slogdet(self.root)[1])
        return -0.5 * np.sum(z**2, axis=1) - len(self.mean) * LOG_TWO_PI / 2 - size

    def moved(self, z: Floats, log_weights: Floats) -> DrawCentre:
        """To the moments of weighted draws."""
        share = np.exp(log_weights - np.max(log_weights))
        share = np.minimum(share, np.sqrt(len(share)) * share.mean())
        share = share / share.sum()
        mean = share @ z
        worth = 1 / np.sum(share**2)
        kept = max(KEPT, min(0.9, z.shape[1] / worth))
        apart = z - mean
        covariance = (1 - kept) * (apart.T @ (share[:, None] * apart)) + kept * np.eye(z.shape[1])
        root = self.root @ np.linalg.cholesky(covariance)
        return DrawCentre(self.mean + self.root @ mean, root)


def laplace(log_posterior: LogPosterior, anchor: Anchor) -> float:
    """What the Gaussian at the mode would have said; not a number where no mode is found."""
    there = anchor.laplace
    if there.recentred:
        try:
            there = find_anchor(log_posterior.target, log_posterior.table, anchor.mode)
        except (PosteriorError, np.linalg.LinAlgError):
            return float("nan")
        log_posterior.rows_read += round(there.passes * log_posterior.table.num_rows)
    if not isinstance(there.precision, np.ndarray) or there.precision.ndim < 2:
        return float("nan")
    sign, size = np.linalg.slogdet(there.precision)
    height = float(log_posterior(there.mode[None])[0])
    # The mode itself is Newton's step away from where the climb ended.
    if not anchor.recentred or there is not anchor.laplace:
        height += 0.5 * float(there.gradient @ np.linalg.solve(there.precision, there.gradient))
    return height + len(there.mode) * LOG_TWO_PI / 2 - size / 2 if sign > 0 else float("nan")
