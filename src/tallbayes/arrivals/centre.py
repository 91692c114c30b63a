"""The centre: the anchor as sums over rows, to which those of a day are added, and from which others are taken.

    l = sum_i log p(x_i | theta_0),   G = grad l,   H = grad^2 l,   log pi = l + log prior

The prior is added exactly each time. theta_0 stays where it is as long as that is cheaper than a pass: rows are
expanded about it, and what is left of them stays in every drift, so nothing is biased. The Gaussian need not stay. It
has the new Hessian, and it is where Newton's steps lead by these sums and the prior alone,

    theta_1 = theta_0 + s,   s = (-grad^2 log pi)^-1 (G + H s + grad log prior),

which takes no pass: about theta_0 itself, sds would have to be found beside a mean that is off by s, and a path would
have to forget it first. How far s leads, in posterior sds, tells what theta_0 still serves for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.expansion import (
    Expansion,
    Survey,
    prior_expansion,
    require_finite,
    sums_of_table,
)
from tallbayes.anchor.mode import anchor_at, settle
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.rows.table import Table
from tallbayes.workers.executors import Executor

# In posterior sds: the root mean square over coordinates, and any single one (decision 047).
FAR, FARTHEST = 3.0, 12.0
# Newton's steps without a pass: a Gaussian prior takes one.
MOST_STEPS, CLOSE = 6, 1e-6
# Of third derivatives: parameters, and multiplications of a pass, which are some seconds.
MOST_CUBED, MOST_CUBES = 64, 5e10


@dataclass(frozen=True, eq=False)
class Expanded:
    """Value, gradient and Hessian of the log likelihood at theta_0, as float64 sums over so many rows."""

    theta: Floats
    value: float
    gradient: Floats
    hessian: Floats
    num_rows: int
    third: Floats | None = None

    @classmethod
    def of(cls, target: Target, anchor: Anchor) -> Expanded:
        """What an anchor at its own mode is made of, to second order."""
        assert isinstance(anchor.likelihood_hessian, np.ndarray)
        prior = prior_expansion(target, anchor.mode)
        value = anchor.log_density - prior.value
        return cls(anchor.mode, value, anchor.likelihood_gradient, anchor.likelihood_hessian, anchor.num_rows)

    @classmethod
    def nowhere(cls, theta: Floats) -> Expanded:
        """Of no rows."""
        return cls(theta, 0.0, np.zeros(len(theta)), np.zeros((len(theta), len(theta))), 0)

    def over(self, target: Target, table: Table) -> Expanded:
        """The sums over the rows of another table: one pass."""
        value, gradient, hessian, *third = sums_of_table(target, table, self.theta, third=self.third is not None)
        return Expanded(self.theta, float(value), gradient, hessian, table.num_rows, *third)

    def with_third(self, target: Target, table: Table, executor: Executor | None) -> Expanded:
        """To third order, by a pass over all rows, where that is no dearer than a few others."""
        if not has_third(target, table.num_rows):
            return self
        *_, third = sums_of_table(target, table, self.theta, executor, third=True)
        return replace(self, third=third) if np.isfinite(third).all() else self

    @classmethod
    def to_third(cls, target: Target, table: Table, theta: Floats, executor: Executor | None) -> Expanded | None:
        """About a point near the mode, by one pass: the sums lead the rest of the way. None where they do not."""
        value, gradient, hessian, third = sums_of_table(target, table, theta, executor, third=True)
        found = cls(theta, float(value), gradient, hessian, table.num_rows, third)
        if not all(np.isfinite(part).all() for part in (value, gradient, hessian, third)):
            return None
        anchor = found._led(target)
        return None if anchor is None or found.is_far(anchor) else found

    def is_far(self, anchor: Anchor) -> bool:
        """Whether the mode has moved so far that a pass over all rows to expand them anew is worth it."""
        assert anchor.step is not None
        steps = np.abs(anchor.step @ anchor.factor)
        return bool(np.sqrt(np.mean(steps**2)) > FAR or steps.max() > FARTHEST)

    def wider(self, target: Target, places: np.ndarray) -> Expanded:
        """With coefficients that no row has had; `places` are where those of before stand among all."""
        theta, gradient = (_spread(each, places, target.dimension) for each in (self.theta, self.gradient))
        hessian = _spread(self.hessian, places, target.dimension)
        third = None if self.third is None else _spread(self.third, places, target.dimension)
        return Expanded(theta, self.value, gradient, hessian, self.num_rows, third)

    def plus(self, other: Expanded) -> Expanded:
        """With the rows of another one at the same point."""
        return self._with(other, 1)

    def minus(self, other: Expanded) -> Expanded:
        """Without its rows."""
        return self._with(other, -1)

    def _with(self, other: Expanded, sign: int) -> Expanded:
        return Expanded(
            self.theta,
            self.value + sign * other.value,
            self.gradient + sign * other.gradient,
            self.hessian + sign * other.hessian,
            self.num_rows + sign * other.num_rows,
            None if self.third is None or other.third is None else self.third + sign * other.third,
        )

    def anchor(self, target: Target) -> Anchor | None:
        """The anchor that it makes with the prior, a step from where rows are expanded; None where the log posterior is
        not curved downwards. Where a cubic has no maximum the second order alone has to do."""
        found = self._led(target)
        return replace(self, third=None)._led(target) if found is None and self.third is not None else found

    def _led(self, target: Target) -> Anchor | None:
        step = np.zeros_like(self.theta)
        for _ in range(MOST_STEPS):
            found = self._anchor_at(target, step)
            if found is None:
                return None
            further = found.displacements(found.whitener.pull_back(found.gradient))
            if np.linalg.norm(found.whitener.pull_back(found.gradient)) < CLOSE:
                break
            step = step + further
        return self._anchor_at(target, step)

    def _anchor_at(self, target: Target, step: Floats) -> Anchor | None:
        prior = prior_expansion(target, self.theta + step)
        turned = np.zeros_like(self.hessian) if self.third is None else self.third @ step
        hessian, bend = self.hessian + turned, (self.hessian + turned / 2) @ step
        gradient = self.gradient + bend
        here = Expansion(
            theta=self.theta + step,
            value=self.value + float(step @ (self.gradient + bend / 2 - turned @ step / 12)) + prior.value,
            gradient=gradient + prior.gradient,
            hessian=prior.hessian - hessian,
            likelihood_gradient=gradient,
            likelihood_hessian=hessian,
        )
        if not here.is_finite:
            return None
        found = replace(anchor_at(here, 0.0, self.num_rows), step=step, third=self.third)
        try:
            proper = found.is_proper and bool(np.isfinite(found.whitening).all())
        except np.linalg.LinAlgError:
            return None
        return found if proper else None


def has_third(target: Target, num_rows: int) -> bool:
    """Whether third derivatives of the log likelihood are few, and a pass that sums them takes no longer than a few."""
    d = target.dimension
    is_plain = target.predictor is not None and target.layout.is_scalar and target.integrated is None
    return is_plain and d <= MOST_CUBED and float(num_rows) * d**3 <= MOST_CUBES


def _spread(numbers: Floats, places: np.ndarray, size: int) -> Floats:
    found = np.zeros((size,) * numbers.ndim)
    found[np.ix_(*[places] * numbers.ndim)] = numbers
    return found


def moved_along(target: Target, table: Table, anchor: Anchor, executor: Executor | None) -> Anchor:
    """The anchor at the mode of all rows, by Newton's steps from where the sums lead: usually none, each a pass."""
    survey = Survey(target, table, executor)
    here = survey(anchor.mode)
    require_finite(here, "where the sums of all rows lead")
    return settle(target, table, anchor_at(here, survey.passes, table.num_rows), executor)
