"""A proposal that bends: where a Gaussian knows one width, and a posterior has another for every scale of its effects.

    z = (s, r) Q^T,     s ~ t_5, wider,     r = m(s) + L(s)^-T e,     e ~ t_50
    log phi / q = -|z|^2 / 2 - log t_5(s) - log t_50(e) - sum log L_jj(s)        but for (2 pi)^(d/2)

s are the few directions of whitened z that move given parameters, the scales and correlations of effects, and r all
others. m(s) is the mode of r given s, and L(s) L(s)^T the curvature there: quadratic in s, the diagonal of L by its
logarithm, through climbs at a few s. Beyond these they stay what they are at the edge. Whatever they are q is a density
that can be drawn from, so that a rough fit costs draws and no error. Another law of s, with an m and an L of its own,
may stand in place of these (`Curved`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from tallbayes.moments import Floats
from tallbayes.weighing.proposal import Proposal, log_student

# How far out climbs are made, and from where on nothing changes, in sds.
REACH, EDGE = 1.5, 3.0
MOST_STEPS, AT_REST = 6, 0.1
SCALE_FREEDOM, SCALE_WIDTH = 5.0, 1.25
REST_FREEDOM, REST_WIDTH = 50.0, 1.02
# Beyond, a draw takes longer to make than to look at, and a fit many climbs.
MOST_PARAMETERS, MOST_SCALES = 128, 6

# Gradient and precision of the log posterior, in whitened units, at z.
Look = Callable[[Floats], tuple[Floats, Floats]]


class Curved(Protocol):
    """The law of s, and m and L given s."""

    @property
    def turn(self) -> Floats:
        """Q, whose first columns are those of s."""
        ...

    @property
    def scales(self) -> int:
        """How many s there are."""
        ...

    @property
    def words(self) -> str:
        """What s are."""
        ...

    def at(self, s: Floats) -> tuple[Floats, Floats]:
        """m (n, r) and L (n, r, r)."""
        ...

    def draws(self, rng: np.random.Generator, e: Floats) -> Floats:
        """s, of standard normal numbers e (n, k) and others."""
        ...

    def log_density(self, s: Floats) -> Floats:
        """But for (2 pi)^(k/2)."""
        ...


@dataclass(frozen=True, eq=False)
class Bend:
    """Q (d, d), whose first k columns are s; m and L (d - k, d - k) as polynomials, by the monomials of s."""

    turn: Floats
    scales: int
    centre: Floats
    root: Floats
    words: str = "the scales"

    def draws(self, rng: np.random.Generator, e: Floats) -> Floats:
        return SCALE_WIDTH * e * np.sqrt(SCALE_FREEDOM / rng.chisquare(SCALE_FREEDOM, len(e)))[:, None]

    def log_density(self, s: Floats) -> Floats:
        return log_student(np.sum(s**2, axis=1), self.scales, SCALE_FREEDOM, SCALE_WIDTH)

    def at(self, s: Floats) -> tuple[Floats, Floats]:
        """m (n, r) and L (n, r, r)."""
        powers = _powers(np.clip(s, -EDGE, EDGE))
        return powers @ self.centre, unpacked(powers @ self.root, len(self.turn) - self.scales)


class Climb(NamedTuple):
    centre: Floats
    root: Floats


@dataclass(frozen=True, eq=False)
class BentProposal(Proposal):
    """Draws from q; `freedom` is that of the rest."""

    bend: Curved | None = None

    @property
    def name(self) -> str:
        return f"bent {self.freedom:g}"

    @property
    def words(self) -> str:
        return f"about a Gaussian that bends with {self._bend.words}"

    @property
    def _bend(self) -> Curved:
        assert self.bend is not None
        return self.bend

    def draws(self, rng: np.random.Generator, count: int) -> Floats:
        k = self._bend.scales
        e = rng.standard_normal((count, self.dimension))
        s = self._bend.draws(rng, e[:, :k])
        rest = self.width * e[:, k:] * np.sqrt(self.freedom / rng.chisquare(self.freedom, count))[:, None]
        centre, root = self._bend.at(s)
        r = centre + np.linalg.solve(np.swapaxes(root, 1, 2), rest[..., None])[..., 0]
        return np.asarray(np.concatenate([s, r], axis=1) @ self._bend.turn.T)

    def log_gaussian(self, z: Floats) -> Floats:
        k, turned = self._bend.scales, z @ self._bend.turn
        centre, root = self._bend.at(turned[:, :k])
        rest = np.einsum("nij,ni->nj", root, turned[:, k:] - centre)
        size = np.sum(np.log(np.diagonal(root, axis1=1, axis2=2)), axis=1)
        of_scales = self._bend.log_density(turned[:, :k])
        of_rest = log_student(np.sum(rest**2, axis=1), self.dimension - k, self.freedom, self.width)
        return -0.5 * np.sum(z**2, axis=1) - of_scales - of_rest - size


def bent_proposal(look: Look, whitening: Floats, places: Sequence[int], seed: int) -> BentProposal | None:
    """About the Gaussian of this whitening, with the parameters at `places` given; None where a climb has no end."""
    dimension, k = len(whitening), len(places)
    if not 0 < k <= min(MOST_SCALES, dimension - 1) or dimension > MOST_PARAMETERS:
        return None
    turn = np.linalg.qr(whitening[list(places)].T, mode="complete")[0]
    points = _design(k)
    climbs = []
    for point in points:
        climb = climb_given(look, turn, point, np.zeros(dimension - k))
        if climb is None:
            return None
        climbs.append(climb)
    powers = _powers(points)
    centre = np.linalg.lstsq(powers, np.array([climb.centre for climb in climbs]))[0]
    root = np.linalg.lstsq(powers, packed(np.array([climb.root for climb in climbs])))[0]
    bend = Bend(turn, k, centre, root)
    return BentProposal(dimension, REST_FREEDOM, seed, REST_WIDTH, bend)


def packed(roots: Floats) -> Floats:
    """Their numbers on and below the diagonal, of that by logarithm."""
    roots, diagonal = roots.copy(), np.arange(roots.shape[-1])
    roots[:, diagonal, diagonal] = np.log(roots[:, diagonal, diagonal])
    return roots[:, *np.tril_indices(len(diagonal))]


def unpacked(numbers: Floats, size: int) -> Floats:
    """Roots of these."""
    root, diagonal = np.zeros((len(numbers), size, size)), np.arange(size)
    root[:, *np.tril_indices(size)] = numbers
    root[:, diagonal, diagonal] = np.exp(root[:, diagonal, diagonal])
    return root


def climb_given(look: Look, turn: Floats, s: Floats, start: Floats) -> Climb | None:
    """The mode of r given s by Newton's steps, and the root of the curvature before the last of them."""
    k, r = len(s), start
    for _ in range(MOST_STEPS):
        gradient, precision = look(turn @ np.concatenate([s, r]))
        slope, bend = turn[:, k:].T @ gradient, turn[:, k:].T @ precision @ turn[:, k:]
        if not (np.isfinite(slope).all() and np.isfinite(bend).all()):
            return None
        try:
            root = np.linalg.cholesky(bend)
        except np.linalg.LinAlgError:
            return None
        step = np.linalg.solve(bend, slope)
        r = r + step
        if np.linalg.norm(root.T @ step) < AT_REST:
            return Climb(r, root)
    return None


def _design(k: int) -> Floats:
    """Where climbs are made: the centre, both ways along every direction, and along the diagonals of any two."""
    points = [np.zeros(k)]
    unit = REACH * np.eye(k)
    for i in range(k):
        points += [unit[i], -unit[i]]
        for j in range(i):
            points += [unit[i] + unit[j], -unit[i] - unit[j]]
    return np.array(points)


def _powers(s: Floats) -> Floats:
    """1, s_i and s_i s_j, by row."""
    k = s.shape[1]
    squares = [s[:, i] * s[:, j] for i in range(k) for j in range(i + 1)]
    return np.column_stack([np.ones(len(s)), s, *squares])
