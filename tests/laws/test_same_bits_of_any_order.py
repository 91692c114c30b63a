"""Runs have the same bits whatever the order their blocks arrive in; cut short, they end at a completed prefix."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import paper
import pytest

import tallbayes as tb
from tallbayes.estimator.estimates import Status
from tallbayes.moments import Moments, merge_all


class Chaotic:
    """In-process threads that pretend to be elsewhere: tasks are delayed at random, and places come and go."""

    elsewhere = True

    def __init__(self, seed: int) -> None:
        self._random, self._pool = random.Random(seed), ThreadPoolExecutor(6)
        self.submitted: list[tuple[int, int]] = []

    def capacity(self) -> int:
        return self._random.choice([1, 3, 6, 6])

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future:
        delay = self._random.choice([0.0, 0.0, 0.005, 0.03])
        self.submitted.append(arguments[1:])

        def late() -> Any:
            time.sleep(delay)
            return task(*arguments)

        return self._pool.submit(late)


class Serial:
    """Everything at once, in the thread that asks."""

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future:
        future: Future = Future()
        future.set_result(task(*arguments))
        return future


SETTINGS: dict[str, Any] = {
    "relative_tolerance": 0.05,
    "seed": 3,
    "method": tb.Multilevel(
        gradient=tb.Taylor(8), ladder=tb.Ladder(first_step=1 / 300, start_steps=12, added_steps=12)
    ),
}


def estimate(**changes: Any) -> tb.Result:
    return tb.estimate(paper.MODEL, paper.rows(300), {"norm": lambda theta: (theta**2).sum()}, **(SETTINGS | changes))


@pytest.fixture(scope="module")
def reference() -> tb.Result:
    return estimate(executor=Serial())


def bits(result: tb.Result) -> list[Any]:
    parts = ("flat_value", "flat_standard_error", "flat_bias_bound", "flat_freedom")
    numbers = [getattr(result["norm"], part).tobytes() for part in parts]
    return [*numbers, [level.samples for level in result.levels], result.cost.evaluations, result.status]


@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_bits_from_chaos(reference, seed):
    executor = Chaotic(seed)
    result = estimate(executor=executor)
    assert bits(result) == bits(reference)
    used = sum(level.samples for level in reference.levels) // 32
    assert len({key for key in executor.submitted if len(key) == 2}) > used
    assert result.cost.speculative_evaluations > 0
    assert reference.cost.speculative_evaluations == 0


def test_the_same_bits_from_threads(reference):
    with ThreadPoolExecutor(3) as pool:
        result = estimate(executor=pool)
    assert bits(result) == bits(reference)
    assert result.cost.speculative_evaluations == 0


def test_the_same_bits_and_counts_where_the_budget_ends(reference):
    budget = 0.4 * reference.cost.evaluations
    short = [estimate(executor=executor, max_evaluations=budget) for executor in (Serial(), Chaotic(0))]
    assert short[0].status is Status.max_evaluations
    assert bits(short[0]) == bits(short[1])
    assert short[0].cost.evaluations <= budget


def test_control_merging_by_arrival_changes_bits():
    rng = np.random.default_rng(0)
    blocks = [Moments.of(rng.normal(size=(32, 3))) for _ in range(50)]
    turned = [blocks[k] for k in rng.permutation(50)]
    assert merge_all(blocks).sum4.tobytes() != merge_all(turned).sum4.tobytes()


class Interrupting(Chaotic):
    """Ctrl-C after so many blocks."""

    def __init__(self, number: int) -> None:
        super().__init__(0)
        self._left = number
        self.futures: list[Future] = []

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future:
        self._left -= len(arguments) == 3
        if self._left < 0:
            raise KeyboardInterrupt
        self.futures.append(
            super().submit(task, *arguments) if len(arguments) == 3 else self._pool.submit(task, *arguments)
        )
        return self.futures[-1]


def test_an_interrupt_ends_at_a_completed_prefix_and_leaves_nothing_behind():
    executor = Interrupting(60)
    result = estimate(executor=executor, relative_tolerance=0.001)
    assert result.status is Status.interrupted
    assert result.levels[0].samples >= 64
    executor._pool.shutdown(wait=True)
    assert all(future.done() for future in executor.futures)


@contextmanager
def stuck_workers() -> Iterator[ThreadPoolExecutor]:
    """Threads that are let go at the end."""
    release = threading.Event()

    class Stuck(ThreadPoolExecutor):
        elsewhere = True
        blocks = 0

        def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future:
            self.blocks += len(arguments) == 3
            if self.blocks > 40:
                return super().submit(release.wait)
            return super().submit(task, *arguments)

    with Stuck(4) as pool:
        try:
            yield pool
        finally:
            release.set()


def test_max_seconds_holds_though_workers_are_stuck():
    with stuck_workers() as pool:
        result = estimate(executor=pool, relative_tolerance=0.001, max_seconds=5.0)
        assert result.status is Status.max_seconds
        assert result.levels[0].samples >= 32
