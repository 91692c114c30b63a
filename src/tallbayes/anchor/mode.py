"""The mode, in as few passes over the rows as it takes: two or three of a shuffled table.

    1. the mode of the first m rows, their likelihood weighted by N/m, for a small m and then a larger one
    2. value, gradient and Hessian over all rows, one pass
    3. the maximum of the first m rows' log posterior, made to agree with that pass to second order

        S(theta) = l_m(here + A v) + (g - A g_m) . v,   A H_m A = H,   v = theta - here

       and back to 2; a step by S errs by the sampling error of third derivatives where Newton's errs by their size.
       S is concave where l_m is, also along a rare level of which the sample has no row: there it is Newton's. Where
       H or H_m is not positive, or no matrix, it is l_m(theta) + (g - g_m) . v - v . (H - H_m) v / 2.

It ends within `CLOSE` posterior sds of the mode, or at rounding where rows are few and a pass costs nothing.
The distance is no error: the gradient there stays in every drift. It shifts Laplace's mean by that fraction of
an sd, which the first level corrects; so a pass to make it smaller would buy nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tallbayes.anchor import ascent
from tallbayes.anchor.anchor import WIDE_FROM, Anchor
from tallbayes.anchor.ascent import Propose, climb
from tallbayes.anchor.expansion import Expansion, Ranges, Survey, require_finite, ties_levels
from tallbayes.anchor.sums import Curvature
from tallbayes.anchor.wide import lbfgs
from tallbayes.anchor.wide.climb import find_chain_anchor, find_lines_anchor, find_wide_anchor
from tallbayes.anchor.wide.lbfgs import climb_diagonal
from tallbayes.anchor.wide.means import fits
from tallbayes.errors import PosteriorError
from tallbayes.gaussian.arrowhead import Arrowhead
from tallbayes.gaussian.chain import Chain
from tallbayes.gaussian.low_rank import LowRank
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.rows.table import Table
from tallbayes.workers.executors import Executor

log = logging.getLogger("tallbayes")

# A matrix of as many rows takes 1.2 GB; of other models than regressions it is made column by column.
DENSE_LIMIT, DENSE_LIMIT_COLUMN_BY_COLUMN = 12_000, 4_000
# Beyond as many parameters as a probe reads rows, a category's levels are eliminated before the others.
ARROW_FROM = 1_000
# Beside a category's levels: of so many parameters limbs and corner are kept, and the corner is a matrix.
MOST_IN_CORNER = 1_000
FEW_ROWS = 2**13
CLOSE, CLOSE_FOR_FEW_ROWS = 2e-2, 1e-8
# Enough for a Gaussian that is to be put in balance, which moves on by about as much.
ROUGH = 0.5
# The log density is known to about 1e-13 of itself, and L-BFGS sees no rise below that.
CLOSE_BY_VALUES = 1e-5
# A sample's mode is sqrt(d) of its own sds away from that of all rows.
CLOSE_FOR_SAMPLE = 1.0
SMALLEST_SAMPLE = 2_048
ROWS_PER_PARAMETER = 32
MODEL_ITERATIONS = 8


def find_anchor(
    target: Target,
    table: Table,
    start: Floats,
    executor: Executor | None = None,
    dense_limit: int | None = None,
    rough: bool = False,
) -> Anchor:
    """Climb to the mode; raise a PosteriorError that says what is wrong where there is none.

    `executor`: threads of this process. Where a category has most of very many parameters the anchor's precision is an
    arrowhead; beyond `dense_limit` of any others it is a chain, or a diagonal with lines or alone. A `rough` one is
    within half an sd where rows are many, for whoever moves on from there or settles it.
    """
    curvature = curvature_of(target, start, dense_limit)
    if curvature is Curvature.WIDE:
        return find_wide_anchor(Survey(target, table, executor, Curvature.NONE), start, _close(table.num_rows))
    if curvature is Curvature.NONE:
        for find in (find_chain_anchor, find_lines_anchor):
            found = find(Survey(target, table, executor, curvature), start, _close(table.num_rows))
            if found is not None:
                return found
    survey = Survey(target, table, executor, curvature)
    route: Callable[..., Expansion] = _climb_diagonal if curvature is Curvature.NONE else _climb_newton
    if rough and curvature is Curvature.DENSE and table.num_rows > FEW_ROWS:
        route = partial(_climb_newton, close=ROUGH)
    samples = _samples(table, target.dimension)
    if samples:
        try:
            return anchor_at(_climb_through(samples, survey, route, start), survey.passes, table.num_rows)
        except PosteriorError as error:
            log.debug("no way to the mode through a sample of the rows (%s): starting on all of them", error)
    return anchor_at(route(survey, start), survey.passes, table.num_rows)


def curvature_of(target: Target, start: Floats, dense_limit: int | None = None) -> Curvature:
    """What is kept of the second derivatives by the number of parameters, and by where they stand: NONE on the way and
    a diagonal at the end, where neither a matrix nor an arrowhead will do."""
    limit = dense_limit_of(target) if dense_limit is None else dense_limit
    arms = target.layout.arms if target.predictor is not None else None
    otherwise = Curvature.DENSE if target.dimension <= limit else Curvature.NONE
    if otherwise is Curvature.DENSE and target.dimension > WIDE_FROM and _in_columns(target):
        return Curvature.WIDE if fits(target.dimension) else Curvature.NONE
    if arms is None or target.dimension <= min(ARROW_FROM, limit):
        return otherwise
    small = target.dimension - arms.count <= MOST_IN_CORNER
    return Curvature.ARROW if small and not ties_levels(target, start) else otherwise


def _in_columns(target: Target) -> bool:
    """Whether it is a regression whose columns are written out."""
    return target.predictor is not None and target.layout.indexed is None and target.integrated is None


def dense_limit_of(target: Target) -> int:
    """Beyond as many parameters a matrix is not kept."""
    return DENSE_LIMIT if _in_columns(target) else min(DENSE_LIMIT, DENSE_LIMIT_COLUMN_BY_COLUMN)


def curvature_kept(anchor: Anchor) -> Curvature:
    """What an anchor's precision is of the second derivatives."""
    if isinstance(anchor.precision, Arrowhead):
        return Curvature.ARROW
    if anchor.is_wide:
        return Curvature.WIDE
    return Curvature.DIAGONAL if anchor.is_diagonal else Curvature.DENSE


