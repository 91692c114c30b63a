"""Answers at the other modes: the same question, asked again from an anchor at each that matters.

The numbers of a result are those of the heaviest mode. Beside them stand those of every other mode whose share of the
mass is above `MATTERS`, each within what is left of the budget; a lighter one moves a mean by less than a hundredth of
an sd unless it is ten sds away. No mixture of them is computed: shares are Laplace's, and their error is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from tallbayes.anchor.gaussian_level import reported_sd
from tallbayes.anchor.other_modes import Peak
from tallbayes.errors import TallbayesError
from tallbayes.estimator.estimates import Status
from tallbayes.estimator.run import Budget
from tallbayes.programs.later import jax, jnp
from tallbayes.results.parts import Mode
from tallbayes.results.result import Result
from tallbayes.setup.preparation import Prepared

MATTERS = 1e-3
MOST_ANSWERS = 3
UNFINISHED = (Status.max_seconds, Status.max_evaluations, Status.interrupted)


@dataclass(frozen=True, eq=False)
class Repeat:
    """The question, but for its anchor and its ledger; and what it may cost in all."""

    again: Callable[..., Result]
    budget: Budget
    ledger: str | Path | None


def answer_modes(result: Result, others: tuple[Peak, ...], prepared: Prepared, asked: Repeat) -> Result:
    """The result with what is known of the other modes, heaviest first."""
    modes: list[Mode] = []
    before = [result]
    for number, peak in enumerate(others):
        mode = _described(peak, prepared)
        reason = _reason(peak, number, before, asked.budget)
        if not reason:
            try:
                answer = asked.again(
                    anchor=peak.anchor, ledger=_beside(asked.ledger, number), **_left(before, asked.budget)
                )
                before.append(answer)
                mode = replace(mode, result=_alone(answer))
            except TallbayesError as error:
                reason = f"{type(error).__name__}: {error}"
        modes.append(replace(mode, reason=reason))
    return _with_modes(result, tuple(modes)) if modes else result


def _described(peak: Peak, prepared: Prepared) -> Mode:
    """Where a mode is and how wide by Laplace, in the terms that are reported."""
    target, units = prepared.target, prepared.table.units
    with jax.enable_x64(True):
        location = np.asarray(target.reported_vector(jnp.asarray(peak.anchor.mode, jnp.float64), units))
    return Mode(peak.share, target.structure, location, reported_sd(target, peak.anchor, units))


def _reason(peak: Peak, number: int, before: list[Result], budget: Budget) -> str:
    """Why a mode is not answered; empty where it is."""
    if peak.share < MATTERS:
        return f"its share is below {MATTERS:g}"
    if number >= MOST_ANSWERS:
        return f"{MOST_ANSWERS} heavier ones were answered"
    if before[-1].status in UNFINISHED or any(left <= 0 for left in _left(before, budget).values()):
        return "the budget was spent before"
    return ""


def _left(before: list[Result], budget: Budget) -> dict[str, float]:
    """What is left of a budget that was given."""
    left = {
        "max_evaluations": budget.max_evaluations - sum(each.cost.evaluations for each in before),
        "max_seconds": budget.max_seconds - sum(each.cost.seconds for each in before),
    }
    return {name: value for name, value in left.items() if np.isfinite(value)}


def _beside(ledger: str | Path | None, number: int) -> Path | None:
    """A ledger is of one anchor: the others have theirs next to it."""
    return None if ledger is None else Path(ledger).with_name(f"{Path(ledger).name}.mode-{number + 2}")


def _alone(answer: Result) -> Result:
    """Numbers of one mode are never called converged."""
    return replace(answer, status=Status.second_mode) if answer.converged else answer


def _with_modes(result: Result, modes: tuple[Mode, ...]) -> Result:
    return replace(result, modes=modes, continuation=partial(_extend, result, modes))


def _extend(result: Result, modes: tuple[Mode, ...], **changes: Any) -> Result:
    """Extend every answer in turn; each has the whole of an evaluation budget, and what is left of the seconds."""
    started, seconds = monotonic(), changes.get("max_seconds")
    extended = result.extend(**changes)
    further = []
    for mode in modes:
        if mode.result is not None and extended.status not in UNFINISHED:
            left = {} if seconds is None else {"max_seconds": max(seconds - (monotonic() - started), 1e-3)}
            mode = replace(mode, result=_alone(mode.result.extend(**(changes | left))))
        further.append(mode)
    return _with_modes(extended, tuple(further))
