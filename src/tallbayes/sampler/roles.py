"""The roles that compose a method. Anything with these members can take the part; nothing is subclassed."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Sampling(Protocol):
    """A law of minibatches: n row indices out of N, independent over steps."""

    independent_entries: bool
    reads_neighbours: bool
    """Whether the table must be shuffled once for its batches to look like the whole."""

    def num_indices(self, batch_size: int) -> int:
        """How many random integers one batch takes."""
        ...

    def draw(self, draws: Any, batch_size: int, num_rows: Any) -> Any:
        """Row indices (batch_size,) from `draws(k, bound)`, which gives k integers below bound."""
        ...

    def check(self, batch_size: int, num_rows: int) -> None:
        """Raise a MethodError where the law does not exist."""
        ...


class GradientEstimator(Protocol):
    """An unbiased estimate of grad log pi(theta | X), given by its two control coefficients."""

    @property
    def batch_size(self) -> int | None:
        """Rows a step, or None for all of them."""
        ...

    @property
    def sampling(self) -> Sampling: ...

    def controls(self, centre: Any, displacement: Any) -> tuple[Any, Any]:
        """How much of grad_i(theta_0) and of Hess_i(theta_0)(theta - theta_0) is taken off each row."""
        ...


class Dynamics(Protocol):
    """One step of the discretised Langevin equation; noise is an argument, never drawn inside."""

    whitened: bool
    """Whether the state is z = W^-1 (theta - theta_0) and the gradient handed over is the remainder beyond -z."""

    def coefficients(self, step: float) -> np.ndarray:
        """Everything that depends on the step size, in float64."""
        ...

    def step(self, coefficients: Any, state: Any, gradient: Any, noise: Any) -> Any: ...

    def spread(self, coefficients: Any) -> Any:
        """What the noise of a step is multiplied by."""
        ...

    def merge_noise(self, coefficients: Any, first: Any, second: Any) -> Any:
        """The noise of one step of size 2h that replaces two steps of size h (fine coefficients).

        The second of the two enters the coarse step as it enters the fine one: multiplied by the fine spread.
        """
        ...

    def strain(self, coefficients: Any, gradient: Any) -> Any:
        """How far a step is from the region where it is accurate; beyond 1 it is held back."""
        ...


class Inertial(Dynamics, Protocol):
    """A dynamics whose state is more than a position: what it says besides, and may be left out where there is no more.

    A state is the vectors one after the other, the position first; all of them start from N(0, I) where paths have a
    Laplace level, which the step without a remainder must keep.
    """

    vectors: int
    """Of a state, each as long as theta."""

    noises: int
    """Standard normal vectors that one step takes."""

    last: int
    """Which of them `spread` multiplies: it moves the position at the end of the step and nothing before."""

    def approach(self, coefficients: Any, state: Any, noise: Any) -> Any:
        """The state at which the gradient is read, and from which `step` goes on."""
        ...


class Coupling(Protocol):
    """Which minibatches each coarse path sees; nothing else."""

    num_coarse: int
    variance_rate: float

    def num_indices(self, batch_size: int) -> int: ...

    def coarse_batches(self, draws: Any, batch_size: int, fine: Any) -> Any:
        """Batches with a leading axis of size num_coarse, from the two fine ones stacked in one."""
        ...

    def check(self, sampling: Sampling) -> None:
        """Raise a MethodError where the coarse batch would not have the fine batch's law."""
        ...
