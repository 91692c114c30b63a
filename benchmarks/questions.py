"""Questions with known answers: a model, its rows, what is asked of them, and the truth.

A question is put to `tb.estimate` with a seed and becomes a line of a study's store: how the run ended, and every
number it published with its 95% interval, standard error and allowed error, beside the truth. What is allowed is the
tolerance; an answer that is read off afterwards, such as a quantile, has none, and half the width of its interval is
taken in its place. An exception is an outcome, too, and so is a run that is still going on after its limit.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import tallbayes as tb

# Of the processor: a machine that is busy with other things must not change what a study finds.
LIMIT = 60.0
MAX_EVALUATIONS = 200_000_000


class Answer(NamedTuple):
    """Numbers under one name, flat: what a result says of them."""

    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    standard_error: np.ndarray
    allowed: np.ndarray


FIELDS = Answer._fields


def answer(estimate: tb.Estimate) -> Answer:
    """As it is published by an estimate."""
    lower, upper = estimate.flat_interval
    return Answer(estimate.flat_value, lower, upper, estimate.flat_standard_error, allowed(estimate))


def allowed(estimate: tb.Estimate) -> np.ndarray:
    """The tolerance, or half the width of the 95% interval where there is none."""
    return np.where(np.isfinite(estimate.flat_tolerance), estimate.flat_tolerance, estimate.half_width())


def all_asked(result: tb.Result) -> dict[str, tb.Estimate]:
    return {name: result[name] for name in result}


@dataclass(frozen=True, eq=False)
class Question:
    """`truth` is by name, flat, in the order of what `read` makes of a result; not a number where there is none."""

    model: Any
    rows: Any
    truth: Mapping[str, Any]
    tolerance: float
    arguments: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[tb.Result], dict[str, tb.Estimate]] = all_asked


class OverTimeError(Exception):
    """A run was still going on at its limit."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """End what takes longer, in seconds of the processor; a budget that is not kept must not hold up a study."""

    def end(*_: Any) -> None:
        raise OverTimeError(f"still going on after {seconds:.0f} s")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@cache
def one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


def put(question: Question, seed: int, limit: float = LIMIT) -> dict[str, Any]:
    """One run as a line of a store."""
    started = time.process_time()
    options = {"max_evaluations": MAX_EVALUATIONS, "executor": one_thread()}
    try:
        with limited(limit):
            result = tb.estimate(
                question.model, question.rows, tolerance=question.tolerance, seed=seed, **options | question.arguments
            )
            answers = {name: answer(each) for name, each in question.read(result).items()}
    except Exception as error:
        seconds = round(time.process_time() - started, 3)
        return {"status": type(error).__name__, "message": str(error)[:400], "seconds": seconds}
    return {
        "status": result.status.name,
        "message": str(result.status),
        "names": [label for name, each in answers.items() for label in labels(name, len(each.value))],
        **{column: numbers([getattr(each, column) for each in answers.values()]) for column in FIELDS},
        "truth": numbers([question.truth[name] for name in answers]),
        "evaluations": result.cost.evaluations,
        "num_data": result.cost.num_data,
        "seconds": round(time.process_time() - started, 3),
    }


def labels(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}[{place}]" for place in range(count)]


def numbers(parts: list[Any]) -> list[float | None]:
    """Flat, with None for what is infinite or no number."""
    flat = np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in parts])
    return [float(each) if np.isfinite(each) else None for each in flat]
