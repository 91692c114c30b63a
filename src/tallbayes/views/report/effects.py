"""Effects: the coefficients of a result as a reader meets them, with one point and two ends each.

The ends are those of the 95% equal-tailed interval. A run that kept no posterior has means and sds alone: its ends are
those of a normal law, mean -+ 1.96 sd, and that is said wherever they are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite

from tallbayes.results.coefficients import Coefficient, Number, are_ratios, coefficients, ratio_name
from tallbayes.results.export import readable as with_readable_posterior
from tallbayes.results.result import Result
from tallbayes.results.terms import Term, terms_of


@dataclass(frozen=True)
class Effect:
    """One coefficient; point and ends are on its own scale, of which a ratio is the exponential."""

    term: Term
    coefficient: Coefficient
    is_ratio: bool
    point: Number
    lower: Number
    upper: Number

    @property
    def is_known(self) -> bool:
        return all(isfinite(each.value) for each in (self.point, self.lower, self.upper))

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.is_known and (self.lower.value > 0 or self.upper.value < 0)

    @property
    def clearness(self) -> float:
        """How many interval widths the point is away from zero."""
        width = self.upper.value - self.lower.value
        return abs(self.point.value) / width if self.is_known and width > 0 else -1.0


@dataclass(frozen=True)
class Effects:
    """All coefficients of a result, in their order, and what the exponential of one is called, if anything.

    `others` are the quantities that are no mean or sd of theirs.
    """

    all: tuple[Effect, ...]
    ratio: str | None
    has_quantiles: bool
    others: tuple[str, ...]
    is_regression: bool

    @cached_property
    def plotted(self) -> tuple[Effect, ...]:
        """Those whose size is of interest: ratios, or all but intercepts and scales, unless nothing else is there."""
        wanted = [each for each in self.all if each.is_ratio or not self.ratio]
        slopes = [each for each in wanted if not (each.term.is_intercept or each.term.is_extra)]
        return tuple(each for each in slopes or self.all if each.is_known)

    @property
    def shows_ratios(self) -> bool:
        return self.ratio is not None and any(each.is_ratio for each in self.plotted)


def effects_of(result: Result) -> Effects:
    """Of whatever the result has kept."""
    kept = readable(result)
    others = tuple(name for name in result if name not in kept.estimates)
    found = coefficients(kept)
    terms = terms_of(result, [each.name or "parameter" for each in found])
    has_quantiles = kept.posterior is not None
    parts = zip(terms, found, are_ratios([each.name for each in found], result), strict=True)
    made = tuple(_effect(*each, has_quantiles) for each in parts)
    return Effects(made, ratio_name(result), has_quantiles, others, result.regression is not None)


def has_numbers(result: Result) -> bool:
    """Whether anything was found at all; not so where a run ended before its mode."""
    return any(isfinite(value) for each in result.estimates.values() for value in each.flat_value)


def readable(result: Result) -> Result:
    """With the means and sds of its parameters alone, and without a posterior that only its own process can read."""
    posterior = with_readable_posterior(result).posterior
    size = None if posterior is None else len(posterior.labels)
    standard = {name: each for name, each in result.estimates.items() if name in ("mean", "sd")}
    size = next((each.structure.size for each in standard.values()), 0) if size is None else size
    # Somebody may have called a quantity of another shape so.
    standard = {name: each for name, each in standard.items() if each.structure.size == size}
    return replace(result, estimates=standard, posterior=posterior)


def _effect(term: Term, found: Coefficient, is_ratio: bool, has_quantiles: bool) -> Effect:
    if not has_quantiles:
        return Effect(term, found, is_ratio, found.mean, *found.normal_ends)
    # Of a ratio the median, since that of an exponential is the exponential of the median.
    point = found.median if is_ratio or not isfinite(found.mean.value) else found.mean
    return Effect(term, found, is_ratio, point, found.lower, found.upper)


def most_notable(effects: Sequence[Effect], most: int) -> list[Effect]:
    """Those furthest from zero for their width, in their old order."""
    ranked = sorted(range(len(effects)), key=lambda place: -effects[place].clearness)
    return [effects[place] for place in sorted(ranked[:most])]
