"""Priors along a flat vector, in NumPy: log density, gradient and curvature, and averages over a Gaussian.

Numbers that are positive stand in the vector by their log, theta = exp u:

    d/du log p = theta s,     -d^2/du^2 log p = theta^2 b - theta s,     s and b the slope and the bend of the law
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tallbayes.model.priors.assigned import Priors
from tallbayes.model.priors.laws import LAWS
from tallbayes.moments import Floats

# Even ones, which see a corner that is as narrow as they are apart.
NODES, FAR = 241, 6.0
# Errors of sds ask for fourth moments; posterior sds in units of a prior's scale, below which rows decide the tails.
MOMENTS, HELD = 4, 0.3


class PlainRun(NamedTuple):
    """Numbers of the vector that have one law."""

    law: str
    shape: tuple[float, ...]
    places: np.ndarray
    centre: Floats
    scale: Floats


@dataclass(frozen=True, eq=False)
class PlainPriors:
    """Runs that are along a vector; `positive` are the places of logs."""

    runs: tuple[PlainRun, ...]
    positive: np.ndarray

    @classmethod
    def of(cls, priors: Priors, shapes: dict[str, tuple[int, ...]], positive: Sequence[int]) -> PlainPriors:
        """For leaves of these shapes, one after the other."""
        runs, start = [], 0
        for name, shape in shapes.items():
            size = int(np.prod(shape, dtype=int))
            places = np.arange(start, start + size).reshape(shape)
            for run in priors.leaves[name]:
                own = places if run.places is None else places[..., run.places]
                centre, scale = (np.broadcast_to(each, own.shape).ravel() for each in (run.centre, run.scale))
                runs.append(PlainRun(run.law, run.shape, own.ravel(), centre, scale))
            start += size
        return cls(tuple(runs), np.asarray(positive, int))

    def log_density(self, points: Floats) -> Floats:
        """log p of every point (points, dimension) up to a constant, as a density of the vector."""
        values, total = self._own(points), points[:, self.positive].sum(axis=1)
        for run in self.runs:
            total = total + self._standard(run, values, "log_density").sum(axis=1)
        return total

    def slope_and_bend(self, points: Floats) -> tuple[Floats, Floats]:
        """The gradient and minus the diagonal of the Hessian, point by point."""
        values = self._own(points)
        slope, bend = np.zeros_like(points), np.zeros_like(points)
        for run in self.runs:
            slope[:, run.places] = self._standard(run, values, "slope") / run.scale
            bend[:, run.places] = self._standard(run, values, "bend") / run.scale**2
        own = values[:, self.positive]
        first = own * slope[:, self.positive]
        slope[:, self.positive] = first + 1.0
        bend[:, self.positive] = own**2 * bend[:, self.positive] - first
        return slope, bend

    def about(self, centre: Floats, sd: Floats) -> tuple[Floats, Floats]:
        """E slope and E bend, each number by itself, over N(centre, sd^2); logs at their centre.

        E bend = -E [slope x] / sd, since a corner that is narrower than the nodes' distances is in the slopes alone.
        """
        slope, bend = (each[0] for each in self.slope_and_bend(centre[None]))
        wide = np.setdiff1d(np.flatnonzero(sd > 0), self.positive)
        if len(wide):
            nodes = np.linspace(-FAR, FAR, NODES)
            weights = np.exp(-(nodes**2) / 2)
            weights /= weights.sum()
            points = np.repeat(centre[None], NODES, axis=0)
            points[:, wide] += nodes[:, None] * sd[wide]
            slopes = self.slope_and_bend(points)[0][:, wide]
            slope[wide], bend[wide] = weights @ slopes, -(weights * nodes) @ slopes / sd[wide]
        return slope, bend

    def heavy(self, sd: Floats) -> np.ndarray:
        """The places of laws of few moments that rows hardly hold: about as wide in the posterior as before."""
        scale = np.ones(len(sd))
        for run in self.runs:
            scale[run.places] = run.scale
        scale[self.positive] = 1.0
        held = sd < HELD * scale
        few = [run.places for run in self.runs if _is_heavy(run)]
        places = np.concatenate(few) if few else np.empty(0, int)
        return places[~held[places]]

    def _own(self, points: Floats) -> Floats:
        values = points.copy()
        values[:, self.positive] = np.exp(points[:, self.positive])
        return values

    @staticmethod
    def _standard(run: PlainRun, values: Floats, what: str) -> Any:
        with np.errstate(all="ignore"):
            return getattr(LAWS[run.law], what)((values[:, run.places] - run.centre) / run.scale, *run.shape)


def _is_heavy(run: PlainRun) -> bool:
    law = LAWS[run.law]
    return law.proper and law.moments(*run.shape) <= MOMENTS
