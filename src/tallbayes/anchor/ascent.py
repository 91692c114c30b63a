"""Ascent: damped Newton on any function that can be expanded.

    theta' = theta + t H^-1 grad log pi(theta | X),   t = 1, 1/2, 1/4, ... until the log posterior rises enough

H is a matrix, or an arrowhead: then its diagonal is eliminated first, and what is left of its corner is a matrix.
Where there is no mode, or no unique one, the error says which way the posterior is open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from tallbayes.anchor.expansion import Expansion, require_finite
from tallbayes.errors import ImproperPosteriorError, NoConvergenceError, RankDeficientError, explain
from tallbayes.gaussian.arrowhead import Arrowhead, product
from tallbayes.model.model import Target
from tallbayes.moments import Floats

log = logging.getLogger("tallbayes")

Evaluate = Callable[[Floats], Expansion]
Propose = Callable[[Expansion, float], Floats | None]
Foresee = Callable[[Expansion, Floats], Expansion | None]

MAX_ITERATIONS = 100
SINGULAR = 1e-12
VANISHED = 1e-9
MOST_NAMED = 6


def climb(
    evaluate: Evaluate,
    first: Expansion,
    close: float,
    num_rows: int,
    propose: Propose | None = None,
    max_iterations: int = MAX_ITERATIONS,
    foresee: Foresee | None = None,
    near: float = 0.0,
) -> Expansion:
    """Newton from `first` to within `close` posterior sds of a mode; to within `near`, where no step leads on from
    there, as it may be where a gradient is not quite that of the value.

    `propose(here, decrement)` may name a point to try before Newton's own; it is taken if it rises enough.
    `foresee(here, step)` may name the end, where it is known: then the rest of the way is not gone.
    """
    here = first
    look = _look_at_arrow if isinstance(first.hessian, Arrowhead) else _look_at_matrix
    for iteration in range(max_iterations):
        step, decrement, slightest = look(here, first, num_rows)
        log.debug("newton %d: log density %.12g, decrement %.3g", iteration, here.value, decrement)
        _require_proper(here, first, slightest)
        if decrement < close or _within_rounding(step, here.theta):
            _require_full_rank(here)
            return here
        if foresee is not None and (end := foresee(here, step)) is not None:
            return end
        proposal = propose(here, decrement) if propose is not None else None
        try:
            here = search_line(evaluate, here, step, decrement, proposal)
        except NoConvergenceError:
            if decrement >= near:
                raise
            break
    if decrement < near:
        _require_full_rank(here)
        return here
    raise NoConvergenceError(
        explain(
            f"Newton to reach the mode in {max_iterations} iterations",
            f"a decrement of {decrement:.2g} posterior sds",
            "start values nearer to the mode, columns of similar scale, or a tighter prior",
        )
    )


def search_line(
    evaluate: Evaluate, here: Expansion, step: Floats, decrement: float, proposal: Floats | None = None
) -> Expansion:
    """The proposal, or the step halved until the log posterior rises enough (Armijo)."""
    trials = [(1.0, proposal)] if proposal is not None else []
    trials += [(0.5**halvings, here.theta + 0.5**halvings * step) for halvings in range(39)]
    rounding = 1e-12 * (1 + abs(here.value))
    for fraction, point in trials:
        there = evaluate(point)
        if there.value >= here.value + 1e-4 * fraction * decrement**2 - rounding:
            require_finite(there, "on the way to the mode")
            return there
    raise NoConvergenceError(
        explain(
            "the log posterior to rise along the direction of ascent",
            "no rise in 39 halvings of the step",
            "a smooth log density (no jumps, no float32 constants), or other start values",
        )
    )


def distance(apart: Floats, hessian: Any) -> float:
    """Length of a displacement in the sds of a Gaussian of precision `hessian`, a matrix, arrowhead or diagonal."""
    return float(np.sqrt(apart @ product(hessian, apart)))


class Slightest(NamedTuple):
    """The least curvature, in units of what it was at first, and a direction that has it."""

    value: float
    direction: Floats


class Look(NamedTuple):
    """The ascent step H^-1 g, its length in posterior sds, and where H curves least."""

    step: Floats
    decrement: float
    slightest: Slightest


def _look_at_matrix(here: Expansion, first: Expansion, num_rows: int) -> Look:
    scale = _diagonal_scale(np.diag(first.hessian))
    values, vectors = np.linalg.eigh(here.hessian / np.outer(scale, scale))
    step, square = _newton_step(here.gradient / scale, values, vectors, num_rows)
    return Look(step / scale, float(np.sqrt(square)), Slightest(values[0], vectors[:, 0] / scale))


def _look_at_arrow(here: Expansion, first: Expansion, num_rows: int) -> Look:
    """The same with the diagonal eliminated: what of it is not positive is turned, as eigenvalues are."""
    hessian, (arms, corner) = here.hessian, first.hessian.split(_diagonal_scale(first.hessian.diagonals))
    values = hessian.diagonal / arms**2
    gradient, rest = hessian.split(here.gradient)
    slopes, curvature = _curved(gradient / arms, values, num_rows)
    turned = Arrowhead(hessian.first, curvature * arms**2, hessian.limbs, hessian.corner)
    own, pulls = slopes / curvature / arms, turned.limbs / turned.diagonal[:, None]
    left, vectors = np.linalg.eigh(turned.schur / np.outer(corner, corner))
    onward, square = _newton_step((rest - own @ turned.limbs) / corner, left, vectors, num_rows)
    onward = onward / corner
    step = hessian.joined(own - pulls @ onward, onward)
    decrement = float(np.sqrt(np.sum(slopes**2 / curvature) + square))
    return Look(step, decrement, _slightest_of_arrow(hessian, values, arms, left[0], vectors[:, 0] / corner, pulls))


def _slightest_of_arrow(
    hessian: Arrowhead, values: Floats, arms: Floats, left: float, direction: Floats, pulls: Floats
) -> Slightest:
    """Along one level alone, or along a direction of the corner that all levels follow."""
    least = int(np.argmin(values))
    if values[least] <= left:
        alone = np.zeros(len(values))
        alone[least] = 1 / arms[least]
        return Slightest(float(values[least]), hessian.joined(alone, np.zeros(len(direction))))
    return Slightest(float(left), hessian.joined(-(pulls @ direction), direction))


def _newton_step(slope: Floats, values: Floats, vectors: Floats, num_rows: int) -> tuple[Floats, float]:
    """H^-1 g and its square length in posterior sds, by eigenvalues."""
    slopes, curvature = _curved(vectors.T @ slope, values, num_rows)
    return vectors @ (slopes / curvature), float(np.sum(slopes**2 / curvature))


def _curved(slopes: Floats, values: Floats, num_rows: int) -> tuple[Floats, Floats]:
    """Slopes and curvatures, |eigenvalues| where H is not positive.

    A direction without curvature and with no slope beyond the rounding of the sums is left alone.
    """
    flat = np.abs(values) <= SINGULAR * max(np.abs(values).max(), 1.0)
    slopes = np.where(flat & (np.abs(slopes) < 1e-9 * np.sqrt(num_rows)), 0.0, slopes)
    return slopes, np.where(flat, SINGULAR, np.abs(values))


def _within_rounding(step: Floats, theta: Floats) -> bool:
    """Whether a step is below the spacing of floats at theta, as where |theta_0| is 1e8 posterior sds or more."""
    return bool(np.all(np.abs(step) <= np.spacing(np.abs(theta))))


def _diagonal_scale(diagonals: Floats) -> Floats:
    diagonal = np.abs(diagonals)
    return np.sqrt(np.where(diagonal > 0, diagonal, 1.0))


def _require_full_rank(here: Expansion) -> None:
    least, share = (_flat_in_arrow if isinstance(here.hessian, Arrowhead) else _flat_in_matrix)(here.hessian)
    if least > SINGULAR:
        return
    # Which vectors span a space without curvature is chance; how much of each parameter is in it is not.
    involved = tuple(int(j) for j in np.flatnonzero(share > 0.1 * share.max())[:MOST_NAMED])
    if least < -SINGULAR:
        hint = "other start values, away from a point of symmetry"
        got = f"a saddle: one that is indefinite along parameters {list(involved)}"
        raise NoConvergenceError(explain("a positive definite Hessian at the mode", got, hint), involved)
    raise flat_along(involved)


def _flat_in_matrix(hessian: Floats) -> tuple[float, Floats]:
    """The least curvature in units of the diagonal, and how much of each parameter has none."""
    scale = _diagonal_scale(np.diag(hessian))
    values, vectors = np.linalg.eigh(hessian / np.outer(scale, scale))
    return values[0], np.sum(vectors[:, values <= SINGULAR] ** 2, axis=1)


def _flat_in_arrow(hessian: Arrowhead) -> tuple[float, Floats]:
    """The same: a level that nothing holds is flat by itself, and a direction of the corner takes levels along."""
    if np.any(hessian.diagonal <= 0):
        return float(min(hessian.diagonal.min(), 0.0)), hessian.joined(
            (hessian.diagonal <= 0).astype(float), np.zeros(len(hessian.corner))
        )
    scale = _diagonal_scale(np.diag(hessian.corner))
    values, vectors = np.linalg.eigh(hessian.schur / np.outer(scale, scale))
    flat = vectors[:, values <= SINGULAR] / scale[:, None]
    pulled = (hessian.limbs @ flat) / hessian.diagonal[:, None]
    whole = hessian.joined(pulled.T, flat.T) * _diagonal_scale(hessian.diagonals)
    return values[0], np.sum(whole**2, axis=0)


def flat_along(places: tuple[int, ...], target: Target | None = None) -> RankDeficientError:
    """The error of a log posterior that does not change along some parameters, together or each."""
    names = named(places, target)
    hint = "a proper prior for it, or a model without it: neither rows nor prior tell what it is"
    if len(places) > 1:
        hint = "a proper prior for them, or a model with fewer: neither rows nor prior tell what each of them is"
    if target is not None and target.predictor is not None:
        hint = "drop collinear or constant columns of x among these, or give them a proper prior"
    expected, got = "a log posterior that is curved in every direction at its mode", f"one that is flat along {names}"
    return RankDeficientError(explain(expected, got, hint), places)


def named(places: Iterable[int], target: Target | None) -> str:
    """Parameters as their owner would write them; by number where it is not known whose they are."""
    if target is None:
        return f"parameters {list(places)}"
    names = target.space.paths()
    return ", ".join(names[place] for place in places)


def _require_proper(here: Expansion, start: Expansion, slightest: Slightest) -> None:
    """Refuse a direction whose curvature, there at the start, has vanished and that no prior holds."""
    value, direction = slightest
    if not 0 <= value < VANISHED:
        return
    prior_now, prior_then = (direction @ (at.hessian + at.likelihood_hessian) @ direction for at in (here, start))
    held = prior_now > value / 2 and prior_now > VANISHED * prior_then
    had_curvature = direction @ start.hessian @ direction > VANISHED
    if held or not had_curvature:
        return
    parameter = int(np.argmax(np.abs(direction)))
    raise improper((parameter,), float(here.theta[parameter]))


def improper(places: tuple[int, ...], value: float, target: Target | None = None) -> ImproperPosteriorError:
    """The error of a log density that keeps rising as one parameter grows, or falls."""
    way = f"{'grows' if value > 0 else 'falls'} (now {value:.3g})"
    is_family = target is None or target.predictor is not None
    why = "the data are separated and the prior is flat" if is_family else "neither rows nor prior hold it"
    hint = "a proper prior, for a family prior_scale=2.5" if is_family else "a proper prior for it"
    got = f"a log density that keeps rising as {named(places, target)} {way}: {why}"
    return ImproperPosteriorError(explain("a posterior with a mode", got, hint), places, value)
