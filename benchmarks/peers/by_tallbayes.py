"""tallbayes as a contestant: the default, the ladder, about the balanced Gaussian, unbiased, the paper's; and draws.

The default answers small tables by draws with weights and others by the ladder; which it was is among the settings. The
first call in the process is the answer, and what it takes longer than later calls with other seeds counts as compiling;
compiling runs on threads beside the set-up, so that no clock could tell the two apart within one call. Of draws with
weights the set-up ends where sampling is reported to begin. On the ladder a call that is given the anchor has no
set-up: its seconds are those of sampling, and the rest of a warm call is the set-up. Sampling items are rows whose
likelihood or gradient was computed at draws or along paths, pilots and all, on average over all seeds that were run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import tallbayes as tb

from .contract import Answer, Contestant, Cost, Effort

TOLERANCE, RANDOMISED_TOLERANCE, PAPER_TOLERANCE = 0.01, 0.05, 0.1
COARSER = (0.02, 0.04)
PAPER_PROBLEMS = ("paper", "logistic")
STARTING = 30.0
FURTHER_EFFORTS = 4
WARM_CALLS = 5
DRAWS, LEAST_DRAWS = 4_096, 256


class Called(NamedTuple):
    """A call, its seconds, and of these the ones before sampling was reported to begin."""

    result: tb.Result
    seconds: float
    before: float


Call = Callable[..., Called]


def default(posterior: Any, effort: Effort) -> Answer:
    """What is called without a method, to 1% of a posterior sd for every mean and sd, and at coarser tolerances."""
    return contest(posterior, effort, None, TOLERANCE, COARSER)


def anchored(posterior: Any, effort: Effort) -> Answer:
    """The ladder, which the default takes where rows are many, to the same."""
    return contest(posterior, effort, tb.Anchored(), TOLERANCE, COARSER)


def balanced(posterior: Any, effort: Effort) -> Answer:
    """The ladder about the Gaussian that is right on average, whether or not it would pay."""
    return contest(posterior, effort, tb.Anchored(anchor="balanced"), TOLERANCE, COARSER)


def draws(posterior: Any, effort: Effort) -> Answer:
    """Means and sds of independent draws after the default: the error is that of so many of them, and of their law."""
    call = make_call(posterior, effort, None)
    result, cold, _ = call(TOLERANCE, effort.seed)
    again = call(TOLERANCE, effort.seed + 1).seconds
    started = time.perf_counter()
    result.draws(LEAST_DRAWS, seed=effort.seed + 1)
    first = time.perf_counter() - started
    started = time.perf_counter()
    found = result.draws(DRAWS, seed=effort.seed)
    seconds = time.perf_counter() - started
    centred = found.flat - found.flat.mean(axis=0)
    kurtosis = np.mean(centred**4, axis=0) / np.mean(centred**2, axis=0) ** 2
    setup = float(result.cost.setup_evaluations + result.cost.evaluations)
    return Answer(
        mean=found.flat.mean(axis=0),
        sd=found.flat.std(axis=0, ddof=1),
        law="sampling",
        setup=Cost(setup, again),
        sampling=Cost(found.rows_per_draw * DRAWS, seconds),
        compiling=max(0.0, cold - again) + max(0.0, first - seconds * LEAST_DRAWS / DRAWS),
        settings={"draws": DRAWS, "tolerance": TOLERANCE, "seed": effort.seed},
        ess=float(DRAWS),
        sd_noise=float(np.sqrt(np.max(kurtosis - 1) / DRAWS) / 2),
        remarks={"status": result.status.name, "bias": found.bias, "notes": list(result.notes)},
    )


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
    "tallbayes": default,
    "tallbayes, the ladder": anchored,
    "tallbayes, the balanced ladder": balanced,
    "tallbayes draws": draws,
    "tallbayes randomised": randomised,
    "tallbayes, the paper's ladder": paper,
}


def make_call(posterior: Any, effort: Effort, method: Any) -> Call:
    """A function of a tolerance, a seed and perhaps an anchor that estimates means and sds and tells its seconds."""
    model, rows = posterior.model()
    estimate = partial(tb.estimate, model, rows, method=method, max_seconds=effort.seconds + STARTING)

    def call(tolerance: float, seed: int, anchor: Any = None) -> Called:
        began: list[float] = []

        def listen(progress: tb.Progress) -> None:
            if progress.phase == "sampling" and not began:
                began.append(time.perf_counter())

        started = time.perf_counter()
        result = estimate(tolerance=tolerance, seed=seed, anchor=anchor, progress=listen)
        ended = time.perf_counter()
        return Called(result, ended - started, (began or [ended])[0] - started)

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
    result, cold, _ = call(tolerance, effort.seed)
    if result.status is tb.Status.max_seconds:
        timing = Timing(cold, 0.0, [], [], {})
    else:
        anchor = result.anchor if result.weighing is None else None
        timing = later_calls(call, anchor, tolerance, coarser, effort)
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
            "weights": None if result.weighing is None else asdict(result.weighing),
            "warm_seconds": timing.whole if timing.statuses else None,
            "warm_statuses": timing.statuses,
            "items_by_seed": items,
            "law": timing.law,
            "notes": list(result.notes),
        },
    )


def later_calls(call: Call, anchor: Any, tolerance: float, coarser: tuple[float, ...], effort: Effort) -> Timing:
    """A warm call with another seed, the same without set-up, and while there is time further seeds and coarser
    tolerances, these without set-up too; `anchor` is None of draws with weights."""
    until = time.perf_counter() + FURTHER_EFFORTS * effort.seconds
    warm = [call(tolerance, effort.seed + 1)]
    bare = bare_call(call, anchor, tolerance, effort)
    while len(warm) < WARM_CALLS and time.perf_counter() + max(each.seconds for each in warm) < until:
        warm.append(call(tolerance, effort.seed + len(warm) + 1))
    law = {f"{tolerance:g}": outcome(*bare)}
    for each in coarser:
        if time.perf_counter() + bare[1] < until:
            law[f"{each:g}"] = outcome(*bare_call(call, anchor, each, effort))
    whole = float(np.median([each.seconds for each in warm]))
    before = warm[0].seconds - bare[1] if anchor is not None else float(np.median([each.before for each in warm]))
    items = [each.result.cost.evaluations for each in warm]
    statuses = sorted({each.result.status.name for each in warm})
    return Timing(whole, min(whole, max(0.0, before)), items, statuses, law)


def bare_call(call: Call, anchor: Any, tolerance: float, effort: Effort) -> tuple[tb.Result, float]:
    """With the seconds of sampling alone."""
    result, seconds, before = call(tolerance, effort.seed + 1, anchor)
    return result, seconds - (before if anchor is None else 0.0)


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
