"""Methods: values composed of a gradient, a dynamics, a coupling and a ladder.

In `Multilevel`, the paper's, what is left None is chosen from the anchor: Taylor with n = N^(1/3) rows rounded up,
h_0 = 0.5 / lambda_max and T_0 = dT = 2.5 / lambda_min, with lambda the eigenvalues of the posterior's Hessian at the
mode. In `Anchored`, the default, it is chosen by pilots; see tuning.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.errors import MethodError, explain
from tallbayes.estimator.ladder import Ladder
from tallbayes.sampler.couplings import Antithetic
from tallbayes.sampler.dynamics import Euler, Exponential
from tallbayes.sampler.gradients import Blend, Taylor
from tallbayes.sampler.minibatch import Blocks
from tallbayes.sampler.roles import Coupling, Dynamics, GradientEstimator

MOST_WINDOW = 256
_MEMBERS = {
    "gradient": ("batch_size", "sampling", "controls"),
    "dynamics": ("whitened", "coefficients", "step", "merge_noise", "strain"),
    "coupling": ("num_coarse", "variance_rate", "num_indices", "coarse_batches", "check"),
    "ladder": ("first_step", "start_steps", "added_steps", "window_steps"),
}
_EXAMPLES = {
    "gradient": "tb.Taylor(batch_size=10)",
    "dynamics": "tb.Euler()",
    "coupling": "tb.Antithetic()",
    "ladder": "tb.Ladder(first_step=1e-3)",
}


@dataclass(frozen=True)
class Multilevel:
    """The paper's multilevel stochastic-gradient Langevin method, in any of its variants.

    `precision` is the type of the paths, "float32" or "float64"; None decides by how finely the parameters
    and columns must be resolved.

    >>> method = Multilevel(gradient=Taylor(batch_size=10), ladder=Ladder(first_step=1e-3))
    """

    gradient: GradientEstimator | None = None
    dynamics: Dynamics = field(default_factory=Euler)
    coupling: Coupling = field(default_factory=Antithetic)
    ladder: Ladder | None = None
    precision: str | None = None

    def __post_init__(self) -> None:
        _check_parts(self)


@dataclass(frozen=True)
class Anchored:
    """The ladder anchored to Laplace's approximation: whitened, exponential steps, a Laplace level.

    What is None is tuned by pilots, piece by piece: the gradient (Taylor, and Blend where that does not settle), its
    `batch_size` n, the `first_step` h_0, the `time` dT, and the `window`, for how many times dT paths go on and are
    averaged (0: their end points are read); or the whole `ladder`. Steps and times are in units of the contraction at
    the mode.

    >>> method = Anchored(first_step=0.25)
    """

    gradient: GradientEstimator | None = None
    ladder: Ladder | None = None
    batch_size: int | None = None
    first_step: float | None = None
    time: float | None = None
    window: int | None = None
    dynamics: Dynamics = field(default_factory=Exponential)
    coupling: Coupling = field(default_factory=Antithetic)
    precision: str | None = None

    def __post_init__(self) -> None:
        _check_parts(self)
        if not self.dynamics.whitened:
            raise MethodError(explain("whitened dynamics", repr(self.dynamics), "tb.Exponential(), or tb.Multilevel"))
        if self.gradient is not None and self.batch_size is not None:
            raise MethodError(
                explain(
                    "batch_size or a gradient that has one", "both", "tb.Anchored(gradient=tb.Taylor(8, tb.Blocks()))"
                )
            )
        if self.ladder is not None and any(each is not None for each in (self.first_step, self.time, self.window)):
            hint = "tb.Anchored(first_step=0.25)"
            raise MethodError(explain("a ladder, or first_step, time and window", "both", hint))
        if self.batch_size is not None:
            Taylor(self.batch_size)
        for name in ("first_step", "time"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise MethodError(explain(f"{name} > 0", repr(value), "None to have it tuned"))
        if self.window is not None:
            _require_window(self.window)


@dataclass(frozen=True)
class Randomised:
    """Unbiased: low levels in fixed numbers, the levels above drawn at random, over the levels of `method`.

    No bias is left that sampling could see: the interval has no bias term.

    >>> method = Randomised(Anchored())
    """

    method: Anchored = field(default_factory=Anchored)
    fixed_levels: int = 3

    def __post_init__(self) -> None:
        if not isinstance(self.method, Anchored):
            raise MethodError(explain("tb.Anchored(...) inside", repr(self.method), "tb.Randomised(tb.Anchored())"))
        if self.method.coupling.variance_rate <= 1:
            raise MethodError(
                explain(
                    "a coupling whose variance falls faster than its cost grows (beta > gamma = 1)",
                    f"{self.method.coupling!r}, with beta = {self.method.coupling.variance_rate:g}",
                    "tb.Antithetic()",
                )
            )
        whole = isinstance(self.fixed_levels, int) and not isinstance(self.fixed_levels, bool)
        if not whole or not 1 <= self.fixed_levels <= 8:
            raise MethodError(explain("fixed_levels 1..8", repr(self.fixed_levels), "3"))

    @property
    def precision(self) -> str | None:
        return self.method.precision


Randomized = Randomised
Method = Multilevel | Anchored | Randomised


def _require_window(window: Any) -> None:
    whole = isinstance(window, int) and not isinstance(window, bool)
    if not whole or not 0 <= window <= MOST_WINDOW:
        raise MethodError(explain(f"window a whole number 0..{MOST_WINDOW}", repr(window), "None to have it tuned"))


def _check_parts(method: Any) -> None:
    for role, members in _MEMBERS.items():
        part = getattr(method, role)
        if part is not None and (isinstance(part, type) or not all(hasattr(part, name) for name in members)):
            raise MethodError(explain(f"a {role} with {', '.join(members)}", repr(part), f"{role}={_EXAMPLES[role]}"))
    if method.precision not in (None, "float32", "float64"):
        raise MethodError(explain('precision "float32" or "float64"', repr(method.precision), "None to decide"))


@dataclass(frozen=True)
class Resolved:
    """A method with nothing left open."""

    gradient: GradientEstimator
    dynamics: Dynamics
    coupling: Coupling
    ladder: Ladder


def resolve_gradient(method: Multilevel | Anchored, num_rows: int) -> GradientEstimator:
    """The gradient, checked against the number of rows and against the coupling."""
    gradient = method.gradient
    if gradient is None and isinstance(method, Anchored):
        gradient = Taylor(method.batch_size or 1, Blocks())
    elif gradient is None:
        gradient = Taylor(batch_size=int(np.ceil(num_rows ** (1 / 3) - 1e-9)))
    if gradient.batch_size is not None:
        gradient.sampling.check(gradient.batch_size, num_rows)
        method.coupling.check(gradient.sampling)
    return gradient


def resolve(method: Multilevel, gradient: GradientEstimator, anchor: Anchor) -> Resolved:
    """Choose what the user left open."""
    require_known_hessian(gradient, anchor)
    ladder = method.ladder or (ladder_whitened() if method.dynamics.whitened else ladder_at(anchor))
    return Resolved(gradient, method.dynamics, method.coupling, ladder)


def require_known_hessian(gradient: GradientEstimator, anchor: Anchor) -> None:
    """Refuse a gradient that needs the Hessian where only its diagonal is kept."""
    if anchor.likelihood_hessian is None and isinstance(gradient, Taylor | Blend):
        raise MethodError(
            explain(
                "a gradient without the Hessian, of which only the diagonal is kept above 4,000 parameters",
                repr(gradient),
                f"tb.ControlVariate(batch_size={gradient.batch_size})",
            )
        )


def ladder_whitened() -> Ladder:
    """Step 1/2 and times 2.5 where the contraction rate is 1."""
    return Ladder(first_step=0.5, start_steps=5, added_steps=5)


def ladder_at(anchor: Anchor, decay: float = 2.5) -> Ladder:
    """A ladder whose paths forget by e^-decay a level along the slowest direction at the mode."""
    slowest, fastest = anchor.curvatures[0], anchor.curvatures[-1]
    first_step = 0.5 / fastest
    steps = int(np.ceil(decay / (slowest * first_step)))
    return Ladder(first_step=float(first_step), start_steps=steps, added_steps=steps)


def describe(resolved: Resolved, name: str = "Multilevel") -> str:
    parts = (resolved.gradient, resolved.dynamics, resolved.coupling, resolved.ladder)
    return f"{name}(" + ", ".join(map(repr, parts)) + ")"
