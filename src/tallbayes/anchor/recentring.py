"""Recentring: where the posterior's mass is far from its mode, or there is no mode, the Gaussian in balance.

The joint mode of a hierarchical model prefers a large common scale with small effects: the density is higher there, but
there is no volume. Paths are right about any centre, yet about that one nothing contracts. The shift, |E W^T grad log
pi| at the mode, tells; where it is small the mode stays, and elsewhere the Gaussian in balance is taken if its bound is
higher. With centred effects there is no mode at all: the density rises without end as a scale goes to nothing, the
climb runs off, and balance is sought from the start values.

Beside very many levels the mode is far from the mass along what they share: each of them pulls a little, a slope by a
hundredth of itself at a hundred rows a level, which is several of its sds. There the centre moves by the mean pull,
once.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.ascent import flat_along, improper, named
from tallbayes.anchor.balance import Balance, Gaussian, ascend, ascend_by_quadrature, first_gaussian, shift_of
from tallbayes.anchor.expansion import Averages, Expansion, Survey
from tallbayes.anchor.mode import CLOSE, anchor_at, curvature_of, dense_limit_of, find_anchor, off_mode
from tallbayes.anchor.sums import Curvature, can_average
from tallbayes.errors import (
    ImproperPosteriorError,
    NoConvergenceError,
    NonFiniteError,
    PosteriorError,
    RankDeficientError,
    explain,
)
from tallbayes.gaussian.arrowhead import Arrowhead
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.rows.table import Table
from tallbayes.workers.executors import Executor

FAR = 3.0
# What few rows and points show to be small is not looked at again; chance adds to what they show, and hides nothing.
SMALL, GLANCE_PAIRS, GLANCE_ROWS = 1.0, 8, 1_024
# Their mean is over thousands of levels, too.
ARROW_PAIRS = 4
ALIKE = 0.5
# A Gaussian at the mode that is so far off says nothing of where to go.
LOST = 1e4
# In posterior sds: averages of a prior that are known no better are not called exact.
EXACT = 1e-5
NON_CENTRED = "effects written non-centred (scale * effect, with standard normal effects)"
NO_MODE = "the joint density has no mode that a climb reaches, so paths are anchored to a Gaussian in balance with it"

log = logging.getLogger("tallbayes")


@dataclass(frozen=True, eq=False)
class Recentred:
    """The anchor, moved or not; how far the mean of the Gaussian was from its own balance; rows read."""

    anchor: Anchor
    shift: float
    evaluations: int

    @property
    def note(self) -> str:
        """One line for the report; empty where the mode was good enough."""
        if isinstance(self.anchor.precision, Arrowhead) and self.shift:
            return f"centre: {self.shift:.2g} sds from the mode, to where the Gaussian is in balance"
        if not self.anchor.recentred:
            return ""
        return f"centre: the posterior's mass is {self.shift:.2g} sds from its mode, so paths are anchored to its mean"


def recentre(target: Target, table: Table, anchor: Anchor, executor: Executor | None = None) -> Recentred:
    """The anchor at the mode, or where the Gaussian is in balance if that is far from it."""
    if isinstance(anchor.precision, Arrowhead):
        return _moved_once(Survey(target, table, executor, Curvature.ARROW), anchor)
    if target.log_concave or anchor.is_diagonal or anchor.is_large:
        return Recentred(anchor, 0.0, 0)
    survey = Survey(target, table, executor)
    at_mode, moved = Gaussian(anchor.mode, np.asarray(anchor.precision)), anchor
    glance = Balance(survey, len(anchor.mode), GLANCE_PAIRS, GLANCE_ROWS)
    shift = shift_of(glance.gradients(at_mode, anchor.gradient))
    if shift < SMALL:
        return Recentred(anchor, shift, survey.rows_read)
    balance = Balance(survey, len(anchor.mode))
    shift = shift_of(balance.gradients(at_mode, anchor.gradient))
    if FAR < shift < LOST:
        found, everywhere = ascend(balance, at_mode)
        if everywhere is not None:
            moved = _anchor_in_balance(found, everywhere, anchor.passes, anchor.num_rows)
    return Recentred(moved, shift, survey.rows_read)


def put_in_balance(target: Target, table: Table, anchor: Anchor, executor: Executor | None = None) -> Recentred:
    """The anchor whose Gaussian is right on average; the one given where none is found, or is found better.

    By quadrature where a row has few linear predictors, by draws for any other model. A rough anchor will do: Laplace's
    mean is where Newton's step from there leads.
    """
    if not isinstance(anchor.precision, np.ndarray) or anchor.is_diagonal or anchor.is_wide:
        return Recentred(anchor, 0.0, 0)
    if can_average(target):
        found, precision, rows_read = ascend_by_quadrature(target, table, anchor, executor)
        moved = anchor if found is None else anchor_on_average(found, precision, anchor)
        if moved.recentred and off_mode(anchor) > CLOSE:
            moved = replace(moved, laplace_mode=anchor.mode + np.linalg.solve(anchor.precision, anchor.gradient))
        shift = np.linalg.norm((moved.mode - moved.laplace.mode) @ anchor.factor)
        return Recentred(moved, float(shift), rows_read)
    survey = Survey(target, table, executor)
    there, everywhere = ascend(Balance(survey, len(anchor.mode)), Gaussian(anchor.mode, anchor.precision))
    moved = anchor
    if everywhere is not None:
        moved = _anchor_in_balance(there, everywhere, anchor.passes, anchor.num_rows)
    shift = np.linalg.norm((moved.mode - anchor.mode) @ anchor.factor)
    return Recentred(moved, float(shift), survey.rows_read)


def anchor_on_average(found: Averages, precision: Floats, before: Anchor) -> Anchor:
    """The anchor of averages over N(theta, P^-1), which they are called exact of where a prior leaves them so."""
    laplace = before.laplace
    anchor = replace(
        anchor_at(found.here, before.passes, before.num_rows),
        has_mode=before.has_mode,
        laplace_mode=laplace.mode,
        laplace_precision=np.asarray(laplace.precision),
    )
    anchor = replace(anchor, precision=precision, hessian=anchor.precision)
    if found.error > EXACT:
        return anchor
    return replace(anchor, mean_gradient=found.gradient, mean_hessian=(found.hessian + found.hessian.T) / 2)


def _moved_once(survey: Survey, anchor: Anchor) -> Recentred:
    """The anchor at theta_0 + W E[W^T grad log pi], the mean over points of the Gaussian in opposite pairs.

    Only along the corner, which levels follow: the pull of a rare level by itself would lead to where nothing holds it.
    Where the Gaussian there is quite another one, the mode stays.
    """
    z = np.random.default_rng(0).standard_normal((ARROW_PAIRS, len(anchor.mode)))
    points = [anchor.mode + sign * move for move in anchor.displacements(z) for sign in (1, -1)]
    pull = anchor.whitener.pull_back(np.mean([survey(p, None, Curvature.NONE).gradient for p in points], axis=0))
    assert isinstance(anchor.precision, Arrowhead)
    arms, shared = anchor.precision.split(pull)
    pull = anchor.precision.joined(np.zeros_like(arms), shared)
    here = survey(anchor.mode + anchor.displacements(pull))
    moved = anchor_at(here, anchor.passes, anchor.num_rows)
    try:
        proper = here.is_finite and moved.is_proper and bool(np.abs(np.log(moved.sd / anchor.sd)).max() < ALIKE)
    except np.linalg.LinAlgError:
        proper = False
    shift = float(np.linalg.norm(pull)) if proper else 0.0
    return Recentred(moved if proper else anchor, shift, survey.rows_read)


def find_mode_or_balance(
    target: Target, table: Table, start: Floats, executor: Executor | None = None, rough: bool = False
) -> Anchor:
    """The anchor at the mode, or roughly; where the climb runs off or stalls, that in balance from the start values.

    A posterior that the climb shows to be improper, or open along a direction that nothing sees, is refused. So is one
    of too many parameters to look for balance.
    """
    try:
        return find_anchor(target, table, start, executor, rough=rough)
    except RankDeficientError as error:
        raise flat_along(error.places, target) from error
    except ImproperPosteriorError as error:
        raise improper(error.places, error.value, target) from error
    except (NoConvergenceError, NonFiniteError) as error:
        refusal: PosteriorError = error
    survey = Survey(target, table, executor, curvature_of(target, start))
    here = survey(start, None, Curvature.NONE if survey.curvature is Curvature.WIDE else None)
    if not here.is_finite:
        raise refusal
    if survey.curvature is not Curvature.DENSE:
        raise _runs_off(refusal, dense_limit_of(target)) from refusal
    log.debug("no mode (%s): looking for balance from the start values", refusal)
    found, everywhere = ascend(Balance(survey, target.dimension), first_gaussian(here))
    if everywhere is None:
        raise _open(target, start, found) from refusal
    return replace(_anchor_in_balance(found, everywhere, survey.passes, table.num_rows), has_mode=False)


def _anchor_in_balance(found: Gaussian, everywhere: Expansion, passes: float, num_rows: int) -> Anchor:
    anchor = anchor_at(everywhere, passes, num_rows)
    return replace(anchor, precision=found.precision, hessian=anchor.precision)


def _runs_off(refusal: PosteriorError, limit: int) -> NoConvergenceError:
    """The error of a climb without an end, where nothing but the mode would do."""
    return NoConvergenceError(
        explain(
            f"a posterior of more than {limit:,} parameters to have a mode",
            f"none, by a climb that ended with: {refusal}",
            f"{NON_CENTRED}, tighter priors of the scales, or other start values",
        )
    )


def _open(target: Target, start: Floats, end: Gaussian) -> NoConvergenceError:
    """The error of a posterior with neither mode nor balance: it names the parameters that went farthest."""
    farthest = np.argsort(-np.abs(end.theta - start) / end.sd)[:3]
    return NoConvergenceError(
        explain(
            "a posterior with a mode, or with a Gaussian in balance with it",
            f"neither: the log density is open first of all along {named(farthest, target)}",
            f"{NON_CENTRED}, tighter priors of the scales, or other start values",
        )
    )
