"""Gradient estimators: five ways to estimate grad log pi(theta | X) from n rows, in one equation.

With v = theta - theta_0, G and H_X the gradient and Hessian of the log likelihood at theta_0,

    grad log pi(theta) + b G + c H_X v + (N/n) sum_{i in tau} [grad_i(theta) - b grad_i(theta_0) - c Hess_i v]

is unbiased for every b, c that depend on theta alone. The prior's gradient is exact at every step.

    Full            all rows, b = c = 0
    Plain           b = 0, c = 0
    ControlVariate  b = 1, c = 0
    Taylor          b = 1, c = 1
    Blend           c = w(theta) = 1 / (1 + (|z|^2 / R^2)^2), z whitened; b = 1, or b = w with partner Plain
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tallbayes.errors import MethodError, explain
from tallbayes.minibatch import WithReplacement
from tallbayes.model import TILE_ROWS, Target
from tallbayes.roles import GradientEstimator, Sampling


class Centre(NamedTuple):
    """The point of expansion: theta_0, G(theta_0), H_X(theta_0), and the posterior precision H."""

    mode: jax.Array
    gradient: jax.Array
    hessian: jax.Array
    precision: jax.Array


class CentredRows(NamedTuple):
    """A batch with what it is at the centre, computed once for all paths that share it.

    For a generalised linear model, by row: eta, l'(eta), l''(eta). For any other model, by batch: the
    gradient at theta_0 and the linear map v -> Hess v there.
    """

    rows: Any
    predictor: Any
    slope: Any
    curvature: Any


@dataclass(frozen=True)
class Full:
    """The exact gradient, all N rows every step."""

    batch_size: None = field(default=None, init=False)
    sampling: Sampling = field(default=WithReplacement(), init=False, repr=False)

    def controls(self, centre: Centre, displacement: jax.Array) -> tuple[float, float]:
        return 0.0, 0.0


@dataclass(frozen=True)
class Plain:
    """Minibatch gradient scaled by N/n; its noise swamps coarse levels."""

    batch_size: int
    sampling: Sampling = WithReplacement()

    def __post_init__(self) -> None:
        _require_batch(self.batch_size)

    def controls(self, centre: Centre, displacement: jax.Array) -> tuple[float, float]:
        return 0.0, 0.0


@dataclass(frozen=True)
class ControlVariate:
    """Differences from the gradient at the mode; noise grows like |theta - theta_0|."""

    batch_size: int
    sampling: Sampling = WithReplacement()

    def __post_init__(self) -> None:
        _require_batch(self.batch_size)

    def controls(self, centre: Centre, displacement: jax.Array) -> tuple[float, float]:
        return 1.0, 0.0


@dataclass(frozen=True)
class Taylor:
    """Second-order remainders; noise grows like |theta - theta_0|^2.

    >>> Taylor(batch_size=10)
    Taylor(batch_size=10, sampling=WithReplacement())
    """

    batch_size: int
    sampling: Sampling = WithReplacement()

    def __post_init__(self) -> None:
        _require_batch(self.batch_size)

    def controls(self, centre: Centre, displacement: jax.Array) -> tuple[float, float]:
        return 1.0, 1.0


@dataclass(frozen=True)
class Blend:
    """Taylor near the mode, its partner far out, by a weight continuous in theta.

    `partner` is ControlVariate (quieter) or Plain (the paper's); `radius` is in posterior sds, 2 sqrt(d)
    unless given.
    """

    batch_size: int
    sampling: Sampling = WithReplacement()
    partner: type[Plain] | type[ControlVariate] = ControlVariate
    radius: float | None = None

    def __post_init__(self) -> None:
        _require_batch(self.batch_size)
        if self.partner not in (Plain, ControlVariate):
            raise MethodError(explain("partner Plain or ControlVariate", repr(self.partner), "ControlVariate"))
        if self.radius is not None and not self.radius > 0:
            raise MethodError(explain("radius > 0", repr(self.radius), "None for 2 sqrt(d)"))

    def controls(self, centre: Centre, displacement: jax.Array) -> tuple[Any, jax.Array]:
        radius = 2 * displacement.size**0.5 if self.radius is None else self.radius
        square = displacement @ (centre.precision @ displacement) / radius**2
        weight = 1 / (1 + square * square)
        return (1.0 if self.partner is ControlVariate else weight), weight


def posterior_gradient(
    target: Target,
    estimator: GradientEstimator,
    rows: Any,
    num_rows: jax.Array,
    centre: Centre,
    displacement: jax.Array,
    batch: Any,
) -> jax.Array:
    """The estimate at theta_0 + displacement on a batch from `centre_rows`; Full reads `rows` instead."""
    prior = jax.grad(target.log_prior.call)(centre.mode + displacement)
    if estimator.batch_size is None:
        return prior + _all_rows(target, rows, num_rows, centre, displacement)
    b, c = estimator.controls(centre, displacement)
    scale = num_rows.astype(displacement.dtype) / estimator.batch_size
    noisy = _row_terms(target, centre, displacement, batch, b, c)
    exact = b * centre.gradient + c * (centre.hessian @ displacement)
    return prior + exact + scale * noisy


def centre_rows(target: Target, centre: Centre, rows: Any) -> CentredRows:
    """Expand a batch of rows at the centre; what an estimator does not use costs nothing once compiled."""
    if target.predictor is not None:
        eta = rows["x"] @ centre.mode
        slope_and_curvature = jax.vmap(jax.value_and_grad(jax.grad(target.predictor.call)))
        return CentredRows(rows, eta, *slope_and_curvature(eta, rows))
    gradient = jax.grad(partial(_log_likelihood, target, rows, None))
    return CentredRows(rows, None, *jax.linearize(gradient, centre.mode))


def _row_terms(
    target: Target, centre: Centre, displacement: jax.Array, batch: CentredRows, b: Any, c: Any
) -> jax.Array:
    """sum_i [grad_i(theta) - b grad_i(theta_0) - c Hess_i(theta_0) v] over a batch."""
    rows, eta, slope, curvature = batch
    if target.predictor is not None:
        move = rows["x"] @ displacement
        there = jax.vmap(jax.grad(target.predictor.call))(eta + move, rows)
        return rows["x"].T @ (there - b * slope - c * (curvature * move))
    theta = centre.mode + displacement
    there = jax.grad(partial(_log_likelihood, target, rows, None))(theta)
    return there - b * slope - c * curvature(displacement)


def _all_rows(target: Target, rows: Any, num_rows: jax.Array, centre: Centre, displacement: jax.Array) -> jax.Array:
    """sum_i grad_i(theta) over the whole table, tile by tile."""

    def tile(index: jax.Array, total: jax.Array) -> jax.Array:
        first = index * TILE_ROWS
        part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, TILE_ROWS), rows)
        inside = first + jnp.arange(TILE_ROWS, dtype=jnp.int32) < num_rows
        weights = inside.astype(displacement.dtype)
        if target.predictor is None:
            theta = centre.mode + displacement
            return total + jax.grad(partial(_log_likelihood, target, part, weights))(theta)
        eta = part["x"] @ centre.mode + part["x"] @ displacement
        return total + part["x"].T @ (weights * jax.vmap(jax.grad(target.predictor.call))(eta, part))

    tiles = (num_rows + TILE_ROWS - 1) // TILE_ROWS
    return jax.lax.fori_loop(0, tiles, tile, jnp.zeros_like(displacement))


def _log_likelihood(target: Target, rows: Any, weights: jax.Array | None, theta: jax.Array) -> jax.Array:
    terms = jax.vmap(target.log_likelihood.call, (None, 0))(theta, rows)
    return jnp.sum(terms if weights is None else weights * terms)


def evaluations_per_step(estimator: GradientEstimator, num_rows: int) -> int:
    """Data items one gradient costs."""
    return num_rows if estimator.batch_size is None else estimator.batch_size


def _require_batch(batch_size: Any) -> None:
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise MethodError(explain("batch_size a whole number >= 1", repr(batch_size), "10, or N ** (1 / 3) rounded up"))