def settle(target: Target, table: Table, anchor: Anchor, executor: Executor | None = None) -> Anchor:
    """A rough anchor climbed to the mode, from what is known where it stands; as it is where it is there. Only those
    with a matrix are found roughly: an arrowhead's was moved away from its mode on purpose."""
    rough = isinstance(anchor.precision, np.ndarray) and not (anchor.is_diagonal or anchor.is_large)
    if not rough or off_mode(anchor) < _close(table.num_rows):
        return anchor
    survey = Survey(target, table, executor)
    here = climb(survey, expansion_at(anchor), _close(table.num_rows), table.num_rows)
    return anchor_at(here, anchor.passes + survey.passes, table.num_rows)


def expanded_there(target: Target, table: Table, anchor: Anchor, executor: Executor | None = None) -> Anchor:
    """The same Gaussian with value and derivatives of the log posterior where it is, by a pass, where an anchor has
    those of an expansion about another point."""
    if anchor.step is None:
        return anchor
    here = anchor_at(Survey(target, table, executor)(anchor.mode), 1.0, table.num_rows)
    here = replace(here, precision=anchor.precision, hessian=here.precision)
    return replace(here, reason=anchor.reason, has_mode=anchor.has_mode)


def off_mode(anchor: Anchor) -> float:
    """Newton's decrement: how many posterior sds an anchor is from its mode."""
    return float(np.linalg.norm(anchor.whitener.pull_back(anchor.gradient)))


