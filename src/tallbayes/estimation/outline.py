"""The outline of a result: what is known where a run had to end before its first paths.

    the Gaussian at the mode      its expectations; how far they are from the posterior's is not known
    the Gaussian at a point       the same at the best point so far, on the way to the mode
    nothing                       values that are not numbers

An outline is a result like any other: it prints, is saved, and goes on from where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.gaussian_level import laplace_level
from tallbayes.errors import TallbayesError
from tallbayes.estimation.conclusion import regression_of
from tallbayes.estimator.estimands import resolve_tolerances
from tallbayes.estimator.estimates import Estimate, Status
from tallbayes.estimator.run import gaussian_summary
from tallbayes.moments import Floats
from tallbayes.results.parts import Cost, Rates
from tallbayes.results.result import Result
from tallbayes.setup.known import Known
from tallbayes.setup.quantities import make_estimands
from tallbayes.structure import Structure
from tallbayes.watch import OutOfTime, aside, watching

# What it may take to say what is known, after the time is over.
GRACE_SECONDS = 2.0


def outline(
    known: Known,
    status: Status,
    asked: Any,
    settings: Any,
    phase: str,
    cost: Cost,
    continuation: Callable[..., Result],
) -> Result:
    """The result; `asked` has the quantities, the tolerance, the method and the seed."""
    anchor, values, tolerances = _gaussian(known, asked)
    estimates, first = {}, 0
    for q in known.quantities:
        part = slice(first, first + q.structure.size)
        first += q.structure.size
        unknown = np.full(q.structure.size, np.inf)
        nothing = np.full(q.structure.size, np.nan)
        numbers = (nothing, nothing) if values is None else (values[part], tolerances[part])
        estimates[q.name] = Estimate(q.name, q.structure, numbers[0], unknown, unknown, nothing, numbers[1])
    return Result(
        estimates=estimates,
        status=status,
        levels=(),
        rates=_no_rates(list(estimates)),
        cost=cost,
        contraction=None,
        anchor=anchor,
        method=repr(asked.method),
        settings=settings,
        notes=(*(known.search[1] if known.search else ()), *_notes(known, anchor, phase)),
        regression=None if known.target is None else regression_of(known.target),
        continuation=continuation,
    )


def blank(status: Status, names: Sequence[str], settings: Any, phase: str, seconds: float, again: Any) -> Result:
    """The result where not even the parameters are known, as before a table is read."""
    none: Floats = np.empty(0)
    empty = Structure.container("dict", [])
    return Result(
        estimates={name: Estimate(name, empty, none, none, none, none, none) for name in names},
        status=status,
        levels=(),
        rates=_no_rates(names),
        cost=Cost(0, 0, 0, 0, seconds),
        contraction=None,
        anchor=None,
        method="none yet",
        settings=settings,
        notes=_notes(Known(), None, phase),
        continuation=again,
    )


def _no_rates(names: Sequence[str]) -> Rates:
    return Rates(*(dict.fromkeys(names, np.nan) for _ in range(3)))


def _notes(known: Known, anchor: Anchor | None, phase: str) -> tuple[str, str]:
    if anchor is None:
        answer = "answer: none, since no mode was found by then"
    elif known.prepared is not None:
        answer = "answer: that of the Gaussian at the mode alone; how far off it is, is not known"
    else:
        answer = "answer: that of a Gaussian at the best point on the way to the mode; how far off it is, is not known"
    return answer, f"setup: it ended at: {phase or 'the beginning'}"


def _gaussian(known: Known, asked: Any) -> tuple[Anchor | None, Any, Any]:
    """The anchor, and values and tolerances by component where the Gaussian has them within a moment."""
    with watching(GRACE_SECONDS, apart=True):
        try:
            return aside(_summarised, known, asked)
        except (OutOfTime, TallbayesError):
            return known.anchor if known.prepared is not None else None, None, None


def _summarised(known: Known, asked: Any) -> tuple[Anchor | None, Any, Any]:
    anchor = known.anchor
    if anchor is None or known.placed is None:
        return None, None, None
    target, units = known.placed.target, known.placed.table.units
    estimands = known.estimands or make_estimands(asked.quantities, target, anchor, units)
    level = known.laplace
    if level is None:
        level = laplace_level(target, estimands.observables, anchor, estimands.jump, asked.seed, units)
    summary = gaussian_summary(estimands, level)
    return anchor, summary.value, resolve_tolerances(asked.accuracy.kind, asked.accuracy.size, estimands)(summary)


def copy_of(known: Known) -> Known:
    """For a run that goes on: the result it goes on from stays as it was."""
    return replace(known)
