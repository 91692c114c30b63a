"""Resolution: whether the paths' numbers can tell a quantity's values apart as finely as its tolerance asks.

    blur = max( u |g|,  |g in float32 - g in float64| ) at draws of Laplace's Gaussian;   wanted: blur <= tolerance / 10

u is 2^-24 in float32, and 2^-53 in float64, where the second term is smaller by 2^-29. A quantity such as
1 + 10^-9 theta is 1 in float32, whatever theta is: it would come out with no error at all, and wrong. Means and sds are
read off differences from the mode and have no such trouble.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.gaussian_level import observed_values
from tallbayes.estimator.estimands import Estimands, Summary, Tolerances
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.later import jax
from tallbayes.setup.quantities import LAPLACE_DRAWS

ROUNDING = {"float32": 2.0**-24, "float64": 2.0**-53}
SHARE = 0.1
LEAST_MEAN = 0.01


class Blurred(NamedTuple):
    """The component that a precision serves worst: its label, its blur, and the tolerance beside it."""

    label: str
    blur: float
    tolerance: float

    @property
    def is_resolved(self) -> bool:
        return self.blur <= SHARE * self.tolerance


def worst_resolved(
    target: Target, anchor: Anchor, units: object, estimands: Estimands, goal: Tolerances
) -> dict[str, Blurred]:
    """By precision; empty where no function of theta is asked for."""
    if not estimands.observables.functions:
        return {}
    draws = np.vstack([np.zeros(target.dimension), anchor.draws(LAPLACE_DRAWS)])
    exact, rough = (_values(target, anchor, units, estimands, draws, dtype) for dtype in ("float64", "float32"))
    with np.errstate(over="ignore", invalid="ignore"):
        apart = np.sqrt(np.mean((rough - exact) ** 2, axis=0))
    # A jump that one of the two takes a little earlier says nothing; a number that float32 does not have, all.
    apart = np.where(estimands.observed(estimands.jump) > 0, 0.0, np.where(np.isfinite(apart), apart, np.inf))
    shares = {"float32": apart, "float64": np.where(np.isfinite(apart), apart * 2.0**-29, 0.0)}
    tolerance = goal(_summary(estimands, exact))
    asked = np.concatenate([np.full(q.structure.size, q.kind == "expectation") for q in estimands.quantities])
    found = {}
    for precision, unit in ROUNDING.items():
        blur = np.maximum(unit * np.abs(exact).max(axis=0), shares[precision])
        place = int(np.argmax(np.where(asked, blur / tolerance, -np.inf)))
        found[precision] = Blurred(estimands.labels()[place], float(blur[place]), float(tolerance[place]))
    return found


def _values(target: Target, anchor: Anchor, units: object, estimands: Estimands, draws: Floats, dtype: str) -> Floats:
    """By draw and component, as paths of that precision read them."""
    with jax.enable_x64(True):
        mode, moves = anchor.mode.astype(dtype), draws.astype(dtype)
        values = np.asarray(observed_values(target, estimands.observables, mode, moves, units), np.float64)
    return estimands.observed(values)


def _summary(estimands: Estimands, values: Floats) -> Summary:
    """What is known before any path is run. A mean next to 0 is no measure of a relative tolerance: it may move."""
    scale = estimands.observed(estimands.laplace_sd)
    mean = np.maximum(np.abs(values.mean(axis=0)), LEAST_MEAN * scale)
    nothing = np.zeros((1, len(scale)))
    return Summary(mean, scale, nothing, nothing, nothing, nothing[0])
