"""What a contestant is given and what it gives back.

A contestant runs in a process of its own: it is given a posterior and how long it may draw, and answers with means and
sds, what they cost and by which law the error falls with the cost. Data items are rows whose likelihood or gradient was
computed, so a gradient of all rows counts N; a Hessian of all rows counts N too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from tallbayes.programs.later import jax, when_loaded

Law = Literal["sampling", "tolerance", "fixed"]
COMPILING = (
    "/jax/core/compile/backend_compile_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/jaxpr_trace_duration",
)


class Posterior(Protocol):
    """A posterior over a flat theta with the prior N(0, I), and rows x (N, p), y (N,); see `posteriors`."""

    name: str
    x: np.ndarray
    y: np.ndarray

    @property
    def dimension(self) -> int: ...

    @property
    def num_rows(self) -> int: ...

    def log_likelihood(self, theta: Any, x: Any, y: Any) -> Any:
        """Of each row, a JAX array (n,); theta is flat, (d,)."""

    def log_prior(self, theta: Any) -> Any:
        """Up to a constant, a JAX scalar."""

    @property
    def mode(self) -> np.ndarray:
        """(d,), found once and stored: a gift to all contestants that start there."""

    @property
    def precision(self) -> np.ndarray:
        """(d, d), minus the Hessian of the log posterior at the mode: a gift too."""

    @property
    def newton_passes(self) -> int:
        """Over all rows, for mode and precision; whoever takes the gift is charged for it."""

    @property
    def newton_seconds(self) -> float:
        """What they took."""


@dataclass(frozen=True)
class Effort:
    """How long one contestant may draw, without set-up and compiling, and the fewest draws it makes all the same."""

    seconds: float
    least_draws: int = 200
    seed: int = 0


@dataclass(frozen=True)
class Cost:
    items: float
    seconds: float


@dataclass(frozen=True)
class Answer:
    """Means and sds with what they cost.

    law         "sampling": the squared error falls like 1 / sampling cost, down to a bias where there is one;
                "tolerance": the contestant met `tolerance` and says at what cost; "fixed": there is nothing to draw
    setup       mode, Hessian, warm-up or optimisation, without compiling (a gift counts as it was paid for)
    sampling    draws, without compiling
    ess         of the worst mean, where the contestant has draws
    sd_noise    the standard error of the worst sd in units of itself, from the same draws
    tolerance   what was asked for, where the contestant takes such a thing
    error       what the contestant itself says of its errors, in posterior sds, where it says anything
    """

    mean: np.ndarray
    sd: np.ndarray
    law: Law
    setup: Cost
    sampling: Cost
    compiling: float
    settings: dict[str, Any]
    ess: float | None = None
    sd_noise: float | None = None
    tolerance: float | None = None
    error: float | None = None
    remarks: dict[str, Any] = field(default_factory=dict)


Contestant = Callable[[Posterior, Effort], Answer]


class Stopwatch:
    """Seconds with what JAX compiled in them taken out; whoever does without JAX does not load it for that."""

    def __init__(self) -> None:
        self.compiling = 0.0
        when_loaded(lambda: jax.monitoring.register_event_duration_secs_listener(self._listen))

    def _listen(self, event: str, duration: float, **_: Any) -> None:
        if event in COMPILING:
            self.compiling += duration

    @contextmanager
    def timed(self) -> Iterator[Callable[[], float]]:
        """Yields a function that tells the seconds without compiling so far, and in all once the block has ended."""
        started, before, ended = time.perf_counter(), self.compiling, [np.nan, np.nan]

        def seconds() -> float:
            end, compiled = ended if np.isfinite(ended[0]) else (time.perf_counter(), self.compiling)
            return max(0.0, end - started - (compiled - before))

        yield seconds
        ended[:] = time.perf_counter(), self.compiling
