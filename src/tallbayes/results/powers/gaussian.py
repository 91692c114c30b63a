"""Covariances under the Gaussian: in closed form to second order, and by draws beyond it.

    g - mu ~ gamma + a . v,   l - lambda ~ q + b . v + v . B v / 2,   v ~ N(0, S)
    E (g - mu)(l - lambda)   = gamma (q + tr BS / 2) + a S b
    E (g - mu)^2(l - lambda) = (gamma^2 + |a|^2)(q + tr BS / 2) + 2 gamma a S b + a S B S a,   |a|^2 = a S a

Exact where g is linear and l quadratic, as of coefficients and Gaussian priors; what is beyond is a mean over pairs of
draws, and nothing there but rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from tallbayes.moments import Floats
from tallbayes.posterior.expectations import Integrand
from tallbayes.posterior.posterior import Posterior

PAIRS = 1024


class Moved(NamedTuple):
    """Products of one log density with what is reported: E of G = g - mu, Q = G^2, L = l - lambda, G L and Q L.

    Arrays along components of what is reported, but for L, which is one number.
    """

    g: Any
    q: Any
    l: Any
    gl: Any
    ql: Any


def products(g: Floats, density: Floats) -> Moved:
    """Of values (..., m) and of one density (...)."""
    square, own = g**2, density[..., None]
    return Moved(g, square, own, g * own, square * own)


@dataclass(frozen=True, eq=False)
class SecondOrder:
    """Values at the centre, slopes along W's columns (d, n), bends by what is reported (m, n), and traces (n,)."""

    value: Floats
    slopes: Floats
    bends: Floats
    traces: Floats

    def products(self, first: int, place: int, centres: Floats) -> Moved:
        """Expectations of the expansions, of the density at a place."""
        gamma, a = self.value[:first] - centres[:first], self.slopes[:, :first]
        level = self.value[place] - centres[place] + self.traces[place] / 2
        square, across = np.sum(a**2, axis=0), a.T @ self.slopes[:, place]
        cubic = 2 * gamma * across + self.bends[:, place]
        q = gamma**2 + square
        return Moved(gamma, q, np.array([level]), gamma * level + across, q * level + cubic)


@dataclass(frozen=True, eq=False)
class GaussianPart:
    """The expansion, and pairs of draws: values (pairs, 2, n) and the same of the expansion."""

    order: SecondOrder
    values: Floats
    expanded: Floats

    def products(self, first: int, place: int, centres: Floats) -> tuple[Moved, Moved]:
        """Expectations of the expansions, and what each pair of draws finds beyond them."""
        exact = self.order.products(first, place, centres)
        # Of g the expansion stops at its slope.
        there, here = (
            products(each[..., :first] - centres[:first], each[..., place] - centres[place])
            for each in (self.values, self.expanded)
        )
        return exact, Moved(*((a - b).mean(axis=1) for a, b in zip(there, here, strict=True)))


def gaussian_part(integrand: Integrand, posterior: Posterior, first: int) -> GaussianPart:
    """About the anchor's centre."""
    anchor = posterior.anchor
    columns = anchor.displacements(np.eye(len(anchor.mode)))
    value, slopes, own_bends = _along(integrand, anchor.mode, columns)
    # S a of what is reported: W W^T a.
    _, _, bends = _along(integrand, anchor.mode, slopes[:, :first].T @ columns)
    order = SecondOrder(value, slopes, bends, own_bends.sum(axis=0))
    moves = anchor.draws(PAIRS, posterior.seed)
    _, rises, curves = _along(integrand, anchor.mode, moves)
    curves[:, :first] = 0.0
    expanded = np.stack([value + sign * rises + curves / 2 for sign in (1, -1)], axis=1)
    pairs = np.stack([moves, -moves], axis=1)
    nowhere = np.zeros((len(pairs), 1, len(anchor.mode)))
    return GaussianPart(order, integrand.values(anchor.mode, nowhere, pairs)[:, :, 0], expanded)


def _along(integrand: Integrand, centre: Floats, directions: Floats) -> tuple[Floats, Floats, Floats]:
    """Values at the centre, and first and second derivatives along directions (k, d): (n,), (k, n), (k, n)."""
    with jax.enable_x64(True):
        return tuple(np.array(each) for each in _derivatives(integrand.reader, centre, directions, integrand.units))  # type: ignore[return-value]


@partial(jax.jit, static_argnums=0)
def _derivatives(reader: Any, centre: jax.Array, directions: jax.Array, units: Any) -> Any:
    def at(vector: jax.Array) -> jax.Array:
        return jax.numpy.asarray(reader.reported(vector, units))

    def along(direction: jax.Array) -> Any:
        return jax.jvp(lambda vector: jax.jvp(at, (vector,), (direction,))[1], (centre,), (direction,))

    slopes, bends = jax.lax.map(along, directions)
    return at(centre), slopes, bends
