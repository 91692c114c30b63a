"""Priors by part: log densities as functions of u, beside what is reported.

    p(u) = log pi(theta(u)),   p_t(u) = p(c + M_t (u - c)) - p(c),   M_t the places of part t, c the centre

A prior is a sum of its parts where sum_t p_t(u) = p(u) - p(c), which is looked at: independent priors of single
numbers, or of the leaves of theta. The Jacobian of theta(u) is no part of the prior, whose density is one of theta.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.posterior.coordinates import ELEMENTWISE, Reading
from tallbayes.posterior.expectations import Integrand
from tallbayes.posterior.posterior import Posterior
from tallbayes.programs.canary import require_sound
from tallbayes.structure import Structure

# Beyond so many numbers the prior is taken leaf by leaf.
MOST_PARTS = 128
LOOKS, ROUNDING = 8, 1e-9


@dataclass(frozen=True)
class PriorPart:
    """A part of the prior: its name, and its places in u."""

    name: str
    places: tuple[int, ...]


@dataclass(frozen=True)
class DensityReader:
    """Reads off u, flat: what is reported (`first` of it), every part of the prior, the prior, and the rest.

    The rest is log phi - log prior - log |d theta / d u|: the log likelihood, where the posterior is its Gaussian phi.
    """

    own: Any
    target: Target
    structure: Structure
    first: int

    def reported(self, vector: jax.Array, units: Any) -> jax.Array:
        leaves = self.structure.leaves(self.own.reported(vector, units["own"]))
        told = jnp.concatenate([jnp.ravel(leaf).astype(vector.dtype) for leaf in leaves])[: self.first]
        centre, move = units["centre"], vector - units["centre"]
        start = self._prior(centre)
        parts = jax.lax.map(lambda mask: self._prior(centre + mask * move) - start, units["masks"])
        prior = self._prior(vector) - start
        bend = units["precision"]
        gaussian = -0.5 * jnp.sum(bend * move**2) if bend.ndim == 1 else -0.5 * move @ bend @ move
        rest = gaussian - prior - self.target.space.log_jacobian(vector)
        return jnp.concatenate([told, parts, jnp.stack([prior, rest])])

    def _prior(self, vector: jax.Array) -> jax.Array:
        return jnp.asarray(self.target.log_prior.call(vector) - self.target.space.log_jacobian(vector), vector.dtype)


def as_it_is(numbers: Any) -> Any:
    return numbers


def prior_parts(posterior: Posterior, target: Target) -> tuple[PriorPart, ...]:
    """The finest parts that add up to the prior; none where it is one whole."""
    for parts in (_by_number(posterior.reading, target), _by_leaf(target)):
        if 1 < len(parts) <= MOST_PARTS and _add_up(posterior, target, parts):
            return parts
    return ()


def density_integrand(posterior: Posterior, target: Target, parts: tuple[PriorPart, ...], first: int) -> Integrand:
    """All numbers of a `DensityReader`, as what `expectations` evaluates at points."""
    require_sound()
    own, own_units = posterior.parameters.reader
    reader = DensityReader(own, target, posterior.parameters.structure, first)
    units = {
        "own": own_units,
        "centre": posterior.anchor.mode,
        "masks": masks_of(parts, target.dimension),
        "precision": np.asarray(posterior.anchor.precision),
    }
    return Integrand(reader, units, as_it_is, Structure.leaf((first + len(parts) + 2,)))  # type: ignore[arg-type]


def masks_of(parts: tuple[PriorPart, ...], dimension: int) -> Floats:
    masks = np.zeros((len(parts), dimension))
    for row, part in zip(masks, parts, strict=True):
        row[list(part.places)] = 1.0
    return masks


def _by_number(reading: Reading | None, target: Target) -> tuple[PriorPart, ...]:
    """Every number of theta that stands in u alone, by the name under which it is reported; leaves else."""
    kinds = [] if reading is None else [part.kind in ELEMENTWISE for part in reading.parts]
    if target.dimension > MOST_PARTS:
        return ()
    if not kinds or not all(kinds):
        kinds = [True] * len(target.space.shapes) if target.space.is_free else [False] * len(target.space.shapes)
    names, leaves, found, start = _names(reading, target), _by_leaf(target), [], 0
    for alone, shape, leaf in zip(kinds, target.space.shapes, leaves, strict=True):
        stop = start + prod(shape)
        found += [PriorPart(names[j], (j,)) for j in range(start, stop)] if alone else [leaf]
        start = stop
    return tuple(found)


def _by_leaf(target: Target) -> tuple[PriorPart, ...]:
    labels, found, start = target.space.labels(), [], 0
    for shape in target.space.shapes:
        stop = start + prod(shape)
        found.append(PriorPart(labels[start].split("[")[0] if stop > start else "", tuple(range(start, stop))))
        start = stop
    return tuple(part for part in found if part.places)


def _names(reading: Reading | None, target: Target) -> list[str]:
    """Of every number of u, the name of what is reported of it: of all that hangs on it, what hangs on least else."""
    names = list(target.space.labels())
    if reading is None:
        return names
    labels = [label.removeprefix(".") for label in reading.structure.labels("")]
    if reading.entries is None:
        return labels if len(labels) == len(names) else names
    rows, columns = reading.entries.row, reading.entries.column
    size = np.bincount(rows, minlength=len(labels))
    for place in range(len(names)):
        own = rows[columns == place]
        if len(own):
            names[place] = labels[int(own[np.argmin(size[own])])]
    return names if len(set(names)) == len(names) else list(target.space.labels())


def _add_up(posterior: Posterior, target: Target, parts: tuple[PriorPart, ...]) -> bool:
    moves = 2 * posterior.anchor.draws(LOOKS, seed=1)
    with jax.enable_x64(True):
        masks = masks_of(parts, target.dimension)
        whole, summed = (np.asarray(each) for each in _sums(target, posterior.anchor.mode, moves, masks))
    return bool(np.all(np.abs(whole - summed) <= ROUNDING * (1 + np.abs(whole))))


@partial(jax.jit, static_argnums=0)
def _sums(target: Target, centre: jax.Array, moves: jax.Array, masks: jax.Array) -> tuple[jax.Array, jax.Array]:
    def prior(vector: jax.Array) -> jax.Array:
        return jnp.asarray(target.log_prior.call(vector) - target.space.log_jacobian(vector), vector.dtype)

    def at(move: jax.Array) -> tuple[jax.Array, jax.Array]:
        start = prior(centre)
        parts = jax.lax.map(lambda mask: prior(centre + mask * move) - start, masks)
        return prior(centre + move) - start, jnp.sum(parts)

    return jax.vmap(at)(moves)
