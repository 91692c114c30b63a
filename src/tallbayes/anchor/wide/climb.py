"""The mode of a regression of thousands of parameters, in as few passes as it takes and with one Hessian of all rows.

    H s = grad log pi(theta | X),   theta' = theta + t s,   t = 1, 1/2, 1/4, ... until the log posterior rises enough

by conjugate gradients, each of which is a pass over the rows, in units of M = L L^T, the Hessian of a sample of the
rows at the sample's mode: near it in every direction that has many rows, and the prior holds the others in both. The
Hessian of all rows is made once, where the climb ends; what is left of the gradient there stays in every drift.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import numpy as np

from tallbayes.anchor.anchor import Anchor, Derived
from tallbayes.anchor.ascent import search_line
from tallbayes.anchor.expansion import Expansion, Ranges, Survey, require_finite
from tallbayes.anchor.sums import Curvature
from tallbayes.anchor.wide.chains import chain_order, expand_chain
from tallbayes.anchor.wide.curvature import ROUNDING, hessian_product, is_single, minus_hessian, rounding
from tallbayes.anchor.wide.lbfgs import climb_diagonal
from tallbayes.anchor.wide.lines import lines_beside
from tallbayes.anchor.wide.means import means_of
from tallbayes.errors import NoConvergenceError, PosteriorError, explain
from tallbayes.gaussian.chain import ChainWhitening
from tallbayes.gaussian.low_rank import LowRankWhitening
from tallbayes.gaussian.roots import inverse_factor, inverse_root
from tallbayes.moments import Floats
from tallbayes.watch import begin

log = logging.getLogger("tallbayes")

# Rows of a sample, and for every parameter of a predictor: with two of them any answers can be told apart without an
# error, and the mode of such rows is nowhere near that of all.
SMALLEST_SAMPLE, ROWS_PER_COLUMN = 8_192, 8
LARGEST_SHARE = 4
MAX_ITERATIONS, MAX_PRODUCTS = 30, 60
# Of the slope that a step leaves, in the units of M.
SOLVED = 0.05
# Added to the diagonal of M where a sample does not hold every direction.
RIDGES = (0.0, 1e-6, 1e-3, 1.0)
# Of each parameter, in sds given the others: nearer the sample's mode is no nearer that of all rows.
CLOSE_FOR_SAMPLE = 0.1

Solve = Callable[[Floats], Floats]


def find_wide_anchor(survey: Survey, start: Floats, close: float) -> Anchor:
    """Climb to within `close` posterior sds of the mode, and expand there."""
    target, table = survey.target, survey.table
    begin("mode", f"a matrix of {target.dimension:,} x {target.dimension:,}: {means_of(target, table)}")
    sample = _sample(survey)
    solve = _by_sample(survey, start, sample)
    here = _climb(survey, solve[1], solve[0], close)
    del solve
    hessian, whitening = _roots_at(survey, here.theta)
    return Anchor(
        mode=here.theta,
        likelihood_gradient=here.likelihood_gradient,
        likelihood_hessian=None,
        precision=hessian,
        log_density=here.value,
        passes=survey.passes,
        num_rows=table.num_rows,
        gradient=here.gradient,
        derived=Derived(None, whitening, None, None),
    )


def find_chain_anchor(survey: Survey, start: Floats, close: float) -> Anchor | None:
    """The same where parameters stand in time; None where no chain of blocks is seen."""
    target, table = survey.target, survey.table
    order = chain_order(target, table, start)
    if order is None:
        return None
    begin("mode", f"a chain of {len(order):,} blocks of {order.shape[1]:,}")

    def expand_diagonal(theta: Floats) -> Expansion:
        return survey(theta, None, Curvature.DIAGONAL)

    first = expand_diagonal(start)
    require_finite(first, "at the start values")
    near = climb_diagonal(survey, expand_diagonal, first, CLOSE_FOR_SAMPLE * start.size**0.5)
    there = expand_chain(survey, near.theta, order)
    if there is None:
        return None
    try:
        root = ChainWhitening.of(there.hessian)
        here = _climb(survey, near.theta, lambda vector: np.asarray(root.move(root.pull_back(vector))), close)
        end = expand_chain(survey, here.theta, order)
        if end is None:
            return None
        whitening = ChainWhitening.of(end.hessian)
    except np.linalg.LinAlgError:
        return None
    return Anchor(
        mode=end.theta,
        likelihood_gradient=end.likelihood_gradient,
        likelihood_hessian=None,
        precision=end.hessian,
        log_density=end.value,
        passes=survey.passes,
        num_rows=table.num_rows,
        gradient=end.gradient,
        derived=Derived(None, whitening.inverses, None, None),
    )


def find_lines_anchor(survey: Survey, start: Floats, close: float) -> Anchor | None:
    """The same of any other model, by what a few lines say beside the diagonal; None where there are no such lines."""
    target, table = survey.target, survey.table
    if target.integrated is not None:
        return None

    def expand_diagonal(theta: Floats) -> Expansion:
        return survey(theta, None, Curvature.DIAGONAL)

    try:
        first = expand_diagonal(start)
        require_finite(first, "at the start values")
        near = climb_diagonal(survey, expand_diagonal, first, CLOSE_FOR_SAMPLE * start.size**0.5)
        lines = lines_beside(survey, near)
        if lines is None:
            return None
        begin("mode", f"a diagonal of {start.size:,} and {lines.lines.shape[1]} lines")
        root = LowRankWhitening(lines)
        end = _climb(survey, near.theta, lambda vector: np.asarray(root.move(root.pull_back(vector))), close)
    except PosteriorError as error:
        log.debug("no way to the mode by a few lines (%s)", error)
        return None
    return Anchor(
        mode=end.theta,
        likelihood_gradient=end.likelihood_gradient,
        likelihood_hessian=None,
        precision=lines,
        log_density=end.value,
        passes=survey.passes,
        num_rows=table.num_rows,
        gradient=end.gradient,
    )


def _sample(survey: Survey) -> Ranges | None:
    """The head of a shuffled table, of several rows a parameter of each predictor; all where that is no small part."""
    table, width = survey.table, survey.target.dimension // survey.target.layout.heads
    most = table.num_rows // LARGEST_SHARE
    size = min(max(SMALLEST_SAMPLE, ROWS_PER_COLUMN * width), most)
    return table.chunks(size) if table.shuffled and size >= max(SMALLEST_SAMPLE, ROWS_PER_COLUMN * width // 2) else None


def _by_sample(survey: Survey, start: Floats, sample: Ranges | None) -> tuple[Solve, Floats]:
    """v -> M^-1 v, and the sample's mode, where M is from."""

    def expand_diagonal(theta: Floats) -> Expansion:
        return survey(theta, sample, Curvature.DIAGONAL)

    first = expand_diagonal(start)
    require_finite(first, "at the start values")
    close = CLOSE_FOR_SAMPLE * start.size**0.5
    there = climb_diagonal(lambda theta: survey(theta, sample), expand_diagonal, first, close)
    table = survey.table
    survey.rows_read += sum(stop - begun for begun, stop in sample or table.chunks())
    matrix = minus_hessian(survey.target, table, there.theta, sample)
    scale = np.sqrt(np.maximum(np.abs(np.diag(matrix)), np.finfo(float).tiny))
    for ridge in RIDGES:
        try:
            inverse = inverse_factor(_scaled(matrix, scale, ridge))
        except np.linalg.LinAlgError:
            continue
        return partial(_eased, inverse, scale), there.theta
    raise NoConvergenceError(_improper(there.theta))


