"""Coefficients: what a reader wants to know of every parameter, each number with its own Monte Carlo error.

mean, sd, the ends of an equal-tailed interval, and beside them what Laplace's approximation says
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.estimator.estimates import Estimate
from tallbayes.model.catalogue import EXTRAS
from tallbayes.results.result import Result, family_of
from tallbayes.results.terms import INTERCEPTS, terms_of

INTERVAL = (0.025, 0.975)
NORMAL_END = 1.959964


class Number(NamedTuple):
    """A value and its Monte Carlo error: sqrt(se^2 + bias bound^2)."""

    value: float
    error: float

    @classmethod
    def of(cls, estimate: Estimate, place: int) -> Number:
        return cls(float(estimate.flat_value[place]), float(estimate.flat_error[place]))

    def through(self, function: Callable[[float], float], slope: Callable[[float], float]) -> Number:
        """A function of it, its error by the slope there."""
        return Number(float(function(self.value)), float(abs(slope(self.value)) * self.error))

    @property
    def exponential(self) -> Number:
        return self.through(np.exp, np.exp)


UNKNOWN = Number(float("nan"), float("nan"))


@dataclass(frozen=True)
class Coefficient:
    """One parameter; what the run did not keep is not a number."""

    name: str
    mean: Number
    sd: Number
    lower: Number
    upper: Number
    median: Number
    laplace_mean: float
    laplace_sd: float

    @property
    def shift(self) -> float:
        """How far the posterior mean is from Laplace's, in posterior sds."""
        return (self.mean.value - self.laplace_mean) / self.sd.value

    @property
    def normal_ends(self) -> tuple[Number, Number]:
        """mean -+ 1.96 sd, for a run that kept no quantiles.

        Their error is that of the mean and 1.96 times that of the sd: both come of the same paths, and of two errors
        that may go together rms(a + c b) <= rms(a) + c rms(b) is all that holds.
        """
        error = self.mean.error + NORMAL_END * self.sd.error
        lower, upper = (Number(self.mean.value + sign * NORMAL_END * self.sd.value, error) for sign in (-1, 1))
        return lower, upper


def coefficients(result: Result, probability: float = 0.95) -> tuple[Coefficient, ...]:
    """Of all parameters, in their order."""
    if not 0 < probability < 1:
        raise InputError(explain("a probability strictly between 0 and 1", repr(probability), "0.95"))
    names = parameter_names(result)
    means, sds = (_numbers(result.estimates.get(each), len(names)) for each in ("mean", "sd"))
    lower, median, upper = _quantiles(result, probability, len(names))
    laplace = _laplace(result, len(names))
    rows = zip(names, means, sds, lower, upper, median, *laplace, strict=True)
    return tuple(Coefficient(*row) for row in rows)


class Ends(NamedTuple):
    """The two ends of equal-tailed 95% intervals, of the first parameters, and how to have them more accurately."""

    lower: Estimate
    upper: Estimate
    note: str


def interval_ends(result: Result, first: int | None = None) -> Ends | None:
    """None where the run kept no posterior, or asked for no means."""
    if result.posterior is None or not {"mean", "sd"} & set(result.estimates):
        return None
    both = result.posterior.quantile(INTERVAL, first=first)
    count = len(both.flat_value) // 2
    lower, upper = (both.part(slice(i * count, (i + 1) * count), f"{p:.1%}") for i, p in enumerate(INTERVAL))
    return Ends(lower, upper, _ends_note(result, lower, upper))


@np.errstate(divide="ignore", invalid="ignore")
def _ends_note(result: Result, lower: Estimate, upper: Estimate) -> str:
    """How accurate the ends are, and what it would cost to have them as accurate as the means."""
    sd = (upper.flat_value - lower.flat_value) / (2 * NORMAL_END)
    worst = float(np.max(np.fmax(lower.flat_error, upper.flat_error) / sd))
    text = f"2.5% and 97.5% of the posterior; errors at most {worst:.2g} sd"
    wanted = result.settings.get("tolerance")
    if not isinstance(wanted, float) or not worst > wanted or lower.flat_work is None or upper.flat_work is None:
        return text
    price = 2 * float(np.max(np.fmax(lower.flat_work, upper.flat_work) / (wanted * sd) ** 2))
    return f"{text}, {wanted:g} sd would take about {price:.2g} row gradients (interval_tolerance={wanted:g})"


def parameter_names(result: Result) -> list[str]:
    """One name a number."""
    if result.posterior is not None:
        return list(result.posterior.labels)
    for each in ("mean", "sd"):
        if each in result.estimates:
            return [label.removeprefix(".") for label in result.estimates[each].structure.labels("")]
    return []


def ratio_name(result: Result) -> str | None:
    """What exp of a coefficient is called in this family; None where it is nothing."""
    family = family_of(result)
    return None if family is None else family.ratio


def is_slope(name: str) -> bool:
    """Whether it is the name of a coefficient: not so that of an intercept, nor of a noise scale."""
    return name.split(".")[-1].split("[")[0] not in (*INTERCEPTS, *EXTRAS)


def is_ratio(name: str, result: Result) -> bool:
    """Whether exp of this parameter is a ratio."""
    return are_ratios([name], result)[0]


def are_ratios(names: Sequence[str], result: Result) -> list[bool]:
    """Of every parameter, whether exp of it is a ratio: that of a slope whose column can change by itself."""
    if ratio_name(result) is None:
        return [False] * len(names)
    return [is_slope(name) and term.is_alone for name, term in zip(names, terms_of(result, names), strict=True)]


def _numbers(estimate: Estimate | None, count: int) -> list[Number]:
    if estimate is None or len(estimate.flat_value) != count:
        return [UNKNOWN] * count
    return [Number.of(estimate, place) for place in range(count)]


def _quantiles(result: Result, probability: float, count: int) -> list[list[Number]]:
    if result.posterior is None:
        return [[UNKNOWN] * count] * 3
    tail = (1 - probability) / 2
    found = result.posterior.quantile([tail, 0.5, 1 - tail])
    numbers = _numbers(found, 3 * count)
    return [numbers[part * count : (part + 1) * count] for part in range(3)]


def _laplace(result: Result, count: int) -> tuple[list[float], list[float]]:
    """Mean and sd of every line under Laplace's Gaussian; those of a curved one to first order."""
    nothing = [float("nan")] * count
    posterior = result.posterior
    if posterior is None or posterior.reading is None:
        return nothing, nothing
    means, sds, anchor = list(nothing), list(nothing), posterior.anchor
    for place in range(count):
        line = posterior.reading.line(place)
        if line is None:
            continue
        x = np.asarray(line.direction @ anchor.mode)
        means[place] = float(line.at(x))
        sds[place] = float(abs(line.slope(x)) * anchor.sd_along(line.direction))
    return means, sds
