"""States: what a dynamics moves and what noise it takes, each in vectors as long as theta.

    Euler, Exponential   a position,                 one noise a step, which moves the end of the step alone
    Kinetic              a position and a velocity,  four noises a step, the third of which is the last to move it

A state of several vectors is one long one, the position first; so is the noise of a step. A dynamics that says nothing
of this moves a position by one noise, and its gradient is read where a step begins. One that does is `roles.Inertial`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.sampler.roles import Dynamics


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
