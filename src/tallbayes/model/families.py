"""Families: regressions as Models with a cheap per-row form.

    p(row | theta) = exp l(eta, row),   eta = x . coefficients + intercept + offset,   coefficients_j ~ N(0, scale_j^2)

Rows are {"x": (d,), "y": scalar} and perhaps {"offset": scalar}. theta is the coefficient vector (d,); where there is
more to it, a dict of "coefficients", "intercept" (if `intercept_scale` is given), and "noise_scale" or
"overdispersion", which are positive and have half-normal priors. `prior_scale` is one number or one for every column.
`priors` of `tb.priors` take the place of these, by the names of theta: {"coefficients": tb.priors.student_t(4, 0, 1)},
or one in a list for every column, "intercept", "noise_scale", "overdispersion". A horseshoe or R2D2 of "coefficients"
is of all of them together: the log prior is then that of all else, since theirs has no form without its scales.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tallbayes.errors import ModelError, explain
from tallbayes.model import densities
from tallbayes.model.catalogue import CATALOGUE, DEGREES_OF_FREEDOM
from tallbayes.model.constraints import positive
from tallbayes.model.linear import Indexed, Layout
from tallbayes.model.model import FamilyParts, Model
from tallbayes.model.noise import Noise
from tallbayes.model.priors.assigned import Priors, assign, log_density, without_shrinkage
from tallbayes.model.responses import CHECKS, check_class, check_multinomial, check_regression
from tallbayes.programs.later import jax, jnp

Scale = Any
Given = Mapping[str, Any] | None


def logistic(prior_scale: Scale = 1.0, intercept_scale: float | None = None, priors: Given = None) -> Model:
    """Logistic regression: y in {0, 1}, P(y = 1) = 1 / (1 + exp(-eta)).

    >>> model = logistic(prior_scale=2.5, intercept_scale=10.0)
    """
    return _model("logistic", densities.logistic, prior_scale, intercept_scale, priors=priors)


def probit(prior_scale: Scale = 1.0, intercept_scale: float | None = None, priors: Given = None) -> Model:
    """Probit regression: y in {0, 1}, P(y = 1) = Phi(eta)."""
    return _model("probit", densities.probit, prior_scale, intercept_scale, priors=priors)


def linear(
    noise_scale: float | None = None,
    prior_scale: Scale = 1.0,
    intercept_scale: float | None = None,
    noise_prior_scale: float = 1.0,
    priors: Given = None,
) -> Model:
    """Linear regression: y ~ N(eta, noise_scale^2); noise_scale=None is unknown, half-normal a priori.

    >>> known, unknown = linear(noise_scale=0.5), linear(noise_prior_scale=2.0)
    """
    if noise_scale is None:
        half_normal = _require_positive("noise_prior_scale", noise_prior_scale)
        return _model("linear", densities.linear_unknown, prior_scale, intercept_scale, half_normal, priors=priors)
    known = _require_positive("noise_scale", noise_scale)
    density = partial(densities.linear, known)
    return _model("linear", density, prior_scale, intercept_scale, noise=Noise("linear", known), priors=priors)


def student_t(
    degrees_of_freedom: float = DEGREES_OF_FREEDOM,
    noise_scale: float | None = None,
    prior_scale: Scale = 1.0,
    intercept_scale: float | None = None,
    noise_prior_scale: float = 1.0,
    priors: Given = None,
) -> Model:
    """Robust regression: (y - eta) / noise_scale has Student's t with known degrees of freedom."""
    freedom = _require_positive("degrees_of_freedom", degrees_of_freedom)
    if noise_scale is None:
        half_normal = _require_positive("noise_prior_scale", noise_prior_scale)
        unknown = partial(densities.student_t_unknown, freedom)
        noise = Noise("student_t", None, freedom)
        return _model("student_t", unknown, prior_scale, intercept_scale, half_normal, noise=noise, priors=priors)
    known = _require_positive("noise_scale", noise_scale)
    density = partial(densities.student_t, freedom, known)
    noise = Noise("student_t", known, freedom)
    return _model("student_t", density, prior_scale, intercept_scale, noise=noise, priors=priors)


def poisson(prior_scale: Scale = 1.0, intercept_scale: float | None = None, priors: Given = None) -> Model:
    """Poisson regression of counts with mean exp(eta); an offset of log(exposure) makes it one of rates."""
    return _model("poisson", densities.poisson, prior_scale, intercept_scale, priors=priors)


def negative_binomial(
    prior_scale: Scale = 1.0,
    intercept_scale: float | None = None,
    overdispersion_prior_scale: float = 1.0,
    priors: Given = None,
) -> Model:
    """Counts with mean mu = exp(eta) and variance mu + overdispersion mu^2, the overdispersion unknown."""
    half_normal = _require_positive("overdispersion_prior_scale", overdispersion_prior_scale)
    density = densities.negative_binomial
    return _model("negative_binomial", density, prior_scale, intercept_scale, half_normal, priors=priors)


def multinomial(
    num_classes: int, prior_scale: Scale = 1.0, intercept_scale: float | None = None, priors: Given = None
) -> Model:
    """Multinomial logistic regression: y in 0..K-1, P(y = k) proportional to exp(eta_k), eta_0 = 0.

    Coefficients are (K - 1, d), the intercept (K - 1,).
    """
    if isinstance(num_classes, bool) or not isinstance(num_classes, int | np.integer) or num_classes < 2:
        raise ModelError(explain("num_classes a whole number >= 2", repr(num_classes), "how many values y takes"))
    # One head is a number, not a vector of one.
    density = _two_classes if num_classes == 2 else densities.multinomial
    return _model("multinomial", density, prior_scale, intercept_scale, num_classes=int(num_classes), priors=priors)


