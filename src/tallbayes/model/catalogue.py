"""The catalogue of families: one record each, in plain words and numbers, so that help needs no JAX to list them.

A family is composed of a response (`responses`), a link (`links`), a density (`densities`) and perhaps a parameter
beside the coefficients. `families` makes models of these; whatever else is to be known of one is read off its record.
"""

from __future__ import annotations

from typing import NamedTuple

DEGREES_OF_FREEDOM = 4.0


class ExtraLaw(NamedTuple):
    """A law: half-normal and log-normal of what is positive, ordered normal of cut points, uniform of a chance, and
    normal of what may be any number.

    Of a log-normal one mean and scale are those of the logarithm.
    """

    law: str
    mean: float = 0.0
    scale: float = 1.0

    def __str__(self) -> str:
        if self.law == "uniform":
            return "uniform(0, 1)"
        if self.law == "half-normal":
            return f"half-normal({self.scale:g})"
        square = f"{self.mean:g}, {self.scale:g}^2"
        told = {"log-normal": " in its logarithm", "ordered normal": ", in their order"}
        return f"N({square}){told.get(self.law, '')}"


class Extra(NamedTuple):
    """A parameter beside the coefficients: where it lives, its usual prior, and what it is in words; in the units of
    the response or in none. Of `size` 0 there are as many as the model says.

    A formula may have a linear predictor of its logarithm, under the `formula_name` that it has there.
    """

    name: str
    space: str = "positive"
    prior: ExtraLaw = ExtraLaw("half-normal")
    words: str = ""
    has_units: bool = False
    size: int = 1
    formula_name: str = ""

    @property
    def logarithm(self) -> Extra:
        """The intercept of that, which takes its place."""
        return self._replace(name=f"log_{self.name}", space="real", prior=ExtraLaw("normal"))

    @property
    def reported(self) -> str:
        """The name that a formula's result has for it."""
        return f"{self.formula_name}:Intercept" if self.space == "real" else self.name


class Family(NamedTuple):
    """What is known of a regression by its name.

    `title` is what a report calls it. `response` is what y may be: see `responses`; `link` is how the mean of y follows
    from eta and, where there is a `tail`, P(y >= k). `ratio` is what exp of a coefficient is called. With `by_class`
    every class but the first has coefficients of its own, and no offset. The density is `log_concave` in eta, given
    the `extras`, which stand in the order of their names, after "intercept"; it `reads` what rows may tell beside y.
    `mean_of_extras` says that the mean hangs on these too, and `has_law` that how y scatters is told by `laws`. A
    `pseudo` density is a loss: of rows it says nothing. One that `shrinks` takes a shrinkage prior of its coefficients.
    `note` is told with every fit. One that is `distributional` takes a formula of its last extra.
    """

    name: str
    title: str
    response: str
    link: str
    tail: str | None = None
    extras: tuple[Extra, ...] = ()
    ratio: str | None = None
    by_class: bool = False
    log_concave: bool = True
    reads: tuple[str, ...] = ()
    mean_of_extras: bool = False
    has_law: bool = False
    pseudo: bool = False
    note: str = ""
    shrinks: bool = False
    distributional: bool = False

    @property
    def extra(self) -> Extra | None:
        """The first of the extras."""
        return self.extras[0] if self.extras else None

    @property
    def has_classes(self) -> bool:
        return self.response in ("class", "ordered")

    @property
    def is_plain(self) -> bool:
        """Whether noise, mean and tails are known by their formulas."""
        return not (self.has_law or self.pseudo)


# What brms, and everybody, calls it.
SIGMA = "sigma"
NOISE = Extra("noise_scale", has_units=True, formula_name=SIGMA)
EXCESS = Extra("overdispersion", "excess", words="variance of y = mean + overdispersion mean^2")
LOG_NOISE = Extra("noise_scale", words="sd of log y")
SHAPE = ExtraLaw("log-normal", 0.0, 2.0)
GAMMA_SHAPE = Extra("shape", prior=SHAPE, words="variance of y = mean^2 / shape")
WEIBULL_SHAPE = Extra("shape", prior=ExtraLaw("log-normal"), words="the hazard goes as time^(shape - 1)")
PRECISION = Extra(
    "precision", prior=ExtraLaw("log-normal", 2.0, 2.0), words="variance of y = mean (1 - mean) / (1 + precision)"
)
CUTS = Extra(
    "cut_points",
    "ordered",
    ExtraLaw("ordered normal", 0.0, 10.0),
    "P(y <= k) = F(cut point k - linear predictor)",
    size=0,
)
INFLATION = Extra("zero_inflation", "chance", ExtraLaw("uniform"), "chance of a zero that is no count")
HURDLE = Extra("zero_share", "chance", ExtraLaw("uniform"), "chance of a zero; other counts are truncated at 0")
TIMES = ("censored", "upper")
ZERO = "coefficients are of the log mean of the counts"

