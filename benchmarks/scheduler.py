"""What a thousand workers of uneven speed would make of a run: the real loop and dispatcher, in virtual time.

    python benchmarks/scheduler.py [--measure | --draw]    prints a table, writes scheduler.json and the picture in docs

`run_multilevel` itself runs here, with its dispatcher; only the blocks are made up and the workers virtual. A sample of
level l is N(m_l, 4^-l), m_0 = 1 and m_l = 0.03 2^-l; row gradients and seconds a block by level are those of a logistic
regression measured on this machine (--measure), of 100,000 rows and 20 coefficients with all rows in every step;
levels above the measured ones go on in proportion to row gradients. Speeds of workers are spread log-uniformly over a
factor of ten around 1, and a task can begin 10 ms after it was submitted, at the soonest.

    utilisation = seconds of the blocks in the estimate, at speed 1 / (sum of all speeds x time to answer)
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.estimator import adaptive as multilevel
from tallbayes.estimator.adaptive import run_multilevel
from tallbayes.estimator.estimands import Tolerances
from tallbayes.estimator.levels import BLOCK_PATHS, Levels, sample_level
from tallbayes.estimator.made_up import MadeUp, made_up_estimands
from tallbayes.estimator.rates import Contraction
from tallbayes.estimator.run import Budget, Run
from tallbayes.experiments import style
from tallbayes.views.text import table
from tallbayes.workers.dispatch import Arrivals, Dispatcher, first_arrival

RESULTS = Path(__file__).parent / "results" / "scheduler.json"
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "scheduler.svg"
NUM_ROWS, DIMENSION, MEASURED_LEVELS = 100_000, 20, 4
LATENCY, SPREAD, MEAN = 0.01, 10.0, 0.03
WORKERS = 1000
LADDERS = {"levels as asked for": 12, "three levels at most": 3}
TOLERANCES = {"levels as asked for": (0.032, 0.008), "three levels at most": (0.032, 0.008, 0.004)}
FINEST = {"levels as asked for": (0.004,), "three levels at most": (0.0022,)}
FIXED_TOLERANCE = 0.008
NUMBERS = tuple(4**k for k in range(6))
SEED = 0
SEEDS = (0, 1, 2)


class Cluster:
    """An executor of virtual workers: what is submitted waits for one that is idle, and takes its time there."""

    elsewhere = True

    def __init__(self, workers: int, seconds: Callable[[int], float], seed: int = SEED) -> None:
        ends = np.log(SPREAD) / 2
        self.speeds = np.exp(np.random.default_rng(seed).uniform(-ends, ends, workers))
        self.now = 0.0
        self._seconds = seconds
        self._idle = deque(range(workers))
        self._queue: deque[tuple[float, Future, Callable[..., Any], tuple[Any, ...]]] = deque()
        self._events: list[tuple[float, int, int, Any]] = []
        self._number = 0

    def capacity(self) -> int:
        return len(self.speeds)

    def clock(self) -> float:
        return self.now

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future:
        future: Future = Future()
        self._queue.append((self.now + LATENCY, future, task, arguments))
        self._start()
        return future

    def wait(self, arrivals: Arrivals, seconds: float) -> Future | None:
        """Let time pass until a block is done, but no longer than that."""
        if seconds <= 0 or not arrivals.empty():
            return first_arrival(arrivals, 0.0)
        until = self.now + seconds
        if not self._events or self._events[0][0] > until:
            self.now = until
            return None
        self.now, _, worker, (future, task, arguments) = heapq.heappop(self._events)
        self._idle.append(worker)
        self._start()
        future.set_result(task(*arguments))
        return first_arrival(arrivals, 0.0)

    def _start(self) -> None:
        while self._queue and self._idle:
            ready, future, task, arguments = self._queue.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            worker = self._idle.popleft()
            end = max(self.now, ready) + self._seconds(arguments[1]) / self.speeds[worker]
            self._number += 1
            heapq.heappush(self._events, (end, self._number, worker, (future, task, arguments)))


class LevelByLevel(Dispatcher):
    """As it was: a barrier at the end of each level and each round."""

    def collect(self, wanted: Any, likely: Any = (), deadline: float = np.inf) -> Iterator[tuple[int, Any]]:
        for each in wanted:
            yield from super().collect([each], (), deadline)


def mean_of(level: int) -> float:
    return 1.0 if level == 0 else MEAN * 2.0**-level


class Measured:
    """Row gradients of a sample and seconds of a block, by level."""

    def __init__(self, evaluations: list[int], seconds: list[float]) -> None:
        self._evaluations, self._known = evaluations, seconds

    def evaluations(self, level: int) -> int:
        return self._evaluations[level]

    def seconds(self, level: int) -> float:
        last = len(self._known) - 1
        beyond = self._evaluations[level] / self._evaluations[min(level, last)]
        return self._known[min(level, last)] * beyond


class Caught(ThreadPoolExecutor):
    """Threads that remember which levels they were asked to sample."""

    def __init__(self) -> None:
        super().__init__()
        self.levels: list[Levels] = []

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future:
        self.levels += [each for each in arguments[:1] if hasattr(each, "contraction_evaluations")]
        return super().submit(task, *arguments)


def measure() -> dict[str, Any]:
    """Seconds of single blocks of a real problem, one after the other."""
    import tallbayes as tb

    rng = np.random.default_rng(0)
    x = rng.normal(size=(NUM_ROWS, DIMENSION))
    y = (rng.random(NUM_ROWS) < 1 / (1 + np.exp(-x @ rng.normal(0, 0.5, DIMENSION)))).astype(float)
    method = tb.Anchored(gradient=tb.Full())
    caught = Caught()
    tb.estimate(tb.families.logistic(), {"x": x, "y": y}, tolerance=0.5, method=method, executor=caught)
    problem = caught.levels[-1]
    seconds = [min(timed(problem, level) for _ in range(2)) for level in range(MEASURED_LEVELS)]
    return {"evaluations": [problem.evaluations(level) for level in range(12)], "seconds": seconds}


def timed(problem: Any, level: int) -> float:
    started = time.perf_counter()
    sample_level(problem, level, 1000)
    return round(time.perf_counter() - started, 4)


@contextmanager
def replaced(name: str, value: Any) -> Iterator[None]:
    before = getattr(multilevel, name)
    setattr(multilevel, name, value)
    try:
        yield
    finally:
        setattr(multilevel, name, before)


def nothing_likely(run: Run, num_levels: int) -> np.ndarray:
    return np.zeros(0)


POLICIES = {
    "both": (partial(Dispatcher), multilevel.likely_blocks),
    "only running ahead": (partial(Dispatcher, late=np.inf), multilevel.likely_blocks),
    "only re-issue": (partial(Dispatcher), nothing_likely),
    "neither": (partial(Dispatcher, late=np.inf), nothing_likely),
    "level by level": (partial(LevelByLevel, late=np.inf), nothing_likely),
}


def simulate(
    measured: Measured, workers: int, tolerance: float, policy: str, max_levels: int = 12, seed: int = SEED
) -> dict[str, Any]:
    """One run from the first pilot to the answer, in virtual time."""
    cluster = Cluster(workers, measured.seconds, seed)
    dispatch, likely = POLICIES[policy]
    problem = MadeUp(seed, mean=mean_of, cost=measured.evaluations)
    goal = Tolerances("absolute_tolerance", (tolerance,), (1,))
    run = Run(problem, made_up_estimands(), cluster, lambda _: None, goal, Budget(max_levels=max_levels))
    run.contraction = Contraction(0.1, 0.1, 1.0)
    run.dispatch = partial(dispatch, wait=cluster.wait, clock=cluster.clock)
    started = time.process_time()
    with replaced("likely_blocks", likely):
        status, final = run_multilevel(run)
    blocks = [level.samples // BLOCK_PATHS for level in run.levels]
    useful = sum(number * measured.seconds(level) for level, number in enumerate(blocks))
    return {
        "workers": workers,
        "seed": seed,
        "tolerance": tolerance,
        "policy": policy,
        "max_levels": max_levels,
        "status": status.name,
        "value": float(final.summary.value[0]),
        "blocks": blocks,
        "blocks_per_worker": sum(blocks) / workers,
        "seconds": round(float(cluster.now), 3),
        "least_seconds": round(float(useful / cluster.speeds.sum()), 3),
        "longest_block": round(measured.seconds(len(blocks) - 1), 3),
        "utilisation": round(float(useful / (cluster.speeds.sum() * cluster.now)), 4),
        "speculative": run.speculative / run.evaluations,
        "simulation_seconds": round(time.process_time() - started, 1),
    }


def study(measured: Measured) -> Iterator[dict[str, Any]]:
    """Finer and finer tolerances with a thousand workers, then one tolerance with more and more of them."""
    for ladder, max_levels in LADDERS.items():
        for tolerance in TOLERANCES[ladder]:
            for policy in POLICIES:
                yield {"ladder": ladder} | simulate(measured, WORKERS, tolerance, policy, max_levels)
        for tolerance in FINEST[ladder]:
            for seed in SEEDS:
                yield {"ladder": ladder} | simulate(measured, WORKERS, tolerance, "both", max_levels, seed)
    for workers in NUMBERS:
        for policy in ("both", "neither"):
            yield {"ladder": "workers"} | simulate(measured, workers, FIXED_TOLERANCE, policy)


def show(runs: list[dict[str, Any]]) -> str:
    header = ("runs", "W", "policy", "blocks/W", "levels", "longest block", "least s", "s", "used", "speculative")
    cells = [
        [
            run["ladder"], f"{run['workers']:,}", run["policy"], f"{run['blocks_per_worker']:.1f}",
            f"{len(run['blocks'])}", f"{run['longest_block']:.1f}", f"{run['least_seconds']:.1f}",
            f"{run['seconds']:.1f}", f"{run['utilisation']:.0%}", f"{run['speculative']:.2f}",
        ]
        for run in runs
    ]  # fmt: skip
    return table(header, cells)


def draw(runs: list[dict[str, Any]]) -> Any:
    figure, axes = style.new_figure(3)
    for ax, ladder in zip(axes, LADDERS, strict=False):
        for number, policy in enumerate(POLICIES):
            chosen = [run for run in runs if run["ladder"] == ladder and run["policy"] == policy and not run["seed"]]
            x, y = ([run[name] for run in chosen] for name in ("blocks_per_worker", "utilisation"))
            ax.semilogx(x, [100 * each for each in y], label=policy, **style.mark(number))
        ax.axhline(90, color="#a3a3a3", linewidth=1.0, linestyle="--")
        ax.set(title=f"1,000 workers, {ladder}", xlabel="blocks a worker", ylabel="utilisation, %", ylim=(0, 100))
    for number, policy in enumerate(POLICIES):
        chosen = [run for run in runs if run["ladder"] == "workers" and run["policy"] == policy]
        axes[2].loglog(*([run[name] for run in chosen] for name in ("workers", "seconds")), **style.mark(number))
    chosen = [run for run in runs if run["ladder"] == "workers" and run["policy"] == "both"]
    style.guide(axes[2], *([run[name] for run in chosen] for name in ("workers", "least_seconds")), "all workers busy")
    axes[2].set(title=f"tolerance {FIXED_TOLERANCE}", xlabel="workers", ylabel="seconds to the answer")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    axes[2].legend(frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description="the scheduler in virtual time")
    parser.add_argument("--measure", action="store_true", help="time the blocks of a real problem again")
    parser.add_argument("--draw", action="store_true", help="only draw what is stored")
    given = parser.parse_args()
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not given.draw:
        figures = measure() if given.measure or "measured" not in stored else stored["measured"]
        runs = []
        for run in study(Measured(**figures)):
            runs.append(run)
            print(show([run]).splitlines()[-1], file=sys.stderr, flush=True)
        settings = {"latency": LATENCY, "speeds_over": SPREAD, "mean": MEAN, "num_rows": NUM_ROWS, "seed": SEED}
        stored = {"settings": settings, "measured": figures, "runs": runs}
        RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
    print(show(stored["runs"]))
    style.save_svg(draw(stored["runs"]), PICTURE)


if __name__ == "__main__":
    main()
