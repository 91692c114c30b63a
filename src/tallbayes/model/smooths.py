"""Smooths: coefficients of a regression that share a scale, which is learnt.

    beta_k ~ N(0, s^2) for the k of a smooth,   s half-normal a priori,   all other coefficients as before

With beta itself for a parameter the joint density rises without end as s goes to nothing. What the rows say of beta_k
given all else is about C_k, the sum of w x_k^2 over them: columns of a smooth are uncorrelated. In

    beta_k = s v_k / sqrt(1 + s^2 C_k)

v_k has about unit spread given all else whatever s is (see `groups.terms`, where it is the same with matrices): the
data's where they are many, the prior's where s is next to nothing. C need not be right for that. Of normal noise C is
in units of its variance. theta is beta wherever a model, a report or a prediction reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import ModelError, explain
from tallbayes.model.constraints import half_normal
from tallbayes.model.parts.extras import ExtraPart
from tallbayes.model.priors.assigned import own_log_prior
from tallbayes.programs.later import jnp

if TYPE_CHECKING:
    from tallbayes.model.model import Model

COEFFICIENTS = "coefficients"
FIRST_SCALE = 0.5


@dataclass(frozen=True)
class SmoothTerm:
    """A smooth: how it is written, the first of its coefficients, the scale of its scale's half-normal prior, what the
    rows say of each (C), and the noise's scale that this is in units of."""

    name: str
    first: int
    scale: float
    information: tuple[float, ...]
    noise: str | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise ModelError(explain(f"a prior scale > 0 of the scale of {self.name}", repr(self.scale), "1.0"))

    @property
    def places(self) -> slice:
        return slice(self.first, self.first + len(self.information))


def scale_name(place: int) -> str:
    """The name in theta of a smooth's scale, an array of one number."""
    return f"smooth{place}"


@dataclass(frozen=True)
class Smoothed:
    """The constraint of coefficients, some of them those of smooths in order: beta = s v / sqrt(1 + s^2 C)."""

    terms: tuple[SmoothTerm, ...]

    name = COEFFICIENTS

    def free_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def require(self, name: str, value: np.ndarray) -> None:
        if np.any(value != 0):
            raise ModelError(explain(f"start values of 0 for {name}", "others", "np.zeros(columns)"))

    def unconstrain(self, value: Any) -> Any:
        """Of start values, which are 0."""
        return np.asarray(value)

    def constrain(self, free: Any, theta: Any, levels: Any = None) -> Any:
        pieces, start = [], 0
        for place, term in enumerate(self.terms):
            stretch = jnp.exp(self._log_stretch(place, term, theta))
            pieces += [free[start : term.first], free[term.places] * stretch]
            start = term.places.stop
        return jnp.concatenate([*pieces, free[start:]])

    def log_jacobian(self, theta: Any) -> Any:
        return sum(jnp.sum(self._log_stretch(place, term, theta)) for place, term in enumerate(self.terms))

    def _log_stretch(self, place: int, term: SmoothTerm, theta: Any) -> Any:
        scale = theta[scale_name(place)]
        told = jnp.asarray(term.information, scale.dtype)
        if term.noise is not None:
            told = told / theta[term.noise] ** 2
        return jnp.log(scale) - jnp.log1p(scale**2 * told) / 2


def with_smooths(model: Model, terms: tuple[SmoothTerm, ...]) -> Model:
    """A family's model some of whose coefficients are those of smooths.

    Parameters are the family's, in a dict, and for every smooth its scale.
    """
    require_one_predictor(model)
    parts = model.parts
    assert parts is not None
    parts = parts._replace(
        scales={**parts.scales, COEFFICIENTS: _flat(parts.scales[COEFFICIENTS], terms)}, smooths=terms
    )
    prior = partial(_prior, parts.own, parts.extras, terms)
    constraints = dict(model.constraints or {}) | {COEFFICIENTS: Smoothed(terms)}
    constraints |= {scale_name(place): half_normal(term.scale) for place, term in enumerate(terms)}
    return replace(
        model,
        log_prior=prior,
        initial=partial(_start, model.initial, terms),
        predictor=None,
        log_concave=False,
        parts=parts._replace(log_prior=prior),
        constraints=constraints,
    )


def require_one_predictor(model: Model) -> None:
    if model.parts is None or model.layout.heads != 1:
        hint = "a logistic fit for each class but one, on its rows and those of the reference; or poly(x, 3)"
        raise ModelError(explain("a family with one linear predictor, for smooths", f"{model.family}", hint))
    if not all(extra.is_statable for extra in model.parts.extras):
        hint = "poly(x, 3) or bs(x, df=6)"
        raise ModelError(explain("a family with nothing but scales beside it, for smooths", f"{model.family}", hint))


def log_prior(terms: tuple[SmoothTerm, ...], theta: Any) -> Any:
    """Of scales and of the coefficients given them."""
    total: Any = 0.0
    for place, term in enumerate(terms):
        scale, own = theta[scale_name(place)], theta[COEFFICIENTS][term.places]
        total = total - 0.5 * jnp.sum((scale / term.scale) ** 2)
        total = total - 0.5 * jnp.sum((own / scale) ** 2) - len(term.information) * jnp.sum(jnp.log(scale))
    return total


def _prior(own: dict[str, Any], extras: tuple[ExtraPart, ...], terms: tuple[SmoothTerm, ...], theta: Any) -> Any:
    """`own` are the family's, flat of what is smooth."""
    beside = sum(each.log_prior(theta[each.name]) for each in extras)
    return own_log_prior(own, theta) + beside + log_prior(terms, theta)


def _flat(scale: Any, terms: tuple[SmoothTerm, ...]) -> Any:
    """Infinite for the coefficients of smooths, which have priors of their own."""
    scale = np.array(scale, np.float64)
    if not scale.ndim:
        raise ModelError(explain("prior scales by coefficient, beside smooths", "one number", "an array"))
    for term in terms:
        scale[term.places] = np.inf
    return scale


def _start(initial: Callable[[Any], Any], terms: tuple[SmoothTerm, ...], row: Any) -> dict[str, Any]:
    base = initial(row)
    start = dict(base) if isinstance(base, dict) else {COEFFICIENTS: base}
    for place, term in enumerate(terms):
        start[scale_name(place)] = np.full(1, FIRST_SCALE * min(term.scale, 1.0))
    return start
