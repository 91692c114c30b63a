"""Log densities at many points by one reading of the rows, in float64.

    log pi(u_s) + sum_i w_i l_i(u_s),   s = 1..S

A tile of rows is read once for all points: of a regression eta is one product of matrices. Of groups the integrals over
effects take as many nodes as they are asked to. Chunks of rows go to as many threads as there are cores, and are added
in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jnp
from tallbayes.rows.table import TILE_ROWS, Table
from tallbayes.threads import num_cores
from tallbayes.watch import look

# Points of one reading: one shape, so that one program serves all.
POINTS = 64
# Rows that a thread sums, and numbers that are made together where a row takes many.
PIECE_ROWS, TOGETHER = 2**16, 2**21


@dataclass
class LogPosterior:
    """That of a table, as a function of points u (points, d); `rows_read` counts the rows it took.

    `nodes` a direction are those of the integrals over effects, if not the target's own.
    """

    target: Target
    table: Table
    nodes: int | None = None
    rows_read: int = 0

    def __call__(self, points: Floats) -> Floats:
        parts = [self._some(points[first : first + POINTS]) for first in range(0, len(points), POINTS)]
        return np.concatenate(parts) if parts else np.empty(0)

    @property
    def _tile(self) -> int:
        """Rows of a tile: of few groups no more than there are."""
        return min(TILE_ROWS, 1 << max(self.table.num_rows - 1, 7).bit_length())

    def _some(self, points: Floats) -> Floats:
        filled = np.concatenate([points, np.repeat(points[:1], POINTS - len(points), axis=0)])
        ends = range(0, self.table.num_rows, PIECE_ROWS)
        pieces = [(start, min(start + PIECE_ROWS, self.table.num_rows)) for start in ends]

        def piece(ends: tuple[int, int]) -> Floats:
            look()
            # The setting belongs to a thread.
            with jax.enable_x64(True):
                static, rows = (self.target, self.nodes, self._tile), self.table.rows
                return np.asarray(compiled(_likelihoods)(static, rows, *map(np.int32, ends), filled))

        if len(pieces) == 1:
            found = [piece(pieces[0])]
        else:
            with ThreadPoolExecutor(num_cores()) as threads:
                found = list(threads.map(piece, pieces))
        self.rows_read += self.table.num_rows * len(points)
        return (log_priors(self.target, filled) + np.sum(found, axis=0))[: len(points)]


def log_priors(target: Target, points: Floats) -> Floats:
    """log pi alone at points (points, d)."""
    filled = np.concatenate([points, np.repeat(points[:1], -len(points) % POINTS, axis=0)])
    with jax.enable_x64(True):
        some = [np.asarray(filled[first : first + POINTS], np.float64) for first in range(0, len(filled), POINTS)]
        return np.concatenate([compiled(_priors, quickly=True)(target, each) for each in some])[: len(points)]


def _priors(target: Target, points: jax.Array) -> jax.Array:
    return jax.lax.map(target.log_prior.call, points)


def _likelihoods(
    static: tuple[Target, int | None, int], rows: Any, start: jax.Array, stop: jax.Array, points: jax.Array
) -> jax.Array:
    """sum_{start <= i < stop} l_i at every point, by tiles of so many rows."""
    target, nodes, size = static
    terms = _of_predictors(target, points) if target.predictor is not None else _of_any(target, nodes, rows, points)

    def tile(index: jax.Array, totals: jax.Array) -> jax.Array:
        first = start + index * size
        part = jax.tree.map(lambda leaf: _slice(leaf, first, size), rows)
        inside = first + jnp.arange(size, dtype=jnp.int32) < stop
        return totals + jnp.sum(jnp.where(inside, terms(part), 0.0), axis=1)

    return jax.lax.fori_loop(0, (stop - start + size - 1) // size, tile, jnp.zeros(len(points)))


def _of_predictors(target: Target, points: jax.Array) -> Callable[[Any], jax.Array]:
    """l of rows at all points (points, rows), from their predictors."""
    assert target.predictor is not None
    each_row = jax.vmap(target.predictor.call, (0, 0))

    def terms(part: Any) -> jax.Array:
        eta = jax.vmap(lambda point: target.layout.predict(part, point))(points)
        return jax.vmap(each_row, (0, None))(eta, part)

    return terms


def _of_any(target: Target, nodes: int | None, rows: Any, points: jax.Array) -> Callable[[Any], jax.Array]:
    """The same of any model, a few points at a time."""
    likelihood: Any = target.log_likelihood.call
    if nodes is not None:
        assert target.integrated is not None
        integral = replace(target.integrated.integral, nodes=nodes)

        def likelihood(point: jax.Array, unit: Any) -> jax.Array:
            return integral(target.space.theta(point), point, unit)

    work = target.work(rows) if nodes is None else target.work(rows) * nodes // max(1, _nodes_of(target))
    together = int(np.clip(TOGETHER // (TILE_ROWS * max(work, 1)), 1, POINTS))

    def terms(part: Any) -> jax.Array:
        return jax.lax.map(lambda point: jax.vmap(likelihood, (None, 0))(point, part), points, batch_size=together)

    return terms


def _nodes_of(target: Target) -> int:
    return 1 if target.integrated is None else target.integrated.nodes


def _slice(leaf: jax.Array, first: jax.Array, size: int) -> jax.Array:
    part = jax.lax.dynamic_slice_in_dim(leaf, first, size)
    return part.astype(jnp.float64) if jnp.issubdtype(part.dtype, jnp.floating) else part
