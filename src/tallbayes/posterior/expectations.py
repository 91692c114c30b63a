"""Expectations of any function of what is reported, from the signed ensemble.

    E h = E_Laplace h + sum_l mean_i mean_k [ h(fine_il + s_l xi_ik) - mean_c h(coarse_ilc + s_l xi_ik) ]

The quiet ends are where paths would have ended without the noise of their last step. That noise is drawn anew, several
times for each path and in opposite pairs, which leaves the expectation as it is and takes most of the noise out of
what jumps.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.anchor.gaussian_level import Laplace, laplace_level
from tallbayes.estimator.levels import Stream
from tallbayes.model.observables import Observables
from tallbayes.model.space import shaped
from tallbayes.moments import Floats
from tallbayes.posterior.coordinates import ReportedLine
from tallbayes.posterior.telescoping import differences
from tallbayes.programs.canary import require_sound
from tallbayes.programs.identity import Function, identify, output_of
from tallbayes.setup.quantities import laplace_scale, output_structure
from tallbayes.structure import Structure

if TYPE_CHECKING:
    from tallbayes.posterior.posterior import Posterior

PAIRS = 8
CHUNK_NUMBERS = 2**22
LAPLACE_SHARE = 0.1
MOST_DRAWS = 2**18
STRAIGHT = 1e-9


class Integrand(NamedTuple):
    """A function of what is reported, bound to its reader."""

    reader: Any
    units: Any
    function: Function
    structure: Structure
    is_event: bool = False

    @property
    def observables(self) -> Observables:
        return Observables(moments=False, functions=(self.function,))

    def values(self, mode: Floats, quiet: Floats, noise: Floats) -> Floats:
        """At mode + quiet end + noise, (points, draws of the noise, sides, components)."""
        with jax.enable_x64(True):
            return np.asarray(_values(self.reader, self.function, mode, quiet, noise, self.units))


def make_integrand(name: str, function: Any, reader: Any, units: Any, mode: Floats) -> Integrand:
    """Trace the function; ModelError where it cannot be, or returns no real numbers."""
    require_sound()
    theta = shaped(output_of(reader.reported, mode, units))
    structure = output_structure(name, function, theta)
    kinds = {leaf.dtype.kind for leaf in jax.tree.leaves(output_of(function, theta))}
    return Integrand(reader, units, identify(function, theta), structure, kinds == {"b"})


def laplace_of(integrand: Integrand, ensemble: Posterior) -> Laplace:
    """Its expectation under Laplace's Gaussian, exact or by draws."""
    columns = [("the function", slice(None))]
    anchor = ensemble.anchor
    _, jump = laplace_scale(integrand.reader, integrand.observables, anchor, integrand.units, columns)
    return laplace_level(integrand.reader, integrand.observables, anchor, jump, ensemble.seed, integrand.units)


def level_samples(integrand: Integrand, ensemble: Posterior) -> list[Floats]:
    """What every path adds, (paths, components) by level."""
    samples = []
    for level in range(len(ensemble.points)):
        alone = level == 0 and not ensemble.laplace
        values = list(level_values(integrand, ensemble, level))
        if ensemble.weighted is not None:
            samples.append(differences(np.concatenate(values), alone, weights=ensemble.weighted))
        else:
            samples.append(np.concatenate([differences(part, alone) for part in values]))
    return samples


