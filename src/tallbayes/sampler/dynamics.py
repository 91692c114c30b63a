"""Dynamics: one step S_{h, tau, xi} of the discretised Langevin equation, with its noise as an argument.

Euler        v' = v + h grad + sqrt(2h) xi,                    coarse noise (xi_1 + xi_2) / sqrt(2)
Exponential  z' = e^-h z + (1 - e^-h) r(z) + s_h xi,           coarse noise (e^-h s_h xi_1 + s_h xi_2) / s_2h,
             s_h = sqrt(1 - e^-2h)

Euler moves the displacement v = theta - theta_0. Exponential moves the whitened z, v = W z with W W^T = H^-1, whose
drift is -z + r(z): the Gaussian part is integrated exactly, so that h is limited by the remainder r alone. The
remainder is tamed, r / sqrt(1 + (h |r| / B)^2) with B = bound sqrt(d): where r grows faster than linearly an explicit
step would rarely, but fatally, overshoot. The tamed step has the same limit, and h |r| > B is rare.

A state is a position, or a position and a velocity (`kinetic`), in one long vector; so is the noise of a step. A
dynamics that says nothing of this moves a position by one noise, and its gradient is read where a step begins; one that
does is `roles.Inertial`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.errors import MethodError, explain
from tallbayes.programs.later import jax, jnp
from tallbayes.sampler.roles import Dynamics


@dataclass(frozen=True)
class Euler:
    """Euler and Maruyama's explicit step; stable for h < 2 / lambda_max, best below a quarter of that.

    >>> import tallbayes as tb
    >>> tb.Multilevel(dynamics=Euler()).dynamics.coefficients(0.5).round(1).tolist()
    [0.5, 1.0]
    """

    whitened = False

    def coefficients(self, step: float) -> np.ndarray:
        return np.array([step, np.sqrt(2 * step)])

    def step(self, coefficients: jax.Array, state: jax.Array, gradient: jax.Array, noise: jax.Array) -> jax.Array:
        drift, diffusion = coefficients
        return state + drift * gradient + diffusion * noise

    def spread(self, coefficients: Any) -> Any:
        return coefficients[1]

    def merge_noise(self, coefficients: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
        return (first + second) * first.dtype.type(np.sqrt(0.5))

    def strain(self, coefficients: jax.Array, gradient: jax.Array) -> jax.Array:
        return jnp.zeros((), gradient.dtype)


@dataclass(frozen=True)
class Exponential:
    """The Gaussian part exactly, the remainder explicitly and tamed; for a Gaussian posterior exact at any h.

    >>> import tallbayes as tb
    >>> tb.Anchored(dynamics=Exponential(bound=4.0)).dynamics.bound
    4.0
    """

    bound: float = 2.0

    whitened = True

    def __post_init__(self) -> None:
        if not self.bound > 0:
            raise MethodError(explain("bound > 0", repr(self.bound), "2.0, or float('inf') for a step without taming"))

    def coefficients(self, step: float) -> np.ndarray:
        spread, double_spread = np.sqrt(-np.expm1(-2 * step)), np.sqrt(-np.expm1(-4 * step))
        decay = np.exp(-step)
        return np.array([decay, -np.expm1(-step), spread, step, decay * spread / double_spread, spread / double_spread])

    def step(self, coefficients: jax.Array, state: jax.Array, remainder: jax.Array, noise: jax.Array) -> jax.Array:
        decay, gain, spread = coefficients[:3]
        strain = self.strain(coefficients, remainder)
        # Beyond 1e6 the two are the same number, and the square would overflow.
        held = jnp.where(strain > 1e6, strain, jnp.sqrt(1 + strain**2))
        return decay * state + gain * (remainder / held) + spread * noise

    def follow(self, coefficients: jax.Array, state: jax.Array, remainder: jax.Array) -> jax.Array:
        """The step without noise, and with all of the remainder: see `control`."""
        return coefficients[0] * state + coefficients[1] * remainder

    def response(self, step: float, ends: np.ndarray) -> tuple[float, float]:
        """By what E r(u) and E grad r(u) are multiplied in E y and E y u^T, on average over paths of so many steps."""
        times = step * ends
        first = float(np.mean(-np.expm1(-times)))
        second = float(np.mean(-np.expm1(-2 * times))) * np.exp(-step) / (1 + np.exp(-step))
        return first, float(second)

    def spread(self, coefficients: Any) -> Any:
        return coefficients[2]

    def merge_noise(self, coefficients: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
        return coefficients[4] * first + coefficients[5] * second

    def strain(self, coefficients: jax.Array, remainder: jax.Array) -> jax.Array:
        """h |r| / B."""
        return strain_of(coefficients[3], remainder, self.bound)


def strain_of(step: Any, remainder: jax.Array, bound: float) -> jax.Array:
    """h |r| / B, B = bound sqrt(d)."""
    largest = jnp.max(jnp.abs(remainder))
    safe = jnp.where(largest > 0, largest, 1)
    length = safe * jnp.sqrt(jnp.sum((remainder / safe) ** 2))
    return step * length / remainder.dtype.type(bound * remainder.size**0.5)


def vectors_of(dynamics: Dynamics) -> int:
    """Of a state."""
    return int(getattr(dynamics, "vectors", 1))


def noises_of(dynamics: Dynamics) -> int:
    """Of the noise of a step."""
    return int(getattr(dynamics, "noises", 1))


def position(dynamics: Dynamics, state: Any) -> Any:
    """The first vector of a state, or of many along the last axis."""
    number = vectors_of(dynamics)
    return state if number == 1 else state[..., : state.shape[-1] // number]


def last_noise(dynamics: Dynamics, noise: Any) -> Any:
    """Of a step's noises the one that `spread` multiplies."""
    number = noises_of(dynamics)
    if number == 1:
        return noise
    length = noise.shape[-1] // number
    first = dynamics.last * length  # type: ignore[attr-defined]
    return noise[..., first : first + length]


def approach(dynamics: Any, coefficients: Any, state: Any, noise: Any) -> Any:
    """The state at which the gradient of a step is read."""
    return dynamics.approach(coefficients, state, noise) if hasattr(dynamics, "approach") else state


def merged_last(dynamics: Dynamics, coefficients: Any) -> Any:
    """How much of the last noise of the second of two steps is in the last noise of the step of twice the size."""
    if noises_of(dynamics) == 1:
        return dynamics.merge_noise(coefficients, np.zeros(()), np.ones(()))
    nothing = np.zeros(noises_of(dynamics))
    alone = np.where(np.arange(len(nothing)) == dynamics.last, 1.0, nothing)  # type: ignore[attr-defined]
    return last_noise(dynamics, dynamics.merge_noise(coefficients, nothing, alone))[0]
