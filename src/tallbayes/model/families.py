"""Families: regressions as Models with a cheap per-row form.

    p(row | theta) = exp l(eta, row),   eta = x . coefficients + intercept + offset,   coefficients_j ~ N(0, scale_j^2)

Rows are {"x": (d,), "y": scalar} and perhaps {"offset": scalar}, and what a family reads of y beside it. theta is the
coefficient vector (d,); where there is more to it, a dict of "coefficients", "intercept" (if `intercept_scale` is
given), and what the family's record has beside them, with its priors (`catalogue`). `prior_scale` is one number or one
for every column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from tallbayes.errors import ModelError, explain
from tallbayes.model import densities
from tallbayes.model.catalogue import CATALOGUE, DEGREES_OF_FREEDOM
from tallbayes.model.linear import Indexed, Layout
from tallbayes.model.model import FamilyParts, Model
from tallbayes.model.noise import Noise
from tallbayes.model.parts import times
from tallbayes.model.parts.extras import ExtraPart, OfExcess, width_for, with_extras
from tallbayes.model.responses import CHECKS, check_class, check_multinomial, check_real, check_regression
from tallbayes.programs.later import jax, jnp

Scale = Any


def logistic(prior_scale: Scale = 1.0, intercept_scale: float | None = None) -> Model:
    """Logistic regression: y in {0, 1}, P(y = 1) = 1 / (1 + exp(-eta)); or y successes in the "trials" of a row.

    >>> model = logistic(prior_scale=2.5, intercept_scale=10.0)
    """
    return _model("logistic", densities.logistic, prior_scale, intercept_scale)


def probit(prior_scale: Scale = 1.0, intercept_scale: float | None = None) -> Model:
    """Probit regression: y in {0, 1}, P(y = 1) = Phi(eta); or y successes in the "trials" of a row."""
    return _model("probit", densities.probit, prior_scale, intercept_scale)


def linear(
    noise_scale: float | None = None,
    prior_scale: Scale = 1.0,
    intercept_scale: float | None = None,
    noise_prior_scale: float = 1.0,
) -> Model:
    """Linear regression: y ~ N(eta, noise_scale^2); noise_scale=None is unknown, half-normal a priori.

    >>> known, unknown = linear(noise_scale=0.5), linear(noise_prior_scale=2.0)
    """
    if noise_scale is None:
        unknown = densities.linear_unknown
        return _with_extras("linear", unknown, prior_scale, intercept_scale, noise_scale=noise_prior_scale)
    known = _require_positive("noise_scale", noise_scale)
    density = partial(densities.linear, known)
    return _model("linear", density, prior_scale, intercept_scale, noise=Noise("linear", known))


def student_t(
    degrees_of_freedom: float = DEGREES_OF_FREEDOM,
    noise_scale: float | None = None,
    prior_scale: Scale = 1.0,
    intercept_scale: float | None = None,
    noise_prior_scale: float = 1.0,
) -> Model:
    """Robust regression: (y - eta) / noise_scale has Student's t with known degrees of freedom."""
    freedom = _require_positive("degrees_of_freedom", degrees_of_freedom)
    if noise_scale is None:
        unknown = partial(densities.student_t_unknown, freedom)
        model = _with_extras("student_t", unknown, prior_scale, intercept_scale, noise_scale=noise_prior_scale)
        return replace(model, noise=Noise("student_t", None, freedom))
    known = _require_positive("noise_scale", noise_scale)
    density = partial(densities.student_t, freedom, known)
    return _model("student_t", density, prior_scale, intercept_scale, noise=Noise("student_t", known, freedom))


def poisson(prior_scale: Scale = 1.0, intercept_scale: float | None = None) -> Model:
    """Poisson regression of counts with mean exp(eta); an offset of log(exposure) makes it one of rates."""
    return _model("poisson", densities.poisson, prior_scale, intercept_scale)


def negative_binomial(
    prior_scale: Scale = 1.0, intercept_scale: float | None = None, overdispersion_prior_scale: float = 1.0
) -> Model:
    """Counts with mean mu = exp(eta) and variance mu + overdispersion mu^2, the overdispersion unknown."""
    density, scale = densities.negative_binomial, overdispersion_prior_scale
    return _with_extras("negative_binomial", density, prior_scale, intercept_scale, overdispersion=scale)


