"""Effects: the latent sites of a plate as q numbers of each of its entries, free to move on the line.

    standardised    z = mean + root a,  a ~ N(0, 1)         of a normal site
    as it is        z = c(start + a),   p(a) = p(z) |c'|    c the bijector of the site's support

Nodes are put down once, for all theta. Where a group has few rows its effect follows the prior, and a stays where it
is when a scale moves; where it has many, the rows hold z.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.doors.numpyro.programs import Message
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

    def value(self, message: Message, offered: Any) -> Any:
        """z of what is offered, along the plate."""
        if not self.normal:
            return offered
        return _base(message["fn"]).loc + self.deviation(message, offered)

    def deviation(self, message: Message, offered: Any) -> Any:
        """How far z is from its mean."""
        law = _base(message["fn"])
        if _is_vector(law):
            return jnp.sum(law.scale_tril * offered[..., None, :], axis=-1)
        return law.scale * offered

    def log_size(self, message: Message) -> Any:
        """log |dz / da| of all entries together; 0 where z itself is offered."""
        if not self.normal:
            return 0.0
        law = _base(message["fn"])
        if _is_vector(law):
            roots = jnp.log(jnp.diagonal(law.scale_tril, axis1=-2, axis2=-1))
            return jnp.sum(jnp.broadcast_to(roots, self.shape))
        return jnp.sum(jnp.broadcast_to(jnp.log(law.scale), self.shape))


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

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(
            site.name + (f"[{','.join(map(str, place))}]" if place else "")
            for site in self.sites
            for place in np.ndindex(site.entry_shape)
        )

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


def effect_site(message: Message, axis: int, constraint: Constraint, start: np.ndarray, normal: bool) -> EffectSite:
    """Read from a run of the model; `start` is a value of the site, and `normal` says whether to standardise it."""
    entry = np.take(start, 0, axis)
    free = np.zeros(entry.size) if normal else np.asarray(constraint.unconstrain(entry), np.float64)
    return EffectSite(message["name"], start.shape, axis, normal, constraint, free)


def can_standardise(message: Message, scale: Any) -> bool:
    """Whether a site is normal, and its log density counts once."""
    return isinstance(scale, int | float) and scale == 1 and _is_normal(_base(message["fn"]))


def _base(law: Any) -> Any:
    """A distribution without what was put around it; a mask stays."""
    from numpyro.distributions import ExpandedDistribution, Independent

    while isinstance(law, ExpandedDistribution | Independent):
        law = law.base_dist
    return law


def _is_normal(law: Any) -> bool:
    from numpyro.distributions import MultivariateNormal, Normal

    return type(law) in (Normal, MultivariateNormal)


def _is_vector(law: Any) -> bool:
    from numpyro.distributions import MultivariateNormal

    return type(law) is MultivariateNormal
