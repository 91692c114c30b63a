"""Derivatives of a unit in what it reads, row by row.

    F(x) = phi(g, f, s),   s = sum_i r_i(g, o_i, f),   f = c + B x

x is what a unit reads of u: g, which all of its rows share, and the effects o_i of the levels of each. r_i are a row's
log densities at the nodes about f (or e^2 and z e, of normal noise), and phi is the logarithm of their integral. With
y = (x, f), J = ds/dy and all of r_i's derivatives in the few numbers that a row reads,

    F_y = phi_y + J^T phi_s,     F_yy = phi_yy + phi_ys J + J^T phi_sy + J^T phi_ss J + sum_i (phi_s . r_i)_yy

A unit of n rows that reads m numbers takes n small matrices and one product of rank k: not m times its gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.programs.later import jax, jnp


def derivatives_of(integral: Any, near: Any, unit: Any) -> tuple[Any, Any, Any]:
    """log p_g of what the unit reads, its gradient and its Hessian."""
    reads, count = integral.reads, len(near)
    shared, _ = reads.split(unit)
    slope = unit["slope"] if "slope" in unit else jnp.zeros((0, count), near.dtype)
    free = unit["centre"] + slope @ near if "slope" in unit else jnp.zeros(0, near.dtype)
    own = jax.vmap(lambda row: reads.places_of_row(row, unit))(unit["rows"])
    inside = (jnp.arange(len(own), dtype=jnp.int32) < unit["count"]).astype(near.dtype)
    wide, g, k = own.shape[1], len(shared), len(free)

    def row_parts(y: Any, row: Any) -> Any:
        theta, alone = reads.theta_of_row(y[:g], y[g : g + wide], row)
        return integral.row_parts(theta, y[g + wide :], alone, unit)

    def whole(y: Any, sums: Any) -> Any:
        # What is of no row hangs on no effect.
        nothing = jnp.zeros_like(near).at[shared].set(y[:g])
        return integral.whole(reads.theta(nothing, unit), y[g:], sums, unit)

    start = near[shared]
    rows_at = jax.vmap(lambda o: jnp.concatenate([start, o, free]))(near[own])
    sums = inside @ jax.vmap(row_parts)(rows_at, unit["rows"])
    at = jnp.concatenate([start, free])
    value, (slope_y, slope_s) = jax.value_and_grad(whole, (0, 1))(at, sums)
    (bend_yy, bend_ys), (_, bend_ss) = jax.hessian(whole, (0, 1))(at, sums)

    def weighted(y: Any, row: Any) -> Any:
        return slope_s @ row_parts(y, row)

    jacobians = jax.vmap(jax.jacfwd(row_parts))(rows_at, unit["rows"]) * inside[:, None, None]
    bends = jax.vmap(jax.hessian(weighted))(rows_at, unit["rows"]) * inside[:, None, None]
    # Among (x, f): what all rows share is added up, and the rest put in its place.
    few = jnp.concatenate([shared, count + jnp.arange(k, dtype=shared.dtype)])
    alike, apart = np.r_[:g, g + wide : g + wide + k], np.r_[g : g + wide]
    jacobian = jnp.zeros((len(sums), count + k), near.dtype).at[:, few].set(jnp.sum(jacobians[:, :, alike], axis=0))
    jacobian = jacobian.at[:, own].add(jnp.moveaxis(jacobians[:, :, apart], 0, 1))
    gradient = (slope_s @ jacobian).at[few].add(slope_y)
    cross = jnp.zeros((count + k, len(sums)), near.dtype).at[few].add(bend_ys) @ jacobian
    hessian = jacobian.T @ bend_ss @ jacobian + cross + cross.T
    hessian = hessian.at[few[:, None], few[None, :]].add(bend_yy + jnp.sum(bends[:, alike][:, :, alike], axis=0))
    beside = jnp.zeros((count + k, len(few)), near.dtype).at[own].add(bends[:, apart][:, :, alike])
    hessian = hessian.at[:, few].add(beside).at[few].add(beside.T)
    hessian = hessian.at[own[:, :, None], own[:, None, :]].add(bends[:, apart][:, :, apart])
    # f follows x.
    edge = hessian[:count, count:] @ slope
    inner = hessian[:count, :count] + edge + edge.T + slope.T @ hessian[count:, count:] @ slope
    return value, gradient[:count] + slope.T @ gradient[count:], inner
