"""Probes: what the posterior does where few paths go, and how much a batch of rows can err.

    rho(u) = log pi(theta_0 + W u | X) - log pi(theta_0 | X) + |u|^2 / 2,   r(u) = grad rho(u)

A few dozen paths say nothing of what happens to one in ten thousand. So rho and r are computed at points u that are
spread on purpose: draws of N(0, I), draws that are two, four and twelve times as wide along one parameter, and points
on rays far out. With q the density that a point was drawn from, the weights

    w_G = phi(u) / q(u),   w = exp(rho(u)) w_G

stand for the Gaussian and for the posterior, tails included (`tails` has what follows). Rows are those of the first
places of the list, or all where they are few: rho is a sum of remainders of third order, of which a place holds at most
twice its share; where third derivatives of all rows are known, of remainders beyond these. The same rows give the
covariance of one place's remainder, and so that of any batch,

    S = E_u [ L sum_p w_p^2 r_p(u) r_p(u)^T - r(u) r(u)^T ],   Cov = S / n of the estimate of r from n places
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.expansion import expand
from tallbayes.anchor.importance import in_float64
from tallbayes.anchor.probe import Probe
from tallbayes.anchor.sums import Curvature, density_terms, third_of_density
from tallbayes.gaussian.arrowhead import Arrowhead
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jnp
from tallbayes.rows.listing import Listing
from tallbayes.rows.table import TILE_ROWS, Table
from tallbayes.workers.executors import Executor

MOST_ROWS = 1024
# Of groups, which take as much as hundreds of rows.
FEWEST_ROWS, MOST_WORK = 64, 2**15
PLAIN_DRAWS, DRAWS_A_DIRECTION = 96, 8
STRETCHES, STRETCH_WEIGHTS = (2.0, 4.0, 12.0), (0.3, 0.2, 0.1)
MOST_DIRECTIONS, MOST_RAYS = 16, 8
RADII = 8.0 * 2.0 ** (np.arange(5) / 2)
# Of log densities on rays, less than at the centre: a Gaussian's is -32 at the first of the radii.
STANDS = -24.0
NOISE_PAIRS = 4
TOGETHER = 16


def make_probe(target: Target, table: Table, anchor: Anchor, listing: Listing | None) -> Probe | None:
    """Look at the posterior around the anchor; None where the Hessian is no matrix: then there are more parameters than
    rows that it looks at, which say nothing of most of them."""
    if anchor.is_diagonal or anchor.is_large or isinstance(anchor.precision, Arrowhead):
        return None
    rows, weights, count = _sample(target, table, listing)
    points, log_proposal, rays = _points(anchor)
    everywhere = np.concatenate([points, rays.reshape(-1, points.shape[1])])
    pairs = np.random.default_rng(1).standard_normal((NOISE_PAIRS, len(anchor.mode)))
    with jax.enable_x64(True):
        third = None if anchor.third is None else (anchor.step, anchor.third)
        sample = target, in_float64(rows), weights, anchor.mode, third
        moves = (anchor.displacements(each) for each in (_padded(everywhere), np.concatenate([pairs, -pairs])))
        # Of a regression it is a few products and densities of some rows: milliseconds, however it is compiled.
        program = compiled(_look, quickly=target.predictor is not None or target.work(table.rows) == 1)
        found = program(*sample, *moves, np.float64(count))
    values, slopes, noise = (np.asarray(each, np.float64) for each in found)
    k, all_points = len(points), len(everywhere)
    rho, remainder = _beside_what_is_known(anchor, everywhere, values[:all_points], slopes[:all_points])
    return Probe(
        points=points,
        log_ratio=rho[:k],
        remainder=remainder[:k],
        log_proposal=log_proposal,
        rays=rays,
        ray_log_ratio=rho[k:].reshape(rays.shape[:2]),
        noise=np.nan_to_num(anchor.whitening.T @ noise @ anchor.whitening),
        rows_read=count * (len(everywhere) + len(pairs) * 2),
        is_of_all_rows=count == table.num_rows,
    )


def read_by_all_rows(probe: Probe, target: Target, table: Table, anchor: Anchor, executor: Executor | None) -> Probe:
    """The same, but that the density is of all rows where those that were read let it stand far out, a pass a point.

    Where the terms of rows all but cancel, a sample of them says nothing: it may rise by hundreds where all of them
    together fall by as much.
    """
    log_density = probe.ray_log_ratio - RADII**2 / 2
    doubtful = np.argwhere(~(log_density < STANDS))
    if target.log_concave or not len(doubtful) or probe.is_of_all_rows:
        return probe
    here = expand(target, table, anchor.mode, executor, curvature=Curvature.NONE).value
    ratio = probe.ray_log_ratio.copy()
    for ray, radius in doubtful:
        there = anchor.mode + anchor.displacements(probe.rays[ray, radius][None])[0]
        value = expand(target, table, there, executor, curvature=Curvature.NONE).value
        ratio[ray, radius] = value - here + RADII[radius] ** 2 / 2
    return replace(probe, ray_log_ratio=ratio, rows_read=probe.rows_read + (1 + len(doubtful)) * table.num_rows)


def _beside_what_is_known(anchor: Anchor, points: Floats, rest: Floats, slope: Floats) -> tuple[Floats, Floats]:
    """rho and r: the remainders with the gradient at the centre, and with what W was not made from."""
    gradient = anchor.whitener.pull_back(anchor.gradient)
    bend = np.zeros_like(points) if anchor.mismatch is None else points @ anchor.mismatch.T
    with np.errstate(invalid="ignore", over="ignore"):
        rho = rest + points @ gradient + np.sum(points * bend, axis=1) / 2
        return rho, anchor.whitener.pull_back(slope) + gradient + bend


def _sample(target: Target, table: Table, listing: Listing | None) -> tuple[Any, Floats, int]:
    """Rows of the first places, what each of them stands for, and how many there are; padded with rows of no weight."""
    length = table.num_rows if listing is None else listing.length
    most = int(np.clip(MOST_WORK // target.work(table.rows), FEWEST_ROWS, MOST_ROWS))
    count = min(most, length)
    capacity = min(MOST_ROWS, max(min(TILE_ROWS, most), 1 << (count - 1).bit_length()))
    spread = np.arange(count) if table.shuffled or count == length else np.linspace(0, length - 1, count).astype(int)
    places = np.zeros(capacity, int)
    places[:count] = spread
    own = np.ones(capacity) if listing is None else np.asarray(listing.weights[places], np.float64)
    index = places if listing is None else np.asarray(listing.rows[places])
    weights = np.where(np.arange(capacity) < count, own * (length / count), 0.0)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], table.rows), weights, count


def _points(anchor: Anchor) -> tuple[Floats, Floats, Floats]:
    """Draws in opposite pairs from the mixture, log q / phi of each, and points on rays."""
    d, rng = len(anchor.mode), np.random.default_rng(0)
    lines = anchor.whitening / np.linalg.norm(anchor.whitening, axis=1, keepdims=True)
    lines = lines[np.sort(rng.permutation(d)[:MOST_DIRECTIONS])]
    half = rng.standard_normal(((PLAIN_DRAWS + DRAWS_A_DIRECTION * MOST_DIRECTIONS) // 2, d))
    plain = 1 - sum(STRETCH_WEIGHTS)
    firsts = np.round(np.cumsum([plain, *STRETCH_WEIGHTS]) * len(half)).astype(int)
    for stretch, first, last in zip(STRETCHES, firsts, firsts[1:], strict=False):
        along = lines[np.arange(last - first) % len(lines)]
        half[first:last] += (stretch - 1) * np.sum(half[first:last] * along, axis=1, keepdims=True) * along
    points = np.concatenate([half, -half])
    reach = (points @ lines.T) ** 2 / 2
    terms = [np.log(plain) * np.ones((len(points), 1))]
    for stretch, weight in zip(STRETCHES, STRETCH_WEIGHTS, strict=True):
        terms.append((1 - stretch**-2) * reach + np.log(weight / (stretch * len(lines))))
    log_proposal = np.logaddexp.reduce(np.concatenate(terms, axis=1), axis=1)
    rays = np.concatenate([lines[:MOST_RAYS], -lines[:MOST_RAYS]])[:, None] * RADII[:, None]
    return points, log_proposal, rays


def _padded(points: Floats) -> Floats:
    """To a whole number of batches."""
    return np.concatenate([points, np.zeros((-len(points) % TOGETHER, points.shape[1]))])


def _look(
    target: Target,
    rows: Any,
    weights: jax.Array,
    mode: jax.Array,
    third: Any,
    moves: jax.Array,
    pairs: jax.Array,
    count: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The log posterior of the sample and its gradient beyond their expansions to second order at the centre; and n
    times the covariance of the sum over n places, mean over pairs. Of a `third` order, which is the step to the centre
    from where rows are expanded and the derivatives, all rows' is taken, and of the sample what is beyond."""
    if target.predictor is None:
        rest, rest_by_row = _rest_of_general(target, rows, weights, mode)
    else:
        rest, rest_by_row = _rest_of_regression(target, rows, weights, mode, None if third is None else third[0])
    prior = _beyond_second_order(target.log_prior.call, mode)

    def one(move: jax.Array) -> Any:
        found = jax.tree.map(jnp.add, prior(move), rest(move))
        if third is None:
            return found
        bent = jnp.tensordot(move, third[1], 1) @ move
        return found[0] + bent @ move / 6, found[1] + bent / 2

    def covariance(move: jax.Array) -> jax.Array:
        left = jnp.where(weights[:, None] > 0, weights[:, None] * rest_by_row(move), 0)
        total = jnp.sum(left, axis=0)
        return count * left.T @ left - jnp.outer(total, total)

    values, slopes = jax.lax.map(one, moves, batch_size=TOGETHER)
    return values, slopes, jnp.mean(jax.lax.map(covariance, pairs), axis=0)