def multinomial(num_classes: int, prior_scale: Scale = 1.0, intercept_scale: float | None = None) -> Model:
    """Multinomial logistic regression: y in 0..K-1, P(y = k) proportional to exp(eta_k), eta_0 = 0.

    Coefficients are (K - 1, d), the intercept (K - 1,).
    """
    num_classes = _require_classes(num_classes)
    # One head is a number, not a vector of one.
    density = _two_classes if num_classes == 2 else densities.multinomial
    return _model("multinomial", density, prior_scale, intercept_scale, num_classes=num_classes)


def ordinal(num_classes: int, prior_scale: Scale = 1.0, cut_scale: float = 10.0) -> Model:
    """Cumulative logit: y in 0..K-1 in their order, P(y <= k) = 1 / (1 + exp(-(c_k - eta))), cut points c_0 < c_1 < ...

    There is no intercept, which the cut points are.
    """
    return _ordinal("ordinal", densities.ordinal_logit, num_classes, prior_scale, cut_scale)


def ordinal_probit(num_classes: int, prior_scale: Scale = 1.0, cut_scale: float = 10.0) -> Model:
    """Cumulative probit: P(y <= k) = Phi(c_k - eta)."""
    return _ordinal("ordinal_probit", densities.ordinal_probit, num_classes, prior_scale, cut_scale)


def gamma(prior_scale: Scale = 1.0, intercept_scale: float | None = None, shape_prior_scale: float = 2.0) -> Model:
    """Gamma regression: y > 0 with mean exp(eta) and variance mean^2 / shape, the shape unknown."""
    return _with_extras("gamma", densities.gamma, prior_scale, intercept_scale, shape=shape_prior_scale)


def beta(prior_scale: Scale = 1.0, intercept_scale: float | None = None, precision_prior_scale: float = 2.0) -> Model:
    """Beta regression: 0 < y < 1 with mean m = 1 / (1 + exp(-eta)) and variance m (1 - m) / (1 + precision)."""
    return _with_extras("beta", densities.beta, prior_scale, intercept_scale, precision=precision_prior_scale)


def exponential(prior_scale: Scale = 1.0, intercept_scale: float | None = None) -> Model:
    """Times with mean exp(eta) and a constant hazard; "censored" and "upper" beside y say how they are censored."""
    return _with_extras("exponential", times.exponential, prior_scale, intercept_scale)


def weibull(prior_scale: Scale = 1.0, intercept_scale: float | None = None, shape_prior_scale: float = 1.0) -> Model:
    """Times with mean exp(eta) and a hazard that goes as time^(shape - 1); censored like those of `exponential`."""
    return _with_extras("weibull", times.weibull, prior_scale, intercept_scale, shape=shape_prior_scale)


def log_normal(prior_scale: Scale = 1.0, intercept_scale: float | None = None, noise_prior_scale: float = 1.0) -> Model:
    """Times with log y ~ N(eta, noise_scale^2); censored like those of `exponential`."""
    return _with_extras("log_normal", times.log_normal, prior_scale, intercept_scale, noise_scale=noise_prior_scale)


def zero_inflated_poisson(prior_scale: Scale = 1.0, intercept_scale: float | None = None) -> Model:
    """Poisson counts with mean exp(eta), in place of which a zero stands with a chance `zero_inflation`."""
    return _with_extras("zero_inflated_poisson", densities.zero_inflated_poisson, prior_scale, intercept_scale)


def zero_inflated_negative_binomial(
    prior_scale: Scale = 1.0, intercept_scale: float | None = None, overdispersion_prior_scale: float = 1.0
) -> Model:
    """The same with negative binomial counts."""
    name, density = "zero_inflated_negative_binomial", densities.zero_inflated_negative_binomial
    return _with_extras(name, density, prior_scale, intercept_scale, overdispersion=overdispersion_prior_scale)


def hurdle_poisson(prior_scale: Scale = 1.0, intercept_scale: float | None = None) -> Model:
    """A zero with the chance `zero_share`, else a count of one or more: Poisson with mean exp(eta), truncated at 0."""
    return _with_extras("hurdle_poisson", densities.hurdle_poisson, prior_scale, intercept_scale)


