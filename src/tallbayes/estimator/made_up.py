"""Made-up levels: samples drawn from a law that is chosen, so that the truth is known and nothing is compiled.

    Delta_l = m(h_0, n) mean_l + s(h_0, n, w) sd_l xi,   fine_l = sum_{k <= l} mean_k + xi',   coarse_l as fine_{l-1}

They implement `Levels`, for studies of the estimator itself: allocation, bias, tuning, the random tail, a thousand
workers. Block b of a level is a function of seed, stream, level and b, as everywhere.

>>> MadeUp().sample(0, 0).delta.count
32
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tallbayes.estimator.estimands import Estimands, Quantity
from tallbayes.estimator.ladder import Ladder, Motion
from tallbayes.estimator.levels import BLOCK_PATHS, LevelBlock, Pairs, Stream
from tallbayes.moments import Floats, Moments
from tallbayes.structure import Structure


def halved(level: int) -> float:
    return 2.0**-level


def gaussian(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return rng.normal(size=shape)


def one(first_step: float, batch_size: int) -> float:
    return 1.0


def never(first_step: float, batch_size: int) -> float:
    return 0.0


def whole(window: float) -> float:
    return 1.0


def always(level: int) -> int:
    return BLOCK_PATHS


def doubled(level: int) -> int:
    return int(2**level)


def by_steps(levels: MadeUp, level: int) -> int:
    """As of real paths, by the ladder."""
    return levels.ladder.path_steps(level, levels.num_coarse) * levels.batch_size


@dataclass(frozen=True)
class MadeUp:
    """One observable, with its mean and sd by level, and how far coarse paths are off, if they are to be.

    Functions of (h_0, n) are what means and variances are multiplied by, the share of strained steps, the number of
    paths that are not finite, and the rate of contraction; of a window's length, what it leaves of a variance. `cost`
    is by level, or None to count steps. Where the batch is `fixed`, no other can be chosen. `control` is what a control
    leaves of the variance, where there is one; `paths` is how many samples a block of a level has.
    """

    seed: int = 0
    mean: Callable[[int], float] = halved
    sd: Callable[[int], float] = halved
    noise: Callable[[np.random.Generator, tuple[int, ...]], Floats] = gaussian
    offset: float = 0.0
    bias: Callable[[float, int], float] = one
    variance: Callable[[float, int], float] = one
    strained: Callable[[float, int], float] = never
    nonfinite: Callable[[float, int], float] = never
    rate: Callable[[float, int], float] = one
    averaged: Callable[[float], float] = whole
    cost: Callable[[int], int] | None = doubled
    ladder: Ladder = Ladder(1.0)
    batch_size: int = 1
    largest_batch: int = 1000
    variance_rate: float = 2.0
    fixed: bool = False
    stream: Stream = Stream.LEVEL
    control: float | None = None
    motion: Motion = Motion()
    paths: Callable[[int], int] = always

    @property
    def dimension(self) -> int:
        return 1

    @property
    def num_coarse(self) -> int:
        return 2

    @property
    def step_overhead(self) -> int:
        return 4

    @property
    def pairs(self) -> Pairs:
        return ()

    @property
    def is_alternative(self) -> bool:
        return False

    @property
    def controlled(self) -> bool:
        return self.control is not None

    @property
    def rows_per_gradient(self) -> int:
        return self.batch_size

    @property
    def identity(self) -> str:
        return f"made up, {self.ladder!r} of {self.batch_size}, stream {int(self.stream)}"

    @property
    def _pair(self) -> tuple[float, int]:
        return self.ladder.first_step, self.batch_size

    def evaluations(self, level: int) -> int:
        return by_steps(self, level) if self.cost is None else self.cost(level)

    def contraction_evaluations(self) -> int:
        return 2 * 3 * self.ladder.added_steps * self.batch_size if self.cost is None else 1

    def block_paths(self, level: int) -> int:
        return self.paths(level)

    def differences(self, level: int, block: int) -> Floats:
        return self._drawn(level, block)[0]

    def sample(self, level: int, block: int) -> LevelBlock:
        delta, fine, coarse = self._drawn(level, block)
        sides = Moments.of(delta), Moments.of(fine), Moments.of(coarse)
        trouble = int(self.nonfinite(*self._pair)), 1.0, self.strained(*self._pair)
        return LevelBlock(*sides, *trouble, len(delta) * self.evaluations(level))

    def _drawn(self, level: int, block: int) -> tuple[Floats, Floats, Floats]:
        rng, shape = np.random.default_rng([self.seed, int(self.stream), level, block]), (self.paths(level), 1)
        below = sum(self.mean(l) for l in range(level))
        fine = rng.normal(size=shape) + below + self.mean(level)
        left = self.averaged(self.ladder.window_steps * self.ladder.first_step)
        left *= 1.0 if self.control is None else self.control
        scale = np.sqrt(self.variance(*self._pair) * left) * self.sd(level)
        delta = self.bias(*self._pair) * self.mean(level) + scale * self.noise(rng, shape)
        return delta, fine, rng.normal(size=shape) + below + self.offset

    def contract(self, block: int, spread: float = 1.0) -> Floats:
        times = self.ladder.added_steps * self.ladder.first_step * np.arange(4)
        start = 2 * spread**2 * np.random.default_rng(block).chisquare(2, size=(BLOCK_PATHS, 1))
        return start * np.exp(-2 * self.rate(*self._pair) * times)

    def with_choice(self, ladder: Ladder, batch_size: int) -> MadeUp:
        return replace(self, ladder=ladder, batch_size=self.batch_size if self.fixed else batch_size)

    def for_tuning(self) -> MadeUp:
        return replace(self, stream=Stream.TUNING)

    def reseeded(self, seed: int) -> MadeUp:
        return replace(self, seed=seed)

    def on(self, table: Any) -> MadeUp:
        return self

    def alternative(self) -> MadeUp | None:
        return None

    def uncontrolled(self) -> MadeUp | None:
        return None if self.control is None else replace(self, control=None)


class Unread(NamedTuple):
    """Observables of levels that have no theta."""

    moments: bool = False
    functions: tuple[Any, ...] = ()


def made_up_estimands() -> Estimands:
    """One expectation, of scale 1."""
    quantity = Quantity("g", "expectation", 0, Structure.leaf(()))
    return Estimands((quantity,), Unread(), np.zeros(1), np.ones(1), np.zeros(1))  # type: ignore[arg-type]
