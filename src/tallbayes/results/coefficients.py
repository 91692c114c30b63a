"""Coefficients: what a reader wants to know of every parameter, each number with its own Monte Carlo error.

mean, sd, the ends of an equal-tailed interval, and beside them what Laplace's approximation says
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.estimator.estimates import Estimate, side_by_side
from tallbayes.model.catalogue import EXTRAS
from tallbayes.moments import Floats
from tallbayes.results.fitted import family_of
from tallbayes.results.result import Result
from tallbayes.results.terms import INTERCEPTS, is_group_scale, terms_of
from tallbayes.structure import Structure

INTERVAL = (0.025, 0.975)
NORMAL_END = 1.959964
# Ends that err by more are rough, unless another accuracy was asked for; in posterior sds.
USUAL_END = 0.1


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


def coefficients(result: Result, probability: float = 0.95, first: int | None = None) -> tuple[Coefficient, ...]:
    """Of all parameters or of the first, in their order."""
    if not 0 < probability < 1:
        raise InputError(explain("a probability strictly between 0 and 1", repr(probability), "0.95"))
    names = parameter_names(result)
    means, sds = (_numbers(result.estimates.get(each), len(names))[:first] for each in ("mean", "sd"))
    names = names[:first]
    lower, median, upper = _quantiles(result, probability, len(names))
    laplace = _laplace(result, len(names))
    rows = zip(names, means, sds, lower, upper, median, *laplace, strict=True)
    return tuple(Coefficient(*row) for row in rows)


class Ends(NamedTuple):
    """The two ends of equal-tailed 95% intervals of some parameters, each with the tolerance it is held against.

    That is `tolerance` posterior sds, which was `asked` for or is the usual one: an end that errs by more is rough.
    """

    names: Sequence[str]
    lower: Estimate
    upper: Estimate
    tolerance: float
    asked: bool

    def first(self, most: int) -> Ends:
        """Of the first parameters alone."""
        lower, upper = (end.part(slice(most), end.name) for end in (self.lower, self.upper))
        return self._replace(names=self.names[:most], lower=lower, upper=upper)

    @property
    def errors(self) -> Floats:
        """In posterior sds, (2, parameters)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            unit = end_unit(self.lower.flat_value, self.upper.flat_value)
            return np.stack([self.lower.flat_error / unit, self.upper.flat_error / unit])

    def price(self, tolerance: float) -> float:
        """Row gradients for a statistical error of so many posterior sds at every end, if that is known."""
        if self.lower.flat_work is None or self.upper.flat_work is None:
            return float("nan")
        work = np.fmax(self.lower.flat_work, self.upper.flat_work)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Half of the squared error is left to the bias.
            each = 2 * work / (tolerance * end_unit(self.lower.flat_value, self.upper.flat_value)) ** 2
        return float(np.max(each, initial=0.0))


def end_unit(lower: Any, upper: Any) -> Any:
    """The posterior sd that errors of ends are measured in: that of a normal law with this 95% interval."""
    return (upper - lower) / (2 * NORMAL_END)


def end_tolerance(result: Result) -> tuple[float, bool]:
    """What ends are held against, in posterior sds, and whether somebody asked for it."""
    asked = result.settings.get("interval_tolerance")
    return (float(asked), True) if isinstance(asked, int | float) else (USUAL_END, False)


def are_rough(lower: Number, upper: Number, tolerance: float) -> tuple[bool, bool]:
    """Of the ends of one interval, whether each errs by more than the tolerance, or by what nobody knows."""
    allowed = tolerance * end_unit(lower.value, upper.value)
    return not lower.error <= allowed, not upper.error <= allowed


def interval_ends(result: Result, first: int | None = None, quickly: bool = False) -> Ends | None:
    """Of all parameters or of the first; `quickly` only those for which no program has to be compiled.

    None where the run kept no posterior, or asked for no means.
    """
    if result.posterior is None or not {"mean", "sd"} & set(result.estimates):
        return None
    names = parameter_names(result)[:first]
    if quickly:
        names, both = _of_lines(result.posterior, names)
    else:
        both = result.posterior.quantile(INTERVAL, first=first)
    if not names:
        return None
    count = len(names)
    tolerance, asked = end_tolerance(result)
    allowed = tolerance * end_unit(*both.flat_value.reshape(2, count))
    lower, upper = (
        replace(both.part(slice(i * count, (i + 1) * count), f"{p:.1%}"), flat_tolerance=allowed)
        for i, p in enumerate(INTERVAL)
    )
    return Ends(names, lower, upper, tolerance, asked)


