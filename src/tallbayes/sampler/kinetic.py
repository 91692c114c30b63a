"""Kinetic dynamics: positions with a velocity, the Gaussian part exactly, the remainder as a kick half-way (UBU).

    dz = v dt,   dv = -z dt - gamma v dt + r(z) dt + sqrt(2 gamma) dW,   of law exp(-|z|^2 / 2 + rho(z)) N(v; 0, I)

    U:  x' = E(h/2) x + L(h/2) xi,   x = (z, v),   E(t) = exp(t [[0, 1], [-1, -gamma]]),   L L^T = I - E E^T
    B:  v' = v + h r(z) / (1 + (h |r| / B)^4)^(1/4),   B = bound sqrt(d)
    U:  again, on a noise of its own

A Gaussian posterior is exact at any h, a smooth one to h^2 (taming of second order, as of exponential steps, would be
most of the error that is left): beta = 4 and alpha = 2 with exact gradients (UBU is due
to Zapatero, and to Sanz-Serna and Zygalakis). The kick of one step of 2h is where the first of two steps of h ends, so
that each half of the coarse step has the noise of one whole fine step,

    L(h) Xi = E(h/2) L(h/2) xi_1 + L(h/2) xi_2

with L lower triangular: of the two normals of a half step the first moves the position, and in the last half of a step
it moves the coarse path's position as it moves the fine one's. Noise of batches moves the velocity, so that the
position feels its integral: half of what it leaves with exponential steps of the same h, at gamma = 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.errors import MethodError, explain
from tallbayes.estimator.ladder import Motion
from tallbayes.moments import Floats
from tallbayes.programs.later import jax, jnp
from tallbayes.sampler.dynamics import strain_of

NODES = 48


@dataclass(frozen=True)
class Kinetic:
    """Underdamped Langevin dynamics in whitened units; a friction of 2 is critical for the Gaussian.

    >>> import tallbayes as tb
    >>> method = tb.Anchored(dynamics=Kinetic())
    """

    friction: float = 2.0
    bound: float = 2.0

    whitened = True
    vectors = 2
    noises = 4
    last = 2

    def __post_init__(self) -> None:
        if not 0 < self.friction < np.inf:
            raise MethodError(explain("friction > 0", repr(self.friction), "2.0, which is critical"))
        if not self.bound > 0:
            raise MethodError(explain("bound > 0", repr(self.bound), "2.0, or float('inf') for a step without taming"))

    def flow(self, time: Any) -> Floats:
        """E(t), (..., 2, 2)."""
        time = np.asarray(time, np.float64)
        drag, turn = self.friction / 2, np.sqrt(complex(1 - self.friction**2 / 4))
        angle = turn * time
        # Of no angle sin(a) / a is 1; and critical friction has none.
        sine = time * np.where(angle == 0, 1.0, np.sin(angle) / np.where(angle == 0, 1.0, angle)).real
        cosine, decay = np.cos(angle).real, np.exp(-drag * time)
        rows = [[cosine + drag * sine, sine], [-sine, cosine - drag * sine]]
        return np.moveaxis(decay * np.array(rows), (0, 1), (-2, -1))

    def noise_root(self, time: float) -> Floats:
        """L(t), lower triangular; the covariance by quadrature of what has no sign, so that a short time loses no
        digits."""
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        kicked = self.flow(time * (nodes + 1) / 2)[:, :, 1]
        covariance = 2 * self.friction * np.einsum("k,ki,kj->ij", weights * time / 2, kicked, kicked)
        first = np.sqrt(covariance[0, 0])
        across = covariance[0, 1] / first
        return np.array([[first, 0.0], [across, np.sqrt(covariance[1, 1] - across**2)]])

    def coefficients(self, step: float) -> np.ndarray:
        half, flow, root = step / 2, self.flow(step / 2), self.noise_root(step / 2)
        whole = np.linalg.inv(self.noise_root(2 * half))
        earlier, later = whole @ flow @ root, whole @ root
        return np.concatenate([flow.ravel(), root[np.tril_indices(2)], earlier.ravel(), later.ravel(), [step]])

    def approach(self, coefficients: jax.Array, state: jax.Array, noise: jax.Array) -> jax.Array:
        """U: half-way, where the kick is."""
        return self._flowed(coefficients, state, noise.reshape(4, -1)[:2])

    def step(self, coefficients: jax.Array, state: jax.Array, remainder: jax.Array, noise: jax.Array) -> jax.Array:
        """B and U, from half-way on."""
        strain = self.strain(coefficients, remainder)
        # Beyond 1e6 the two are the same number, and the fourth power would overflow.
        held = jnp.where(strain > 1e6, strain, jnp.sqrt(jnp.sqrt(1 + strain**4)))
        kicked = self._kicked(coefficients, state, remainder / held)
        return self._flowed(coefficients, kicked, noise.reshape(4, -1)[2:])

    def follow(self, coefficients: jax.Array, state: jax.Array, remainder: jax.Array) -> jax.Array:
        """The whole step without noise, and with all of the remainder: see `control`."""
        half_way = self._flowed(coefficients, state, None)
        return self._flowed(coefficients, self._kicked(coefficients, half_way, remainder), None)

    def response(self, step: float, ends: np.ndarray) -> tuple[float, float]:
        """By what E r(u) and E grad r(u) are multiplied in E y and E y u^T, on average over paths of so many steps.

        A kick that is s old has moved the position by h E_zv(s), and u remembers E_zz(s) of where it was.
        """
        flow = self.flow(step * (np.arange(int(np.max(ends))) + 0.5))
        sums = [np.cumsum(step * flow[:, 0, 1]), np.cumsum(step * flow[:, 0, 1] * flow[:, 0, 0])]
        first, second = (float(np.mean(each[np.asarray(ends, int) - 1])) for each in sums)
        return first, second

    def spread(self, coefficients: Any) -> Any:
        return coefficients[4]

    def merge_noise(self, coefficients: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
        """Each half of the coarse step is one fine step."""
        # Of NumPy's arrays as of JAX's: nobody compiles anything to ask whether the last noise is shared.
        halves = *self._merged(coefficients, first), *self._merged(coefficients, second)
        return first.__array_namespace__().concat(halves)

    def strain(self, coefficients: jax.Array, remainder: jax.Array) -> jax.Array:
        """h |r| / B."""
        return strain_of(coefficients[15], remainder, self.bound)

    @property
    def motion(self) -> Motion:
        return Motion(weak_order=2.0, variance_rate=4.0, length=1.2, memory=1.25, kicked=self.kicked)

    def kicked(self, step: float) -> float:
        """The variance of a position that is kicked by h times a noise of variance 1 at every step."""
        ages = step * (np.arange(np.ceil(80.0 / step)) + 0.5)
        return float(np.sum((step * self.flow(ages)[:, 0, 1]) ** 2))

    def _flowed(self, coefficients: Any, state: jax.Array, noise: jax.Array | None) -> jax.Array:
        z, v = state.reshape(2, -1)
        parts = [coefficients[0] * z + coefficients[1] * v, coefficients[2] * z + coefficients[3] * v]
        if noise is not None:
            parts[0] += coefficients[4] * noise[0]
            parts[1] += coefficients[5] * noise[0] + coefficients[6] * noise[1]
        return jnp.concatenate(parts)

    def _kicked(self, coefficients: Any, state: jax.Array, remainder: jax.Array) -> jax.Array:
        z, v = state.reshape(2, -1)
        return jnp.concatenate([z, v + coefficients[15] * remainder])

    def _merged(self, coefficients: Any, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
        a, b, c, d = noise.reshape(4, -1)
        position = coefficients[7] * a + coefficients[8] * b + coefficients[11] * c
        velocity = coefficients[9] * a + coefficients[10] * b + coefficients[13] * c + coefficients[14] * d
        return position, velocity
