"""The Hessian of a regression of thousands of parameters, by products at the speed of the machine.

    H_ab = X^T diag(l''_ab) X   for every pair of predictors a >= b,   rows a few thousand at a time

Nothing of rows x parameters is held. Where l''_ab has one sign in all of the rows, as the -p_a (1{ab} - p_b) of classes
have, a block is the square of one matrix and takes half of the operations. Rows in float32 are multiplied in float32
and added up in float64: W^T (H - H') W of the rounding is then looked at along random lines, with H v of all rows in
float64, and where it is not small the products are made again in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tallbayes.anchor.sums import density_terms
from tallbayes.model.linear import Layout
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jitted, jnp
from tallbayes.rows.table import Table, tile_rows
from tallbayes.watch import begin_pass, count_rows

Ranges = Sequence[tuple[int, int]]

ROWS_TOGETHER = 4_096
# Of W^T (H - H') W: a mean moves by that part of its distance from the centre, an sd by half of that part of itself.
ROUNDING = 1e-3
PROBES = 2
# A prior's Hessian times random numbers is its diagonal times them, to this.
ALONE = 1e-9
COLUMNS_TOGETHER = 32


class PredictorPlaces(NamedTuple):
    """One predictor: whether it has the columns of x, and where its numbers stand in theta and in its block."""

    has_columns: bool
    places: list[tuple[slice, slice]]


def minus_hessian(
    target: Target, table: Table, theta: Floats, ranges: Ranges | None = None, precise: bool = False
) -> Floats:
    """That of the log posterior at theta, (d, d); of a sample of the rows it is scaled up to all of them."""
    dtype = np.float64 if precise or not is_single(table) else np.float32
    d = target.dimension
    total, rows = np.zeros((d, d)), 0
    begin_pass(sum(stop - start for start, stop in ranges or table.chunks()))
    for x, bends in _chunks(target, table, theta, ranges):
        _add_blocks(target.layout, total, np.asarray(x, dtype), bends)
        rows += len(x)
        count_rows(len(x))
    _mirror(target.layout, total, d)
    total *= -table.num_rows / rows
    _add_prior(target, theta, total)
    return total


def _chunks(target: Target, table: Table, theta: Floats, ranges: Ranges | None) -> Iterator[tuple[Any, Floats]]:
    """The columns of some rows, and l'' of each row in its predictors."""
    for start, stop in ranges or table.chunks():
        for first in range(start, stop, ROWS_TOGETHER):
            last = min(first + ROWS_TOGETHER, stop)
            part = jax.tree.map(lambda leaf, first=first, last=last: np.asarray(leaf[first:last]), table.rows)
            with jax.enable_x64(True):
                bends = np.asarray(_bends(target, part, theta))
            yield part["x"], bends.reshape(len(bends), target.layout.size, -1)


@jitted(static_argnums=0)
def _bends(target: Target, rows: Any, theta: jax.Array) -> jax.Array:
    rows = _in_float64(rows)
    return jax.vmap(partial(density_terms, target))(target.layout.predict(rows, theta), rows)[2]


def _in_float64(rows: Any) -> Any:
    return jax.tree.map(
        lambda leaf: leaf.astype(np.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, rows
    )


def _predictors(layout: Layout, dimension: int) -> list[PredictorPlaces]:
    """In the order of eta."""
    q, extras = layout.heads, layout.extras
    width = (dimension - extras) // q - layout.intercept
    found = []
    for head in range(q):
        places = [(slice(head * width, (head + 1) * width), slice(0, width))]
        if layout.intercept:
            own = q * width + head
            places.append((slice(own, own + 1), slice(width, width + 1)))
        found.append(PredictorPlaces(True, places))
    for extra in range(dimension - extras, dimension):
        found.append(PredictorPlaces(False, [(slice(extra, extra + 1), slice(0, 1))]))
    return found


def _add_blocks(layout: Layout, total: Floats, x: Floats, bends: Floats) -> None:
    """The blocks a >= b, of which those of two heads are symmetric: of these the lower half."""
    ones = np.ones((len(x), 1), x.dtype)
    columns = np.concatenate([x, ones], axis=1) if layout.intercept else x
    predictors = _predictors(layout, len(total))
    for a, left in enumerate(predictors):
        for b, right in enumerate(predictors[: a + 1]):
            weights = bends[:, a, b]
            if left.has_columns and right.has_columns:
                block = weighted_square(columns, weights)
            else:
                sides = (columns if each.has_columns else ones for each in (left, right))
                block = next(sides).T @ (weights[:, None].astype(x.dtype) * next(sides))
            for rows, own_rows in left.places:
                for cols, own_cols in right.places:
                    total[rows, cols] += block[own_rows, own_cols]


def weighted_square(columns: Floats, weights: Floats) -> Floats:
    """X^T diag(w) X, of which the lower half counts: the upper one is zero, or the same."""
    from scipy.linalg.blas import dsyrk, ssyrk

    sign = 1.0 if np.all(weights >= 0) else -1.0 if np.all(weights <= 0) else 0.0
    if not sign:
        return np.tril(columns.T @ (weights[:, None].astype(columns.dtype) * columns))
    drawn = np.sqrt(np.abs(weights))[:, None].astype(columns.dtype) * columns
    square = ssyrk if columns.dtype == np.float32 else dsyrk
    # BLAS works on columns in order: what is the upper half there is the lower half of the transpose.
    return np.asarray(square(sign, drawn.T, lower=0).T)


def _mirror(layout: Layout, total: Floats, dimension: int) -> None:
    """Blocks of two heads made whole, and then the blocks a < b."""
    predictors = _predictors(layout, dimension)
    for a, left in enumerate(predictors):
        for b, right in enumerate(predictors[: a + 1]):
            if left.has_columns and right.has_columns:
                _complete(total, left, right)
            if a != b:
                for rows, _ in left.places:
                    for cols, _ in right.places:
                        total[cols, rows] = total[rows, cols].T


def _complete(total: Floats, left: PredictorPlaces, right: PredictorPlaces) -> None:
    """From its lower half: that of the columns, and the row of the intercept, which is its column too."""
    block = total[left.places[0][0], right.places[0][0]]
    block += np.tril(block, -1).T
    for own in range(1, len(left.places)):
        total[left.places[0][0], right.places[own][0]] = total[left.places[own][0], right.places[0][0]].T


def _add_prior(target: Target, theta: Floats, total: Floats) -> None:
    """Minus that of the log prior: a diagonal where it is one, else column by column."""
    probes = np.random.default_rng(0).standard_normal((2, theta.size))
    probes[0] = 1.0
    diagonal, seen = prior_products(target, theta, probes)
    if np.all(np.abs(seen - diagonal * probes[1]) <= ALONE * (np.abs(seen) + np.abs(diagonal))):
        total[np.diag_indices(len(total))] -= diagonal
        return
    for first in range(0, theta.size, COLUMNS_TOGETHER):
        count = min(COLUMNS_TOGETHER, theta.size - first)
        total[first : first + count] -= prior_products(target, theta, np.eye(count, theta.size, first))


def prior_products(target: Target, theta: Floats, vectors: Floats) -> Floats:
    with jax.enable_x64(True):
        return np.asarray(_prior_times(target, np.asarray(theta), vectors))


@jitted(static_argnums=0)
def _prior_times(target: Target, theta: jax.Array, vectors: jax.Array) -> jax.Array:
    gradient = jax.grad(target.log_prior.call)
    return jax.vmap(lambda vector: jax.jvp(gradient, (theta,), (vector,))[1])(vectors)


def hessian_product(target: Target, table: Table, theta: Floats, vector: Floats) -> Floats:
    """Minus the Hessian of the log posterior times a vector."""
    return np.asarray(hessian_products(target, table, theta, vector[None])[0])


def hessian_products(
    target: Target, table: Table, theta: Floats, vectors: Floats, ranges: Ranges | None = None
) -> Floats:
    """The same of several, (k, d), in float64 throughout: a pass over the rows, or over some, scaled up to all."""
    rows = table.num_rows if ranges is None else sum(stop - start for start, stop in ranges)
    begin_pass(rows)
    total = np.zeros(vectors.shape)
    program = _own_products if target.predictor is None else _products
    with jax.enable_x64(True):
        for start, stop in ranges or table.chunks():
            ends = np.int32(start), np.int32(stop)
            found = compiled(program)(target, table.rows, *ends, np.asarray(theta), np.asarray(vectors))
            total += np.asarray(found)
            count_rows(stop - start)
    return -(total * (table.num_rows / rows) + prior_products(target, theta, vectors))


def _own_products(
    target: Target, rows: Any, start: jax.Array, stop: jax.Array, theta: jax.Array, vectors: jax.Array
) -> jax.Array:
    """The Hessian of the rows' own log likelihoods times each vector, a tile at a time."""
    size = tile_rows(rows)

    def tile(index: jax.Array, total: jax.Array) -> jax.Array:
        first = start + index * size
        part = _in_float64(jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size), rows))
        inside = (first + jnp.arange(size, dtype=jnp.int32) < stop).astype(theta.dtype)

        def value(point: jax.Array) -> jax.Array:
            return jnp.sum(inside * jax.vmap(target.log_likelihood.call, (None, 0))(point, part))

        return total + jax.vmap(jax.linearize(jax.grad(value), theta)[1])(vectors)

    return jax.lax.fori_loop(0, (stop - start + size - 1) // size, tile, jnp.zeros_like(vectors))


def _products(
    target: Target, rows: Any, start: jax.Array, stop: jax.Array, theta: jax.Array, vectors: jax.Array
) -> jax.Array:
    """A^T l'' A v of each vector, summed over rows, a tile at a time."""
    size, layout = tile_rows(rows), target.layout

    def tile(index: jax.Array, total: jax.Array) -> jax.Array:
        first = start + index * size
        part = _in_float64(jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size), rows))
        inside = (first + jnp.arange(size, dtype=jnp.int32) < stop).astype(theta.dtype)
        slope = jax.grad(target.predictor.call)  # type: ignore[union-attr]

        def bend(eta: jax.Array, move: jax.Array, row: Any) -> jax.Array:
            return jax.jvp(lambda each: slope(each, row), (eta,), (move,))[1]

        def times(vector: jax.Array) -> jax.Array:
            moved = jax.vmap(bend)(layout.predict(part, theta), layout.predict(part, vector), part)
            return layout.pull_back(part, jnp.expand_dims(inside, tuple(range(1, moved.ndim))) * moved)

        return total + jax.vmap(times)(vectors)

    return jax.lax.fori_loop(0, (stop - start + size - 1) // size, tile, jnp.zeros_like(vectors))


def is_single(table: Table) -> bool:
    """Whether the columns are in float32."""
    return bool(table.rows["x"].dtype == np.float32)


def rounding(target: Target, table: Table, theta: Floats, hessian: Floats, whitening: Floats) -> float:
    """|W^T (H - H') W z| of random z, which is the size of all of it; a pass over the rows for each."""
    z = np.random.default_rng(0).standard_normal((PROBES, theta.size))
    left = [whitening.T @ (hessian_product(target, table, theta, v) - hessian @ v) for v in z @ whitening.T]
    return float(np.sqrt(np.mean([each @ each for each in left])))