def hurdle_negative_binomial(
    prior_scale: Scale = 1.0, intercept_scale: float | None = None, overdispersion_prior_scale: float = 1.0
) -> Model:
    """The same with negative binomial counts."""
    name, density = "hurdle_negative_binomial", densities.hurdle_negative_binomial
    return _with_extras(name, density, prior_scale, intercept_scale, overdispersion=overdispersion_prior_scale)


def quantile(
    level: float = 0.5,
    prior_scale: Scale = 1.0,
    intercept_scale: float | None = None,
    noise_prior_scale: float = 1.0,
    smoothing: float = 0.1,
) -> Model:
    """The quantile of y at a `level`, by a check loss that is smooth over `smoothing` noise scales: a pseudo-posterior.

    The loss is that of an asymmetric Laplace law, which the rows are not said to have.
    """
    for name, value in (("level", level), ("smoothing", smoothing)):
        if isinstance(value, bool) or not 0 < value < 1:
            raise ModelError(explain(f"{name} between 0 and 1", repr(value), "level=0.9, smoothing=0.1"))
    density = partial(densities.quantile, float(level), float(smoothing))
    return _with_extras("quantile", density, prior_scale, intercept_scale, noise_scale=noise_prior_scale)


# By the names that other packages have for them.
bernoulli = binomial = logistic
gaussian = normal = linear

FAMILIES: dict[str, Callable[..., Model]] = {name: globals()[name] for name in CATALOGUE}


def with_codes(model: Model, indexed: Indexed) -> Model:
    """The family's model of rows that also name coefficients by code: {"x": (p,), "codes": (c,), "y": scalar}."""
    layout = replace(model.layout, indexed=indexed)
    told: dict[str, Any] = {
        name: partial(getattr(model, name), layout=layout) for name in ("log_likelihood", "initial", "check")
    }
    return replace(model, layout=layout, **told)


def _two_classes(eta: jax.Array, row: Any) -> jax.Array:
    return densities.multinomial(eta[None], row)


def _ordinal(name: str, density: Callable[..., Any], num_classes: int, prior_scale: Scale, cut_scale: float) -> Model:
    count = _require_classes(num_classes)
    scale = _require_positive("cut_scale", cut_scale, "10.0, on the scale of the linear predictor")
    model = _with_extras(name, density, prior_scale, None, {"cut_points": count - 1}, cut_points=scale)
    check = partial(check_regression, check_class(count), (), prior_scale, layout=model.layout)
    return replace(model, check=check)


def _require_classes(num_classes: Any) -> int:
    if isinstance(num_classes, bool) or not isinstance(num_classes, int | np.integer) or num_classes < 2:
        raise ModelError(explain("num_classes a whole number >= 2", repr(num_classes), "how many values y takes"))
    return int(num_classes)


def _with_extras(
    name: str,
    density: Callable[..., Any],
    prior_scale: Scale,
    intercept_scale: float | None,
    sizes: Mapping[str, int] = MappingProxyType({}),
    **scales: float,
) -> Model:
    """With all extras of the family's record unknown, their priors of these scales."""
    extras = tuple(
        ExtraPart(
            each.name,
            each.space,
            each.prior._replace(scale=_require_positive(f"{each.name.removesuffix('_scale')}_prior_scale", scale)),
            sizes.get(each.name, each.size),
        )
        for each in CATALOGUE[name].extras
        for scale in [scales.get(each.name, each.prior.scale)]
    )
    if extras and extras[0].space == "excess":
        extras = (replace(extras[0], width=extras[0].prior.scale), *extras[1:])
        density = OfExcess(density, extras[0].width)
    return _model(name, density, prior_scale, intercept_scale, extras)


def settled(model: Model, rows: Any) -> Model:
    """The same model in coordinates that suit these rows, where it has an excess; theta and its prior are the same."""
    parts, own = model.parts, getattr(model.log_likelihood, "func", None) is _predictor_likelihood
    y: Any = rows.get("y") if isinstance(rows, Mapping) else None
    if y is None or not own or parts is None or not isinstance(parts.density, OfExcess) or np.ndim(y) != 1:
        return model
    if np.asarray(y[:1]).dtype.kind not in "biuf":
        return model
    return with_width(model, width_for(y, parts.extras[0].prior.scale))


