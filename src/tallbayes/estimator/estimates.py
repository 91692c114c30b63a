"""Estimates: a number with its errors, and how the run that found it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from tallbayes.errors import TallbayesError
from tallbayes.moments import Floats
from tallbayes.structure import Structure


class Status(Enum):
    """Why a run ended; the value is the message.

    >>> Status.max_seconds.name
    'max_seconds'
    >>> print(Status.converged)
    converged: every quantity met its tolerance
    """

    converged = "converged: every quantity met its tolerance"
    converged_in_part = (
        "converged in part: along a few parameters paths do not settle, and their errors are unknown; all else met its "
        "tolerance"
    )
    max_evaluations = "stopped at max_evaluations before the tolerance was met"
    max_seconds = "stopped at max_seconds before the tolerance was met"
    max_levels = "stopped at max_levels: the remaining bias is still too large"
    diverged = "diverged: paths left the posterior; take a smaller first_step"
    no_contraction = "no contraction: paths on common noise do not approach one another"
    paths_too_short = "paths too short: too little contraction a level; take more added_steps"
    slow_decay = "slow decay: the levels' variance hardly falls; the quantity may jump"
    heavy_tails = "heavy tails: single paths dominate the error, which cannot be trusted"
    infinite_variance = (
        "infinite variance: as far out as was looked, the tails of a quantity have no end; its error cannot be known"
    )
    rough_integrals = (
        "rough integrals: the nodes by which the effects of groups are integrated are too few for the tolerance"
    )
    chains_apart = (
        "chains apart: chains that started in different places do not agree on the posterior; their errors are unknown"
    )
    inconsistent = "inconsistent: coarse and fine paths of the same step size disagree"
    interrupted = "interrupted before the tolerance was met"
    no_mode = "no mode: the climb to it ran off or stalled, so there is nothing to start paths from, and no number"
    second_mode = "second mode: the posterior has another mode, and these numbers are of one of them alone"

    def __str__(self) -> str:
        return self.value


_BY_COMPONENT = ("flat_value", "flat_standard_error", "flat_bias_bound", "flat_freedom", "flat_tolerance", "flat_work")


def t_quantile(freedom: Floats, probability: float) -> Floats:
    """Of Student's t; its import takes as long as a short run, and can wait until paths are being compiled."""
    from scipy.special import stdtrit

    return np.asarray(stdtrit(np.minimum(freedom, 1e9), probability))


@dataclass(frozen=True, eq=False)
class Estimate:
    """One quantity: its value and errors, in the shape of the quantity itself.

    What was asked for afterwards has no tolerance (not a number), but a `beta` of its own, the rate at which the
    variance of its levels falls, and a `price`.

    >>> mean = result["mean"]  # of the example of `Result`
    >>> round(mean.value["hour"], 2), mean.met
    (0.23, True)
    >>> low, high = mean.interval
    >>> low["hour"] < mean.value["hour"] < high["hour"]
    True
    """

    name: str
    structure: Structure = field(repr=False)
    flat_value: Floats
    flat_standard_error: Floats
    flat_bias_bound: Floats
    flat_freedom: Floats
    flat_tolerance: Floats
    beta: float = float("nan")
    flat_work: Floats | None = field(default=None, repr=False)
    level_variance: Floats | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        if np.isfinite(self.flat_tolerance).any():
            met = "met its tolerance" if self.met else "did not meet its tolerance"
            return f"<tallbayes.Estimate {self.name!r}: {len(self.flat_value):,} numbers, {met}>"
        return f"<tallbayes.Estimate {self.name!r}: {len(self.flat_value):,} numbers>"

    def _repr_html_(self) -> str:
        from tallbayes.views.notebook.displays import shown

        return shown(self)

    @property
    def value(self) -> Any:
        return self.structure.build(self.flat_value)

    @property
    def standard_error(self) -> Any:
        return self.structure.build(self.flat_standard_error)

    @property
    def bias_bound(self) -> Any:
        return self.structure.build(self.flat_bias_bound)

    @property
    def degrees_of_freedom(self) -> Any:
        return self.structure.build(self.flat_freedom)

    @property
    def tolerance(self) -> Any:
        """The RMSE asked for, in the quantity's own units."""
        return self.structure.build(self.flat_tolerance)

    @property
    def flat_error(self) -> Floats:
        """sqrt(se^2 + bias_bound^2), what the tolerance is held against."""
        return np.hypot(self.flat_standard_error, self.flat_bias_bound)

    def half_width(self, level: float = 0.95) -> Floats:
        """t_nu se + bias_bound, by component."""
        quantile = t_quantile(self.flat_freedom, 0.5 + level / 2)
        return quantile * self.flat_standard_error + self.flat_bias_bound

    @property
    def flat_interval(self) -> tuple[Floats, Floats]:
        """Lower and upper ends by component; the whole line where the error is not known."""
        half = self.half_width()
        known = np.isfinite(half)
        width = np.where(known, half, 0.0)
        lower, upper = self.flat_value - width, self.flat_value + width
        return np.where(known, lower, -np.inf), np.where(known, upper, np.inf)

    @property
    def interval(self) -> tuple[Any, Any]:
        """The 95% interval, lower and upper."""
        lower, upper = self.flat_interval
        return self.structure.build(lower), self.structure.build(upper)

    def part(self, places: slice, name: str) -> Estimate:
        """Some of the components, flat, under another name."""
        present = [each for each in _BY_COMPONENT if getattr(self, each) is not None]
        cut: dict[str, Any] = {each: getattr(self, each)[places] for each in present}
        variance = None if self.level_variance is None else self.level_variance[:, places]
        structure = Structure.leaf(cut["flat_value"].shape)
        return replace(self, name=name, structure=structure, level_variance=variance, **cut)

    def price(self, error: Any) -> Any:
        """Row gradients that it would take in all to bring the standard error down to this, component by component."""
        if self.flat_work is None:
            raise TallbayesError("expected an answer of result.posterior; got an estimate. Try: result.cost.")
        return self.structure.build(self.flat_work / np.broadcast_to(error, self.flat_work.shape) ** 2)

    @property
    def met(self) -> bool:
        return bool(np.all(self.flat_error <= self.flat_tolerance))


def side_by_side(parts: Sequence[Estimate], name: str, structure: Structure, count: int) -> Estimate:
    """Estimates of the same `count` numbers for every component, as one of a list by number."""
    fields = {each: np.stack([getattr(part, each) for part in parts], axis=1).ravel() for each in _BY_COMPONENT}
    variances = np.stack([np.asarray(part.level_variance) for part in parts], axis=2)
    betas = np.array([part.beta for part in parts])
    beta = float(np.nanmedian(betas)) if np.isfinite(betas).any() else float("nan")
    listed = Structure.container("list", [(i, structure) for i in range(count)])
    by_level = variances.reshape(len(variances), -1)
    return Estimate(name=name, structure=listed, beta=beta, level_variance=by_level, **fields)
