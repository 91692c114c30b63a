"""Programs: a model of another package run on some rows, its latent sites answered from outside.

inside the data plates    sum_i sum_s log p_s(x_i | theta)
outside                   sum_s log p_s(theta)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from tallbayes.model.model import Model

Message = dict[str, Any]
Answer = Callable[[Message], Any]


@dataclass(frozen=True)
class Site:
    """A sample statement: its plates are (name, dim, size), its shape that of its value."""

    name: str
    is_observed: bool
    plates: tuple[Any, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class NormalLaw:
    """z = loc + scale a, or loc + root a along the last axis, with a ~ N(0, 1)."""

    loc: Any
    scale: Any = None
    root: Any = None

    def deviation(self, a: Any) -> Any:
        """How far z is from its mean."""
        if self.root is None:
            return self.scale * a
        return jnp.sum(self.root * a[..., None, :], axis=-1)

    def log_size(self, shape: tuple[int, ...]) -> jax.Array:
        """log |dz / da| of a z of this shape."""
        roots = self.scale if self.root is None else jnp.diagonal(self.root, axis1=-2, axis2=-1)
        return jnp.sum(jnp.broadcast_to(jnp.log(roots), shape))


class SiteProgram(Protocol):
    """What is asked of a model; a message is what a run says of a site, its `name` and, after the run, its `value`."""

    @property
    def plates(self) -> frozenset[str]:
        """Those of the rows."""

    def log_probs(self, rows: dict[str, Any], count: int, value_of: Answer, *, inside: bool) -> dict[str, Any]:
        """The log densities of all sites inside, or outside, the data plates, entry by entry."""

    def run(self, rows: dict[str, Any], count: int, value_of: Answer) -> dict[str, Message]:
        """All messages of a run on `count` rows, with latent sites answered by `value_of`."""

    def values_of(self, theta: dict[str, Any]) -> Answer:
        """Latent sites answered by their values."""

    def law(self, message: Message) -> NormalLaw:
        """Of a normal site."""

    def can_standardise(self, message: Message, axis: int, run: dict[str, Message]) -> bool:
        """Whether a site is normal in each entry of an axis, and its log density counts once."""

    def axis(self, message: Message, dim: int, ndim: int) -> int:
        """Where a plate with this `dim` lies in a site's value."""

    def is_apart(self, message: Message, axis: int) -> bool:
        """Whether a site's support is the same for every entry of an axis."""

    def told(self, name: str) -> str | None:
        """What the model calls that which a site stands for, where it says so."""

    def tell(self, message: Message) -> Any:
        """The value of that."""

    def answering(self, model: Model, form: Any, names: dict[str, str], rows: dict[str, Any]) -> Model:
        """A model with groups, and what it says of the responses of rows, where that is known; `names` are those of the
        model by those of the `rows`, of which there is one."""
