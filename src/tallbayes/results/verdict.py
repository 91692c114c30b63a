"""The verdict: which numbers of a result are as accurate as was asked for, which are not, and of which nobody knows.

    met    sqrt(se^2 + bias bound^2) <= tolerance

It is read off the estimates one by one, whatever the status of the run says of them all: one number may fail alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

import numpy as np

from tallbayes.estimator.estimates import Estimate
from tallbayes.results.coefficients import Ends
from tallbayes.results.result import Result


class Missed(NamedTuple):
    """A number that is less accurate than was asked for: whose it is, which of its numbers, and whether its error is
    known at all."""

    name: str
    which: str
    is_known: bool


@dataclass(frozen=True)
class Standing:
    """Numbers of one kind: how many there are, and those that missed."""

    total: int
    missed: tuple[Missed, ...]

    @property
    def unknown(self) -> int:
        return sum(not each.is_known for each in self.missed)

    @property
    def by_name(self) -> dict[str, list[str]]:
        """Which numbers missed, by whose they are; those whose error is unknown first."""
        found: dict[str, list[str]] = {}
        for each in sorted(self.missed, key=lambda each: each.is_known):
            found.setdefault(each.name, []).append(each.which)
        return found


@dataclass(frozen=True)
class Verdict:
    """Of the quantities, and of the ends of intervals as far as they are shown."""

    numbers: Standing
    ends: Standing | None
    kinds: tuple[str, ...]
    worst_end: float

    @property
    def met(self) -> bool:
        """Whether every quantity is as accurate as was asked for."""
        return not self.numbers.missed

    @property
    def has_rough_ends(self) -> bool:
        return self.ends is not None and bool(self.ends.missed)

    @property
    def has_rough(self) -> bool:
        """Whether any number is marked."""
        return not self.met or self.has_rough_ends


def judge(result: Result, ends: Ends | None) -> Verdict:
    """`ends` are those that are shown, or None."""
    estimates = [each for each in result.estimates.values() if each.structure.size]
    kinds = tuple(each.name if each.name in ("mean", "sd") else "" for each in estimates)
    worst = float("nan")
    if ends is not None:
        errors = ends.errors[np.isfinite(ends.errors)]
        worst = float(errors.max()) if errors.size else worst
    return Verdict(_standing(estimates), None if ends is None else _of_ends(ends), kinds, worst)


def has_numbers(result: Result) -> bool:
    """Whether anything was found at all; not so where a run ended before its mode."""
    return any(isfinite(value) for each in result.estimates.values() for value in each.flat_value)


def is_success(result: Result) -> bool:
    """Whether the run ended well and every number that was asked for is as accurate as that."""
    return result.converged and all(each.met for each in result.estimates.values())


def _standing(estimates: Sequence[Estimate]) -> Standing:
    missed: list[Missed] = []
    for each in estimates:
        labels = list(each.structure.labels(""))
        missed += [
            Missed(labels[place].removeprefix(".") or each.name, each.name if labels[place] else "", known)
            for place, known in _short_of(each)
        ]
    return Standing(sum(each.structure.size for each in estimates), tuple(missed))


def _of_ends(ends: Ends) -> Standing:
    both = ends.lower, ends.upper
    missed = [Missed(ends.names[place], f"{end.name} end", known) for end in both for place, known in _short_of(end)]
    return Standing(sum(len(end.flat_value) for end in both), tuple(missed))


def _short_of(estimate: Estimate) -> list[tuple[int, bool]]:
    """Places of the components that missed, and whether their error is known."""
    error = estimate.flat_error
    return [
        (int(place), bool(np.isfinite(error[place]))) for place in np.flatnonzero(~(error <= estimate.flat_tolerance))
    ]
