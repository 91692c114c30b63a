"""Draws by rejection: of proposals from Student's t about the posterior's Gaussian, those that are taken.

    z ~ q,   w = pi / q,   taken where U < w / M,   M the largest weight of all that were proposed

Taken ones are independent and have the posterior's own law but for where w exceeds M, by E (w - M)+ / E w in total
variation. With M the largest of n weights that is the mean excess of the largest few over the least of them, by n.
Where the largest would make a draw cost more than `MOST_PROPOSALS`, M is less, and pi is a mixture of min(w, M) q and
of the share that this cuts off, a thousandth at the most: so many draws are of those proposals that exceed M, by their
excess. Some of these may be there twice, and their law is off by one part in the root of their number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.estimator.levels import Stream
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jnp
from tallbayes.rows.table import TILE_ROWS, Table
from tallbayes.weighing.proposal import Proposal

# To a draw, and of all weight what may then be cut off.
MOST_PROPOSALS, MOST_CUT = 8.0, 1e-3
LARGEST = 5
FIRST, MARGIN = 1024, 1.1
# Points and rows whose densities are found together; of the points of one program, how many.
TOGETHER, MOST_WORK = 256, 2**16


class Taken(NamedTuple):
    """Displacements from the centre, how many proposals that took, and what their law is off by."""

    moves: Floats
    proposals: int
    off: float


@dataclass(frozen=True, eq=False)
class Pool:
    """Proposals z with log w, up to a constant, and a uniform number each."""

    z: Floats
    log_weight: Floats
    uniform: Floats

    def joined(self, other: Pool) -> Pool:
        parts = ("z", "log_weight", "uniform")
        return Pool(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in parts))

    def taken(self) -> Chosen:
        """Which are taken, what that took, and what it is off by."""
        with np.errstate(under="ignore"):
            weight = np.exp(self.log_weight - self.log_weight.max())
        weight /= weight.mean()
        count, ranked = len(weight), np.sort(weight)[::-1]
        bound = float(ranked[0])
        if bound > MOST_PROPOSALS:
            # E (w - M)+ at every weight as M, the largest first.
            cut = (np.cumsum(ranked) - np.arange(1, count + 1) * ranked) / count
            bound = max(MOST_PROPOSALS, float(ranked[np.searchsorted(cut, MOST_CUT, side="right") - 1]))
        few = min(LARGEST, count)
        unseen = float(np.mean(ranked[:few]) - ranked[few - 1]) / count
        excess = np.maximum(weight - bound, 0.0)
        exceeding = max(int(np.count_nonzero(excess)), 1)
        off = unseen + float(excess.mean()) / exceeding**0.5
        return Chosen(np.flatnonzero(self.uniform * bound < weight), excess, bound, off)


class Chosen(NamedTuple):
    """Places of those that are taken, by how much weights exceed M, M in units of their mean, and what is off."""

    places: np.ndarray
    excess: Floats
    bound: float
    off: float

    def first(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """So many, some of them by their excess."""
        chosen = self.places[:count].copy()
        others = rng.random(len(chosen)) < self.excess.mean()
        if np.any(others):
            share = self.excess / self.excess.sum()
            some = int(others.sum())
            again = bool(some > np.count_nonzero(share))
            chosen[others] = rng.choice(len(share), (some,), again, share)
        return chosen


def draw_by_rejection(target: Target, table: Table, anchor: Anchor, count: int, seed: int) -> Taken:
    """As many as are wanted, in the order in which they were proposed."""
    proposal = Proposal.about(len(anchor.mode), seed)
    rng = np.random.default_rng(np.random.SeedSequence([seed, int(Stream.DRAWS)]))

    def more(number: int) -> Pool:
        z = proposal.draws(rng, number)
        ratio = 0.5 * np.sum(z**2, axis=1) + proposal.log_gaussian(z)
        found = log_densities(target, table, anchor.mode + anchor.displacements(z)) + ratio
        return Pool(z, np.where(np.isfinite(found), found, -np.inf), rng.random(number))

    pool, chosen = _filled(more, count)
    return Taken(anchor.displacements(pool.z[chosen.first(count, rng)]), len(pool.z), chosen.off)


def _filled(more: Callable[[int], Pool], count: int) -> tuple[Pool, Chosen]:
    pool = more(FIRST)
    while True:
        chosen = pool.taken()
        if len(chosen.places) >= count:
            return pool, chosen
        missing = int((count - len(chosen.places)) * chosen.bound * MARGIN) + 1
        pool = pool.joined(more(min(-(-missing // TOGETHER) * TOGETHER, 4 * max(len(pool.z), count))))


def draw_from_stored(moves: Floats, weights: Floats, seed: int) -> Taken:
    """Of draws that were kept with weights, those that are taken: fewer than there are, and no more to be had."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, int(Stream.DRAWS)]))
    with np.errstate(divide="ignore"):
        pool = Pool(moves, np.log(weights), rng.random(len(moves)))
    chosen = pool.taken()
    return Taken(moves[chosen.first(len(moves), rng)], 0, chosen.off)


def log_densities(target: Target, table: Table, points: Floats) -> Floats:
    """log pi at many points, those of a part side by side, so that predictors are products of matrices."""
    height = min(TILE_ROWS, 1 << (table.num_rows - 1).bit_length())
    # A power of two, as are all of them together.
    size = 1 << (max(1, min(MOST_WORK // (height * target.work(table.rows)), TOGETHER)).bit_length() - 1)
    padded = np.concatenate([points, np.repeat(points[:1], -len(points) % TOGETHER, axis=0)])
    tiles = np.array([[a, b] for first, stop in table.chunks() for a, b in _tiles(first, stop, height)], np.int32)
    found = []
    with jax.enable_x64(True):
        for start in range(0, len(padded), TOGETHER):
            part = padded[start : start + TOGETHER].reshape(-1, size, points.shape[1])
            found.append(np.asarray(compiled(_log_densities)((target, height), table.rows, tiles, part)).ravel())
    return np.concatenate(found)[: len(points)]


def _tiles(first: int, stop: int, height: int) -> list[tuple[int, int]]:
    return [(start, min(start + height, stop)) for start in range(first, stop, height)]


def _log_densities(static: tuple[Target, int], rows: Any, tiles: jax.Array, parts: jax.Array) -> jax.Array:
    target, height = static

    def of(points: jax.Array) -> jax.Array:
        def tile(index: jax.Array, total: jax.Array) -> jax.Array:
            first, stop = tiles[index]
            part = jax.tree.map(lambda leaf: _slice(leaf, first, height), rows)
            inside = first + jnp.arange(height, dtype=jnp.int32) < stop
            each = jax.vmap(jax.vmap(target.log_likelihood.call, (None, 0)), (0, None))(points, part)
            return total + jnp.sum(jnp.where(inside, each, 0.0), axis=1)

        likelihood = jax.lax.fori_loop(0, len(tiles), tile, jnp.zeros(len(points), points.dtype))
        return jax.vmap(target.log_prior.call)(points) + likelihood

    return jax.lax.map(of, parts)


def _slice(leaf: jax.Array, first: jax.Array, height: int) -> jax.Array:
    part = jax.lax.dynamic_slice_in_dim(leaf, first, height)
    return part.astype(jnp.float64) if jnp.issubdtype(part.dtype, jnp.floating) else part