def level_values(integrand: Integrand, ensemble: Posterior, level: int) -> Iterator[Floats]:
    """The function at the stops, (paths, stops and draws of the noise, 1 + coarse paths, components), part by part."""
    points = ensemble.points[level]
    generator = ensemble.generator(Stream.EXPECTATION, level)
    count, stops, sides, d = points.shape
    size = max(1, CHUNK_NUMBERS // (2 * PAIRS * stops * sides * d))
    for start in range(0, count, size):
        quiet = points[start : start + size].reshape(-1, sides, d).astype(np.float64)
        noise = (
            _pairs(ensemble, level, len(quiet), generator) if ensemble.spreads[level] else np.zeros((len(quiet), 1, d))
        )
        values = integrand.values(ensemble.anchor.mode, quiet, noise)
        yield values.reshape(-1, stops * noise.shape[1], sides, values.shape[-1])


def probe_values(integrand: Integrand, ensemble: Posterior) -> tuple[Floats, Floats]:
    """The function at a probe's quiet ends with noise, (points, draws, components): posterior and Gaussian."""
    assert ensemble.probed is not None
    generator = ensemble.generator(Stream.GAUSSIAN_DRAWS)
    quiet = np.stack(ensemble.probed.points, axis=1)
    values = integrand.values(ensemble.anchor.mode, quiet, _pairs(ensemble, 0, len(quiet), generator))
    return values[:, :, 0], values[:, :, 1]


def _pairs(ensemble: Posterior, level: int, count: int, generator: np.random.Generator) -> Floats:
    """The last noise of a level in opposite pairs, (points, draws, d)."""
    noise = ensemble.noise(level, generator.standard_normal((count, PAIRS, len(ensemble.anchor.mode))))
    return np.concatenate([noise, -noise], axis=1)


def gaussian_values(integrand: Integrand, ensemble: Posterior, count: int) -> Floats:
    """The function at draws from Laplace's Gaussian."""
    draws = ensemble.anchor.draws(count, ensemble.seed)
    return integrand.values(ensemble.anchor.mode, np.zeros((1, 1, len(draws[0]))), draws[None])[0, :, 0]


@partial(jax.jit, static_argnums=(0, 1))
def _values(reader: Any, function: Function, mode: jax.Array, quiet: jax.Array, noise: jax.Array, units: Any) -> Any:
    def at(displacement: jax.Array) -> jax.Array:
        leaves = jax.tree.leaves(function(reader.reported(mode + displacement, units)))
        return jnp.concatenate([jnp.ravel(leaf).astype(displacement.dtype) for leaf in leaves])

    def path(ends: jax.Array, draws: jax.Array) -> jax.Array:
        return jax.vmap(lambda draw: jax.vmap(lambda end: at(end + draw))(ends))(draws)

    return jax.vmap(path)(quiet, noise)


def line_of(integrand: Integrand, ensemble: Posterior) -> ReportedLine | None:
    """The function as a line, where its derivative is the same near the mode and far from it."""
    if integrand.structure.size != 1:
        return None
    moves = np.vstack([np.zeros(len(ensemble.anchor.mode)), 2 * ensemble.anchor.draws(3, seed=1)])
    with jax.enable_x64(True):
        values, slopes = _slopes(integrand.reader, integrand.function, ensemble.anchor.mode + moves, integrand.units)
    values, slopes = np.asarray(values), np.asarray(slopes)
    size = np.abs(slopes[0] * ensemble.anchor.sd).max()
    if not size > 0 or np.abs((slopes - slopes[0]) * ensemble.anchor.sd).max() > STRAIGHT * size:
        return None
    return ReportedLine(slopes[0], float(values[0] - slopes[0] @ ensemble.anchor.mode))


@partial(jax.jit, static_argnums=(0, 1))
def _slopes(reader: Any, function: Function, points: jax.Array, units: Any) -> Any:
    def at(vector: jax.Array) -> jax.Array:
        return jnp.sum(jax.tree.leaves(function(reader.reported(vector, units)))[0]).astype(vector.dtype)

    return jax.vmap(jax.value_and_grad(at))(points)


def reported_values(reader: Any, units: Any, mode: Floats, displacements: Floats, structure: Structure) -> Floats:
    """What is reported, flat and in the order of the structure, (points, components)."""
    require_sound()
    with jax.enable_x64(True):
        return np.asarray(_reported_values(reader, structure, mode, displacements, units))


@partial(jax.jit, static_argnums=(0, 1))
def _reported_values(reader: Any, structure: Structure, mode: jax.Array, displacements: jax.Array, units: Any) -> Any:
    def at(displacement: jax.Array) -> jax.Array:
        leaves = structure.leaves(reader.reported(mode + displacement, units))
        return jnp.concatenate([jnp.ravel(leaf).astype(displacement.dtype) for leaf in leaves])

    return jax.vmap(at)(displacements)