def expansion_at(anchor: Anchor) -> Expansion:
    """The log posterior at an anchor's mode, which took a pass when it was found."""
    return Expansion(
        anchor.mode,
        anchor.log_density,
        anchor.gradient,
        anchor.precision,
        anchor.likelihood_gradient,
        anchor.likelihood_hessian,
    )


def climb_to_anchor(survey: Survey, end: Expansion, sample: Ranges | None, max_iterations: int) -> Anchor:
    """The anchor of the mode whose slopes the end of a climb is on: of one on a sample, or of all rows already."""
    table, close = survey.table, _close(survey.table.num_rows)
    if survey.curvature is Curvature.NONE:
        here = _climb_diagonal(survey, end.theta, max_iterations=max_iterations)
    elif sample is None:
        here = climb(survey, end, close, table.num_rows, max_iterations=max_iterations)
    else:
        here = _climb_newton(survey, end.theta, sample=sample, max_iterations=max_iterations)
    return anchor_at(here, survey.passes, table.num_rows)


def anchor_at(here: Expansion, passes: float, num_rows: int) -> Anchor:
    """The anchor of an expansion at the mode."""
    precision, known = here.hessian, here.likelihood_hessian
    if isinstance(precision, Arrowhead):
        precision = precision.symmetric
    elif isinstance(precision, Chain | LowRank) or precision.ndim == 1:
        known = None
    elif known is not None:
        precision = (precision + precision.T) / 2
    return Anchor(
        mode=here.theta,
        likelihood_gradient=here.likelihood_gradient,
        likelihood_hessian=known,
        precision=precision,
        log_density=here.value,
        passes=passes,
        num_rows=num_rows,
        gradient=here.gradient,
    )


