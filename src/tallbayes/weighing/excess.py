"""Excess: a proposal whose law along one direction is found place by place, for a regression with an overdispersion.

    s ~ (1 - h) f + h t_5,   log f linear between places s_j,   f(s_j) = pi(s_j, m_j) / det L_j,   m and L likewise

Of few rows the posterior of an overdispersion falls slowly to the right, and coefficients are the less known the larger
it is. No Gaussian has that shape; one dimension can be gone along, and given it the rest is nearly normal (`bending`).
f is Laplace's marginal density, and what of t is mixed in bounds the weights where f is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.moments import Floats
from tallbayes.watch import look
from tallbayes.weighing.bending import (
    MOST_PARAMETERS,
    REST_FREEDOM,
    REST_WIDTH,
    SCALE_FREEDOM,
    SCALE_WIDTH,
    BentProposal,
    Climb,
    climb_given,
    packed,
    unpacked,
)
from tallbayes.weighing.proposal import log_student
from tallbayes.weighing.regression import PlainRegression

# Places to each side, in sds, and where log f is so low that no more are needed.
STEP, GROWTH, MOST_PLACES, LOW = 1.0, 1.15, 14, 12.0
# Beyond the last place: no flatter than that, and as far as it matters.
LEAST_SLOPE, BEYOND = 0.5, 40.0
HEAVY_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Ridge:
    """Places (n,) along the first column of Q, ascending, with log f, and m and L at each (`bending.packed`)."""

    turn: Floats
    places: Floats
    log_f: Floats
    centre: Floats
    root: Floats
    words: str = "the overdispersion"

    @property
    def scales(self) -> int:
        return 1

    def at(self, s: Floats) -> tuple[Floats, Floats]:
        first, part = self._between(self.places, np.clip(s[:, 0], self.places[0], self.places[-1]))
        centre, root = (
            (1 - part[:, None]) * each[first] + part[:, None] * each[first + 1] for each in (self.centre, self.root)
        )
        return centre, unpacked(root, len(self.turn) - 1)

    @cached_property
    def _law(self) -> tuple[Floats, Floats, Floats]:
        """Places and log f with the tails, f adding up to one, and the share of every part."""
        places, log_f = self.places, self.log_f - self.log_f.max()
        left, right = (max(LEAST_SLOPE, float(rise)) for rise in self._slopes(places, log_f))
        places = np.concatenate([[places[0] - BEYOND / left], places, [places[-1] + BEYOND / right]])
        log_f = np.concatenate([[log_f[0] - BEYOND], log_f, [log_f[-1] - BEYOND]])
        share = np.exp(log_f[:-1]) * np.diff(places) * _mean_of_exp(np.diff(log_f))
        return places, log_f - np.log(share.sum()), share / share.sum()

    @staticmethod
    def _slopes(places: Floats, log_f: Floats) -> tuple[float, float]:
        rise = np.diff(log_f) / np.diff(places)
        return rise[0], -rise[-1]

    def draws(self, rng: np.random.Generator, e: Floats) -> Floats:
        places, log_f, share = self._law
        part = np.minimum(np.searchsorted(np.cumsum(share), rng.random(len(e))), len(share) - 1)
        rise = (log_f[1:] - log_f[:-1])[part]
        steep = np.where(np.abs(rise) > 1e-9, rise, 1e-9)
        own = places[part] + np.diff(places)[part] * np.log1p(rng.random(len(e)) * np.expm1(steep)) / steep
        heavy = SCALE_WIDTH * e[:, 0] * np.sqrt(SCALE_FREEDOM / rng.chisquare(SCALE_FREEDOM, len(e)))
        return np.where(rng.random(len(e)) < HEAVY_SHARE, heavy, own)[:, None]

    def log_density(self, s: Floats) -> Floats:
        places, log_f, _ = self._law
        own = np.interp(s[:, 0], places, log_f, left=-np.inf, right=-np.inf) + 0.5 * np.log(2 * np.pi)
        heavy = log_student(s[:, 0] ** 2, 1, SCALE_FREEDOM, SCALE_WIDTH)
        return np.logaddexp(np.log1p(-HEAVY_SHARE) + own, np.log(HEAVY_SHARE) + heavy)

    @staticmethod
    def _between(places: Floats, s: Floats) -> tuple[np.ndarray, Floats]:
        """The place before s, and how far it is to the next."""
        first = np.clip(np.searchsorted(places, s, side="right") - 1, 0, len(places) - 2)
        return first, (s - places[first]) / (places[first + 1] - places[first])


def _mean_of_exp(rise: Floats) -> Floats:
    """(exp c - 1) / c."""
    steep = np.where(np.abs(rise) > 1e-9, rise, 1e-9)
    return np.asarray(np.expm1(steep) / steep)


def bent_by_excess(regression: PlainRegression, anchor: Anchor, seed: int) -> BentProposal | None:
    """About an anchor of a regression whose first extra is one; None of any other, or where a climb has no end."""
    dimension, extras = regression.dimension, regression.extras
    if not extras or extras[0].space != "excess" or not 1 < dimension <= MOST_PARAMETERS:
        return None
    whitening = np.asarray(anchor.whitening)
    turn = np.linalg.qr(whitening[[dimension - len(extras)]].T, mode="complete")[0]

    def of_rest(z: Floats) -> tuple[Floats, Floats]:
        look()
        here = regression.at(anchor.mode + anchor.displacements(z[None])[0])
        return here.gradient @ whitening, whitening.T @ here.curvature @ whitening

    def log_f(s: float, climb: Climb) -> float:
        z = turn @ np.append(s, climb.centre)
        value = regression.log_density(anchor.mode + anchor.displacements(z[None]))[0]
        return float(value - np.log(np.diagonal(climb.root)).sum())

    first = climb_given(of_rest, turn, np.zeros(1), np.zeros(dimension - 1))
    if first is None:
        return None
    found = [(0.0, log_f(0.0, first), first)]
    for side in (-1.0, 1.0):
        s, climb, step = 0.0, first, STEP
        for _ in range(MOST_PLACES):
            s, step = s + side * step, GROWTH * step
            there = climb_given(of_rest, turn, np.array([s]), climb.centre)
            height = -np.inf if there is None else log_f(s, there)
            if there is None or not np.isfinite(height):
                break
            climb = there
            found.append((s, height, there))
            if height < max(each[1] for each in found) - LOW:
                break
    if len(found) < 2:
        return None
    found.sort(key=lambda each: each[0])
    climbs = [each[2] for each in found]
    ridge = Ridge(
        turn,
        np.array([each[0] for each in found]),
        np.array([each[1] for each in found]),
        np.array([climb.centre for climb in climbs]),
        packed(np.array([climb.root for climb in climbs])),
    )
    return BentProposal(dimension, REST_FREEDOM, seed, REST_WIDTH, ridge)
