"""A probe: the posterior's density where few paths go, as plain numbers; made in `probing`, read in `tails`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.estimator.allocation import Least
from tallbayes.estimator.tails import coupled_columns
from tallbayes.moments import Floats

# Where a single point holds so much of the posterior's weight, the weights say nothing.
HEAVIEST_POINT = 0.25


@dataclass(frozen=True, eq=False)
class Probe:
    """Whitened points with rho and r there, and the log of q / phi; points on rays beside them, (rays, radii, d).

    `noise` is S; rows_read counts what all of it took.
    """

    points: Floats
    log_ratio: Floats
    remainder: Floats
    log_proposal: Floats
    rays: Floats
    ray_log_ratio: Floats
    noise: Floats
    rows_read: int
    is_of_all_rows: bool = True

    def weights(self) -> tuple[Floats, Floats]:
        """Of every point, for the posterior and for the Gaussian; each adds up to 1."""
        return _normalised(self.log_ratio - self.log_proposal), _normalised(-self.log_proposal)

    def narrowed(self, wide: Anchor, places: np.ndarray, narrow: Anchor) -> Probe:
        """The same of some parameters alone, whitened by their own Gaussian."""
        turn = narrow.factor.T @ wide.whitening[places]
        points, remainder, rays = (each @ turn.T for each in (self.points, self.remainder, self.rays))
        return replace(self, points=points, remainder=remainder, rays=rays, noise=turn @ self.noise @ turn.T)


def _normalised(log_weights: Floats) -> Floats:
    finite = np.where(np.isfinite(log_weights), log_weights, -np.inf)
    weights = np.exp(finite - finite.max())
    return weights / weights.sum()


@dataclass(frozen=True, eq=False)
class Probed:
    """Quiet ends of level 0 as a probe knows them: of the posterior and of the Gaussian, with weights for each.

    `share` is what is left of a variance in a mean over a path's stops.
    """

    points: tuple[Floats, Floats]
    weights: tuple[Floats, Floats]
    share: float = 1.0

    def least(self, there: Floats, here: Floats) -> Least:
        """The least variance of what level 0 samples, by column of a function's values at both."""
        found = coupled_columns(there, self.weights[0], here, self.weights[1])
        return found._replace(variance=self.share * found.variance)


def quiet_ends(probe: Probe, anchor: Anchor, spread: float, stops: int) -> Probed | None:
    """One step on from the probe's points, e^-h u + (1 - e^-h) r(u), as displacements; its noise has sd `spread`."""
    weights = probe.weights()
    if weights[0].max() > HEAVIEST_POINT:
        return None
    decay = np.sqrt(max(1 - spread**2, 0.0))
    pushed = np.where(weights[0][:, None] > 0, probe.remainder, 0.0)
    ends = decay * probe.points + (1 - decay) * pushed, decay * probe.points
    return Probed((anchor.displacements(ends[0]), anchor.displacements(ends[1])), weights, 1 / stops)