def _of_lines(posterior: Any, names: Sequence[str]) -> tuple[list[str], Any]:
    """Those that are lines, and their quantiles."""
    lines = [None if posterior.reading is None else posterior.reading.line(place) for place in range(len(names))]
    found = [posterior.line_quantiles(line, np.array(INTERVAL)) for line in lines if line is not None]
    kept = [name for name, line in zip(names, lines, strict=True) if line is not None]
    return kept, side_by_side(found, "quantile", Structure.leaf((len(found),)), len(INTERVAL)) if found else None


def parameter_names(result: Result) -> list[str]:
    """One name a number."""
    if result.posterior is not None:
        return list(result.posterior.labels)
    for each in ("mean", "sd"):
        if each in result.estimates:
            return [label.removeprefix(".") for label in result.estimates[each].structure.labels("")]
    return []


def own_parameters(result: Result) -> int | None:
    """How many parameters stand before the effects of groups, which may be thousands and have a table of their own;
    None where none are."""
    return next((factor.first for factor in result.factors if factor.first is not None), None)


def least(*counts: int | None) -> int | None:
    """The least of some limits; None is no limit.

    >>> least(None, 40, 7), least(None)
    (7, None)
    """
    return min((count for count in counts if count is not None), default=None)


def shown_size(result: Result, estimate: Estimate) -> int:
    """How many components of a quantity are shown, where there is room: those of the effects of groups are not."""
    own, size = own_parameters(result), estimate.structure.size
    by_parameter = estimate.name in ("mean", "sd") and own is not None
    return size if not by_parameter or own is None or size <= own else own


def ratio_name(result: Result) -> str | None:
    """What exp of a coefficient is called in this family; None where it is nothing."""
    family = family_of(result)
    return None if family is None else family.ratio


def is_slope(name: str) -> bool:
    """Whether it is the name of a coefficient: not so that of an intercept, nor of a noise scale."""
    return name.split(".")[-1].split("[")[0] not in (*INTERCEPTS, *EXTRAS) and not is_group_scale(name)


def is_ratio(name: str, result: Result) -> bool:
    """Whether exp of this parameter is a ratio."""
    return are_ratios([name], result)[0]


def are_ratios(names: Sequence[str], result: Result) -> list[bool]:
    """Of every parameter, whether exp of it is a ratio: that of a slope whose column can change by itself, and
    that is no effect of a group."""
    if ratio_name(result) is None:
        return [False] * len(names)
    apart = tuple(f"{name}|{factor.by}[" for factor in result.factors for name in factor.names)
    terms = zip(names, terms_of(result, names), strict=True)
    return [is_slope(name) and term.is_alone and not name.startswith(apart) for name, term in terms]


def _numbers(estimate: Estimate | None, count: int) -> list[Number]:
    if estimate is None or len(estimate.flat_value) != count:
        return [UNKNOWN] * count
    return [Number.of(estimate, place) for place in range(count)]


def _quantiles(result: Result, probability: float, count: int) -> list[list[Number]]:
    if result.posterior is None:
        return [[UNKNOWN] * count] * 3
    tail = (1 - probability) / 2
    found = result.posterior.quantile([tail, 0.5, 1 - tail], first=count)
    numbers = _numbers(found, 3 * count)
    return [numbers[part * count : (part + 1) * count] for part in range(3)]


def _laplace(result: Result, count: int) -> tuple[list[float], list[float]]:
    """Mean and sd of every line under Laplace's Gaussian; those of a curved one to first order."""
    nothing = [float("nan")] * count
    posterior = result.posterior
    if posterior is None or posterior.reading is None:
        return nothing, nothing
    means, sds, anchor = list(nothing), list(nothing), posterior.anchor.laplace
    for place in range(count):
        line = posterior.reading.line(place)
        if line is None:
            continue
        x = np.asarray(line.direction @ anchor.mode)
        means[place] = float(line.at(x))
        sds[place] = float(abs(line.slope(x)) * anchor.sd_along(line.direction))
    return means, sds
