"""Effect terms: scales and correlations of a factor's effects, and the coordinates in which effects hardly move with
these.

    b ~ N(0, D),     D = L L^T = T R T,     T = diag(scales)

With partial correlations r_jk, in columns k < j, and the scale of row j in front,

    L_jk = r_jk prod_{m<k} sqrt(1 - r_jm^2),   L_jj = prod_{m<j} sqrt(1 - r_jm^2)

What the rows of level j say of its effect is about C_j, the sum of w z z^T over them. In

    b = L K_j^-T v,     K_j K_j^T = I + L^T C_j L

v has about unit spread given all else, whatever the scales are: centred where a level has many rows, standardised where
its scale is next to nothing. So the joint density of v and the scales has a mode, which is near that of the scales by
themselves: that of b has none, since it rises without end as a scale goes to nothing. C need not be right for that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tallbayes.errors import ModelError, explain
from tallbayes.model.groups.matrices import cholesky, solve_lower
from tallbayes.model.priors.prior import Prior
from tallbayes.programs.later import jax, jnp

MOST_EFFECTS = 3
# Of LKJ's prior, where none is stated.
SHAPE = 2.0


@dataclass(frozen=True)
class EffectTerm:
    """Effects of a factor: what it is called, how many numbers each of its levels has and whether these are correlated,
    the scale of the half-normal priors of their scales. For a term that is not integrated also how many levels, what
    the rows of each say of its effect (C, flat; nothing if empty), and the noise's scale that this is in units of.
    `laws` are priors in the place of the half-normal ones, one a scale, `shape` is that of LKJ's."""

    by: str
    size: int = 1
    correlated: bool = True
    scale: float = 1.0
    levels: int = 0
    information: tuple[float, ...] = ()
    noise: str | None = None
    laws: tuple[Prior, ...] = ()
    shape: float = SHAPE

    def __post_init__(self) -> None:
        if not 1 <= self.size <= MOST_EFFECTS:
            got = f"{self.size} of {self.by!r}"
            raise ModelError(explain(f"1 to {MOST_EFFECTS} effects a group", got, "fewer slopes that vary"))
        if self.laws and len(self.laws) != self.size:
            hint = "one for each of its effects"
            raise ModelError(explain(f"{self.size} priors of the scales of {self.by!r}", f"{len(self.laws)}", hint))
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise ModelError(explain(f"a prior scale > 0 of the effects of {self.by!r}", repr(self.scale), "1.0"))

    @property
    def correlations(self) -> int:
        return self.size * (self.size - 1) // 2 if self.correlated else 0


def root_of(term: EffectTerm, theta: Any, place: int) -> Any:
    """L, with L L^T = D of the term at this place."""
    scales = theta[f"scales{place}"]
    if not term.correlations:
        return jnp.diag(scales)
    partials, rows, used = theta[f"correlations{place}"], [], 0
    for j in range(term.size):
        row, left = [], jnp.ones((), scales.dtype)
        for k in range(j):
            row.append(partials[used + k] * left)
            left = left * jnp.sqrt(1 - partials[used + k] ** 2)
        used += j
        rows.append(jnp.stack([*row, left, *[jnp.zeros((), scales.dtype)] * (term.size - j - 1)]))
    return scales[:, None] * jnp.stack(rows)


def scales_and_correlations(term: EffectTerm, theta: Any, place: int, to_own: Any) -> list[Any]:
    """Of the effects of a term in other units, A b: the sds of (A L)(A L)^T, and correlations where there are any."""
    if not term.correlations:
        # Uncorrelated effects are not centred: a diagonal, and a report that is linear in theta.
        return [jnp.diagonal(to_own) * theta[f"scales{place}"]]
    root = to_own @ root_of(term, theta, place)
    covariance = root @ root.T
    sd = jnp.sqrt(jnp.diagonal(covariance))
    pairs = [(j, k) for j in range(term.size) for k in range(j)]
    return [sd, jnp.stack([covariance[j, k] / (sd[j] * sd[k]) for j, k in pairs])]


def stretch(root: Any, information: Any) -> Any:
    """K^-T, which is upper triangular, of L and C."""
    one = jnp.eye(root.shape[-1], dtype=root.dtype)
    inner = one + root.T @ information.astype(root.dtype) @ root
    return solve_lower(cholesky(inner), one).T


@dataclass(frozen=True)
class Stretched:
    """The constraint of effects by level: b = L K_j^-T v_j, given the scales of the term at this place."""

    term: EffectTerm
    place: int

    @property
    def name(self) -> str:
        return f"effects{self.place}"

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def require(self, name: str, value: np.ndarray) -> None:
        if np.any(value != 0):
            raise ModelError(explain(f"start values of 0 for {name}", "others", "np.zeros((levels, effects))"))

    def unconstrain(self, value: Any) -> Any:
        """Of start values, which are 0."""
        return np.asarray(value)

    def constrain(self, free: Any, theta: Any, levels: Any = None) -> Any:
        """b of all levels (levels, q), or of some by their number."""
        root, inner = root_of(self.term, theta, self.place), self._stretches(theta, levels)
        return jnp.einsum("jab,jb->ja", inner, free) @ root.T

    def log_jacobian(self, theta: Any) -> Any:
        """The sum of log |det L K_j^-T|."""
        root, inner = root_of(self.term, theta, self.place), self._stretches(theta, None)
        size = jnp.sum(jnp.log(jnp.diagonal(root)))
        return self.term.levels * size + jnp.sum(jnp.log(jnp.diagonal(inner, axis1=1, axis2=2)))

    def _stretches(self, theta: Any, levels: Any) -> Any:
        """K_j^-T of every level."""
        term, root = self.term, root_of(self.term, theta, self.place)
        shape = (term.levels, term.size, term.size)
        known = np.reshape(term.information, shape) if term.information else np.zeros(shape)
        information = jnp.asarray(known, root.dtype)
        if levels is not None:
            information = jnp.take(information, levels, axis=0)
        if term.noise is not None:
            information = information / theta[term.noise] ** 2
        return jax.vmap(partial(stretch, root))(information)
