"""Ladders that nobody has chosen: from the curvature at the mode, or in whitened units; and gradients that need it."""

from __future__ import annotations

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.errors import MethodError, explain
from tallbayes.estimator.ladder import Ladder
from tallbayes.sampler.gradients import Blend, Taylor
from tallbayes.sampler.roles import GradientEstimator


def require_known_hessian(gradient: GradientEstimator, anchor: Anchor) -> None:
    """Refuse a gradient that needs the Hessian where it is kept in part."""
    if anchor.is_partial and isinstance(gradient, Taylor | Blend):
        raise MethodError(
            explain(
                "a gradient without the Hessian, of which only the diagonal is kept with so many parameters",
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
