"""The Laplace level: expectations under N(theta_0, H^-1), which cost no data.

    E g = g(theta_0) + 1/2 tr(grad^2 g H^-1) + E[g - q],   q the quadratic Taylor polynomial of g at theta_0

The last term is a mean over Gaussian draws. It is zero for linear and quadratic g, and for smooth g its variance is
smaller than that of g by orders of magnitude; where it is not (a jump, a kink), g is averaged as it is. The moments of
theta - theta_0 itself are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.estimator.allocation import unseen_jumps
from tallbayes.gaussian.arrowhead import Arrowhead, ArrowWhitening
from tallbayes.model.model import Target
from tallbayes.model.observables import Observables
from tallbayes.moments import Floats, Moments
from tallbayes.programs.later import jax, jitted, jnp
from tallbayes.watch import look

BLOCK_DRAWS = 4096
# Of very many parameters.
FEW_DRAWS, FEW_COLUMNS, MOST_COLUMNS = 256, 256, 2_000
ALONE = 1e-12
PILOT_BLOCK = 2**31


@dataclass(frozen=True, eq=False)
class Laplace:
    """E_Laplace of every observable: exact parts, and the moments of what is averaged over draws."""

    target: Target
    observables: Observables
    anchor: Anchor
    units: Any
    exact: Floats
    controlled: np.ndarray
    sampled: Moments | None
    jump: Floats
    seed: int

    @property
    def block_draws(self) -> int:
        return FEW_DRAWS if _is_large(self.anchor) else BLOCK_DRAWS

    @property
    def draws(self) -> int:
        return 0 if self.sampled is None else self.sampled.count

    @cached_property
    def mean(self) -> Floats:
        return self.exact if self.sampled is None else self.exact + self.sampled.mean

    @cached_property
    def variance(self) -> Floats:
        """Of one draw; zero where the expectation is exact, and not where a jump was merely never seen."""
        if self.sampled is None:
            return np.zeros_like(self.exact)
        return unseen_jumps(self.sampled.variance, self.jump, self.draws)

    @property
    def covariance(self) -> Floats:
        """Of one draw, between every parameter and its square."""
        return np.zeros(len(moment_pairs(self))) if self.sampled is None else self.sampled.covariance

    @property
    def kurtosis(self) -> Floats:
        return np.full_like(self.exact, 3.0) if self.sampled is None else self.sampled.kurtosis

    def extended(self, draws: float) -> Laplace:
        """At least so many draws, in whole blocks; a block depends on the seed and on its number alone."""
        if self.sampled is None:
            return self
        sampled = self.sampled
        while sampled.count < draws:
            look()
            sampled = sampled.merge(_block(self, sampled.count // self.block_draws))
        return replace(self, sampled=sampled)


def laplace_level(
    target: Target, observables: Observables, anchor: Anchor, jump: Floats, seed: int, units: Any = None
) -> Laplace:
    """The exact parts, which control each observable is averaged with, and a first block of draws."""
    d = _exact_moments(target, observables)
    moments = [np.zeros(d), reported_sd(target, anchor, units) ** 2] if d else []
    if d and not observables.functions:
        exact = np.concatenate(moments)
        return Laplace(target, observables, anchor, units, exact, np.ones(exact.shape, bool), None, jump, seed)
    with jax.enable_x64(True):
        origin = np.asarray(observed_values(target, observables, anchor.mode, np.zeros((1, target.dimension)), units))[
            0
        ]
        bend = _curvature_trace(target, observables, anchor, units)
    nothing = np.zeros_like(origin), np.zeros(origin.shape, bool), None
    plain = Laplace(target, observables, anchor, units, *nothing, jump, seed)
    control = replace(plain, exact=origin + bend, controlled=np.isfinite(bend))
    helps = _block(control, PILOT_BLOCK).variance <= _block(plain, PILOT_BLOCK).variance
    controlled = helps & control.controlled
    exact = np.where(controlled, origin + bend, 0.0)
    exact[: 2 * d], controlled[: 2 * d] = np.concatenate([*moments, []]), True
    level = replace(plain, exact=exact, controlled=controlled)
    return replace(level, sampled=_block(level, 0))


def _block(level: Laplace, number: int) -> Moments:
    """Moments of g, or of g - q, over one block of draws."""
    look()
    key = np.random.SeedSequence([level.seed, number])
    z = np.random.default_rng(key).standard_normal((level.block_draws, level.target.dimension))
    draws = level.anchor.displacements(z)
    arguments = level.target, level.observables, level.anchor.mode, draws, level.units
    with jax.enable_x64(True):
        values = np.array(observed_values(*arguments), np.float64)
        if level.controlled.any():
            polynomial = np.asarray(_quadratic(*arguments), np.float64)
            values = np.where(level.controlled, values - polynomial, values)
    values[:, : 2 * _exact_moments(level.target, level.observables)] = 0.0
    return Moments.of(values, moment_pairs(level))


def moment_pairs(level: Laplace) -> tuple[tuple[int, int], ...]:
    """Where a parameter and its square stand among the observables."""
    d = level.target.structure.size if level.observables.moments else 0
    return tuple((j, d + j) for j in range(d))


def _exact_moments(target: Target, observables: Observables) -> int:
    """How many parameters have moments that are known without draws: all of them where they are linear in u."""
    return target.structure.size if observables.moments and target.reports_linearly else 0


def reported_sd(target: Target, anchor: Anchor, units: Any) -> Floats:
    """Sd of parameters that are linear in u: the root of the squared moves along the columns of W."""
    if target.reports_itself:
        return anchor.sd
    with jax.enable_x64(True):
        if isinstance(anchor.whitener, ArrowWhitening):
            return _sd_by_arms(target, anchor.mode, anchor.whitener, units)
        square: Any = 0.0
        for columns in _columns(anchor):
            square = square + np.asarray(_moves_squared(target, anchor.mode, columns, units), np.float64)
        return np.asarray(np.sqrt(square))


def _is_large(anchor: Anchor) -> bool:
    """Whether there are thousands of parameters."""
    return anchor.is_large or isinstance(anchor.precision, Arrowhead) or len(anchor.mode) > MOST_COLUMNS


def _columns(anchor: Anchor) -> Iterator[Floats]:
    """The columns of W, all at once where they are few; never a matrix of what is none."""
    d = len(anchor.mode)
    if not _is_large(anchor):
        yield np.diag(anchor.whitening) if anchor.is_diagonal else anchor.whitening.T
        return
    for first in range(0, d, FEW_COLUMNS):
        look()
        if isinstance(anchor.precision, np.ndarray) and not anchor.is_diagonal:
            yield anchor.whitening[:, first : first + FEW_COLUMNS].T
        else:
            yield anchor.displacements(np.eye(min(FEW_COLUMNS, d - first), d, first))


def _sd_by_arms(target: Target, mode: Floats, whitening: ArrowWhitening, units: Any) -> Floats:
    """The same where the columns of W that belong to arms have one number each: J is asked for along those of the
    corner, and of the arms by what is reported of each alone, found by probes. What is reported of several of them is
    asked for its slope."""
    precision = whitening.precision
    (arms, corner), rng = precision.limbs.shape, np.random.default_rng(0)
    ones, places = np.ones(arms), np.arange(1.0, arms + 1)
    asked = [precision.joined(part, np.zeros(corner)) for part in (ones, places, *rng.standard_normal((2, arms)))]
    slope, placed, *seen = np.asarray(_moves(target, mode, np.stack(asked), units), np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        place = np.round(np.nan_to_num(placed / slope, posinf=0.0, neginf=0.0)).astype(int) - 1
    known = (place >= 0) & (place < arms)
    own = np.where(known, place, 0)
    told = [np.where(known, slope * precision.split(probe)[0][own], 0.0) for probe in asked[2:]]
    alone = np.all(
        [np.abs(a - b) <= ALONE * np.abs(b).max(initial=0.0) for a, b in zip(told, seen, strict=True)], axis=0
    )
    square = np.where(alone & known, (slope * whitening.narrow[own]) ** 2, 0.0)
    for output in np.flatnonzero(~alone):
        row = np.asarray(_slope_of(target, mode, np.int32(output), units), np.float64)
        square[output] = np.sum((precision.split(row)[0] * whitening.narrow) ** 2)
    columns = whitening.move(precision.joined(np.zeros((corner, arms)), np.eye(corner)))
    return np.sqrt(square + np.sum(np.asarray(_moves(target, mode, columns, units), np.float64) ** 2, axis=0))


@jitted(static_argnums=0)
def _moves(target: Target, mode: jax.Array, directions: jax.Array, units: Any) -> jax.Array:
    return jax.lax.map(lambda direction: target.moved(mode, direction, units), directions)


@jitted(static_argnums=0)
def _slope_of(target: Target, mode: jax.Array, output: jax.Array, units: Any) -> jax.Array:
    return jax.grad(lambda move: target.moved(mode, move, units)[output])(jnp.zeros_like(mode))


@jitted(static_argnums=0)
def _moves_squared(target: Target, mode: jax.Array, columns: jax.Array, units: Any) -> jax.Array:
    return jnp.sum(jax.vmap(lambda column: target.moved(mode, column, units))(columns) ** 2, axis=0)


def _curvature_trace(target: Target, observables: Observables, anchor: Anchor, units: Any) -> Floats:
    """1/2 tr(grad^2 g H^-1): half the second derivatives along the columns of W, added up."""
    total = np.zeros(())
    for columns in _columns(anchor):
        total = total + _added_up(target, observables, anchor.mode, columns, units)
    return total


def _added_up(target: Target, observables: Observables, mode: Floats, columns: Floats, units: Any) -> Floats:
    return np.asarray(_half_curvatures(target, observables, mode, columns, units), np.float64).sum(axis=0)


@jitted(static_argnums=(0, 1))
def observed_values(
    target: Target, observables: Observables, mode: jax.Array, draws: jax.Array, units: Any
) -> jax.Array:
    return jax.vmap(lambda draw: observables.values(target, mode, draw, units))(draws)


@jitted(static_argnums=(0, 1))
def _half_curvatures(
    target: Target, observables: Observables, mode: jax.Array, directions: jax.Array, units: Any
) -> jax.Array:
    return jax.lax.map(lambda v: _along(target, observables, mode, v, units)[2] / 2, directions, batch_size=32)


@jitted(static_argnums=(0, 1))
def _quadratic(target: Target, observables: Observables, mode: jax.Array, draws: jax.Array, units: Any) -> jax.Array:
    def polynomial(v: jax.Array) -> jax.Array:
        value, slope, bend = _along(target, observables, mode, v, units)
        return slope + bend / 2 + value

    return jax.vmap(polynomial)(draws)


def _along(
    target: Target, observables: Observables, mode: jax.Array, direction: jax.Array, units: Any
) -> tuple[Any, Any, Any]:
    """g and its first two derivatives at theta_0 along a direction."""

    def line(t: jax.Array) -> jax.Array:
        return observables.values(target, mode, t * direction, units)

    def slope(function: Callable[[jax.Array], jax.Array], t: jax.Array) -> jax.Array:
        return jax.jvp(function, (t,), (jnp.ones_like(t),))[1]

    zero = jnp.zeros((), direction.dtype)
    return line(zero), slope(line, zero), slope(partial(slope, line), zero)
