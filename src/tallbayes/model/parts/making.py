"""What families are made of: a density with its extras and priors, bound to a layout, as a `Model`.

log p(theta) = -sum_j (coefficients_j / scale_j)^2 / 2 + ...     or the laws that were stated, and those of the extras
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from tallbayes.errors import ModelError, explain
from tallbayes.model.catalogue import CATALOGUE
from tallbayes.model.linear import Indexed, Layout
from tallbayes.model.model import FamilyParts, Model
from tallbayes.model.noise import Noise
from tallbayes.model.parts.extras import ExtraPart, OfExcess, width_for, with_extras
from tallbayes.model.priors.assigned import Leaves, Priors, assign, log_density, without_shrinkage
from tallbayes.model.responses import CHECKS, check_class, check_multinomial, check_real, check_regression
from tallbayes.programs.later import jax, jnp

Scale = Any
Given = Mapping[str, Any] | None


def with_codes(model: Model, indexed: Indexed) -> Model:
    """The family's model of rows that also name coefficients by code: {"x": (p,), "codes": (c,), "y": scalar}."""
    layout = replace(model.layout, indexed=indexed)
    told: dict[str, Any] = {
        name: partial(getattr(model, name), layout=layout) for name in ("log_likelihood", "initial", "check")
    }
    return replace(model, layout=layout, **told)


def with_extras_of(
    name: str,
    density: Callable[..., Any],
    prior_scale: Scale,
    intercept_scale: float | None,
    sizes: Mapping[str, int] = MappingProxyType({}),
    priors: Given = None,
    beside: int = 0,
    **scales: float,
) -> Model:
    """With all extras of the family's record unknown, their priors of these scales; the logarithm of the last may have
    so many columns of x for its own."""
    extras = tuple(
        ExtraPart(
            each.name,
            each.space,
            each.prior._replace(scale=require_positive(f"{each.name.removesuffix('_scale')}_prior_scale", scale)),
            sizes.get(each.name, each.size),
        )
        for each in CATALOGUE[name].extras
        for scale in [scales.get(each.name, each.prior.scale)]
    )
    if extras and extras[0].space == "excess":
        extras = (replace(extras[0], width=extras[0].prior.scale), *extras[1:])
        density = OfExcess(density, extras[0].width)
    if beside:
        own = CATALOGUE[name].extras[-1].logarithm
        extras = (*extras[:-1], ExtraPart(own.name, own.space, own.prior._replace(scale=extras[-1].prior.scale)))
    return family_model(name, density, prior_scale, intercept_scale, extras, priors=priors, beside=beside)


def require_columns(name: str, count: Any, known: float | None) -> int:
    """So many columns of x for what is not known beforehand."""
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
        raise ModelError(explain(f"{name} a whole number >= 0", repr(count), "how many of the last columns of x"))
    if count and known is not None:
        hint = "leave one of them out"
        raise ModelError(explain(f"a noise scale that is unknown beside {name}", f"noise_scale={known!r}", hint))
    return int(count)


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


def family_model(
    name: str,
    density: Callable[..., Any],
    prior_scale: Scale,
    intercept_scale: float | None,
    extras: tuple[ExtraPart, ...] = (),
    num_classes: int | None = None,
    noise: Noise | None = None,
    priors: Given = None,
    beside: int = 0,
) -> Model:
    """`extras` are those of the family that are unknown; `beside` columns of x are those of the last."""
    family, scale = CATALOGUE[name], prior_scales(prior_scale)
    heads = 1 if num_classes is None else num_classes - 1
    layout = Layout(heads, intercept_scale is not None, sum(extra.size for extra in extras), beside=beside)
    scales = {"coefficients": scale}
    if intercept_scale is not None:
        scales["intercept"] = require_positive("intercept_scale", intercept_scale, "inf for a flat prior")
    priors, shrinkage = without_shrinkage(priors)
    if shrinkage is not None:
        if not family.shrinks:
            known = ", ".join(each.name for each in CATALOGUE.values() if each.shrinks)
            hint = f"tb.priors.normal(), or a family of these: {known}"
            raise ModelError(explain(f"a family of one linear predictor under {shrinkage}", f"family {name!r}", hint))
        if beside:
            hint = "normal priors of the coefficients"
            raise ModelError(
                explain("one linear predictor under a shrinkage prior", "one of the noise scale too", hint)
            )
        scales["coefficients"] = scale = np.inf
    stated: Priors | None = None
    words: tuple[tuple[str, str], ...] = ()
    if priors:
        stated, scales, extras, words = assign(priors, scales, extras)
        prior: Any = partial(_stated_prior, stated.leaves, extras)
    else:
        normal = scales | {extra.name: extra.prior.scale for extra in extras if extra.prior.law == "half-normal"}
        prior = partial(_log_prior, normal if len(scales) + len(extras) > 1 else scale, extras)
    all_scales = scales | {extra.name: extra.spread for extra in extras}
    check_response = CHECKS.get(family.response, check_real) if num_classes is None else check_class(num_classes)
    check_rows = check_multinomial if family.by_class else check_regression
    is_log_concave = family.log_concave and not extras and (stated is None or stated.log_concave)
    return Model(
        log_prior=prior,
        log_likelihood=partial(_predictor_likelihood, density, extras, layout=layout),
        initial=partial(_start, heads if family.by_class else None, "intercept" in scales, extras, layout=layout),
        predictor=density,
        layout=layout,
        check=partial(check_rows, check_response, family.reads, scales["coefficients"], layout=layout),
        log_concave=is_log_concave and shrinkage is None,
        constraints={extra.name: extra.constraint for extra in extras} or None,
        family=name,
        noise=noise or Noise(name),
        parts=FamilyParts(density, all_scales, extras=extras, priors=stated, log_prior=prior, words=words),
        shrinkage=shrinkage,
    )


def prior_scales(prior_scale: Any) -> Any:
    scale = np.asarray(prior_scale, np.float64)
    if scale.ndim > 1 or not np.all(scale > 0):
        hint = "1.0, one number for every column, or float('inf') for a flat prior"
        raise ModelError(explain("prior_scale > 0", repr(prior_scale), hint))
    return float(scale) if scale.ndim == 0 else scale


def require_positive(name: str, value: Any, hint: str = "its scale in the units of y") -> float:
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


def _stated_prior(leaves: Leaves, extras: tuple[ExtraPart, ...], theta: Any) -> jax.Array:
    """Of laws that were stated, of coefficients and an intercept, and those of the extras."""
    return log_density(leaves, theta) + sum(extra.log_prior(theta[extra.name]) for extra in extras)


def _predictor_likelihood(
    density: Callable[..., Any], extras: tuple[ExtraPart, ...], theta: Any, row: Any, *, layout: Layout
) -> jax.Array:
    eta = layout.combine(row, theta["coefficients"] if isinstance(theta, dict) else theta)
    if layout.intercept:
        eta += theta["intercept"]
    if extras:
        eta = with_extras(eta, extras, theta)
    if layout.beside:
        eta = eta.at[-1].add(layout.shift(row, theta["coefficients"]))
    return density(eta[0] if layout.is_scalar and eta.ndim else eta, row)


def _start(heads: int | None, intercept: bool, extras: tuple[ExtraPart, ...], row: Any, *, layout: Layout) -> Any:
    """Zeros, and extras in the middle of where they live."""
    shape = () if heads is None else (heads,)
    start: dict[str, Any] = {"coefficients": np.zeros((*shape, layout.width(row)))}
    if intercept:
        start["intercept"] = np.zeros(shape)
    start |= {extra.name: extra.start for extra in extras}
    return start if len(start) > 1 else start["coefficients"]
