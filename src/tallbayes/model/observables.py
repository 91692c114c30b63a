"""Observables: what is read off a path, or off any other point of the posterior, as one vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tallbayes.model.model import Target
from tallbayes.programs.identity import Function
from tallbayes.programs.later import jax, jnp


@dataclass(frozen=True)
class Observables:
    """What is read off a path: the first two moments of the reported parameters, as they differ from those at theta_0,
    if asked; then functions of them."""

    moments: bool
    functions: tuple[Function, ...]

    def values(self, target: Target, mode: jax.Array, displacement: jax.Array, units: Any = None) -> jax.Array:
        parts = []
        if self.moments:
            moved = target.moved(mode, displacement, units)
            parts = [moved, moved**2]
        theta = target.reported(mode + displacement, units) if self.functions else None
        for function in self.functions:
            leaves = jax.tree.leaves(function(theta))
            parts += [jnp.ravel(leaf).astype(displacement.dtype) for leaf in leaves]
        return jnp.concatenate(parts)
