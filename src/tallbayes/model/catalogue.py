"""The catalogue of families: one record each, in plain words and numbers, so that help needs no JAX to list them.

A family is composed of a response (`responses`), a link (`links`), a density (`densities`) and perhaps a parameter
beside the coefficients. `families` makes models of these; whatever else is to be known of one is read off its record.
"""

from __future__ import annotations

from typing import NamedTuple

DEGREES_OF_FREEDOM = 4.0


class Extra(NamedTuple):
    """A positive parameter beside the coefficients, in the units of the response or in none."""

    name: str
    has_units: bool


class Family(NamedTuple):
    """What is known of a regression by its name.

    `title` is what a report calls it. `response` is what y may be: binary, real, count or class; `link` is how the mean
    of y follows from eta and, where there is a `tail`, P(y >= k). `ratio` is what exp of a coefficient is called. With
    `by_class` every class but the first has coefficients of its own, and no offset. The density is `log_concave` in
    eta, given the extra. One that `shrinks` has one linear predictor, and takes a shrinkage prior of its coefficients.
    """

    name: str
    title: str
    response: str
    link: str
    tail: str | None = None
    extra: Extra | None = None
    ratio: str | None = None
    by_class: bool = False
    log_concave: bool = True
    shrinks: bool = False


NOISE = Extra("noise_scale", has_units=True)
# What brms, and everybody, calls it.
SIGMA = "sigma"
EXCESS = Extra("overdispersion", has_units=False)

CATALOGUE = {
    family.name: family
    for family in (
        Family("logistic", "Logistic regression", "binary", "logit", ratio="odds ratio", shrinks=True),
        Family("probit", "Probit regression", "binary", "probit", shrinks=True),
        Family("linear", "Linear regression", "real", "identity", extra=NOISE, shrinks=True),
        Family(
            "student_t",
            "Linear regression with Student-t noise",
            "real",
            "identity",
            extra=NOISE,
            log_concave=False,
            shrinks=True,
        ),
        Family("poisson", "Poisson regression", "count", "log", "poisson", ratio="rate ratio", shrinks=True),
        Family(
            "negative_binomial",
            "Negative binomial regression",
            "count",
            "log",
            "negative_binomial",
            extra=EXCESS,
            ratio="rate ratio",
            shrinks=True,
        ),
        Family("multinomial", "Multinomial regression", "class", "softmax", ratio="odds ratio", by_class=True),
    )
}
# What R, brms and bambi call them. A binomial response of more than one trial a row is none of these.
ALIASES = {
    "bernoulli": "logistic",
    "binomial": "logistic",
    "categorical": "multinomial",
    "gaussian": "linear",
    "negativebinomial": "negative_binomial",
    "negbinomial": "negative_binomial",
    "nbinom": "negative_binomial",
    "normal": "linear",
    "student": "student_t",
    "t": "student_t",
}
# The same likelihood, up to a constant, as that of the trials one by one.
TRIALS = "k successes in n trials as two rows, y = 1 and y = 0, with weights k and n - k"
EXTRAS = tuple(dict.fromkeys(family.extra.name for family in CATALOGUE.values() if family.extra is not None))


def families_of(response: str) -> tuple[str, ...]:
    """The names of those with such a response, the plainest first."""
    return tuple(name for name, family in CATALOGUE.items() if family.response == response)