def with_width(model: Model, width: float) -> Model:
    """With coordinates of an excess that are this wide."""
    parts = model.parts
    assert parts is not None
    assert isinstance(parts.density, OfExcess)
    first, *rest = parts.extras
    extras, density = (replace(first, width=width), *rest), replace(parts.density, width=width)
    initial: Any = model.initial
    return replace(
        model,
        log_likelihood=partial(_predictor_likelihood, density, extras, layout=model.layout),
        initial=partial(initial.func, *initial.args[:2], extras, layout=model.layout),
        predictor=density,
        constraints={extra.name: extra.constraint for extra in extras},
        parts=parts._replace(density=density, extras=extras),
    )


def _model(
    name: str,
    density: Callable[..., Any],
    prior_scale: Scale,
    intercept_scale: float | None,
    extras: tuple[ExtraPart, ...] = (),
    num_classes: int | None = None,
    noise: Noise | None = None,
) -> Model:
    """`extras` are those of the family that are unknown."""
    family, scale = CATALOGUE[name], _prior_scales(prior_scale)
    heads = 1 if num_classes is None else num_classes - 1
    layout = Layout(heads, intercept_scale is not None, sum(extra.size for extra in extras))
    scales = {"coefficients": scale}
    if intercept_scale is not None:
        scales["intercept"] = _require_positive("intercept_scale", intercept_scale, "inf for a flat prior")
    normal = scales | {extra.name: extra.prior.scale for extra in extras if extra.prior.law == "half-normal"}
    parts = FamilyParts(density, scales | {extra.name: extra.prior.scale for extra in extras}, extras=extras)
    check_response = CHECKS.get(family.response, check_real) if num_classes is None else check_class(num_classes)
    check_rows = check_multinomial if family.by_class else check_regression
    return Model(
        log_prior=partial(_log_prior, normal if len(parts.scales) > 1 else scale, extras),
        log_likelihood=partial(_predictor_likelihood, density, extras, layout=layout),
        initial=partial(_start, heads if family.by_class else None, "intercept" in scales, extras, layout=layout),
        predictor=density,
        layout=layout,
        check=partial(check_rows, check_response, family.reads, prior_scale, layout=layout),
        log_concave=family.log_concave and not extras,
        constraints={extra.name: extra.constraint for extra in extras} or None,
        family=name,
        noise=noise or Noise(name),
        parts=parts,
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


def _log_prior(scales: Any, extras: tuple[ExtraPart, ...], theta: Any) -> jax.Array:
    """Up to its constant; of a vector, or of a dict. Half-normal laws are among the normal ones of the `scales`."""
    others = {extra.name for extra in extras} - set(scales if isinstance(scales, dict) else ())
    own = {name: part for name, part in theta.items() if name not in others} if isinstance(scales, dict) else theta
    terms = jax.tree.map(lambda scale, part: jnp.sum((part / scale) ** 2), scales, own)
    total = -0.5 * jnp.sum(jnp.stack(jax.tree.leaves(terms)))
    return total + sum(extra.log_prior(theta[extra.name]) for extra in extras if extra.name in others)


def _predictor_likelihood(
    density: Callable[..., Any], extras: tuple[ExtraPart, ...], theta: Any, row: Any, *, layout: Layout
) -> jax.Array:
    eta = layout.combine(row, theta["coefficients"] if isinstance(theta, dict) else theta)
    if layout.intercept:
        eta += theta["intercept"]
    if extras:
        eta = with_extras(eta, extras, theta)
    return density(eta[0] if layout.is_scalar and eta.ndim else eta, row)


def _start(heads: int | None, intercept: bool, extras: tuple[ExtraPart, ...], row: Any, *, layout: Layout) -> Any:
    """Zeros, and extras in the middle of where they live."""
    shape = () if heads is None else (heads,)
    start: dict[str, Any] = {"coefficients": np.zeros((*shape, layout.width(row)))}
    if intercept:
        start["intercept"] = np.zeros(shape)
    start |= {extra.name: extra.start for extra in extras}
    return start if len(start) > 1 else start["coefficients"]
