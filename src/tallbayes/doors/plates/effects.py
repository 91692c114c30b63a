"""Effects: the latent sites of a plate as q numbers of each of its entries, free to move on the line.

    standardised    z = mean + root a,  a ~ N(0, 1)         of a normal site
    as it is        z = c(start + a),   p(a) = p(z) |c'|    c the bijector of the site's support

Nodes are put down once, for all theta. Where a group has few rows its effect follows the prior, and a stays where it
is when a scale moves; where it has many, the rows hold z.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.doors.plates.programs import NormalLaw
from tallbayes.model.constraints import Constraint


@dataclass(frozen=True, eq=False)
class EffectSite:
    """A latent site along a plate: `shape` is that of its value, `axis` the plate's place in it, `start` where an entry
    starts in free numbers."""

    name: str
    shape: tuple[int, ...]
    axis: int
    normal: bool
    constraint: Constraint
    start: np.ndarray

    @property
    def entry_shape(self) -> tuple[int, ...]:
        return (*self.shape[: self.axis], *self.shape[self.axis + 1 :])

    @property
    def size(self) -> int:
        return int(self.start.size)

    @property
    def places(self) -> list[str]:
        """The numbers of an entry, as they are written behind the site's name."""
        return [f"[{','.join(map(str, place))}]" if place else "" for place in np.ndindex(self.entry_shape)]

    def offered(self, free: jax.Array) -> jax.Array:
        """What the site is answered with for one entry: a, or z."""
        if self.normal:
            return jnp.reshape(free, self.entry_shape)
        return self.constraint.constrain(jnp.reshape(free, self.start.shape) + self.start.astype(free.dtype))

    def log_weight(self, free: jax.Array) -> Any:
        """log N(a; 0, 1), or log |c'|."""
        if self.normal:
            return -0.5 * jnp.sum(free**2) - 0.5 * self.size * np.log(2 * np.pi).item()
        return self.constraint.log_jacobian(jnp.reshape(free, self.start.shape) + self.start.astype(free.dtype))

    def value(self, law: Callable[[], NormalLaw], offered: Any) -> Any:
        """z of what is offered, along the plate."""
        if not self.normal:
            return offered
        own = law()
        return own.loc + own.deviation(offered)


@dataclass(frozen=True, eq=False)
class EffectSites:
    """All sites of a plate, whose free numbers stand side by side in b."""

    sites: tuple[EffectSite, ...]

    @property
    def size(self) -> int:
        return sum(site.size for site in self.sites)

    @cached_property
    def by_name(self) -> dict[str, EffectSite]:
        return {site.name: site for site in self.sites}

    @property
    def start(self) -> Any:
        return 0.0 if self.size == 1 else np.zeros(self.size)

    def offered(self, b: Any) -> dict[str, jax.Array]:
        return {site.name: site.offered(part) for site, part in self._parts(b)}

    def log_weight(self, b: Any) -> Any:
        return sum(site.log_weight(part) for site, part in self._parts(b))

    def log_jacobian(self, b: Any) -> Any:
        """log |c'| of the sites that are not normal."""
        return sum((site.log_weight(part) for site, part in self._parts(b) if not site.normal), jnp.zeros(()))

    def _parts(self, b: Any) -> list[tuple[EffectSite, jax.Array]]:
        flat, parts, used = jnp.ravel(b), [], 0
        for site in self.sites:
            parts.append((site, flat[used : used + site.size]))
            used += site.size
        return parts


def effect_site(name: str, axis: int, constraint: Constraint, start: np.ndarray, normal: bool) -> EffectSite:
    """`start` is a value of the site, and `normal` says whether to standardise it."""
    entry = np.take(start, 0, axis)
    free = np.zeros(entry.size) if normal else np.asarray(constraint.unconstrain(entry), np.float64)
    return EffectSite(name, start.shape, axis, normal, constraint, free)
