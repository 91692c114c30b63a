"""Dynamics: one step S_{h, tau, xi} of the discretised Langevin equation, with its noise as an argument.

Euler   theta' = theta + h grad + sqrt(2h) xi,   coarse noise (xi_1 + xi_2) / sqrt(2)
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np


@dataclass(frozen=True)
class Euler:
    """Euler and Maruyama's explicit step; stable for h < 2 / lambda_max, best below a quarter of that."""

    def coefficients(self, step: float) -> np.ndarray:
        return np.array([step, np.sqrt(2 * step)])

    def step(self, coefficients: jax.Array, state: jax.Array, gradient: jax.Array, noise: jax.Array) -> jax.Array:
        drift, diffusion = coefficients
        return state + drift * gradient + diffusion * noise

    def merge_noise(self, coefficients: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
        return (first + second) * first.dtype.type(np.sqrt(0.5))
