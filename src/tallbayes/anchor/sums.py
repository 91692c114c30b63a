"""Sums over rows: value, gradient and curvature of the log likelihood and of the log prior at one point.

    sum_{start <= i < stop} log p(x_i | theta),   tile by tile in a fixed order

A regression needs two derivatives of its density in eta for each row, and products of its columns; any other model is
differentiated as it is, and where a row reads but few numbers of theta, in these (`model.groups.reads`). Of a
regression the same are also known on average over theta ~ N(m, W W^T), where eta is Gaussian by row,

    E l, E l', E l''   over eta ~ N(A m, A W W^T A^T),   by quadrature in as many dimensions as eta has
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

import numpy as np

import tallbayes.gaussian.pytrees  # noqa: F401
from tallbayes.gaussian.quadrature import normal_rule
from tallbayes.gaussian.whitening import DenseWhitening
from tallbayes.model.groups.derivatives import derivatives_of
from tallbayes.model.model import Target
from tallbayes.programs.later import jax, jitted, jnp
from tallbayes.rows.table import tile_rows

# Hermite's nodes a predictor, where there are several, of a rule and of the coarser one that it is held against; of a
# single one the trapezoidal rule with steps of 1/4, against 1/2.
HERMITE_NODES = {2: (13, 9), 3: (7, 5)}
TRAPEZOIDS = (2.0, 1.0)
# Rows that are differentiated together in what they read.
NEAR_ROWS = 16
# Densities of a tile of groups, of which each takes as many as it has rows and nodes.
TILE_WORK, LEAST_TILE = 2**14, 16


class Curvature(Enum):
    """What a pass sums of the second derivatives; the value is the number of axes of the sum, but for the last.

    DIAGONAL is exact for a model with a linear predictor, else minus the sum of squared gradients of the rows. ARROW is
    the whole of it in three sums, for a layout with arms. WIDE is DENSE of thousands of parameters, which is made by
    blocks (`anchor.wide`) and not here.
    """

    NONE = 0
    DIAGONAL = 1
    DENSE = 2
    ARROW = 3
    WIDE = 4


@jitted(static_argnums=0, static_argnames="curvature")
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
    if curvature is Curvature.DENSE and target.integrated is not None and target.integrated.reads is not None:
        add_terms = _add_near_terms

    size = tile_size(target, rows)

    def tile(index: jax.Array, sums: Any) -> Any:
        first = start + index * size
        part = jax.tree.map(lambda leaf: _slice(leaf, first, theta.dtype, size), rows)
        weights = (first + jnp.arange(size, dtype=jnp.int32) < stop).astype(theta.dtype)
        return add_terms(target, part, weights, theta, curvature, sums)

    if before is None:
        before = tuple(jnp.zeros(shape, theta.dtype) for shape in shapes_of_sums(target, curvature))
    return jax.lax.fori_loop(0, (stop - start + size - 1) // size, tile, before)


def tile_size(target: Target, rows: Any) -> int:
    """How many are read together, a power of two that divides a table's capacity: of groups, which take long, fewer."""
    enough = 1 << max(TILE_WORK // target.work(rows), 1).bit_length() - 1
    return min(tile_rows(rows), max(enough, LEAST_TILE))


@jitted(static_argnums=0)
def averaged_sums(
    target: Target,
    rows: Any,
    start: jax.Array,
    stop: jax.Array,
    theta: jax.Array,
    whitening: jax.Array,
    before: tuple[jax.Array, ...],
) -> tuple[jax.Array, ...]:
    """The three sums at theta, the same three on average over N(theta, W W^T), and the error of the average gradient;
    as `likelihood_sums` adds them.

    The error is a bound in whitened units, and a loose one: it is that of the coarser of two rules.
    """
    length = tile_rows(rows)

    def tile(index: jax.Array, sums: Any) -> Any:
        first = start + index * length
        part = jax.tree.map(lambda leaf: _slice(leaf, first, theta.dtype, length), rows)
        weights = (first + jnp.arange(length, dtype=jnp.int32) < stop).astype(theta.dtype)
        here = _add_predictor_terms(target, part, weights, theta, Curvature.DENSE, sums[:3])
        terms, error = _averaged_terms(target, part, theta, whitening)
        averaged = _add_terms(target, part, weights, terms, Curvature.DENSE, sums[3:6])
        return *here, *averaged, sums[6] + jnp.sum(weights * error)

    return jax.lax.fori_loop(0, (stop - start + length - 1) // length, tile, before)


@jitted(static_argnums=0)
def sums_to_third(
    target: Target, rows: Any, start: jax.Array, stop: jax.Array, theta: jax.Array, before: tuple[jax.Array, ...]
) -> tuple[jax.Array, ...]:
    """The three sums and grad^3 of sum_{start <= i < stop} log p(x_i | theta), for one predictor a row; as
    `likelihood_sums` adds them."""
    layout, size = target.layout, tile_size(target, rows)

    def tile(index: jax.Array, sums: Any) -> Any:
        first = start + index * size
        part = jax.tree.map(lambda leaf: _slice(leaf, first, theta.dtype, size), rows)
        weights = (first + jnp.arange(size, dtype=jnp.int32) < stop).astype(theta.dtype)
        here = _add_predictor_terms(target, part, weights, theta, Curvature.DENSE, sums[:3])
        third = jax.vmap(partial(third_of_density, target))(layout.predict(part, theta), part)
        return *here, layout.add_third(sums[3], part, weights * third)

    return jax.lax.fori_loop(0, (stop - start + size - 1) // size, tile, before)


def can_average(target: Target) -> bool:
    """Whether a row has few enough predictors for a quadrature."""
    return target.predictor is not None and (target.layout.is_scalar or target.layout.size in HERMITE_NODES)


def _averaged_terms(target: Target, rows: Any, theta: jax.Array, whitening: jax.Array) -> tuple[Any, jax.Array]:
    """E l, E l' and E l'' of every row, and by how much W^T A^T E l' would differ by the coarser rule."""
    layout = target.layout
    eta, spread = layout.predict(rows, theta), layout.spread(rows, DenseWhitening(None, whitening))
    root, terms_at = _roots(spread), jax.vmap(partial(density_terms, target))

    def mean(rule: tuple[np.ndarray, np.ndarray]) -> Any:
        nodes, weights = (jnp.asarray(each) for each in rule)

        def add(k: jax.Array, total: Any) -> Any:
            move = root @ nodes[k]
            found = terms_at(eta + (move[:, 0] if layout.is_scalar else move), rows)
            return jax.tree.map(lambda sum, term: sum + weights[k] * term, total, found)

        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(terms_at, eta, rows))
        return jax.lax.fori_loop(0, len(nodes), add, nothing)

    fine, coarse = (mean(rule) for rule in _rules(1 if layout.is_scalar else layout.size))
    apart = (fine[1] - coarse[1]).reshape(len(eta), -1)
    return fine, jnp.sqrt(jnp.maximum(jnp.einsum("na,nab,nb->n", apart, spread, apart), 0))


def _rules(size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Nodes (k, size) and weights (k,) of N(0, I), of a rule and of a coarser one."""
    if size == 1:
        return [(nodes[:, None], weights) for nodes, weights in map(normal_rule, TRAPEZOIDS)]
    return [_hermite(count, size) for count in HERMITE_NODES[size]]


def _hermite(count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    grid = np.stack(np.meshgrid(*[nodes] * size, indexing="ij"), axis=-1).reshape(-1, size)
    shares = np.prod(np.stack(np.meshgrid(*[weights / weights.sum()] * size, indexing="ij")), axis=0)
    return grid, shares.ravel()


def _roots(spread: jax.Array) -> jax.Array:
    """L with L L^T the spread of every row, which may be none along some predictor: a padded row has none at all."""
    columns: list[jax.Array] = []
    left = spread
    for k in range(spread.shape[-1]):
        pivot = left[:, k, k]
        column = jnp.where(pivot[:, None] > 0, left[:, :, k] / jnp.sqrt(jnp.where(pivot > 0, pivot, 1))[:, None], 0)
        left = left - column[:, :, None] * column[:, None, :]
        columns.append(column)
    return jnp.stack(columns, axis=-1)


def shapes_of_sums(target: Target, curvature: Curvature) -> tuple[tuple[int, ...], ...]:
    """Of the value, of the gradient, and of one sum or three for the curvature."""
    d = target.dimension
    if curvature is not Curvature.ARROW:
        return (), (d,), (d,) * curvature.value
    arms = target.layout.arms
    assert arms is not None
    k, m = arms.count, d - arms.count
    return (), (d,), (k,), (k, m), (m, m)


def _slice(leaf: jax.Array, first: jax.Array, dtype: Any, size: int) -> jax.Array:
    part = jax.lax.dynamic_slice_in_dim(leaf, first, size)
    return part.astype(dtype) if jnp.issubdtype(part.dtype, jnp.floating) else part


def _add_predictor_terms(
    target: Target, rows: Any, weights: jax.Array, theta: jax.Array, curvature: Curvature, sums: Any
) -> Any:
    terms = jax.vmap(partial(density_terms, target))(target.layout.predict(rows, theta), rows)
    return _add_terms(target, rows, weights, terms, curvature, sums)


def _add_terms(target: Target, rows: Any, weights: jax.Array, terms: Any, curvature: Curvature, sums: Any) -> Any:
    """l, l' and l'' of every row, as sums in theta."""
    layout, (value, gradient, *hessian), (l0, l1, l2) = target.layout, sums, terms
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


def third_of_density(target: Target, eta: jax.Array, row: Any) -> jax.Array:
    """l''' of one row in its linear predictor, where that is a number."""
    assert target.predictor is not None
    return jax.grad(jax.grad(jax.grad(target.predictor.call)))(eta, row)


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


def _add_near_terms(
    target: Target, rows: Any, weights: jax.Array, theta: jax.Array, curvature: Curvature, sums: Any
) -> Any:
    """Derivatives of every row in what it reads, added where that stands."""
    assert target.integrated is not None
    integral, reads = target.integrated.integral, target.integrated.reads
    assert reads is not None

    def each(row: Any) -> Any:
        return reads.places(row), *derivatives_of(integral, reads.near(theta, row), row)

    places, values, slopes, bends = jax.lax.map(each, rows, batch_size=NEAR_ROWS)
    value, gradient, hessian = sums
    return (
        value + jnp.sum(weights * values),
        gradient.at[places].add(_times(weights, slopes)),
        hessian.at[places[:, :, None], places[:, None, :]].add(_times(weights, bends)),
    )


@jitted(static_argnums=0)
def prior_terms(target: Target, theta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Value, gradient and Hessian of log pi(theta)."""
    prior = target.log_prior.call
    return prior(theta), jax.grad(prior)(theta), jax.hessian(prior)(theta)


@jitted(static_argnums=0)
def prior_probe(target: Target, theta: jax.Array, signs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Value and gradient of log pi(theta), and s * (Hessian s): its diagonal, exactly so if it has nothing else."""
    prior = target.log_prior.call
    gradient, product = jax.jvp(jax.grad(prior), (theta,), (signs,))
    return prior(theta), gradient, signs * product


@jitted(static_argnums=0)
def averaged_prior(
    target: Target, theta: jax.Array, whitening: jax.Array, draws: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Value, gradient and Hessian of log pi on average over N(theta, W W^T), and their error in whitened units.

    The expansion to second order, and what is beyond it as a mean over pairs of draws: nothing where the prior is
    Gaussian, but for rounding.
    """
    prior = target.log_prior.call
    value, gradient, hessian = prior(theta), jax.grad(prior)(theta), jax.hessian(prior)(theta)

    def beyond(z: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        move = whitening @ z
        (ahead, rise), (behind, fall) = (jax.value_and_grad(prior)(theta + sign * move) for sign in (1, -1))
        bend = hessian @ move
        return (ahead + behind) / 2 - value - move @ bend / 2, (rise + fall) / 2 - gradient, (rise - fall) / 2 - bend

    values, slopes, bends = jax.lax.map(beyond, draws, batch_size=64)
    # Stein's identity: E grad^2 f(v) = E grad f(v) (W^-T z)^T for v = W z.
    bend = jnp.linalg.solve(whitening.T, draws.T @ bends / len(draws))
    squares = [jnp.sum((each @ whitening) ** 2, axis=1) for each in (slopes, bends)]
    largest = jnp.mean(squares[0] + squares[1] * jnp.sum(draws**2, axis=1))
    return (
        value + jnp.sum((whitening.T @ hessian) * whitening.T) / 2 + jnp.mean(values),
        gradient + jnp.mean(slopes, axis=0),
        hessian + (bend + bend.T) / 2,
        jnp.sqrt(largest / len(draws)),
    )


@jitted(static_argnums=0)
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
