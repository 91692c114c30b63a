"""Nodes: where a group's integral is looked at, given theta's place u in R^d.

    b_hat = argmax_b f(u, b),   f = log p(b | theta) + sum_i l_i(theta, b)
    H = -d^2 f / db^2,   S S^T = H^-1,   B = H^-1 d^2 f / db du,   c = b_hat - B u

where u is what the unit reads of theta's place, so that b_hat + B v is to first order where the mode of b goes as u
moves by v. Newton's steps for all groups at once, each cut to the best of a few fractions; where f curves upwards its
curvature is turned.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.anchor.importance import in_float64
from tallbayes.errors import NoConvergenceError, explain
from tallbayes.model.groups.bundles import is_bundle
from tallbayes.model.groups.matrices import cholesky
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jnp
from tallbayes.rows.table import Table
from tallbayes.watch import count_rows

FRACTIONS = (1.0, 0.5, 0.25, 0.0625, 0.0078125)
MOST_STEPS = 60
# In sds of the effect given theta.
CLOSE = 1e-5
PART_UNITS, PART_ROWS = 512, 2**20
LEAST_CURVATURE = 1e-8


class Nodes(NamedTuple):
    """c, B and S of every unit, and how far Newton's last step would still have gone."""

    centre: Any
    slope: Any
    root: Any
    left: Any

    @property
    def are_finite(self) -> bool:
        return all(bool(np.all(np.isfinite(part))) for part in (self.centre, self.slope, self.root))


def find_nodes(target: Target, table: Table, vector: Floats, count: int | None = None) -> Nodes:
    """Of the first `count` units of a table, or of all, padding included."""
    stop = table.capacity if count is None else count
    size = min(PART_UNITS, table.capacity, max(1, PART_ROWS // jax.tree.leaves(table.rows["rows"])[0].shape[1]))
    parts = []
    with jax.enable_x64(True):
        for first in range(0, stop, size):
            start = min(first, table.capacity - size)
            found = compiled(_nodes)((target, size), table.rows, np.int32(start), np.asarray(vector))
            parts.append([np.asarray(part)[first - start :] for part in found])
            count_rows(size)
    return Nodes(*(np.concatenate(part)[:stop] for part in zip(*parts, strict=True)))


def require_nodes(nodes: Nodes) -> None:
    """Refuse a point at which a group has none."""
    if not nodes.are_finite:
        lost = int(np.sum(~np.isfinite(nodes.root).all(axis=(-2, -1))))
        raise NoConvergenceError(
            explain(
                "the log likelihood of every group to be finite near the mode of its effect",
                f"{lost:,} groups where it is not, at the start values",
                "log_likelihood(theta, b, row) by hand on a row of each group, and start values inside its domain",
            )
        )


def with_nodes(table: Table, nodes: Nodes) -> Any:
    """The rows of a table with these nodes, in the type they are kept in."""
    rows = dict(table.rows)
    with jax.enable_x64(True):
        for name in ("centre", "slope", "root"):
            whole = np.array(rows[name])
            whole[: len(nodes.centre)] = getattr(nodes, name)
            rows[name] = jax.device_put(whole)
    return rows


def _nodes(static: tuple[Target, int], rows: Any, start: jax.Array, vector: jax.Array) -> Nodes:
    target, size = static
    part = in_float64(jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size), rows))
    return jax.vmap(lambda unit: _of_unit(target, vector, unit))(part)


def _of_unit(target: Target, vector: jax.Array, unit: Any) -> Nodes:
    """Of a unit, and of a bundle group by group, on a leading axis."""
    if is_bundle(unit):
        return _of_groups(target, vector, unit)
    alone = _of_groups(target, vector, unit)
    return Nodes(*(each[0] for each in alone))


def _of_groups(target: Target, vector: jax.Array, unit: Any) -> Nodes:
    """Of the J groups of a unit, side by side: what one of them adds hangs on no other's effect."""
    assert target.integrated is not None
    assert target.integrated.joint is not None
    joint, reads, size = target.integrated.joint.call, target.integrated.reads, target.integrated.size
    if reads is not None:
        vector = reads.near(vector, unit)
    several = is_bundle(unit)

    def values(b: jax.Array) -> jax.Array:
        return joint(vector, b, unit) if several else joint(vector, b[0], unit)[None]

    def slopes(u: jax.Array, b: jax.Array) -> jax.Array:
        return jax.grad(lambda each: jnp.sum(joint(u, each if several else each[0], unit)))(b)

    def look(b: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Steps, their lengths in sds, and H^-1."""
        gradient = slopes(vector, b)
        directions = jnp.broadcast_to(jnp.eye(size, dtype=b.dtype)[:, None, :], (size, *b.shape))
        bends = jax.vmap(lambda each: jax.jvp(lambda at: slopes(vector, at), (b,), (each,))[1])(directions)
        return jax.vmap(_newton)(gradient, -jnp.moveaxis(bends, 0, 2))

    def improve(state: Any) -> Any:
        b, here, step, _, taken = state
        moves = jnp.asarray(FRACTIONS, b.dtype)[:, None, None] * step
        there = jax.vmap(lambda move: values(b + move))(moves)
        there = jnp.where(jnp.isnan(there), -jnp.inf, there)
        best = jnp.argmax(there, axis=0)[None]
        value = jnp.take_along_axis(there, best, axis=0)[0]
        rises = value > here
        b = jnp.where(rises[:, None], b + jnp.take_along_axis(moves, best[:, :, None], axis=0)[0], b)
        step, left, _ = look(b)
        return b, values(b), step, jnp.where(rises, left, 0.0), taken + 1

    def goes_on(state: Any) -> jax.Array:
        _, _, _, left, taken = state
        return jnp.any(left > CLOSE) & (taken < MOST_STEPS)

    start = jnp.reshape(unit["centre"] + unit["slope"] @ vector, (-1, size))
    step, left, _ = look(start)
    first = (start, values(start), step, left, jnp.int32(0))
    b = jax.lax.while_loop(goes_on, improve, first)[0]
    _, left, covariance = look(b)
    # Of one group by its few effects, of many by theta's numbers, of which there are fewer then.
    derivative = jax.jacfwd if several else jax.jacrev
    slope = covariance @ derivative(lambda u: slopes(u, b))(vector)
    return Nodes(b - slope @ vector, slope, jax.vmap(cholesky)(covariance), left)


def _newton(gradient: jax.Array, curvature: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The step, its length in sds, and H^-1."""
    if len(gradient) == 1:
        width = jnp.maximum(jnp.abs(curvature), LEAST_CURVATURE)
        return gradient / width[0], jnp.abs(gradient[0]) / jnp.sqrt(width[0, 0]), 1 / width
    values, vectors = jnp.linalg.eigh(curvature)
    turned = jnp.maximum(jnp.abs(values), LEAST_CURVATURE)
    slope = vectors.T @ gradient
    return vectors @ (slope / turned), jnp.sqrt(jnp.sum(slope**2 / turned)), (vectors / turned) @ vectors.T