def _eased(inverse: Floats, scale: Floats, vector: Floats) -> Floats:
    """M^-1 v."""
    return np.asarray((inverse.T @ (inverse @ (vector / scale).astype(np.float32))) / scale)


def _scaled(matrix: Floats, scale: Floats, ridge: float) -> Floats:
    """In units of its diagonal and in float32, which is enough for whoever only helps to solve."""
    single = np.empty(matrix.shape, np.float32)
    for row, (numbers, own) in enumerate(zip(matrix, scale, strict=True)):
        single[row] = numbers / (own * scale)
    single[np.diag_indices(len(single))] += np.float32(ridge)
    return single


def _climb(survey: Survey, start: Floats, solve: Solve, close: float) -> Expansion:
    here = survey(start)
    require_finite(here, "at the mode of a sample")
    for iteration in range(MAX_ITERATIONS):
        step, products = _solved(survey, here, solve)
        decrement = float(max(float(step @ here.gradient), 0.0)) ** 0.5
        log.debug("conjugate gradients %d: log density %.12g, decrement %.3g", iteration, here.value, decrement)
        log.debug("%d products", products)
        if decrement < close:
            return here
        here = search_line(survey, here, step, decrement)
    raise NoConvergenceError(
        explain(
            f"conjugate gradients to reach the mode in {MAX_ITERATIONS} steps",
            f"a decrement of {decrement:.2g} posterior sds",
            "start values nearer to the mode, columns of similar scale, or a tighter prior",
        )
    )


def _solved(survey: Survey, here: Expansion, solve: Solve) -> tuple[Floats, int]:
    """s with H s = g nearly, and the products that it took; where H is not positive, as far as it is."""
    step, left = np.zeros_like(here.gradient), here.gradient
    eased = solve(left)
    along, square = eased, float(left @ eased)
    first = square
    for count in range(1, MAX_PRODUCTS + 1):
        curved = hessian_product(survey.target, survey.table, here.theta, along)
        survey.rows_read += survey.table.num_rows
        bend = float(along @ curved)
        if not bend > 0:
            return (step if count > 1 else eased), count
        step = step + square / bend * along
        left = left - square / bend * curved
        eased = solve(left)
        before, square = square, float(left @ eased)
        if square <= SOLVED**2 * first:
            break
        along = eased + square / before * along
    return step, count


def _roots_at(survey: Survey, theta: Floats) -> tuple[Floats, Floats]:
    """H of all rows, and W; in float64 throughout where rounding would be seen."""
    target, table = survey.target, survey.table
    for precise in (False, True):
        survey.rows_read += table.num_rows
        hessian = minus_hessian(target, table, theta, None, precise)
        try:
            whitening = inverse_root(hessian)
        except np.linalg.LinAlgError:
            if precise or not is_single(table):
                raise NoConvergenceError(_improper(theta)) from None
            continue
        if precise or not is_single(table):
            break
        error = rounding(target, table, theta, hessian, whitening)
        survey.rows_read += 2 * table.num_rows
        log.debug("products in float32 leave %.2g of a sd", error)
        if error <= ROUNDING:
            break
    return hessian, whitening


def _improper(theta: Floats) -> str:
    return explain(
        f"a Hessian of {theta.size:,} parameters that is positive definite at the mode",
        "one that is not",
        "a proper prior, or a model without columns that others make up",
    )