Rests = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def _rest_of_regression(
    target: Target, rows: Any, weights: jax.Array, mode: jax.Array, step: jax.Array | None = None
) -> Rests:
    """Of the sum of the rows, value and gradient; and the gradient by row: all by way of the predictor. With a `step`
    to the mode beyond third order where it begins, else beyond second order at the mode."""
    assert target.predictor is not None
    layout, density = target.layout, target.predictor.call
    eta = layout.predict(rows, mode if step is None else mode - step)
    third = None if step is None else jax.vmap(partial(third_of_density, target))(eta, rows)
    value, slope, curvature = jax.vmap(partial(density_terms, target))(eta, rows)

    def beyond(move: jax.Array) -> tuple[jax.Array, jax.Array]:
        by = layout.predict(rows, move if step is None else move + step)
        there, rise = jax.vmap(jax.value_and_grad(density))(eta + by, rows)
        bend = curvature * by if layout.is_scalar else jnp.einsum("nab,nb->na", curvature, by)
        line = (slope + bend / 2) * by
        if third is not None:
            line, bend = line + third * by**3 / 6, bend + third * by**2 / 2
        return there - value - (line if layout.is_scalar else jnp.sum(line, axis=1)), rise - slope - bend

    def rest(move: jax.Array) -> tuple[jax.Array, jax.Array]:
        values, slopes = beyond(move)
        return jnp.sum(_weighed(weights, values)), layout.pull_back(rows, _weighed(weights, slopes))

    def rest_by_row(move: jax.Array) -> jax.Array:
        one = jax.tree.map(lambda leaf: leaf[:, None], (rows, beyond(move)[1]))
        return jax.vmap(layout.pull_back)(*one)

    return rest, rest_by_row


