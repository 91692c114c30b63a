"""tallbayes as a contestant: the default, the unbiased variant, and the paper's ladder.

The first call in the process is the answer, and what it takes longer than later calls with other seeds counts as
compiling; compiling runs on threads beside the set-up, so that no clock could tell the two apart within one call. A
call that is given the anchor has no set-up: its seconds are those of sampling, and the rest of a warm call is the
set-up. Sampling items are row gradients along paths, pilots and all, on average over all seeds that were run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import tallbayes as tb

from .contract import Answer, Contestant, Cost, Effort

TOLERANCE, RANDOMISED_TOLERANCE, PAPER_TOLERANCE = 0.01, 0.05, 0.1
COARSER = (0.02, 0.04)
PAPER_PROBLEMS = ("paper", "logistic")
STARTING = 30.0
FURTHER_EFFORTS = 4
WARM_CALLS = 5

Call = Callable[..., tuple[tb.Result, float]]


def anchored(posterior: Any, effort: Effort) -> Answer:
    """The default, to 1% of a posterior sd for every mean and sd, with its cost at coarser tolerances beside it."""
    return contest(posterior, effort, tb.Anchored(), TOLERANCE, COARSER)


def randomised(posterior: Any, effort: Effort) -> Answer:
    """The unbiased variant, whose cost to anything finer grows like tolerance^-2."""
    return contest(posterior, effort, tb.Randomised(tb.Anchored()), RANDOMISED_TOLERANCE)


def paper(posterior: Any, effort: Effort) -> Answer:
    """The paper's ladder at a coarse tolerance, from where its cost grows like tolerance^-2.

    On the paper's kind of problem h_0 = 1/N and m = 5 as there; elsewhere both come from the curvature at the mode.
    """
    num_rows, ladder = posterior.num_rows, None
    if posterior.name.startswith(PAPER_PROBLEMS):
        ladder = tb.Ladder(first_step=1 / num_rows, start_steps=5, added_steps=5)
    gradient = tb.Taylor(batch_size=int(np.ceil(num_rows ** (1 / 3) - 1e-9)))
    return contest(posterior, effort, tb.Multilevel(gradient, ladder=ladder), PAPER_TOLERANCE)


CONTESTANTS: dict[str, Contestant] = {
    "tallbayes": anchored,
    "tallbayes randomised": randomised,
    "tallbayes, the paper's ladder": paper,
}


def make_call(posterior: Any, effort: Effort, method: Any) -> Call:
    """A function of a tolerance, a seed and perhaps an anchor that estimates means and sds and tells its seconds."""
    model, rows = posterior.model()
    estimate = partial(tb.estimate, model, rows, method=method, max_seconds=effort.seconds + STARTING)

    def call(tolerance: float, seed: int, anchor: Any = None) -> tuple[tb.Result, float]:
        started = time.perf_counter()
        result = estimate(tolerance=tolerance, seed=seed, anchor=anchor)
        return result, time.perf_counter() - started

    return call


@dataclass(frozen=True)
class Timing:
    """Seconds of a warm call, of it the set-up, and what was learnt of the cost on the way; sampling items by seed."""

    whole: float
    setup: float
    items: list[int]
    statuses: list[str]
    law: dict[str, Any]


def contest(posterior: Any, effort: Effort, method: Any, tolerance: float, coarser: tuple[float, ...] = ()) -> Answer:
    """A cold call for the answer, and later calls for what it costs; where the clock stopped it, it stands alone."""
    call = make_call(posterior, effort, method)
    result, cold = call(tolerance, effort.seed)
    if result.status is tb.Status.max_seconds:
        timing = Timing(cold, 0.0, [], [], {})
    else:
        timing = later_calls(call, result.anchor, tolerance, coarser, effort)
    items = [result.cost.evaluations, *timing.items]
    return Answer(
        mean=np.asarray(result["mean"].flat_value),
        sd=np.asarray(result["sd"].flat_value),
        law="tolerance",
        setup=Cost(float(result.cost.setup_evaluations), timing.setup),
        sampling=Cost(float(np.mean(items)), timing.whole - timing.setup),
        compiling=max(0.0, cold - timing.whole),
        settings={
            "method": result.method,
            "tolerance": tolerance,
            "seed": effort.seed,
            "max_seconds": effort.seconds + STARTING,
        },
        tolerance=tolerance,
        error=stated_error(result),
        remarks={
            "status": result.status.name,
            "levels": len(result.levels),
            "warm_seconds": timing.whole if timing.statuses else None,
            "warm_statuses": timing.statuses,
            "items_by_seed": items,
            "law": timing.law,
            "notes": list(result.notes),
        },
    )


def later_calls(call: Call, anchor: Any, tolerance: float, coarser: tuple[float, ...], effort: Effort) -> Timing:
    """A warm call with another seed, the same without set-up, and while there is time further seeds and coarser
    tolerances, these without set-up too."""
    until = time.perf_counter() + FURTHER_EFFORTS * effort.seconds
    warm = [call(tolerance, effort.seed + 1)]
    bare, sampling = call(tolerance, effort.seed + 1, anchor)
    while len(warm) < WARM_CALLS and time.perf_counter() + max(seconds for _, seconds in warm) < until:
        warm.append(call(tolerance, effort.seed + len(warm) + 1))
    law = {f"{tolerance:g}": outcome(bare, sampling)}
    for each in coarser:
        if time.perf_counter() + sampling < until:
            law[f"{each:g}"] = outcome(*call(each, effort.seed + 1, anchor))
    whole = float(np.median([seconds for _, seconds in warm]))
    setup = min(whole, max(0.0, warm[0][1] - sampling))
    items = [result.cost.evaluations for result, _ in warm]
    return Timing(whole, setup, items, sorted({result.status.name for result, _ in warm}), law)


def outcome(result: tb.Result, seconds: float) -> dict[str, Any]:
    return {
        "items": result.cost.evaluations,
        "seconds": seconds,
        "error": stated_error(result),
        "status": result.status.name,
    }


def stated_error(result: tb.Result) -> float:
    """The worst root mean squared error that the result itself states, of means and sds, in posterior sds."""
    return float(max(np.max(result[name].flat_error / result["sd"].flat_value) for name in ("mean", "sd")))
