"""Data sets drawn from the families' own priors, in NumPy alone: what the families are judged by.

    coefficients_j ~ N(0, scale_j^2),   intercept ~ N(0, 0.5^2),   noise scale and overdispersion ~ |N(0, 1)|
    log shape ~ N(0, s^2),   log precision ~ N(2, 1),   cut points N(0, 1.5^2) in order,   chances of a zero uniform
    x ~ N(0, I),   eta = x . coefficients + intercept + offset,   y ~ p(. | eta)

The scales of the columns rise from a tenth of the widest one: where the prior is narrow it decides the posterior, where
it is wide the rows do, so both have to be right. Counts have an offset, the log of an exposure. Of times a third is
seen as it is, a third until a time that knows nothing of it, and of a third is known between which of the times in
`VISITS` it was. Residuals of a quantile regression are those of its smoothed check loss, which is a density, up to its
constant: r = h logit b, b ~ Beta(h (1 - level), h level), at a smoothing h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit, gamma, ndtr

import tallbayes as tb

Rows = dict[str, np.ndarray]
Truth = dict[str, np.ndarray]
Drawn = Callable[[np.random.Generator], np.ndarray]
INTERCEPT_SCALE, EXTRA_SCALE = 0.5, 1.0
KNOWN_NOISE, FREEDOM, CLASSES = 0.8, 4.0, 3
CUTS, CUT_SCALE = 3, 1.5
MOST_TRIALS = 8
VISITS = np.array([0.5, 1.0, 2.0, 4.0])
LEVEL, SMOOTHING = 0.8, 0.2


def half_normal(rng: np.random.Generator) -> np.ndarray:
    return EXTRA_SCALE * np.abs(np.asarray(rng.normal()))


def log_normal(mean: float, scale: float) -> Drawn:
    return lambda rng: np.exp(mean + scale * np.asarray(rng.normal()))


def uniform(rng: np.random.Generator) -> np.ndarray:
    return np.asarray(rng.random())


def in_order(rng: np.random.Generator) -> np.ndarray:
    return np.sort(CUT_SCALE * rng.normal(size=CUTS))


@dataclass(frozen=True)
class Simulation:
    """A family, the widest prior scale of its coefficients, and how y is drawn given eta and the extra parameters,
    which come from `extras`. Where y is not all of a response, it is told by name."""

    family: Callable[..., tb.Model]
    respond: Callable[[np.random.Generator, np.ndarray, Truth], np.ndarray | Rows]
    widest: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)
    extras: dict[str, Drawn] = field(default_factory=dict)
    offset: float | None = None
    heads: tuple[int, ...] = ()
    intercept: bool = True

    def scales(self, dimension: int) -> np.ndarray:
        return self.widest * np.geomspace(0.1, 1.0, dimension)

    def model(self, dimension: int, narrowing: float = 1.0) -> tb.Model:
        """The right model; `narrowing` below 1 makes the prior of the coefficients too narrow."""
        scales = narrowing * self.scales(dimension)
        start = {"intercept_scale": INTERCEPT_SCALE} if self.intercept else {}
        return self.family(prior_scale=scales, **start, **self.options)

    def draw(self, rng: np.random.Generator, num_rows: int, dimension: int) -> tuple[Truth, Rows]:
        """Parameters from the prior, and rows given them."""
        truth = {"coefficients": self.scales(dimension) * rng.normal(size=(*self.heads, dimension))}
        if self.intercept:
            truth["intercept"] = INTERCEPT_SCALE * np.asarray(rng.normal(size=self.heads))
        truth |= {name: drawn(rng) for name, drawn in self.extras.items()}
        rows = {"x": rng.normal(size=(num_rows, dimension))}
        eta = rows["x"] @ truth["coefficients"].T + truth.get("intercept", 0.0)
        if self.offset is not None:
            rows["offset"] = rng.normal(self.offset, 0.5, size=num_rows)
            eta = eta + rows["offset"]
        response = self.respond(rng, eta, truth)
        named = response if isinstance(response, dict) else {"y": response}
        return truth, rows | {name: each.astype(float) for name, each in named.items()}


def binary(rng: np.random.Generator, eta: np.ndarray, _: Truth) -> np.ndarray:
    return rng.random(len(eta)) < expit(eta)


def thresholded(rng: np.random.Generator, eta: np.ndarray, _: Truth) -> np.ndarray:
    return eta + rng.normal(size=len(eta)) > 0


def known_gaussian(rng: np.random.Generator, eta: np.ndarray, _: Truth) -> np.ndarray:
    return eta + KNOWN_NOISE * rng.normal(size=len(eta))


def gaussian(rng: np.random.Generator, eta: np.ndarray, truth: Truth) -> np.ndarray:
    return eta + truth["noise_scale"] * rng.normal(size=len(eta))


def student(rng: np.random.Generator, eta: np.ndarray, truth: Truth) -> np.ndarray:
    return eta + truth["noise_scale"] * rng.standard_t(FREEDOM, size=len(eta))


def counts(rng: np.random.Generator, eta: np.ndarray, _: Truth) -> np.ndarray:
    return rng.poisson(np.exp(eta))


def excess_counts(rng: np.random.Generator, eta: np.ndarray, truth: Truth) -> np.ndarray:
    """Poisson counts whose rates are gamma variables of mean exp eta."""
    overdispersion = truth["overdispersion"]
    return rng.poisson(np.exp(eta) * rng.gamma(1 / overdispersion, overdispersion, size=len(eta)))


def classes(rng: np.random.Generator, eta: np.ndarray, _: Truth) -> np.ndarray:
    """The largest of eta_k plus Gumbel noise, eta_0 = 0."""
    utility = np.column_stack([np.zeros(len(eta)), eta])
    return np.argmax(utility + rng.gumbel(size=utility.shape), axis=1)


def successes(curve: Callable[[np.ndarray], np.ndarray], rng: np.random.Generator, eta: np.ndarray, _: Truth) -> Rows:
    trials = rng.integers(1, MOST_TRIALS + 1, size=len(eta))
    return {"y": rng.binomial(trials, curve(eta)), "trials": trials}


def places(noise: str, rng: np.random.Generator, eta: np.ndarray, truth: Truth) -> np.ndarray:
    """How many cut points lie below eta and its noise."""
    return np.digitize(eta + getattr(rng, noise)(size=len(eta)), truth["cut_points"])


def amounts(rng: np.random.Generator, eta: np.ndarray, truth: Truth) -> np.ndarray:
    return rng.gamma(truth["shape"], np.exp(eta) / truth["shape"])


def shares(rng: np.random.Generator, eta: np.ndarray, truth: Truth) -> np.ndarray:
    drawn = rng.beta(truth["precision"] * expit(eta), truth["precision"] * expit(-eta))
    # What rounds to 0 or 1 is neither.
    return np.clip(drawn, np.finfo(float).tiny, 1 - np.finfo(float).epsneg)


def censored(rng: np.random.Generator, times: np.ndarray) -> Rows:
    how = rng.integers(0, 3, size=len(times))
    end = np.exp(0.5 + rng.normal(size=len(times)))
    until, since = np.append(VISITS, np.inf), np.insert(VISITS, 0, 0.0)
    visit = np.searchsorted(VISITS, times)
    first, last = visit == 0, visit == len(VISITS)
    code = np.select([how == 0, how == 1, first, last], [0, np.where(times > end, 1, 0), -1, 1], 2)
    known = np.where(how == 0, times, np.minimum(times, end))
    seen = np.where(how == 2, np.where(first, VISITS[0], since[visit]), known)
    return {"y": seen, "censored": code, "upper": np.where(code == 2, until[visit], seen)}


def weibull_times(rng: np.random.Generator, eta: np.ndarray, truth: Truth) -> Rows:
    shape = truth.get("shape", np.ones(()))
    return censored(rng, np.exp(eta) / gamma(1 + 1 / shape) * rng.weibull(shape, size=len(eta)))


def log_normal_times(rng: np.random.Generator, eta: np.ndarray, truth: Truth) -> Rows:
    return censored(rng, np.exp(eta + truth["noise_scale"] * rng.normal(size=len(eta))))


def any_counts(rng: np.random.Generator, eta: np.ndarray, truth: Truth) -> np.ndarray:
    return (excess_counts if "overdispersion" in truth else counts)(rng, eta, truth)


def inflated(rng: np.random.Generator, eta: np.ndarray, truth: Truth) -> np.ndarray:
    return np.where(rng.random(len(eta)) < truth["zero_inflation"], 0, any_counts(rng, eta, truth))


def over_hurdle(rng: np.random.Generator, eta: np.ndarray, truth: Truth) -> np.ndarray:
    """Counts are drawn again until they are above zero."""
    y = any_counts(rng, eta, truth)
    while np.any(y == 0):
        y = np.where(y == 0, any_counts(rng, eta, truth), y)
    return np.where(rng.random(len(eta)) < truth["zero_share"], 0, y)


def about_quantile(rng: np.random.Generator, eta: np.ndarray, truth: Truth) -> np.ndarray:
    """log b - log(1 - b) by the logarithms of two gamma variables, whose shapes may be small."""

    def log_gamma_variable(shape: float) -> np.ndarray:
        return np.log(rng.gamma(shape + 1, size=len(eta))) + np.log(rng.random(len(eta))) / shape

    residual = log_gamma_variable(SMOOTHING * (1 - LEVEL)) - log_gamma_variable(SMOOTHING * LEVEL)
    return eta + truth["noise_scale"] * SMOOTHING * residual


EXCESS, INFLATION, HURDLE = {"overdispersion": half_normal}, {"zero_inflation": uniform}, {"zero_share": uniform}
NOISE = {"noise_scale": half_normal}
SIMULATIONS = {
    "logistic": Simulation(tb.families.logistic, binary),
    "probit": Simulation(tb.families.probit, thresholded),
    "linear, noise known": Simulation(tb.families.linear, known_gaussian, options={"noise_scale": KNOWN_NOISE}),
    "linear": Simulation(tb.families.linear, gaussian, extras=NOISE),
    "student_t": Simulation(tb.families.student_t, student, options={"degrees_of_freedom": FREEDOM}, extras=NOISE),
    "poisson": Simulation(tb.families.poisson, counts, widest=0.5, offset=1.0),
    "negative_binomial": Simulation(
        tb.families.negative_binomial, excess_counts, widest=0.5, extras=EXCESS, offset=1.0
    ),
    "multinomial": Simulation(tb.families.multinomial, classes, options={"num_classes": CLASSES}, heads=(CLASSES - 1,)),
}
# Families of later: their data sets are drawn by the same means, and judged on small tables.
LATER = {
    "logistic, trials": Simulation(tb.families.logistic, partial(successes, expit)),
    "probit, trials": Simulation(tb.families.probit, partial(successes, ndtr)),
    "ordinal": Simulation(
        tb.families.ordinal,
        partial(places, "logistic"),
        options={"num_classes": CUTS + 1, "cut_scale": CUT_SCALE},
        extras={"cut_points": in_order},
        intercept=False,
    ),
    "ordinal_probit": Simulation(
        tb.families.ordinal_probit,
        partial(places, "normal"),
        options={"num_classes": CUTS + 1, "cut_scale": CUT_SCALE},
        extras={"cut_points": in_order},
        intercept=False,
    ),
    "gamma": Simulation(
        tb.families.gamma, amounts, options={"shape_prior_scale": 1.0}, extras={"shape": log_normal(0.0, 1.0)}
    ),
    "beta": Simulation(
        tb.families.beta, shares, options={"precision_prior_scale": 1.0}, extras={"precision": log_normal(2.0, 1.0)}
    ),
    "exponential": Simulation(tb.families.exponential, weibull_times),
    "weibull": Simulation(
        tb.families.weibull, weibull_times, options={"shape_prior_scale": 0.5}, extras={"shape": log_normal(0.0, 0.5)}
    ),
    "log_normal": Simulation(tb.families.log_normal, log_normal_times, extras=NOISE),
    "zero_inflated_poisson": Simulation(
        tb.families.zero_inflated_poisson, inflated, widest=0.5, extras=INFLATION, offset=1.0
    ),
    "zero_inflated_negative_binomial": Simulation(
        tb.families.zero_inflated_negative_binomial, inflated, widest=0.5, extras=EXCESS | INFLATION, offset=2.0
    ),
    "hurdle_poisson": Simulation(tb.families.hurdle_poisson, over_hurdle, widest=0.5, extras=HURDLE, offset=1.0),
    "hurdle_negative_binomial": Simulation(
        tb.families.hurdle_negative_binomial, over_hurdle, widest=0.5, extras=EXCESS | HURDLE, offset=2.0
    ),
    "quantile": Simulation(
        tb.families.quantile, about_quantile, options={"level": LEVEL, "smoothing": SMOOTHING}, extras=NOISE
    ),
}
