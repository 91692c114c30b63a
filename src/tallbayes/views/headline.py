"""The headline of a result: in a line what was met and what was not, and what to do about it.

    converged: every mean and sd is known to 0.01 posterior sd, every interval end to 0.1 sd
    converged, but for interval ends: every mean and sd is known to 0.05 posterior sd; 3 of 56 interval ends are rough
    (marked ~), with errors up to 0.52 sd
    not finished, the time ran out (max_seconds): 55 of 56 means and sds are known to 0.01 posterior sd, not so
    carrier[T.PT] (sd); every interval end is known to 0.1 sd

All is read off single numbers (`verdict`), so that it holds whatever a status says of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from tallbayes.estimator.estimates import Status
from tallbayes.progress import shorten
from tallbayes.results.coefficients import Ends, end_tolerance
from tallbayes.results.result import Result
from tallbayes.results.verdict import Standing, Verdict, has_numbers, judge
from tallbayes.views.advice import BUDGETS, DOUBTFUL, UNTRUSTED, Door, next_step, sharper_ends
from tallbayes.views.numbers import ROUGH, neat, plain

MOST_NAMED = 3
LONGEST_NAME = 44
OUT_OF = {
    Status.max_seconds: "the time ran out (max_seconds)",
    Status.max_evaluations: "the work allowed ran out (max_evaluations)",
}
UNITS = {"tolerance": " posterior sd", "relative_tolerance": " of its value", "absolute_tolerance": ""}


@dataclass(frozen=True)
class Headline:
    """`opening` says how it ended, `facts` what is known, `step` what to do; `is_good` where nothing is left to do."""

    opening: str
    facts: str
    step: str
    verdict: Verdict
    tolerance: float

    @property
    def line(self) -> str:
        return f"{self.opening}: {self.facts}" if self.facts else self.opening

    @property
    def is_good(self) -> bool:
        return self.opening == "converged"

    @property
    def about_marks(self) -> str:
        """What the mark of rough numbers means, where there is any."""
        if not self.verdict.has_rough:
            return ""
        end = f"an interval end whose error is above {neat(self.tolerance)} sd, or unknown"
        if self.verdict.met:
            return f"stands before {end}"
        number = "a number that is less accurate than was asked for, or whose error is unknown"
        return f"stands before {number}" + (f", and {end}" if self.verdict.has_rough_ends else "")


def headline(result: Result, ends: Ends | None, settings: dict[str, Any]) -> Headline:
    """`ends` are those that are shown beside it."""
    verdict, door = judge(result, ends), Door.of(result, settings)
    opening = _opening(result, verdict)
    facts = [_numbers(result, verdict), _ends(result, verdict)] if has_numbers(result) else []
    shown = [each for each in facts if each]
    between = ", " if verdict.met and not verdict.has_rough_ends else "; "
    step = next_step(result, door)
    tolerance = end_tolerance(result)[0]
    if not step and verdict.has_rough_ends:
        step = sharper_ends(door, tolerance)
    return Headline(opening, between.join(shown), step, verdict, tolerance)


def accuracy(settings: Any) -> str:
    """What was asked for, in words; empty where that is not one thing for all."""
    for kind, unit in UNITS.items():
        size = settings.get(kind)
        if isinstance(size, int | float):
            return f"{neat(float(size))}{unit}"
    return ""


def named(standing: Standing, most: int = MOST_NAMED) -> str:
    """The numbers that missed: of each the parameter, and which of its numbers."""
    found = [
        f"{shorten(name, LONGEST_NAME)} ({_listed(which)})" if any(which) else shorten(name, LONGEST_NAME)
        for name, which in standing.by_name.items()
    ]
    return _listed([*found[:most], *([f"{len(found) - most:,} more"] if len(found) > most else [])])


def _opening(result: Result, verdict: Verdict) -> str:
    status = result.status
    ended = OUT_OF.get(status, str(status).split(":")[0].removesuffix(" before the tolerance was met"))
    if not has_numbers(result):
        return f"no answer, {ended}"
    if status in BUDGETS:
        return f"not finished, {ended}"
    if status in UNTRUSTED:
        return f"do not use these numbers, {ended}"
    if status is Status.second_mode:
        return (
            f"{len(result.modes) + 1 if result.modes else 'several'} modes, and these numbers are of the heaviest alone"
        )
    if status is Status.converged_in_part:
        return "converged in part"
    if not result.converged:
        return f"not converged, {ended}"
    if not verdict.met:
        return "converged in part"
    return "converged, but for interval ends" if verdict.has_rough_ends else "converged"


def _numbers(result: Result, verdict: Verdict) -> str:
    """How many of the quantities have the accuracy asked for, and which have not."""
    standing, asked = verdict.numbers, accuracy(result.settings)
    known = f"known to {asked}" if asked else "known as accurately as was asked"
    count, total = len(standing.missed), standing.total
    if result.status in UNTRUSTED:
        return "neither they nor their errors can be relied on"
    if not result.is_sampled:
        return "a normal approximation alone, whose errors are unknown, as no path was run"
    one, many = _nouns(verdict.kinds)
    said = "by their stated errors " if result.status in DOUBTFUL else ""
    if not count:
        return f"{said}every {one} is {known}"
    whose = _unknown(result, standing)
    if count == total:
        return f"{said}no {one.replace(' and ', ' or ')} is {known}{whose}"
    return f"{said}{total - count:,} of {total:,} {many} are {known}, not so {named(standing)}{whose}"


def _unknown(result: Result, standing: Standing) -> str:
    """Of how many numbers the error is not known, and why."""
    if not standing.unknown:
        return ""
    why = ", as too few levels were sampled" if len(result.levels) < 3 and result.weighing is None else ""
    some = (
        "error unknown" if standing.unknown == len(standing.missed) else f"{standing.unknown:,} with an error unknown"
    )
    return f" ({some}{why})"


def _ends(result: Result, verdict: Verdict) -> str:
    """The same of the ends of intervals, as far as they are shown."""
    standing = verdict.ends
    if standing is None or not standing.total or not result.is_sampled or result.status in UNTRUSTED:
        return ""
    tolerance = neat(end_tolerance(result)[0])
    count, total = len(standing.missed), standing.total
    if not count:
        return (
            f"every interval end to {tolerance} sd" if verdict.met else f"every interval end is known to {tolerance} sd"
        )
    if standing.unknown == total:
        return "the errors of interval ends are unknown"
    some = "all" if count == total else f"{count:,} of {total:,}"
    worst = f", with errors up to {plain(verdict.worst_end)} sd" if isfinite(verdict.worst_end) else ""
    unknown = f" and {standing.unknown:,} unknown" if standing.unknown and worst else ""
    return f"{some} interval ends are rough (marked {ROUGH}){worst}{unknown}"


def _nouns(kinds: Sequence[str]) -> tuple[str, str]:
    """What the numbers are called, one and many of them."""
    if kinds and all(kinds):
        return " and ".join(kinds), " and ".join(f"{kind}s" for kind in kinds)
    return "number", "numbers"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)
