"""Decisions: what tuning has settled, as a value that can be kept and followed again.

A run makes a few, one after the other: how to begin, and then where to go when the first choice did not hold. One that
goes on from a ledger follows those that were made; one with another tolerance begins with the last of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tallbayes.estimator.ladder import Ladder
from tallbayes.estimator.rates import Contraction


@dataclass(frozen=True, eq=False)
class Decision:
    """A ladder and a batch size, with Blend or without; how paths contract on it; row gradients it took to find.

    `kept` says that a run stays with what it has, `uncontrolled` that a control was given up or was none.
    """

    ladder: Ladder
    batch_size: int
    blended: bool
    contraction: Contraction
    tuning: Tuning
    evaluations: int
    kept: bool = False
    uncontrolled: bool = False


class Decisions(Protocol):
    """Where decisions are looked up and kept."""

    def settle(self, find: Callable[[], Decision]) -> Decision:
        """The next decision: the one on record, or else the one found, which is then on record."""
        ...

    @property
    def settled(self) -> tuple[Decision, ...]:
        """What an earlier run with another tolerance has settled; empty where this one decides for itself."""
        ...


class Unrecorded:
    """Every decision is made anew."""

    settled: tuple[Decision, ...] = ()

    def settle(self, find: Callable[[], Decision]) -> Decision:
        return find()


@dataclass(frozen=True)
class Followed:
    """Begun with what another run has settled, about rows much like these; what comes after is decided anew."""

    settled: tuple[Decision, ...]

    def settle(self, find: Callable[[], Decision]) -> Decision:
        return find()


@dataclass(frozen=True)
class Trial:
    """A first step and a batch size that were tried: the price predicted for the whole run, infinite where steps
    were strained, and the row gradients the trial took; the window in units of dT; what a control left of the variance
    of level 0, where there was one."""

    first_step: float
    batch_size: int
    price: float
    strained: float
    evaluations: int
    window: int = 0
    left: float = 1.0


@dataclass(frozen=True)
class Tuning:
    """How the ladder was chosen: all trials, the one that was taken, the time dT (T_0 is that and the window), and
    why.

    >>> tuned = tb.estimate(model, rows, tolerance=0.01, method=tb.Anchored()).tuning  # doctest: +SKIP
    >>> print(tuned.chosen, tuned.reason)  # doctest: +SKIP
    """

    trials: tuple[Trial, ...]
    chosen: Trial
    time: float
    reason: str
    evaluations: int
