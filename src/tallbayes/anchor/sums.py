"""Sums over rows: value, gradient and curvature of the log likelihood and of the log prior at one point.

    sum_{start <= i < stop} log p(x_i | theta),   tile by tile in a fixed order

A regression needs two derivatives of its density in eta for each row, and products of its columns; any other model is
differentiated as it is.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tallbayes.gaussian.pytrees  # noqa: F401
from tallbayes.model.model import Target
from tallbayes.rows.table import TILE_ROWS


class Curvature(Enum):
    """What a pass sums of the second derivatives; the value is the number of axes of the sum, but for the last.

    DIAGONAL is exact for a model with a linear predictor, else minus the sum of squared gradients of the rows. ARROW is
    the whole of it in three sums, for a layout with arms.
    """

    NONE = 0
    DIAGONAL = 1
    DENSE = 2
    ARROW = 3


@partial(jax.jit, static_argnums=0, static_argnames="curvature")
def likelihood_sums(
    target: Target,
    rows: Any,
    start: jax.Array,
    stop: jax.Array,
    theta: jax.Array,
    before: tuple[jax.Array, ...] | None = None,
    *,
    curvature: Curvature = Curvature.DENSE,
) -> tuple[jax.Array, ...]:
    """Value, gradient and curvature of sum_{start <= i < stop} log p(x_i | theta), in theta's precision.

    One pass, in tiles of a fixed number of rows added up in their order, so that the bits do not depend on
    threads and the memory does not depend on the number of rows. They are added to the sums `before`: whole tiles at a
    time, a pass can be made in pieces without another bit.
    """
    add_terms = _add_predictor_terms if target.predictor is not None else _add_general_terms

    def tile(index: jax.Array, sums: Any) -> Any:
        first = start + index * TILE_ROWS
        part = jax.tree.map(lambda leaf: _slice(leaf, first, theta.dtype), rows)
        weights = (first + jnp.arange(TILE_ROWS, dtype=jnp.int32) < stop).astype(theta.dtype)
        return add_terms(target, part, weights, theta, curvature, sums)

    if before is None:
        before = tuple(jnp.zeros(shape, theta.dtype) for shape in shapes_of_sums(target, curvature))
    return jax.lax.fori_loop(0, (stop - start + TILE_ROWS - 1) // TILE_ROWS, tile, before)


def shapes_of_sums(target: Target, curvature: Curvature) -> tuple[tuple[int, ...], ...]:
    """Of the value, of the gradient, and of one sum or three for the curvature."""
    d = target.dimension
    if curvature is not Curvature.ARROW:
        return (), (d,), (d,) * curvature.value
    arms = target.layout.arms
    assert arms is not None
    k, m = arms.count, d - arms.count
    return (), (d,), (k,), (k, m), (m, m)


def _slice(leaf: jax.Array, first: jax.Array, dtype: Any) -> jax.Array:
    part = jax.lax.dynamic_slice_in_dim(leaf, first, TILE_ROWS)
    return part.astype(dtype) if jnp.issubdtype(part.dtype, jnp.floating) else part


def _add_predictor_terms(
    target: Target, rows: Any, weights: jax.Array, theta: jax.Array, curvature: Curvature, sums: Any
) -> Any:
    layout, (value, gradient, *hessian) = target.layout, sums
    assert target.predictor is not None
    eta = layout.predict(rows, theta)
    l0, l1, l2 = jax.vmap(partial(density_terms, target))(eta, rows)
    slopes, bends = _times(weights, l1), _times(weights, l2)
    match curvature:
        case Curvature.DENSE:
            # In place: of many levels a tile of rows touches few pairs.
            hessian = [layout.add_curvature(hessian[0], rows, bends)]
        case Curvature.DIAGONAL:
            hessian = [hessian[0] + layout.diagonal(rows, bends)]
        case Curvature.ARROW:
            hessian = layout.add_arrow(hessian, rows, bends)
    return value + jnp.sum(weights * l0), gradient + layout.pull_back(rows, slopes), *hessian


def _times(weights: jax.Array, terms: jax.Array) -> jax.Array:
    return jnp.expand_dims(weights, tuple(range(1, terms.ndim))) * terms


def density_terms(target: Target, eta: jax.Array, row: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """l, l' and l'' of one row in its linear predictor."""
    assert target.predictor is not None
    value = target.predictor.call
    slope = jax.grad(value)
    if target.layout.is_scalar:
        return value(eta, row), *jax.value_and_grad(slope)(eta, row)
    return value(eta, row), slope(eta, row), jax.jacfwd(slope)(eta, row)


def _add_general_terms(
    target: Target, rows: Any, weights: jax.Array, theta: jax.Array, curvature: Curvature, sums: Any
) -> Any:
    def each(vector: jax.Array, row: Any) -> jax.Array:
        return target.log_likelihood.call(vector, row)

    def total(vector: jax.Array) -> jax.Array:
        return jnp.sum(weights * jax.vmap(each, (None, 0))(vector, rows))

    gradient = jax.grad(total)

    def hessian_column(direction: jax.Array) -> jax.Array:
        return jax.jvp(gradient, (theta,), (direction,))[1]

    match curvature:
        case Curvature.DENSE:
            hessian = jax.lax.map(hessian_column, jnp.eye(theta.size, dtype=theta.dtype), batch_size=32)
        case Curvature.DIAGONAL:
            # Fisher's identity: the expected outer product of a row's gradient is minus its expected Hessian.
            hessian = -(weights @ jax.vmap(jax.grad(each), (None, 0))(theta, rows) ** 2)
        case Curvature.NONE:
            hessian = jnp.zeros((), theta.dtype)
    value, slope = jax.value_and_grad(total)(theta)
    return jax.tree.map(jnp.add, sums, (value, slope, hessian))


@partial(jax.jit, static_argnums=0)
def prior_terms(target: Target, theta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Value, gradient and Hessian of log pi(theta)."""
    prior = target.log_prior.call
    return prior(theta), jax.grad(prior)(theta), jax.hessian(prior)(theta)


@partial(jax.jit, static_argnums=0)
def prior_probe(target: Target, theta: jax.Array, signs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Value and gradient of log pi(theta), and s * (Hessian s): its diagonal, exactly so if it has nothing else."""
    prior = target.log_prior.call
    gradient, product = jax.jvp(jax.grad(prior), (theta,), (signs,))
    return prior(theta), gradient, signs * product


@partial(jax.jit, static_argnums=0)
def prior_arrow(target: Target, theta: jax.Array, probes: jax.Array) -> tuple[jax.Array, ...]:
    """Value and gradient of log pi(theta), the three sums of its Hessian, and Hessian times each of the probes.

    The diagonal is that of a Hessian which has no other numbers among the arms; whether it has tell the probes.
    """
    prior, arms = target.log_prior.call, target.layout.arms
    assert arms is not None
    places = jnp.arange(theta.size)
    inside = (places >= arms.first) & (places < arms.first + arms.count)
    last = arms.first + arms.count
    rest = np.concatenate([np.arange(arms.first), np.arange(last, theta.size)])

    def times(vector: jax.Array) -> jax.Array:
        return jax.jvp(jax.grad(prior), (theta,), (vector,))[1]

    rows = jax.lax.map(lambda place: times((places == place).astype(theta.dtype)), jnp.asarray(rest))
    diagonal = times(inside.astype(theta.dtype))[arms.first : last]
    limbs, corner = rows[:, arms.first : last].T, rows[:, rest]
    return prior(theta), jax.grad(prior)(theta), diagonal, limbs, corner, jax.vmap(times)(probes)
