"""Families: regressions as Models with a cheap per-row form.

    p(row | theta) = exp l(eta, row),   eta = x . coefficients + intercept + offset,   coefficients_j ~ N(0, scale_j^2)

Rows are {"x": (d,), "y": scalar} and perhaps {"offset": scalar}, and what a family reads of y beside it. theta is the
coefficient vector (d,); where there is more to it, a dict of "coefficients", "intercept" (if `intercept_scale` is
given), and what the family's record has beside them, with its priors (`catalogue`). `prior_scale` is one number or one
for every column.
`priors` of `tb.priors` take the place of these, by the names of theta: {"coefficients": tb.priors.student_t(4, 0, 1)},
or one in a list for every column, "intercept", "noise_scale", "overdispersion". A horseshoe or R2D2 of "coefficients"
is of all of them together: the log prior is then that of all else, since theirs has no form without its scales.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tallbayes.errors import ModelError, explain
from tallbayes.model import densities
from tallbayes.model.catalogue import CATALOGUE, DEGREES_OF_FREEDOM
from tallbayes.model.model import Model
from tallbayes.model.noise import Noise
from tallbayes.model.parts import times
from tallbayes.model.parts.making import (
    Given,
    Scale,
    family_model,
    require_columns,
    require_positive,
    with_extras_of,
)
from tallbayes.model.responses import check_class, check_regression
from tallbayes.programs.later import jax


def logistic(prior_scale: Scale = 1.0, intercept_scale: float | None = None, priors: Given = None) -> Model:
    """Logistic regression: y in {0, 1}, P(y = 1) = 1 / (1 + exp(-eta)); or y successes in the "trials" of a row.

    >>> model = logistic(prior_scale=2.5, intercept_scale=10.0)
    """
    return family_model("logistic", densities.logistic, prior_scale, intercept_scale, priors=priors)


def probit(prior_scale: Scale = 1.0, intercept_scale: float | None = None, priors: Given = None) -> Model:
    """Probit regression: y in {0, 1}, P(y = 1) = Phi(eta); or y successes in the "trials" of a row.

    >>> model = probit(prior_scale=2.5, intercept_scale=10.0)
    >>> model.family
    'probit'
    """
    return family_model("probit", densities.probit, prior_scale, intercept_scale, priors=priors)


def linear(
    noise_scale: float | None = None,
    prior_scale: Scale = 1.0,
    intercept_scale: float | None = None,
    noise_prior_scale: float = 1.0,
    priors: Given = None,
    noise_columns: int = 0,
) -> Model:
    """Linear regression: y ~ N(eta, noise_scale^2); noise_scale=None is unknown, half-normal a priori.

    Of the last `noise_columns` of x the log of the noise scale is a linear function, and the mean is not: log sigma =
    log_noise_scale + z . gamma, gamma the last coefficients, and log_noise_scale ~ N(0, noise_prior_scale^2).

    >>> known, unknown = linear(noise_scale=0.5), linear(noise_prior_scale=2.0)
    >>> of_its_own = linear(noise_columns=1, intercept_scale=10.0)  # rows of x are (x_1, ..., x_d, z)
    """
    beside = require_columns("noise_columns", noise_columns, noise_scale)
    if noise_scale is None:
        unknown, scale = densities.linear_unknown, noise_prior_scale
        return with_extras_of(
            "linear", unknown, prior_scale, intercept_scale, noise_scale=scale, priors=priors, beside=beside
        )
    known = require_positive("noise_scale", noise_scale)
    density = partial(densities.linear, known)
    return family_model("linear", density, prior_scale, intercept_scale, noise=Noise("linear", known), priors=priors)


def student_t(
    degrees_of_freedom: float = DEGREES_OF_FREEDOM,
    noise_scale: float | None = None,
    prior_scale: Scale = 1.0,
    intercept_scale: float | None = None,
    noise_prior_scale: float = 1.0,
    priors: Given = None,
    noise_columns: int = 0,
) -> Model:
    """Robust regression: (y - eta) / noise_scale has Student's t with known degrees of freedom.

    `noise_columns` are as in `linear`.

    >>> robust = student_t(4.0, intercept_scale=10.0)  # rows {"x": (N, d), "y": (N,)}
    >>> sorted(robust.constraints)
    ['noise_scale']
    """
    freedom = require_positive("degrees_of_freedom", degrees_of_freedom)
    beside = require_columns("noise_columns", noise_columns, noise_scale)
    if noise_scale is None:
        unknown, scale = partial(densities.student_t_unknown, freedom), noise_prior_scale
        model = with_extras_of(
            "student_t", unknown, prior_scale, intercept_scale, noise_scale=scale, priors=priors, beside=beside
        )
        return replace(model, noise=Noise("student_t", None, freedom))
    known = require_positive("noise_scale", noise_scale)
    density = partial(densities.student_t, freedom, known)
    return family_model(
        "student_t", density, prior_scale, intercept_scale, noise=Noise("student_t", known, freedom), priors=priors
    )


def poisson(prior_scale: Scale = 1.0, intercept_scale: float | None = None, priors: Given = None) -> Model:
    """Poisson regression of counts with mean exp(eta); an offset of log(exposure) makes it one of rates.

    >>> model = poisson(prior_scale=0.5, intercept_scale=10.0)  # rows may have "offset", log(exposure)
    >>> model.log_concave
    True
    """
    return family_model("poisson", densities.poisson, prior_scale, intercept_scale, priors=priors)


def negative_binomial(
    prior_scale: Scale = 1.0,
    intercept_scale: float | None = None,
    overdispersion_prior_scale: float = 1.0,
    priors: Given = None,
) -> Model:
    """Counts with mean mu = exp(eta) and variance mu + overdispersion mu^2, the overdispersion unknown.

    >>> model = negative_binomial(overdispersion_prior_scale=0.5)
    >>> sorted(model.constraints)
    ['overdispersion']
    """
    density, scale = densities.negative_binomial, overdispersion_prior_scale
    return with_extras_of(
        "negative_binomial", density, prior_scale, intercept_scale, overdispersion=scale, priors=priors
    )


def multinomial(
    num_classes: int, prior_scale: Scale = 1.0, intercept_scale: float | None = None, priors: Given = None
) -> Model:
    """Multinomial logistic regression: y in 0..K-1, P(y = k) proportional to exp(eta_k), eta_0 = 0.

    Coefficients are (K - 1, d), the intercept (K - 1,).

    >>> model = multinomial(3, intercept_scale=10.0)  # y is 0, 1 or 2
    >>> model.layout.heads
    2
    """
    num_classes = _require_classes(num_classes)
    # One head is a number, not a vector of one.
    density = _two_classes if num_classes == 2 else densities.multinomial
    return family_model("multinomial", density, prior_scale, intercept_scale, num_classes=num_classes, priors=priors)


def ordinal(num_classes: int, prior_scale: Scale = 1.0, cut_scale: float = 10.0, priors: Given = None) -> Model:
    """Cumulative logit: y in 0..K-1 in their order, P(y <= k) = 1 / (1 + exp(-(c_k - eta))), cut points c_0 < c_1 < ...

    There is no intercept, which the cut points are.

    >>> model = ordinal(4)  # y is 0, 1, 2 or 3
    >>> model.layout.extras  # cut points
    3
    """
    return _ordinal("ordinal", densities.ordinal_logit, num_classes, prior_scale, cut_scale, priors=priors)


def ordinal_probit(num_classes: int, prior_scale: Scale = 1.0, cut_scale: float = 10.0, priors: Given = None) -> Model:
    """Cumulative probit: P(y <= k) = Phi(c_k - eta).

    >>> model = ordinal_probit(4, cut_scale=5.0)
    >>> sorted(model.constraints)
    ['cut_points']
    """
    return _ordinal("ordinal_probit", densities.ordinal_probit, num_classes, prior_scale, cut_scale, priors=priors)


def gamma(
    prior_scale: Scale = 1.0, intercept_scale: float | None = None, shape_prior_scale: float = 2.0, priors: Given = None
) -> Model:
    """Gamma regression: y > 0 with mean exp(eta) and variance mean^2 / shape, the shape unknown.

    >>> model = gamma(intercept_scale=10.0, shape_prior_scale=1.0)
    >>> sorted(model.constraints)
    ['shape']
    """
    return with_extras_of(
        "gamma", densities.gamma, prior_scale, intercept_scale, shape=shape_prior_scale, priors=priors
    )


def beta(
    prior_scale: Scale = 1.0,
    intercept_scale: float | None = None,
    precision_prior_scale: float = 2.0,
    priors: Given = None,
) -> Model:
    """Beta regression: 0 < y < 1 with mean m = 1 / (1 + exp(-eta)) and variance m (1 - m) / (1 + precision).

    >>> model = beta(intercept_scale=10.0)
    >>> sorted(model.constraints)
    ['precision']
    """
    return with_extras_of(
        "beta", densities.beta, prior_scale, intercept_scale, precision=precision_prior_scale, priors=priors
    )


def exponential(prior_scale: Scale = 1.0, intercept_scale: float | None = None, priors: Given = None) -> Model:
    """Times with mean exp(eta) and a constant hazard; "censored" and "upper" beside y say how they are censored.

    >>> model = exponential(intercept_scale=10.0)  # rows {"x", "y", "censored"}: 1 where y is a time without an end
    >>> model.family
    'exponential'
    """
    return with_extras_of("exponential", times.exponential, prior_scale, intercept_scale, priors=priors)


def weibull(
    prior_scale: Scale = 1.0, intercept_scale: float | None = None, shape_prior_scale: float = 1.0, priors: Given = None
) -> Model:
    """Times with mean exp(eta) and a hazard that goes as time^(shape - 1); censored like those of `exponential`.

    >>> model = weibull(intercept_scale=10.0, shape_prior_scale=0.5)
    >>> sorted(model.constraints)
    ['shape']
    """
    return with_extras_of(
        "weibull", times.weibull, prior_scale, intercept_scale, shape=shape_prior_scale, priors=priors
    )


def log_normal(
    prior_scale: Scale = 1.0, intercept_scale: float | None = None, noise_prior_scale: float = 1.0, priors: Given = None
) -> Model:
    """Times with log y ~ N(eta, noise_scale^2); censored like those of `exponential`.

    >>> model = log_normal(intercept_scale=10.0, noise_prior_scale=2.0)
    >>> sorted(model.constraints)
    ['noise_scale']
    """
    return with_extras_of(
        "log_normal", times.log_normal, prior_scale, intercept_scale, noise_scale=noise_prior_scale, priors=priors
    )


def zero_inflated_poisson(
    prior_scale: Scale = 1.0, intercept_scale: float | None = None, priors: Given = None
) -> Model:
    """Poisson counts with mean exp(eta), in place of which a zero stands with a chance `zero_inflation`.

    >>> model = zero_inflated_poisson(intercept_scale=10.0)
    >>> sorted(model.constraints)
    ['zero_inflation']
    """
    return with_extras_of(
        "zero_inflated_poisson", densities.zero_inflated_poisson, prior_scale, intercept_scale, priors=priors
    )


def zero_inflated_negative_binomial(
    prior_scale: Scale = 1.0,
    intercept_scale: float | None = None,
    overdispersion_prior_scale: float = 1.0,
    priors: Given = None,
) -> Model:
    """The same with negative binomial counts.

    >>> model = zero_inflated_negative_binomial(intercept_scale=10.0)
    >>> sorted(model.constraints)
    ['overdispersion', 'zero_inflation']
    """
    name, density = "zero_inflated_negative_binomial", densities.zero_inflated_negative_binomial
    return with_extras_of(
        name, density, prior_scale, intercept_scale, overdispersion=overdispersion_prior_scale, priors=priors
    )


def hurdle_poisson(prior_scale: Scale = 1.0, intercept_scale: float | None = None, priors: Given = None) -> Model:
    """A zero with the chance `zero_share`, else a count of one or more: Poisson with mean exp(eta), truncated at 0.

    >>> model = hurdle_poisson(intercept_scale=10.0)
    >>> sorted(model.constraints)
    ['zero_share']
    """
    return with_extras_of("hurdle_poisson", densities.hurdle_poisson, prior_scale, intercept_scale, priors=priors)


def hurdle_negative_binomial(
    prior_scale: Scale = 1.0,
    intercept_scale: float | None = None,
    overdispersion_prior_scale: float = 1.0,
    priors: Given = None,
) -> Model:
    """The same with negative binomial counts.

    >>> model = hurdle_negative_binomial(intercept_scale=10.0)
    >>> sorted(model.constraints)
    ['overdispersion', 'zero_share']
    """
    name, density = "hurdle_negative_binomial", densities.hurdle_negative_binomial
    return with_extras_of(
        name, density, prior_scale, intercept_scale, overdispersion=overdispersion_prior_scale, priors=priors
    )


def quantile(
    level: float = 0.5,
    prior_scale: Scale = 1.0,
    intercept_scale: float | None = None,
    noise_prior_scale: float = 1.0,
    smoothing: float = 0.1,
    priors: Given = None,
) -> Model:
    """The quantile of y at a `level`, by a check loss that is smooth over `smoothing` noise scales: a pseudo-posterior.

    The loss is that of an asymmetric Laplace law, which the rows are not said to have.

    >>> upper = quantile(0.9, intercept_scale=10.0)
    >>> upper.family
    'quantile'
    """
    for name, value in (("level", level), ("smoothing", smoothing)):
        if isinstance(value, bool) or not 0 < value < 1:
            raise ModelError(explain(f"{name} between 0 and 1", repr(value), "level=0.9, smoothing=0.1"))
    density = partial(densities.quantile, float(level), float(smoothing))
    return with_extras_of(
        "quantile", density, prior_scale, intercept_scale, noise_scale=noise_prior_scale, priors=priors
    )


# By the names that other packages have for them.
bernoulli = binomial = logistic
gaussian = normal = linear

FAMILIES: dict[str, Callable[..., Model]] = {name: globals()[name] for name in CATALOGUE}


def _two_classes(eta: jax.Array, row: Any) -> jax.Array:
    return densities.multinomial(eta[None], row)


def _ordinal(
    name: str, density: Callable[..., Any], num_classes: int, prior_scale: Scale, cut_scale: float, priors: Given
) -> Model:
    count = _require_classes(num_classes)
    scale = require_positive("cut_scale", cut_scale, "10.0, on the scale of the linear predictor")
    sizes = {"cut_points": count - 1}
    model = with_extras_of(name, density, prior_scale, None, sizes, priors=priors, cut_points=scale)
    assert model.parts is not None
    check = partial(check_regression, check_class(count), (), model.parts.scales["coefficients"], layout=model.layout)
    return replace(model, check=check)


def _require_classes(num_classes: Any) -> int:
    if isinstance(num_classes, bool) or not isinstance(num_classes, int | np.integer) or num_classes < 2:
        raise ModelError(explain("num_classes a whole number >= 2", repr(num_classes), "how many values y takes"))
    return int(num_classes)
