"""The ladder: step sizes and path lengths of all levels, in whole steps.

    h_l = h_0 2^-l,   T_l = T_0 + l dT,   s_l = T_l / h_l,   window w: the last w / h_l points of every path

T_0, dT and w are counted in steps of level 0 (start_steps, added_steps, window_steps). The window has the same
physical length at every level and ends where the path ends; the paper's p_l = s_l / 2 does not, and with it the
variance stops decaying. `Choices` are the ladders that a tuner may take, `Motion` is what it knows of their paths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tallbayes.errors import MethodError, explain
from tallbayes.moments import Floats

FIRST_STEPS = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)
BATCH_FACTOR = 4
# In units of dT.
WINDOWS = (0, 4, 16)
# A window is tried in the hope that what is averaged forgets twice as fast as z itself, as squares do.
HOPED_MEMORY = 0.5


@dataclass(frozen=True)
class Ladder:
    """Every level's steps; `window_steps=0` reads the end point alone.

    >>> ladder = Ladder(first_step=0.001, start_steps=5, added_steps=5)
    >>> ladder.steps(2), ladder.shift_steps(2), ladder.joint_steps(2)
    (60, 20, 20)
    """

    first_step: float
    start_steps: int = 5
    added_steps: int = 5
    window_steps: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.first_step < float("inf"):
            raise MethodError(explain("first_step > 0", repr(self.first_step), "0.5 / largest eigenvalue of H"))
        for name in ("start_steps", "added_steps"):
            _require_whole(name, getattr(self, name), least=1)
        _require_whole("window_steps", self.window_steps, least=0)
        if self.window_steps > self.start_steps:
            raise MethodError(
                explain(
                    "a window that fits into the first path: window_steps <= start_steps",
                    f"window_steps={self.window_steps}, start_steps={self.start_steps}",
                    "a shorter window or a longer first path",
                )
            )

    def step(self, level: int) -> float:
        """h_l."""
        return self.first_step * 2.0**-level

    def time(self, level: int) -> float:
        """T_l."""
        return (self.start_steps + level * self.added_steps) * self.first_step

    def steps(self, level: int) -> int:
        """s_l, the steps of the fine path of level l."""
        return (self.start_steps + level * self.added_steps) << level

    def shift_steps(self, level: int) -> int:
        """Fine steps taken alone: the shift dT, or the whole path at level 0."""
        return self.added_steps << level if level else self.start_steps

    def joint_steps(self, level: int) -> int:
        """Coarse steps taken together with two fine steps each."""
        return self.steps(level - 1) if level else 0

    def window(self, level: int) -> int:
        """Points of the level's fine path in its average (0: the end point alone)."""
        return self.window_steps << level

    def stops(self, most: int) -> tuple[int, int]:
        """How often paths are kept at the most, and the steps of level 0 between two such places.

        >>> Ladder(0.25, start_steps=30, window_steps=20).stops(8), Ladder(0.25).stops(8)
        ((8, 2), (1, 0))
        """
        number = max(1, min(most, self.window_steps))
        return number, self.window_steps // number

    def path_steps(self, level: int, num_coarse: int) -> int:
        """Gradients that one sample of the level takes, fine and coarse."""
        return self.steps(level) + num_coarse * self.joint_steps(level)


def _require_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise MethodError(explain(f"{name} a whole number >= {least}", repr(value), str(max(least, 5))))


def kicked(step: float) -> float:
    """(1 - e^-h) / (1 + e^-h)."""
    decay = np.exp(-step)
    return float((1 - decay) / (1 + decay))


@dataclass(frozen=True)
class Motion:
    """How paths move, as far as that matters here: like exponential steps, unless told otherwise.

    weak_order       alpha, |E Delta_l| ~ 2^(-alpha l), and
    variance_rate    beta, Var Delta_l ~ 2^(-beta l), by exact gradients
    length           dT to begin with, in that of a path that forgets like e^-t
    memory           an average over a window forgets like e^(-t / memory)
    kicked           the variance of a position whose drift has a noise of variance 1 at every step
    """

    weak_order: float = 1.0
    variance_rate: float = 2.0
    length: float = 1.0
    memory: float = HOPED_MEMORY
    kicked: Callable[[float], float] = kicked

    def later(self, variance: Floats, last: int) -> list[Floats]:
        """V_1, ..., V_last as a tuner foresees them, from V_1."""
        rate = max(self.variance_rate, 2.0)
        return [variance * 2.0 ** (rate * (1 - l)) for l in range(1, last + 1)]


class Pace(NamedTuple):
    """dT, and by how much paths must forget within it, in relaxation times; T_0 in units of dT."""

    relaxations: float
    least: float
    start: int

    def begin(self, motion: Motion) -> float:
        """dT before anything is known."""
        return self.relaxations * motion.length


# With a control what is left of the start is of second order: paths may be shorter.
PLAIN, CONTROLLED = Pace(2.5, 2.0, 1), Pace(1.0, 0.8, 2)


@dataclass(frozen=True)
class Choices:
    """What the tuner may choose from, in the order of their price; one entry where the user has decided."""

    first_steps: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    ladder: Ladder | None = None
    time: float | None = None
    windows: tuple[int, ...] = WINDOWS

    @property
    def times_are_given(self) -> bool:
        return self.ladder is not None or self.time is not None

    def ladder_of(self, first_step: float, time: float, window: int = 0, start: int = 1) -> Ladder:
        if self.ladder is not None:
            return self.ladder
        steps = max(1, int(np.ceil((self.time or time) / first_step - 1e-9)))
        return Ladder(first_step, steps * (start + window), steps, window_steps=steps * window)


def batch_sizes_up_to(num_rows: int) -> tuple[int, ...]:
    """1, 4, 16, ... and N itself, where a batch is all rows."""
    sizes = [BATCH_FACTOR**k for k in range(16) if BATCH_FACTOR**k < num_rows]
    return (*sizes, num_rows)
