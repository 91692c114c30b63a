"""Screening: the log posterior at hundreds of points about the anchor, and where a climb may end at another mode.

    near    theta_0 + r W v          r = 3, 6, ..., 24 of Laplace's sds, 1.5 apart in one dimension
    far     theta_0 + r W v          from there on geometrically, to three prior sds along v
    prior   theta_0 + r sqrt(d) L v  r = 1/4, ..., 3 prior sds, L L^T the prior's covariance

The directions v are opposite pairs that cover the sphere evenly: equal angles in the plane, turned orthonormal bases
beyond. They depend on nothing, not even the run's seed. Values alone are looked at, on a sample of the rows; about the
anchor that sample is made to agree with all rows to second order, since its own mode is sqrt(d N/m) sds away.

A point promises another mode where the log density is above what the modes that are known leave there,

    log pi(theta) > max_k log pi(theta_k) - |theta - theta_k|^2_{H_k} / 2 + MARGIN,

first those where it rises along the ray, then those that stand out among all directions at the same radius.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.expansion import Expansion, Ranges
from tallbayes.anchor.sums import tile_size
from tallbayes.gaussian.arrowhead import Arrowhead, ArrowWhitening, product
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jnp
from tallbayes.rows.table import Table

NEAR_RADII = 3.0 * np.arange(1, 9)
NEAR_RADII_ALONG_A_LINE = 1.5 * np.arange(1, 17)
PRIOR_RADII = np.array([0.25, 0.5, 1.0, 2.0, 3.0])
FAR_RADII = 6
FARTHEST_IN_PRIOR_SDS = 3.0
# Where no prior tells how far is far.
FARTHEST = 96.0
DIRECTIONS_IN_THE_PLANE = 24
DIRECTIONS = 32
RISE = 0.1
MARGIN = 2.0


def directions(dimension: int) -> Floats:
    """Unit vectors in opposite pairs that cover the sphere evenly."""
    if dimension == 1:
        return np.array([[1.0], [-1.0]])
    if dimension == 2:
        angles = 2 * np.pi * (np.arange(DIRECTIONS_IN_THE_PLANE) + 0.25) / DIRECTIONS_IN_THE_PLANE
        return np.column_stack([np.cos(angles), np.sin(angles)])
    rng = np.random.default_rng(0)
    half = DIRECTIONS // 2
    bases: list[Floats] = []
    while sum(len(basis) for basis in bases) < half:
        square = rng.standard_normal((dimension, min(dimension, half)))
        bases.append(np.linalg.qr(square)[0].T)
    one_way = np.concatenate(bases)
    return np.concatenate([one_way, -one_way])


def look_around(
    target: Target, table: Table, anchor: Anchor, sample: Ranges | None, near: Expansion, prior: Expansion | None
) -> Screen:
    """The log posterior at points near and far on a sample of the rows, whose expansion at the anchor is `near`."""
    ways = directions(len(anchor.mode))
    moves = anchor.displacements(ways)
    inner = NEAR_RADII_ALONG_A_LINE if len(anchor.mode) == 1 else NEAR_RADII
    fans = [inner * np.ones((len(ways), 1)), _far_radii(moves, inner[-1], prior)]
    fields = [radii[:, :, None] * moves[:, None] for radii in fans]
    if prior is not None:
        fields.append(PRIOR_RADII[None, :, None] * np.sqrt(len(anchor.mode)) * _prior_moves(ways, prior)[:, None])
    values = log_densities(
        target, table, np.concatenate([f.reshape(-1, f.shape[-1]) for f in fields]) + anchor.mode, sample
    )
    rays, start = [], 0
    for number, field in enumerate(fields):
        count = field.shape[0] * field.shape[1]
        heights = values[start : start + count].reshape(field.shape[:2])
        start += count
        matched = number == 0 and not anchor.is_diagonal
        if matched:
            heights = heights + _correction(field, anchor, near)
        # The sample has a mode of its own, and far out only what is farther still compares with it.
        first = (anchor.log_density, np.inf, near.value)[number] if matched or number else near.value
        rays.append(Rays(anchor.mode + field, heights, first, matched))
    rows = table.num_rows if sample is None else sum(stop - start for start, stop in sample)
    return Screen(rays, len(values) * rows)


def _far_radii(moves: Floats, begin: float, prior: Expansion | None) -> Floats:
    """From `begin` on geometrically to three prior sds along each move."""
    farthest = np.full(len(moves), FARTHEST)
    if prior is not None:
        curved = product(prior.hessian, moves)
        farthest = np.maximum(farthest, FARTHEST_IN_PRIOR_SDS / np.sqrt(np.sum(moves * curved, axis=1)))
    return begin * (farthest[:, None] / begin) ** (np.arange(1, FAR_RADII + 1) / FAR_RADII)


def _prior_moves(ways: Floats, prior: Expansion) -> Floats:
    """The directions in prior sds."""
    if isinstance(prior.hessian, Arrowhead):
        corner = np.linalg.inv(np.linalg.cholesky(prior.hessian.schur)).T
        return np.asarray(ArrowWhitening.of(prior.hessian, corner).move(ways))
    if prior.hessian.ndim == 1:
        return ways / np.sqrt(prior.hessian)
    return np.linalg.solve(np.linalg.cholesky(prior.hessian).T, ways.T).T


def _correction(field: Floats, anchor: Anchor, near: Expansion) -> Floats:
    """What makes the sample agree with all rows to second order at the anchor."""
    slope, curvature = anchor.gradient - near.gradient, anchor.precision - near.hessian
    bends = np.sum((field @ curvature) * field, axis=-1)
    return anchor.log_density - near.value + field @ slope - bends / 2


def log_densities(target: Target, table: Table, points: Floats, sample: Ranges | None) -> Floats:
    """The log posterior at many points, the likelihood of the sampled rows scaled up to all."""
    ranges = table.chunks() if sample is None else sample
    size = tile_size(target, table.rows)
    tiles = [(first, stop) for start, stop in ranges for first in range(start, stop, size)]
    scale = table.num_rows / sum(stop - start for start, stop in ranges)
    with jax.enable_x64(True):
        values = compiled(_log_densities)(
            target, table.rows, np.asarray(tiles, np.int32), np.float64(scale), np.asarray(points, np.float64)
        )
        return np.array(values)


def _log_densities(target: Target, rows: Any, tiles: jax.Array, scale: jax.Array, points: jax.Array) -> jax.Array:
    size = tile_size(target, rows)

    def at(theta: jax.Array) -> jax.Array:
        def tile(index: jax.Array, total: jax.Array) -> jax.Array:
            first, stop = tiles[index]
            part = jax.tree.map(lambda leaf: _slice(leaf, first, theta.dtype, size), rows)
            inside = first + jnp.arange(size, dtype=jnp.int32) < stop
            terms = jax.vmap(target.log_likelihood.call, (None, 0))(theta, part)
            return total + jnp.sum(jnp.where(inside, terms, 0.0))

        likelihood = jax.lax.fori_loop(0, len(tiles), tile, jnp.zeros((), theta.dtype))
        return target.log_prior.call(theta) + scale * likelihood

    return jax.lax.map(at, points)


def _slice(leaf: jax.Array, first: jax.Array, dtype: Any, size: int) -> jax.Array:
    part = jax.lax.dynamic_slice_in_dim(leaf, first, size)
    return part.astype(dtype) if jnp.issubdtype(part.dtype, jnp.floating) else part


@dataclass(frozen=True, eq=False)
class Rays:
    """Points along rays from the anchor, (rays, radii, d), and the log posterior there; `matched` to all rows or not.

    `first` is the log posterior where the rays begin, as far as it is comparable.
    """

    points: Floats
    values: Floats
    first: float
    matched: bool

    @property
    def rising(self) -> np.ndarray:
        """Where the log density is higher than nearer to the anchor, and not lower than farther out."""
        before = np.column_stack([np.full(len(self.values), self.first), self.values[:, :-1]])
        after = np.column_stack([self.values[:, 1:], np.full(len(self.values), -np.inf)])
        return (self.values > before + RISE) & (self.values >= after)

    @property
    def standing_out(self) -> Floats:
        """How far above the median of all directions at the same radius."""
        finite = np.where(np.isfinite(self.values), self.values, np.nan)
        with np.errstate(invalid="ignore"):
            middle = [
                np.median(column[np.isfinite(column)]) if np.isfinite(column).any() else 0.0 for column in finite.T
            ]
        return np.where(np.isfinite(self.values), self.values - np.array(middle), -np.inf)


@dataclass
class Screen:
    """All points that were looked at; `rows_read` counts the rows that it took."""

    rays: list[Rays]
    rows_read: int

    @property
    def size(self) -> int:
        return sum(ray.values.size for ray in self.rays)

    def scattered(self, count: int) -> Floats:
        """A few of the points farthest from what a Gaussian at the anchor knows: of the prior, where it has a scale."""
        points = self.rays[-1].points
        return points[np.linspace(0, len(points) - 1, min(count, len(points))).astype(int), points.shape[1] // 2]

    def promising(self, known: Sequence[Expansion], known_matched: Sequence[Expansion]) -> tuple[Floats, bool] | None:
        """The point that promises most, given the modes as the sample and the matched sample see them."""
        best, place = (-1, -np.inf), None
        for rays in self.rays:
            flat = rays.points.reshape(-1, rays.points.shape[-1])
            explained = _explained(flat, known_matched if rays.matched else known).reshape(rays.values.shape)
            promises = np.isfinite(rays.values) & (rays.values > explained + MARGIN)
            score = np.where(rays.rising, rays.values - explained, rays.standing_out)
            for kind, among in ((1, promises & rays.rising), (0, promises)):
                if not among.any():
                    continue
                index = np.unravel_index(np.argmax(np.where(among, score, -np.inf)), score.shape)
                if (kind, score[index]) > best:
                    best, place = (kind, score[index]), (rays, index)
        if place is None:
            return None
        rays, index = place
        point = rays.points[index]
        rays.values[index] = -np.inf
        return point, rays.matched


def _explained(points: Floats, known: Sequence[Expansion]) -> Floats:
    """What Gaussians at the modes that are known leave at these points, the largest of them."""
    heights = []
    for mode in known:
        apart = points - mode.theta
        curved = product(mode.hessian, apart)
        heights.append(mode.value - np.sum(apart * curved, axis=1) / 2)
    return np.max(heights, axis=0)
