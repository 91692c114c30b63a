"""Effects of groups, drawn given the parameters: one of every group for every draw of theta.

In closed form (normal noise) exactly, from N(A^-1 h, A^-1). Else by independence Metropolis, a short chain of its own
for every effect, whose proposals are Student's t about the mean m and covariance V that the group's nodes say:

    b' = m + 1.1 V^(1/2) t_nu,   w = p(b', rows of the group | theta) / q(b'),   taken where U < w(b') / w(b)

A chain that begins at a proposal has, after k steps, the law of the effect but for (1 - 1 / M)^k in total variation, M
the largest weight in units of their mean: that, by the weights of each chain, is measured and handed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tallbayes.estimator.levels import Stream
from tallbayes.groups.known import KnownGroups
from tallbayes.model.groups.linear import LinearIntegral
from tallbayes.model.space import Space
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jnp

STEPS, FREEDOM, WIDTH = 16, 8.0, 1.1
TINY = 1e-30
# Densities of one program, and draws of theta at a time.
MOST_DENSITIES, MOST_DRAWS, MOST_UNITS = 2**21, 64, 64


@dataclass(frozen=True, eq=False)
class EffectDraws:
    """Of groups `by` a column, (draws, groups, effects); `off` is what their laws given theta are off by, on average,
    in total variation."""

    by: str
    levels: tuple[str | int, ...]
    names: tuple[str, ...]
    values: Floats
    off: float

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        draws, groups, size = self.values.shape
        effects = f"{size} effect{'s' * (size != 1)}"
        return f"<tallbayes.EffectDraws of {draws:,} draws, {groups:,} groups by {self.by}, {effects}>"


@dataclass(frozen=True)
class EffectDrawer:
    """What shapes the program: an effect of a unit given theta, as it is `shown` or in the integral's own terms."""

    space: Space
    integral: Any
    shown: bool

    def __call__(self, vector: jax.Array, key: jax.Array, unit: Any) -> tuple[jax.Array, jax.Array]:
        theta, integral = self.space.theta(vector), self.integral
        if isinstance(integral, LinearIntegral):
            noise = jax.random.normal(key, (integral.size,), vector.dtype)
            effect, off = integral.draw(theta, vector, unit, noise), jnp.zeros((), vector.dtype)
        else:
            effect, off = self._by_chain(theta, vector, key, unit)
        return (integral.shown(theta, effect) if self.shown else effect), off

    def _by_chain(self, theta: Any, vector: jax.Array, key: jax.Array, unit: Any) -> tuple[jax.Array, jax.Array]:
        points, share = self.integral.law(theta, vector, unit)
        density = self.integral.log_density(theta, vector, unit)
        size, dtype = points.shape[1], vector.dtype
        mean = share @ points
        apart = points - mean
        covariance = apart.T @ (share[:, None] * apart)
        spare = jnp.maximum(jnp.trace(covariance), TINY) * jnp.eye(size, dtype=dtype)
        root = WIDTH * jnp.linalg.cholesky(covariance + 1e-9 * spare)
        normal, gamma, uniform = jax.random.split(key, 3)
        x = jax.random.normal(normal, (STEPS + 1, size), dtype)
        half = jnp.asarray(FREEDOM / 2, dtype)
        x = x / jnp.sqrt(jax.random.gamma(gamma, half, (STEPS + 1, 1), dtype) / half)
        proposed = mean + x @ root.T
        log_q = -0.5 * (FREEDOM + size) * jnp.log1p(jnp.sum(x**2, axis=1) / FREEDOM)
        log_weight = jax.vmap(density)(proposed) - log_q
        log_uniform = jnp.log(jax.random.uniform(uniform, (STEPS,), dtype))

        def step(place: jax.Array, drawn: Any) -> tuple[jax.Array, None]:
            number, log_u = drawn
            return jnp.where(log_u < log_weight[number] - log_weight[place], number, place), None

        numbers = jnp.arange(1, STEPS + 1, dtype=jnp.int32)
        place, _ = jax.lax.scan(step, jnp.int32(0), (numbers, log_uniform))
        weight = jnp.exp(log_weight - jnp.max(log_weight))
        return proposed[place], (1 - jnp.mean(weight)) ** STEPS

    def work(self, units: Any) -> int:
        """Densities of one effect."""
        if isinstance(self.integral, LinearIntegral) or "rows" not in units:
            return 1
        length = jax.tree.leaves(units["rows"])[0].shape[1]
        return int(length * (self.integral.nodes**self.integral.groups.size + STEPS + 1))


def draw_effects(
    known: KnownGroups, space: Space, places: Floats, which: np.ndarray, seed: int, shown: bool = True
) -> tuple[Floats, float]:
    """Of the units at some places, for theta at every point (draws, d): (draws, groups, effects), and what that is off.

    An effect hangs on the seed, its group and its draw alone, whichever others are drawn beside it.
    """
    drawer, lengths = EffectDrawer(space, known.integral, shown), known.lengths(which)
    found, offs = np.empty((len(places), len(which), known.integral.groups.size)), np.zeros(len(which))
    for length in np.unique(lengths):
        some = np.flatnonzero(lengths == length)
        found[:, some], offs[some] = _of_length(drawer, known.take(which[some], int(length)), places, which[some], seed)
    return found, float(np.mean(offs)) if len(which) else 0.0


def _of_length(drawer: EffectDrawer, units: Any, places: Floats, which: np.ndarray, seed: int) -> tuple[Floats, float]:
    draws = min(MOST_DRAWS, len(places))
    size = int(np.clip(MOST_DENSITIES // (draws * drawer.work(units)), 1, min(MOST_UNITS, len(which))))
    parts, offs = [], []
    with jax.enable_x64(True):
        key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), int(Stream.EFFECT_DRAWS))
        for start in range(0, len(which), size):
            index = np.minimum(np.arange(start, start + size), len(which) - 1)
            some = jax.tree.map(lambda leaf, index=index: leaf[index], units)
            found, off = _of_units(drawer, some, which[index], places, draws, key)
            parts.append(found[:, : len(which) - start])
            offs.append(off)
    return np.concatenate(parts, axis=1), float(np.mean(offs))


def _of_units(
    drawer: EffectDrawer, units: Any, names: np.ndarray, places: Floats, draws: int, key: Any
) -> tuple[Floats, float]:
    program, found, offs = compiled(_some), [], []
    for start in range(0, len(places), draws):
        index = np.minimum(np.arange(start, start + draws), len(places) - 1)
        values, off = program(drawer, units, names.astype(np.uint32), places[index], index.astype(np.uint32), key)
        found.append(np.asarray(values)[: len(places) - start])
        offs.append(float(off))
    return np.concatenate(found), float(np.mean(offs))


def _some(
    drawer: EffectDrawer, units: Any, names: jax.Array, vectors: jax.Array, numbers: jax.Array, key: jax.Array
) -> Any:
    def one(vector: jax.Array, number: jax.Array, name: jax.Array, unit: Any) -> Any:
        return drawer(vector, jax.random.fold_in(jax.random.fold_in(key, name), number), unit)

    by_unit = jax.vmap(one, (None, None, 0, 0))
    values, off = jax.vmap(partial(by_unit), (0, 0, None, None))(vectors, numbers, names, units)
    return values, jnp.mean(off)
