"""Effects: the coefficients of a result as a reader meets them, with one point and two ends each.

The ends are those of the 95% equal-tailed interval. A run that kept no posterior has means and sds alone: its ends are
those of a normal law, mean -+ 1.96 sd, and that is said wherever they are shown. The levels of a category stand in the
order of their effects, all else in that of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from math import inf, isfinite

from tallbayes.results.coefficients import (
    Coefficient,
    Number,
    are_ratios,
    are_rough,
    coefficients,
    end_tolerance,
    is_slope,
    own_parameters,
    ratio_name,
)
from tallbayes.results.export import readable as with_readable_posterior
from tallbayes.results.result import Result
from tallbayes.results.terms import Term, terms_of

# By so many errors an end must be beyond zero, for its interval to leave zero out.
SURELY = 2.0


@dataclass(frozen=True)
class Effect:
    """One coefficient; point and ends are on its own scale, of which a ratio is the exponential.

    `tolerance` is what its ends are held against, in posterior sds, and `place` that among the model's parameters.
    """

    term: Term
    coefficient: Coefficient
    is_ratio: bool
    point: Number
    lower: Number
    upper: Number
    tolerance: float = inf
    place: int = 0

    @property
    def is_known(self) -> bool:
        return all(isfinite(each.value) for each in (self.point, self.lower, self.upper))

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out zero, as far as its ends are known."""
        if not self.is_known:
            return False
        return self.lower.value - SURELY * self.lower.error > 0 or self.upper.value + SURELY * self.upper.error < 0

    @property
    def is_rough(self) -> tuple[bool, bool, bool]:
        """Of the point and both ends, whether each errs by more than ends may."""
        lower, upper = are_rough(self.lower, self.upper, self.tolerance)
        point, _ = are_rough(self.lower._replace(error=self.point.error), self.upper, self.tolerance)
        return point, lower, upper

    @property
    def clearness(self) -> float:
        """How many interval widths the point is away from zero."""
        width = self.upper.value - self.lower.value
        return abs(self.point.value) / width if self.is_known and width > 0 else -1.0


@dataclass(frozen=True)
class ReportedEffects:
    """All coefficients of a result, and what the exponential of one is called, if anything.

    `others` are the quantities that are no mean or sd of theirs, `curved` the names of coefficients that are drawn
    together as curves, and not one by one.
    """

    all: tuple[Effect, ...]
    ratio: str | None
    has_quantiles: bool
    others: tuple[str, ...]
    is_regression: bool
    curved: frozenset[str] = frozenset()

    @cached_property
    def in_order(self) -> tuple[Effect, ...]:
        """In that of the model."""
        return tuple(sorted(self.all, key=lambda each: each.place))

    @cached_property
    def plotted(self) -> tuple[Effect, ...]:
        """Those whose size is of interest: ratios, or all but intercepts and scales, unless nothing else is there."""
        single = [each for each in self.all if each.term.name not in self.curved]
        wanted = [each for each in single if each.is_ratio or not self.ratio]
        slopes = [each for each in wanted if not (each.term.is_intercept or each.term.is_extra)]
        rest = [] if self.curved else self.all
        return tuple(each for each in slopes or rest if each.is_known)

    @property
    def without_ratio(self) -> tuple[Effect, ...]:
        """Slopes of a family that has ratios which are none by themselves, and that no curve tells of."""
        if self.ratio is None:
            return ()
        single = [each for each in self.all if each.term.name not in self.curved]
        return tuple(each for each in single if not each.is_ratio and is_slope(each.coefficient.name))

    @property
    def shows_ratios(self) -> bool:
        return self.ratio is not None and any(each.is_ratio for each in self.plotted)


def effects_of(result: Result, curved: Iterable[str] = ()) -> ReportedEffects:
    """Of whatever the result has kept."""
    kept = readable(result)
    others = tuple(name for name in result if name not in kept.estimates)
    found = coefficients(kept, first=own_parameters(result))
    terms = terms_of(result, [each.name or "parameter" for each in found])
    has_quantiles = kept.posterior is not None
    tolerance, _ = end_tolerance(result)
    parts = zip(terms, found, are_ratios([each.name for each in found], result), strict=True)
    made = [
        replace(_effect(*each, has_quantiles), tolerance=tolerance, place=place) for place, each in enumerate(parts)
    ]
    return ReportedEffects(
        tuple(_by_effect(made)),
        ratio_name(result),
        has_quantiles,
        others,
        result.regression is not None,
        frozenset(curved),
    )


def _by_effect(effects: Sequence[Effect]) -> Iterator[Effect]:
    """Levels of one category by their points, the largest first; those that are not known last."""
    for (_, is_category), group in groupby(effects, key=lambda each: (each.term.group, each.term.is_category)):
        some = list(group)
        yield from sorted(some, key=_height) if is_category else some


def _height(each: Effect) -> float:
    return -each.point.value if isfinite(each.point.value) else inf


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