def _samples(table: Table, dimension: int) -> list[Ranges]:
    """Heads of a shuffled table, a small one and a larger; none where rows are few or in their owner's order.

    The mode of m rows is sqrt(d N/m) sds away and third derivatives err by m^(-1/2), so a step by S errs by about
    d N^(1/2) m^(-3/2) sds: with m = 100 (d^2 N)^(1/3), 0.003 as measured, and two passes suffice. Where that is
    no small part of N, three passes from a small sample are cheaper.
    """
    if not table.shuffled or table.num_rows <= FEW_ROWS:
        return []
    smallest = max(min(SMALLEST_SAMPLE, table.num_rows // 32), ROWS_PER_PARAMETER * dimension)
    if smallest > table.num_rows // 4:
        return []
    precise = int(100 * (dimension**2 * table.num_rows) ** (1 / 3))
    cheap = max(table.num_rows // 64, min(SMALLEST_SAMPLE, table.num_rows // 12))
    largest = precise if precise <= table.num_rows // 12 else cheap
    return [table.chunks(size) for size in ([smallest, largest] if largest >= 2 * smallest else [smallest])]


def _climb_through(samples: list[Ranges], survey: Survey, route: Callable[..., Expansion], start: Floats) -> Expansion:
    for sample in samples:
        start = route(survey, start, ranges=sample).theta
    return route(survey, start, sample=samples[-1])


def _climb_newton(
    survey: Survey,
    start: Floats,
    ranges: Ranges | None = None,
    sample: Ranges | None = None,
    max_iterations: int = ascent.MAX_ITERATIONS,
    close: float = 0.0,
) -> Expansion:
    """Newton on the given rows, or on all; then with steps by the model that a sample makes of them."""

    def evaluate(theta: Floats) -> Expansion:
        return survey(theta, ranges)

    first = evaluate(start)
    require_finite(first, "at the start values")
    close = max(close, _close(survey.table.num_rows)) if ranges is None else CLOSE_FOR_SAMPLE
    propose = _proposer(survey, sample, close) if sample is not None else None
    return climb(evaluate, first, close, survey.table.num_rows, propose, max_iterations)


def _climb_diagonal(
    survey: Survey,
    start: Floats,
    ranges: Ranges | None = None,
    sample: Ranges | None = None,
    max_iterations: int = lbfgs.MAX_ITERATIONS,
) -> Expansion:
    """L-BFGS on the given rows, or on all."""

    def evaluate(theta: Floats) -> Expansion:
        return survey(theta, ranges)

    def expand_diagonal(theta: Floats) -> Expansion:
        return survey(theta, ranges, Curvature.DIAGONAL)

    first = expand_diagonal(start)
    require_finite(first, "at the start values")
    close = max(_close(survey.table.num_rows), CLOSE_BY_VALUES) if ranges is None else CLOSE_FOR_SAMPLE
    return climb_diagonal(evaluate, expand_diagonal, first, close, max_iterations)


def _close(num_rows: int) -> float:
    return CLOSE_FOR_FEW_ROWS if num_rows <= FEW_ROWS else CLOSE


def _proposer(survey: Survey, sample: Ranges, close: float) -> Propose:
    """The maximum of S; none where Newton's own error, about decrement^2 / sqrt(N), is small enough."""

    def propose(here: Expansion, decrement: float) -> Floats | None:
        if decrement**2 / np.sqrt(survey.table.num_rows) < close / 10:
            return None
        near = survey(here.theta, sample)

        turn = _turn(near.hessian, here.hessian)

        def matched(theta: Floats) -> Expansion:
            if turn is None:
                return matched_to(survey(theta, sample), near, here)
            v = theta - here.theta
            return turned_to(survey(here.theta + turn @ v, sample), near, here, turn, v)

        try:
            first = matched_to(near, near, here)
            return climb(matched, first, close / 10, survey.table.num_rows, max_iterations=MODEL_ITERATIONS).theta
        except PosteriorError:
            return None

    return propose


def matched_to(there: Expansion, near: Expansion, here: Expansion) -> Expansion:
    """A sample's expansion plus the quadratic that makes `near`, at the same point, equal to `here`."""
    v = there.theta - here.theta
    slope, curvature = here.gradient - near.gradient, here.hessian - near.hessian
    return replace(
        there,
        value=there.value + float(slope @ v - v @ curvature @ v / 2),
        gradient=there.gradient + slope - curvature @ v,
        hessian=there.hessian + curvature,
        likelihood_hessian=there.likelihood_hessian - near.likelihood_hessian + here.likelihood_hessian,
    )


def _turn(sampled: Any, everywhere: Any) -> Floats | None:
    """A with A' H_m A = H, the nearest to the identity in units of H's diagonal; None where there is none."""
    if not isinstance(everywhere, np.ndarray) or everywhere.ndim != 2 or np.any(np.diag(everywhere) <= 0):
        return None
    scale = np.sqrt(np.diag(everywhere))
    values, vectors = np.linalg.eigh(sampled / np.outer(scale, scale))
    if values[0] <= ascent.VANISHED * values[-1]:
        return None
    root, inverse = (vectors * values**power @ vectors.T for power in (0.5, -0.5))
    values, vectors = np.linalg.eigh(root @ (everywhere / np.outer(scale, scale)) @ root)
    if values[0] <= 0:
        return None
    return inverse @ (vectors * np.sqrt(values) @ vectors.T) @ inverse * (scale / scale[:, None])


def turned_to(there: Expansion, near: Expansion, here: Expansion, turn: Floats, v: Floats) -> Expansion:
    """A sample's expansion at here + A v as one of S at here + v, which at v = 0 has slope and curvature of `here`."""
    slope = here.gradient - turn.T @ near.gradient
    return replace(
        there,
        theta=here.theta + v,
        value=there.value + float(slope @ v),
        gradient=turn.T @ there.gradient + slope,
        hessian=turn.T @ there.hessian @ turn,
        likelihood_hessian=turn.T @ there.likelihood_hessian @ turn,
    )