CATALOGUE = {
    family.name: family
    for family in (
        Family(
            "logistic", "Logistic regression", "binary", "logit", ratio="odds ratio", reads=("trials",), shrinks=True
        ),
        Family("probit", "Probit regression", "binary", "probit", reads=("trials",), shrinks=True),
        Family("linear", "Linear regression", "real", "identity", extras=(NOISE,), shrinks=True, distributional=True),
        Family(
            "student_t",
            "Linear regression with Student-t noise",
            "real",
            "identity",
            extras=(NOISE,),
            log_concave=False,
            shrinks=True,
            distributional=True,
        ),
        Family("poisson", "Poisson regression", "count", "log", "poisson", ratio="rate ratio", shrinks=True),
        Family(
            "negative_binomial",
            "Negative binomial regression",
            "count",
            "log",
            "negative_binomial",
            extras=(EXCESS,),
            ratio="rate ratio",
            shrinks=True,
        ),
        Family("multinomial", "Multinomial regression", "class", "softmax", ratio="odds ratio", by_class=True),
        *(
            Family(
                f"ordinal{suffix}",
                f"Ordinal regression, cumulative {link}",
                "ordered",
                f"ordered {link}",
                extras=(CUTS,),
                ratio=ratio,
                mean_of_extras=True,
                has_law=True,
                note=f"cut points: P(y <= k) = {curve}(cut point k - linear predictor); they stand for an intercept",
            )
            for suffix, link, curve, ratio in (
                ("", "logit", "logistic", "odds ratio"),
                ("_probit", "probit", "Phi", None),
            )
        ),
        Family("gamma", "Gamma regression", "positive", "log", extras=(GAMMA_SHAPE,), ratio="mean ratio", has_law=True),
        Family(
            "beta",
            "Beta regression",
            "share",
            "logit",
            extras=(PRECISION,),
            ratio="odds ratio",
            log_concave=False,
            has_law=True,
        ),
        Family(
            "exponential",
            "Exponential survival regression",
            "survival",
            "log",
            ratio="time ratio",
            reads=TIMES,
            has_law=True,
            note="times: coefficients are of the log mean time; a ratio of hazards is 1 / time ratio",
        ),
        Family(
            "weibull",
            "Weibull survival regression",
            "survival",
            "log",
            extras=(WEIBULL_SHAPE,),
            ratio="time ratio",
            reads=TIMES,
            has_law=True,
            note="times: coefficients are of the log mean time; a ratio of hazards is time ratio^-shape",
        ),
        Family(
            "log_normal",
            "Log-normal survival regression",
            "survival",
            "log-normal",
            extras=(LOG_NOISE,),
            ratio="time ratio",
            reads=TIMES,
            mean_of_extras=True,
            has_law=True,
            note="times: coefficients are of the mean log time, that is of the log median time",
        ),
        *(
            Family(
                f"{kind}_{counts}",
                f"{words} {title} regression",
                "count",
                f"{kind} {counts}",
                extras=(*extras, extra),
                ratio="rate ratio",
                log_concave=False,
                mean_of_extras=True,
                has_law=True,
                note=f"counts: {ZERO}, {extra.name}: {extra.words}",
            )
            for kind, words, extra in (
                ("zero_inflated", "Zero-inflated", INFLATION),
                ("hurdle", "Hurdle", HURDLE),
            )
            for counts, title, extras in (
                ("poisson", "Poisson", ()),
                ("negative_binomial", "negative binomial", (EXCESS,)),
            )
        ),
        Family(
            "quantile",
            "Quantile regression",
            "real",
            "identity",
            extras=(NOISE,),
            pseudo=True,
            note="pseudo-posterior: the density is a smoothed check loss, no law of the response; no coverage of its "
            "intervals is claimed",
        ),
    )
}
# What R, brms and bambi call them.
ALIASES = {
    "bernoulli": "logistic",
    "binomial": "logistic",
    "categorical": "multinomial",
    "cumulative": "ordinal",
    "asymmetric_laplace": "quantile",
    "asymmetriclaplace": "quantile",
    "gaussian": "linear",
    "negativebinomial": "negative_binomial",
    "negbinomial": "negative_binomial",
    "lognormal": "log_normal",
    "zero_inflated_negativebinomial": "zero_inflated_negative_binomial",
    "zero_inflated_negbinomial": "zero_inflated_negative_binomial",
    "hurdle_negativebinomial": "hurdle_negative_binomial",
    "hurdle_negbinomial": "hurdle_negative_binomial",
    "nbinom": "negative_binomial",
    "normal": "linear",
    "student": "student_t",
    "t": "student_t",
}
# What a row may tell of y beside itself: the trials that y were successes of.
BESIDE = ("trials", "censored", "upper")
TRIALS = 'k successes in n trials: cbind(k, n - k) or p(k, n) on the left of a formula, "trials" beside y in arrays'
EXTRAS = tuple(dict.fromkeys(extra.name for family in CATALOGUE.values() for extra in family.extras))
# Names that a formula may have on the left beside the response.
DISTRIBUTIONAL = tuple(
    dict.fromkeys(family.extras[-1].formula_name for family in CATALOGUE.values() if family.distributional)
)


def families_of(response: str) -> tuple[str, ...]:
    """The names of those with such a response, the plainest first."""
    return tuple(name for name, family in CATALOGUE.items() if family.response == response)


def plain_families_of(response: str) -> tuple[str, ...]:
    """Those of which noise, mean and tails are known by their formulas."""
    return tuple(name for name in families_of(response) if CATALOGUE[name].is_plain)
