"""The control of second order: what the remainder does to a path in first order, carried beside it and taken off.

    y' = e^-h y + (1 - e^-h) r_hat(u),   y_0 = 0,   on the batch of the step, u the Gaussian path on its noise

z - u is y but for terms of second order in r. And u knows nothing of batches, so that after a time T in steps of h

    E y = (1 - e^-T) E r(u),   E y u^T = e^-h (1 - e^-2T) / (1 + e^-h) K,   K = E grad r(u)

exactly, minibatches or not. Of thousands of parameters K is not known, and the means alone are controlled, which
need none. An observable's share of it is that of its quadratic at the centre,

    C(u, y) = D g [W y] + D^2 g [W u, W y]
    E C = (1 - e^-T) D g [W E r] + e^-h (1 - e^-2T) / (1 + e^-h) tr(W^T D^2 g W K)

Level 0 samples g(z) - g(u) - C(u, y), level l >= 1 Delta_l - C(u, y_f - (y+ + y-) / 2), with y+ and y- begun at 0 where
the coarse paths begin; the means are added in float64. So E r(u) and K must be known exactly: `Anchor.mean_remainder`.
The step may hold a large r_hat back, y never does: its mean would be another. Where third derivatives T are known, y
follows W^T T(W u, W u) / 2 in place of r_hat(u): what is of second order in the remainder of all rows, without a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.estimator.ladder import Ladder
from tallbayes.model.model import Target
from tallbayes.model.observables import Observables
from tallbayes.moments import Floats
from tallbayes.programs.later import jax, jitted, jnp
from tallbayes.sampler.dynamics import Exponential, approach, position
from tallbayes.sampler.gradients import whitened_remainder
from tallbayes.sampler.inputs import Inputs
from tallbayes.sampler.roles import Dynamics, GradientEstimator

DRAWS = 256
# Of the mean square of a slope: what the slope of the quadratic may leave.
LEFT = 0.5


@dataclass(frozen=True, eq=False)
class Control:
    """By observable: whether it is controlled, and D g [W E r] and tr(W^T D^2 g W K), which its mean is made of by what
    the dynamics makes of either."""

    used: np.ndarray
    shift: Floats
    bend: Floats
    dynamics: Any

    def mean(self, ladder: Ladder, level: int) -> Floats:
        """Of what is taken off a sample of a level."""
        fine = self._mean(ladder, level)
        return fine if level == 0 else fine - self._mean(ladder, level - 1)

    def _mean(self, ladder: Ladder, level: int) -> Floats:
        """E C over the window of a path of the level, or at its end."""
        h, steps = ladder.step(level), ladder.steps(level)
        ends = np.arange(steps - max(ladder.window(level), 1) + 1, steps + 1)
        first, second = self.dynamics.response(h, ends)
        return first * self.shift + second * self.bend


def make_control(
    target: Target, observables: Observables, anchor: Anchor, units: Any = None, dynamics: Any = None
) -> Control:
    """The means of the control at an anchor that knows its averages.

    An observable is left alone where its quadratic is no guide: where that is not finite, or where at Gaussian draws
    its slope leaves more than half of the mean square of the observable's own.
    """
    shift, bend = anchor.mean_remainder
    if bend is None:
        return _of_means(target, observables, anchor, units, shift, dynamics)
    sizes, lines = np.linalg.eigh(bend)
    rng = np.random.default_rng(0)
    points, directions = rng.standard_normal((2, DRAWS, len(shift)))
    with jax.enable_x64(True), np.errstate(all="ignore"):
        read = partial(slopes_along, target, observables, anchor.mode, units)
        slope = np.asarray(read(np.zeros((1, len(shift))), anchor.displacements(shift[None])))[0]
        ends = anchor.displacements(lines.T)
        curved = np.asarray(bends_along(target, observables, anchor.mode, units, ends, ends))
        moves = anchor.displacements(points), anchor.displacements(directions)
        there = np.asarray(read(*moves))
        origin = np.asarray(read(np.zeros_like(points), moves[1]))
        left = there - origin - np.asarray(bends_along(target, observables, anchor.mode, units, *moves))
        guided = np.mean(left**2, axis=0) <= LEFT * np.mean(there**2, axis=0)
        total = sizes @ curved
    used = np.isfinite(slope) & np.isfinite(total) & guided
    return Control(used, np.where(used, slope, 0.0), np.where(used, total, 0.0), dynamics or Exponential())


def _of_means(
    target: Target, observables: Observables, anchor: Anchor, units: Any, shift: Floats, dynamics: Any
) -> Control:
    """Of the means alone, which are linear."""
    with jax.enable_x64(True):
        nowhere, along = np.zeros((1, len(shift))), anchor.displacements(shift[None])
        slope = np.asarray(slopes_along(target, observables, anchor.mode, units, nowhere, along))[0]
    used = np.arange(len(slope)) < (target.structure.size if observables.moments and target.reports_linearly else 0)
    return Control(used, np.where(used, slope, 0.0), np.zeros(len(slope)), dynamics or Exponential())


@jitted(static_argnums=(0, 1))
def slopes_along(target: Target, observables: Observables, mode: Any, units: Any, points: Any, moves: Any) -> jax.Array:
    """D g at each point along its own direction."""
    values = partial(observables.values, target, mode, units=units)
    return jax.lax.map(lambda pair: jax.jvp(values, (pair[0],), (pair[1],))[1], (points, moves), batch_size=32)


@jitted(static_argnums=(0, 1))
def bends_along(target: Target, observables: Observables, mode: Any, units: Any, first: Any, second: Any) -> jax.Array:
    """D^2 g at the centre, along pairs of directions."""
    values = partial(observables.values, target, mode, units=units)
    return jax.lax.map(lambda pair: second_order(values, *pair)[1], (first, second), batch_size=32)


def second_order(values: Callable[[jax.Array], jax.Array], u: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """D g [y] and D^2 g [u, y] at no displacement."""

    def along(point: jax.Array) -> jax.Array:
        return jax.jvp(values, (point,), (y,))[1]

    return jax.jvp(along, (jnp.zeros_like(u),), (u,))


def follows(dynamics: Dynamics) -> bool:
    """Whether the dynamics knows the step of y, and its means."""
    return hasattr(dynamics, "follow") and hasattr(dynamics, "response")


def make_paired_step(
    target: Target, gradient: GradientEstimator, dynamics: Any, inputs: Inputs
) -> Callable[..., tuple[jax.Array, jax.Array, jax.Array]]:
    """One step of a path and of its y, at z and at u on the same batch, whose rows are read once; or with y by third
    derivatives, where these are known."""

    def step(coefficients: Any, state: Any, u: Any, y: Any, noise: Any, batch: Any) -> Any:
        def remainder(point: jax.Array) -> jax.Array:
            return whitened_remainder(target, gradient, inputs, point, batch)

        begun, there = (approach(dynamics, coefficients, each, noise) for each in (state, u))
        points = [position(dynamics, each) for each in (begun, there)]
        if inputs.centre.third is None:
            here, beside = jax.vmap(remainder)(jnp.stack(points))
        else:
            here, beside = remainder(points[0]), inputs.centre.whitened_twist(points[1])
        strained = dynamics.strain(coefficients, here) > 1
        moved = dynamics.step(coefficients, begun, here, noise)
        return moved, strained.astype(state.dtype), dynamics.follow(coefficients, y, beside)

    return jax.jit(step)