FAMILIES: dict[str, Callable[..., Model]] = {
    family.__name__: family for family in (logistic, probit, linear, student_t, poisson, negative_binomial, multinomial)
}


def with_codes(model: Model, indexed: Indexed) -> Model:
    """The family's model of rows that also name coefficients by code: {"x": (p,), "codes": (c,), "y": scalar}."""
    layout = replace(model.layout, indexed=indexed)
    told: dict[str, Any] = {
        name: partial(getattr(model, name), layout=layout) for name in ("log_likelihood", "initial", "check")
    }
    return replace(model, layout=layout, **told)


def _two_classes(eta: jax.Array, row: Any) -> jax.Array:
    return densities.multinomial(eta[None], row)


def _model(
    name: str,
    density: Callable[..., Any],
    prior_scale: Scale,
    intercept_scale: float | None,
    extra_scale: float | None = None,
    num_classes: int | None = None,
    noise: Noise | None = None,
    priors: Given = None,
) -> Model:
    """`extra_scale` is that of the half-normal prior of the family's extra; None where that is known, or is none."""
    family, scale = CATALOGUE[name], _prior_scales(prior_scale)
    extra = None if family.extra is None or extra_scale is None else family.extra.name
    heads = 1 if num_classes is None else num_classes - 1
    layout = Layout(heads, intercept_scale is not None, 0 if extra is None else 1)
    scales = {"coefficients": scale}
    if intercept_scale is not None:
        scales["intercept"] = _require_positive("intercept_scale", intercept_scale, "inf for a flat prior")
    if extra is not None:
        scales[extra] = extra_scale
    stated: Priors | None = None
    words: tuple[tuple[str, str], ...] = ()
    priors, shrinkage = without_shrinkage(priors)
    if shrinkage is not None:
        if not family.shrinks:
            known = ", ".join(each.name for each in CATALOGUE.values() if each.shrinks)
            hint = f"tb.priors.normal(), or a family of these: {known}"
            raise ModelError(explain(f"a family of one linear predictor under {shrinkage}", f"family {name!r}", hint))
        scales["coefficients"] = scale = np.inf
    if priors:
        stated, scales, words = assign(priors, scales)
        prior = partial(log_density, stated.leaves)
    else:
        prior = partial(_gaussian_prior, scales if len(scales) > 1 else scale)
    check_response = CHECKS[family.response] if num_classes is None else check_class(num_classes)
    check_rows = check_multinomial if family.by_class else check_regression
    return Model(
        log_prior=prior,
        log_likelihood=partial(_predictor_likelihood, density, extra, layout=layout),
        initial=partial(_start, heads if family.by_class else None, tuple(scales), layout=layout),
        predictor=density,
        layout=layout,
        check=partial(check_rows, check_response, scales["coefficients"], layout=layout),
        log_concave=family.log_concave and extra is None and (stated is None or stated.log_concave) and not shrinkage,
        constraints=None if extra is None else {extra: positive},
        family=name,
        noise=noise or Noise(name),
        parts=FamilyParts(density, scales, priors=stated, log_prior=prior, words=words),
        shrinkage=shrinkage,
    )


def _prior_scales(prior_scale: Any) -> Any:
    scale = np.asarray(prior_scale, np.float64)
    if scale.ndim > 1 or not np.all(scale > 0):
        hint = "1.0, one number for every column, or float('inf') for a flat prior"
        raise ModelError(explain("prior_scale > 0", repr(prior_scale), hint))
    return float(scale) if scale.ndim == 0 else scale


def _require_positive(name: str, value: Any, hint: str = "its scale in the units of y") -> float:
    finite = np.isfinite(value) if name != "intercept_scale" else True
    if isinstance(value, bool) or not (finite and value > 0):
        raise ModelError(explain(f"{name} > 0", repr(value), hint))
    return float(value)


def _gaussian_prior(scales: Any, theta: Any) -> jax.Array:
    """Of a vector or of a dict; of a positive parameter it is the half-normal, up to its constant."""
    terms = jax.tree.map(lambda scale, part: jnp.sum((part / scale) ** 2), scales, theta)
    return -0.5 * jnp.sum(jnp.stack(jax.tree.leaves(terms)))


def _predictor_likelihood(
    density: Callable[..., Any], extra: str | None, theta: Any, row: Any, *, layout: Layout
) -> jax.Array:
    eta = layout.combine(row, theta["coefficients"] if isinstance(theta, dict) else theta)
    if layout.intercept:
        eta += theta["intercept"]
    if extra is not None:
        eta = jnp.stack([eta, jnp.log(theta[extra])])
    return density(eta[0] if layout.is_scalar and eta.ndim else eta, row)


def _start(heads: int | None, names: tuple[str, ...], row: Any, *, layout: Layout) -> Any:
    """Zeros, and ones for what is positive."""
    shape = () if heads is None else (heads,)
    start = {name: np.ones(()) for name in names}
    start["coefficients"] = np.zeros((*shape, layout.width(row)))
    if "intercept" in names:
        start["intercept"] = np.zeros(shape)
    return start if len(names) > 1 else start["coefficients"]