def _rest_of_general(target: Target, rows: Any, weights: jax.Array, mode: jax.Array) -> Rests:
    density = target.log_likelihood.call
    gradient = jax.grad(density)

    def total(theta: jax.Array) -> jax.Array:
        return jnp.sum(_weighed(weights, jax.vmap(density, (None, 0))(theta, rows)))

    def rest_by_row(move: jax.Array) -> jax.Array:
        def one(row: Any) -> jax.Array:
            here, bend = jax.jvp(lambda theta: gradient(theta, row), (mode,), (move,))
            return gradient(mode + move, row) - here - bend

        return jax.vmap(one)(rows)

    return _beyond_second_order(total, mode), rest_by_row


def _beyond_second_order(value: Callable[[jax.Array], jax.Array], mode: jax.Array) -> Callable[[jax.Array], Any]:
    """value(mode + move) and its gradient, less their expansions to second order at the mode."""
    here, slope = jax.value_and_grad(value)(mode)

    def rest(move: jax.Array) -> tuple[jax.Array, jax.Array]:
        there, gradient = jax.value_and_grad(value)(mode + move)
        bend = jax.jvp(jax.grad(value), (mode,), (move,))[1]
        return there - here - slope @ move - bend @ move / 2, gradient - slope - bend

    return rest


def _weighed(weights: jax.Array, terms: jax.Array) -> jax.Array:
    """A row of no weight is padding, whatever its terms."""
    by_row = jnp.expand_dims(weights, tuple(range(1, terms.ndim)))
    return jnp.where(by_row > 0, by_row * terms, 0)
