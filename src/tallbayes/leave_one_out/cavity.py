"""The Gaussian cavity: log p(y_i | all other rows) of every row, by one pass.

    log p(y_i | y_-i) = integral_0^1 E_{w_i = t} l_i dt,   w_i the weight of row i,   s = 1 - t
    eta_i ~ N(x_i'm, q_i) under the Gaussian;   c0 = E l', c1 = E l'' over it
    eta_i - x_i'm ~ N(-s c0 q_i / D, q_i / D) at t,   D = 1 + s c1 q_i

Where eta_i is a pair or a triple, with Q = L L' and L' c1 L = U diag(lambda) U', the same in u = U' L^-1 (eta - x'm):

    u_j ~ N(-s b_j / D_j, 1 / D_j),   b = U' L' c0,   D_j = 1 + s lambda_j

t by Legendre's nodes, u by Hermite's, fewer of both where q_i is small. `leverage` is -sum_j lambda_j: the part of what
is known of eta_i that is known from row i itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from tallbayes.anchor.importance import in_float64
from tallbayes.anchor.sums import density_terms
from tallbayes.gaussian.whitening import Whitening
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jnp
from tallbayes.rows.table import CHUNK_ROWS, Table
from tallbayes.watch import begin_pass, count_rows

PART_ROWS = 2**14
MOST_PREDICTORS = 3
# Hermite's nodes a predictor and Legendre's: where eta moves next to nothing, hardly, and as much as the rows allow.
RULES = {1: ((3, 3), (5, 3), (15, 8)), 2: ((3, 3), (5, 3), (7, 8)), 3: ((3, 3), (3, 3), (5, 6))}
NARROW = (1e-3, 0.05)
FINEST = len(NARROW)
# A row that all is known from alone has no cavity.
LEAST_LEFT = 0.02
TINY = 1e-30


class Cavity(NamedTuple):
    """Of every row: the Gaussian without it, in u; `root` is L U, `bend` lambda, `pull` b, `left` D at t = 0."""

    eta: Any
    root: Any
    bend: Any
    pull: Any
    left: Any


class RowAnswers(NamedTuple):
    """Of some rows in the order of the table: log p(y_i | y_-i), log E p(y_i | theta), leverage; their densities'
    constants left out."""

    elpd: Floats
    fitted: Floats
    leverage: Floats


def has_cavity(target: Target) -> bool:
    """Whether a row has few enough predictors."""
    return target.predictor is not None and target.layout.size <= MOST_PREDICTORS


def answers(target: Target, table: Table, mode: Floats, whitening: Whitening) -> Iterator[tuple[int, RowAnswers]]:
    """Those of every chunk of rows, and the place of its first row: one pass, in memory that does not grow with N."""
    rows = min(PART_ROWS, table.capacity)
    begin_pass(table.num_rows)
    with jax.enable_x64(True):
        scale = _unit(target, mode)
        for start in range(0, table.num_rows, CHUNK_ROWS):
            stop = min(start + CHUNK_ROWS, table.num_rows)
            parts = []
            for first in range(start, stop, rows):
                arguments = table.rows, np.int32(first), mode, whitening, scale
                parts.append([np.asarray(each) for each in compiled(_part)((target, rows), *arguments)])
                count_rows(min(rows, stop - first))
            whole = (np.concatenate(each)[: stop - start] for each in zip(*parts, strict=True))
            yield start, RowAnswers(*whole)


def _unit(target: Target, mode: Floats) -> np.float64:
    """The square of by how much eta moves before the density's shape is another."""
    noise = target.noise
    if noise is None or noise.facts.response != "real":
        return np.float64(1.0)
    return np.float64(noise.scale**2 if noise.scale is not None else np.exp(2 * mode[-1]))


def _part(
    static: tuple[Target, int], rows: Any, start: jax.Array, mode: jax.Array, whitening: Whitening, unit: jax.Array
) -> tuple[jax.Array, ...]:
    target, count = static
    part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, count), rows)
    part = in_float64(part)
    eta, spread = target.layout.predict(part, mode), target.layout.spread(part, whitening)
    widest = jnp.max(jnp.trace(spread, axis1=1, axis2=2)) / jnp.minimum(unit, 1.0)
    which = jnp.sum(widest > jnp.asarray(NARROW)).astype(jnp.int32)
    cavity = _cavity(target, part, eta, spread, which)
    elpd, fitted = jnp.zeros(count), jnp.full(count, -jnp.inf)
    path, normal = _path_rule(target.layout.size), _normal_rules(target.layout.size)

    def add(k: jax.Array, total: jax.Array) -> jax.Array:
        left = 1 + path.s[which, k] * cavity.bend
        u = -path.s[which, k] * cavity.pull / left + path.u[which, k] / jnp.sqrt(left)
        return total + path.weights[which, k] * values(target, cavity, u, part)

    def more(k: jax.Array, total: jax.Array) -> jax.Array:
        u = jnp.broadcast_to(normal.u[which, k], cavity.pull.shape)
        return jnp.logaddexp(total, jnp.log(normal.weights[which, k]) + values(target, cavity, u, part))

    elpd = jax.lax.fori_loop(0, path.count[which], add, elpd)
    fitted = jax.lax.fori_loop(0, normal.count[which], more, fitted)
    return elpd, fitted, -jnp.sum(cavity.bend, axis=1)


