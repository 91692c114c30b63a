"""Methods: values composed of a gradient, a dynamics, a coupling and a ladder.

What is left None is chosen from the anchor: Taylor with n = N^(1/3) rows rounded up, h_0 = 0.5 / lambda_max and
T_0 = dT = 2.5 / lambda_min, with lambda the eigenvalues of the posterior's Hessian at the mode.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tallbayes.anchor import Anchor
from tallbayes.couplings import Antithetic
from tallbayes.dynamics import Euler
from tallbayes.errors import MethodError, explain
from tallbayes.gradients import Taylor
from tallbayes.ladder import Ladder
from tallbayes.roles import Coupling, Dynamics, GradientEstimator

_MEMBERS = {
    "gradient": ("batch_size", "sampling", "controls"),
    "dynamics": ("coefficients", "step", "merge_noise"),
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
        for role, members in _MEMBERS.items():
            part = getattr(self, role)
            if part is not None and (isinstance(part, type) or not all(hasattr(part, name) for name in members)):
                raise MethodError(
                    explain(f"a {role} with {', '.join(members)}", repr(part), f"{role}={_EXAMPLES[role]}")
                )
        if self.precision not in (None, "float32", "float64"):
            raise MethodError(explain('precision "float32" or "float64"', repr(self.precision), "None to decide"))


@dataclass(frozen=True)
class Resolved:
    """A method with nothing left open."""

    gradient: GradientEstimator
    dynamics: Dynamics
    coupling: Coupling
    ladder: Ladder


def resolve_gradient(method: Multilevel, num_rows: int) -> GradientEstimator:
    """The gradient, checked against the number of rows and against the coupling."""
    gradient = method.gradient or Taylor(batch_size=int(np.ceil(num_rows ** (1 / 3) - 1e-9)))
    if gradient.batch_size is not None:
        gradient.sampling.check(gradient.batch_size, num_rows)
        method.coupling.check(gradient.sampling)
    return gradient


def resolve(method: Multilevel, gradient: GradientEstimator, anchor: Anchor) -> Resolved:
    """Choose what the user left open."""
    return Resolved(gradient, method.dynamics, method.coupling, method.ladder or ladder_at(anchor))


def ladder_at(anchor: Anchor, decay: float = 2.5) -> Ladder:
    """A ladder whose paths forget by e^-decay a level along the slowest direction at the mode."""
    slowest, fastest = anchor.curvatures[0], anchor.curvatures[-1]
    first_step = 0.5 / fastest
    steps = int(np.ceil(decay / (slowest * first_step)))
    return Ladder(first_step=float(first_step), start_steps=steps, added_steps=steps)


def describe(resolved: Resolved) -> str:
    parts = (resolved.gradient, resolved.dynamics, resolved.coupling, resolved.ladder)
    return "Multilevel(" + ", ".join(map(repr, parts)) + ")"
