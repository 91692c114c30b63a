"""Supports of NumPyro's distributions as constraints: ours where the map is the same, NumPyro's otherwise.

start = c(shift), the same in every entry;   on the real line E theta + shift, where the prior has a mean
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.errors import ModelError, explain
from tallbayes.model import constraints
from tallbayes.model.constraints import Constraint


@dataclass(frozen=True)
class Support:
    """A support that NumPyro alone has a bijector for, known by its kind and the bytes of its bounds."""

    support: Any = field(compare=False)
    identity: tuple[Any, ...]

    @property
    def transform(self) -> Any:
        from numpyro.distributions import biject_to

        return biject_to(self.support)

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.transform.inverse_shape(shape))

    def constrain(self, free: jax.Array) -> jax.Array:
        return self.transform(free).astype(free.dtype)

    def unconstrain(self, value: Any) -> np.ndarray | jax.Array:
        return self.transform.inv(jnp.asarray(value))

    def log_jacobian(self, free: jax.Array) -> jax.Array:
        transform = self.transform
        return jnp.sum(transform.log_abs_det_jacobian(free, transform(free))).astype(free.dtype)

    def require(self, name: str, value: np.ndarray) -> None:
        if not (np.isfinite(value).all() and np.all(self.support(jnp.asarray(value)))):
            got = " ".join(np.array2string(value, threshold=10, precision=4).split())
            raise ModelError(explain(f"start values of {name} in {self.support}", got, "those of from_numpyro"))


def constraint_of(support: Any) -> Constraint:
    """The constraint of a continuous support whose bounds are NumPy arrays."""
    from numpyro.distributions import constraints as theirs

    element = _element(support)
    for kind, constraint in (
        (theirs.real, constraints.real),
        (theirs.positive, constraints.positive),
        (theirs.nonnegative, constraints.positive),
        (theirs.simplex, constraints.simplex),
        (theirs.ordered_vector, constraints.ordered),
    ):
        if type(element) is type(kind):
            return constraint
    bounds, treedef = jax.tree.flatten(support)
    if isinstance(element, theirs.interval) and all(np.ndim(bound) == 0 for bound in bounds):
        return constraints.interval(element.lower_bound, element.upper_bound)
    return Support(support, (str(treedef), *[(np.shape(bound), np.asarray(bound).tobytes()) for bound in bounds]))


def start_value(site: dict[str, Any], shift: Any) -> jax.Array:
    """A value of a latent site inside its support; refuses what has no continuous proper prior."""
    from numpyro.distributions import biject_to
    from numpyro.distributions import constraints as theirs

    name, prior = site["name"], site["fn"]
    if prior.support.is_discrete:
        hint = "sum over its values inside the likelihood, or pass what was observed of it"
        raise ModelError(explain("continuous latent sites", f"site {name!r} on {prior.support}", hint))
    if _is_improper(prior):
        hint = "a proper prior, such as a wide dist.Normal or dist.HalfNormal"
        raise ModelError(explain("proper priors", f"ImproperUniform at site {name!r}", hint))
    try:
        transform = biject_to(prior.support)
    except NotImplementedError as error:
        hint = "another parameter that determines it, and numpyro.deterministic"
        raise ModelError(explain("a support with a bijector", f"{prior.support} at {name!r}", hint)) from error
    shape = (*site["kwargs"].get("sample_shape", ()), *prior.shape())
    value = transform(jnp.full(transform.inverse_shape(shape), shift))
    if type(_element(prior.support)) is type(theirs.real):
        with suppress(NotImplementedError, AttributeError):
            value += jnp.where(jnp.isfinite(prior.mean), prior.mean, 0.0)
    return value


def _element(support: Any) -> Any:
    """The support of one event, whatever the number of axes it is declared over."""
    from numpyro.distributions import constraints as theirs

    return support.base_constraint if isinstance(support, theirs.independent) else support


def _is_improper(prior: Any) -> bool:
    from numpyro.distributions import ImproperUniform

    while not isinstance(prior, ImproperUniform) and hasattr(prior, "base_dist"):
        prior = prior.base_dist
    return isinstance(prior, ImproperUniform)
