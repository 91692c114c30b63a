"""What a thousand workers of uneven speed would make of a run: the real loop and dispatcher, in virtual time.

    python benchmarks/scheduler.py [--measure | --draw]    prints a table, writes scheduler.json and the picture in docs

`run_multilevel` itself runs here, with its dispatcher; only the blocks are made up and the workers virtual. A sample
of level l is N(m_l, 4^-l), m_0 = 1 and m_l = 0.03 2^-l; row gradients and seconds a block by level are those of a
logistic regression measured on this machine (--measure), of 100,000 rows and 20 coefficients with all rows in every
step; levels above the measured ones go on in proportion to row gradients. Blocks of deep levels have fewer paths
(`estimator.levels.paths_of_blocks`), whose paths take longer one by one, as measured too (--measure). Speeds of
workers are spread log-uniformly over a factor of ten around 1, and a task can begin 10 ms after it was submitted, at
the soonest.

    utilisation = seconds of the blocks in the estimate, at speed 1 / (sum of all speeds x time to answer)

Runs of "32 paths to every block" are as it was, for comparison; blocks a worker count 32 paths as one.
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

import ages
import numpy as np

from tallbayes.estimator.adaptive import run_multilevel
from tallbayes.estimator.estimands import Tolerances
from tallbayes.estimator.levels import BLOCK_PATHS, CUT_PATHS, Levels, paths_of_blocks, sample_level
from tallbayes.estimator.made_up import MadeUp, made_up_estimands
from tallbayes.estimator.rates import Contraction
from tallbayes.estimator.run import Budget, Run
from tallbayes.experiments import style
from tallbayes.sampler import levels as levels_below
from tallbayes.views.text import table
from tallbayes.workers.dispatch import Arrivals, Dispatcher, first_arrival

RESULTS = Path(__file__).parent / "results" / "scheduler.json"
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "scheduler.svg"
NUM_ROWS, DIMENSION, MEASURED_LEVELS = 100_000, 20, 4
LATENCY, SPREAD, MEAN = 0.01, 10.0, 0.03
WORKERS = 1000
AS_ASKED, AS_IT_WAS = "levels as asked for", "32 paths to every block"
LADDERS = {AS_ASKED: 12, "three levels at most": 3}
TOLERANCES = {"levels as asked for": (0.032, 0.008, 0.004), "three levels at most": (0.032, 0.008, 0.004)}
FINEST = {"levels as asked for": (0.0028, 0.0022), "three levels at most": (0.0022,)}
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


class OnlyWanted(Dispatcher):
    """Nothing runs ahead."""

    def collect(self, wanted: Any, outlook: Any = None, deadline: float = np.inf) -> Iterator[tuple[int, Any]]:
        return super().collect(wanted, None, deadline)


class LevelByLevel(Dispatcher):
    """As it was: a barrier at the end of each level and each round."""

    def collect(self, wanted: Any, outlook: Any = None, deadline: float = np.inf) -> Iterator[tuple[int, Any]]:
        for each in wanted:
            yield from super().collect([each], None, deadline)


def mean_of(level: int) -> float:
    return 1.0 if level == 0 else MEAN * 2.0**-level


class Measured:
    """Row gradients of a sample and seconds of a block, by level; what a path takes in narrower blocks than of 32."""

    def __init__(self, evaluations: list[int], seconds: list[float], narrow: dict[str, float], cut: bool) -> None:
        self._evaluations, self._known, self._narrow, self._cut = evaluations, seconds, narrow, cut

    def evaluations(self, level: int) -> int:
        return self._evaluations[level]

    def paths(self, level: int) -> int:
        return paths_of_blocks(level, float(self._evaluations[level]) * DIMENSION) if self._cut else BLOCK_PATHS

    def seconds(self, level: int) -> float:
        last, paths = len(self._known) - 1, self.paths(level)
        beyond = self._evaluations[level] / self._evaluations[min(level, last)]
        return self._known[min(level, last)] * beyond * paths / BLOCK_PATHS * self._narrow.get(str(paths), 1.0)


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
    with all_of(BLOCK_PATHS):
        seconds = [min(timed(problem, level)[0] for _ in range(2)) for level in range(MEASURED_LEVELS)]
    evaluations = [problem.evaluations(level) for level in range(12)]
    return {"evaluations": evaluations, "seconds": seconds, "narrow": narrow_blocks(problem)}


def narrow_blocks(problem: Any) -> dict[str, float]:
    """Processor seconds of a path of level 1 in blocks of fewer paths, against one of 32."""
    found = {}
    for paths in (BLOCK_PATHS, *CUT_PATHS):
        with all_of(paths):
            timed(problem, 1)
            found[str(paths)] = min(timed(problem, 1)[1] for _ in range(3)) / paths
    return {paths: round(each / found[str(BLOCK_PATHS)], 3) for paths, each in found.items()}


@contextmanager
def all_of(paths: int) -> Iterator[None]:
    """Blocks of so many paths on every level."""
    before = levels_below.paths_of_blocks
    levels_below.paths_of_blocks = lambda level, work: paths
    try:
        yield
    finally:
        levels_below.paths_of_blocks = before


def timed(problem: Any, level: int) -> tuple[float, float]:
    """By the clock, and of the processor."""
    started, busy = time.perf_counter(), time.process_time()
    sample_level(problem, level, 1000)
    return round(time.perf_counter() - started, 4), time.process_time() - busy


POLICIES = {
    "both": Dispatcher,
    "only running ahead": partial(Dispatcher, late=np.inf),
    "only re-issue": OnlyWanted,
    "neither": partial(OnlyWanted, late=np.inf),
    "level by level": partial(LevelByLevel, late=np.inf),
}


def simulate(
    measured: Measured, workers: int, tolerance: float, policy: str, max_levels: int = 12, seed: int = SEED
) -> dict[str, Any]:
    """One run from the first pilot to the answer, in virtual time."""
    cluster = Cluster(workers, measured.seconds, seed)
    problem = MadeUp(seed, mean=mean_of, cost=measured.evaluations, paths=measured.paths)
    goal = Tolerances("absolute_tolerance", (tolerance,), (1,))
    run = Run(problem, made_up_estimands(), cluster, lambda _: None, goal, Budget(max_levels=max_levels))
    run.contraction = Contraction(0.1, 0.1, 1.0)
    run.dispatch = partial(POLICIES[policy], wait=cluster.wait, clock=cluster.clock)
    started = time.process_time()
    status, final = run_multilevel(run)
    blocks = [level.samples // measured.paths(number) for number, level in enumerate(run.levels)]
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
        "paths_in_blocks": [measured.paths(level) for level in range(len(blocks))],
        "blocks_per_worker": sum(level.samples for level in run.levels) / BLOCK_PATHS / workers,
        "seconds": round(float(cluster.now), 3),
        "least_seconds": round(float(useful / cluster.speeds.sum()), 3),
        "longest_block": round(max(measured.seconds(level) for level in range(len(blocks))), 3),
        "utilisation": round(float(useful / (cluster.speeds.sum() * cluster.now)), 4),
        "speculative": run.speculative / run.evaluations,
        "simulation_seconds": round(time.process_time() - started, 1),
    }


def study(figures: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Finer and finer tolerances with a thousand workers, then one tolerance with more and more of them; and what it
    was with blocks of 32 paths on every level."""
    measured, as_it_was = Measured(**figures, cut=True), Measured(**figures, cut=False)
    for tolerance in FINEST["levels as asked for"]:
        for seed in SEEDS:
            yield {"ladder": AS_IT_WAS} | simulate(as_it_was, WORKERS, tolerance, "both", LADDERS[AS_ASKED], seed)
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
        for run in study(figures):
            runs.append(run)
            print(show([run]).splitlines()[-1], file=sys.stderr, flush=True)
        settings = {"latency": LATENCY, "speeds_over": SPREAD, "mean": MEAN, "num_rows": NUM_ROWS, "seed": SEED}
        stored = {"settings": settings, "measured": figures, "runs": runs}
        RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
        ages.record(RESULTS)
    print(show(stored["runs"]))
    style.save_svg(draw(stored["runs"]), PICTURE)


if __name__ == "__main__":
    main()