def values(target: Target, cavity: Cavity, u: jax.Array, rows: Any) -> jax.Array:
    """l of every row at u (rows, predictors)."""
    assert target.predictor is not None
    eta = cavity.eta + jnp.einsum("nab,nb->na", cavity.root, u)
    return jax.vmap(target.predictor.call)(eta[:, 0] if target.layout.is_scalar else eta, rows)


def cavities(target: Target, rows: Any, mode: jax.Array, whitening: Whitening) -> Cavity:
    """Those of a few rows, by the finer rule; rows are in float64."""
    eta, spread = target.layout.predict(rows, mode), target.layout.spread(rows, whitening)
    return _cavity(target, rows, eta, spread, jnp.int32(FINEST))


def _cavity(target: Target, rows: Any, eta: jax.Array, spread: jax.Array, which: jax.Array) -> Cavity:
    size = target.layout.size
    eta = eta.reshape(len(eta), size)
    lower = jnp.sqrt(spread) if size == 1 else jnp.linalg.cholesky(spread + TINY * jnp.eye(size))
    rules, terms = _normal_rules(size), jax.vmap(partial(density_terms, target))

    def add(k: jax.Array, total: Any) -> Any:
        at = eta + jnp.einsum("nab,b->na", lower, rules.u[which, k])
        _, slope, bend = terms(at[:, 0] if target.layout.is_scalar else at, rows)
        found = slope.reshape(-1, size), bend.reshape(-1, size, size)
        return jax.tree.map(lambda sum, term: sum + rules.weights[which, k] * term, total, found)

    nothing = jnp.zeros((len(eta), size)), jnp.zeros((len(eta), size, size))
    slope, bend = jax.lax.fori_loop(0, rules.count[which], add, nothing)
    within = jnp.einsum("nba,nbc,ncd->nad", lower, bend, lower)
    if size == 1:
        bends, root = within[:, :, 0], lower
    else:
        bends, turn = jnp.linalg.eigh((within + within.transpose(0, 2, 1)) / 2)
        root = lower @ turn
    bends = jnp.maximum(bends, LEAST_LEFT - 1)
    return Cavity(eta, root, bends, jnp.einsum("nab,na->nb", root, slope), 1 + bends)


class Rules(NamedTuple):
    """From the coarsest to the finest, padded to one length: nodes (3, k, size), weights and, of paths, s."""

    u: Any
    weights: Any
    s: Any
    count: Any


@cache
def hermite(count: int, size: int) -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    grid = np.stack(np.meshgrid(*[nodes] * size, indexing="ij"), axis=-1).reshape(-1, size)
    shares = np.prod(np.stack(np.meshgrid(*[weights / weights.sum()] * size, indexing="ij")), axis=0)
    return grid, shares.ravel()


def _normal_rules(size: int) -> Rules:
    every = [hermite(count, size) for count, _ in RULES[size]]
    return _padded([(u, weights, np.zeros(len(weights))) for u, weights in every])


def _path_rule(size: int) -> Rules:
    parts: list[tuple[Floats, Floats, Floats]] = []
    for normal, uniform in RULES[size]:
        u, weights = hermite(normal, size)
        nodes, lengths = np.polynomial.legendre.leggauss(uniform)
        s = (1 - nodes) / 2
        parts.append((np.tile(u, (len(s), 1)), np.outer(lengths / 2, weights).ravel(), np.repeat(s, len(weights))))
    return _padded(parts)


def _padded(parts: list[tuple[Floats, Floats, Floats]]) -> Rules:
    longest = max(len(weights) for _, weights, _ in parts)

    def padded(array: Floats) -> Floats:
        return np.concatenate([array, np.zeros((longest - len(array), *array.shape[1:]))])

    u, weights, s = (jnp.asarray(np.stack([padded(part[k]) for part in parts])) for k in range(3))
    return Rules(u, weights, s, jnp.asarray([len(part[1]) for part in parts], jnp.int32))
