"""Ascent: damped Newton on any function that can be expanded.

    theta' = theta + t H^-1 grad log pi(theta | X),   t = 1, 1/2, 1/4, ... until the log posterior rises enough

Where there is no mode, or no unique one, the error says which way the posterior is open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import numpy as np

from tallbayes.anchor.expansion import Expansion, require_finite
from tallbayes.errors import ImproperPosteriorError, NoConvergenceError, RankDeficientError, explain
from tallbayes.model.model import Target
from tallbayes.moments import Floats

log = logging.getLogger("tallbayes")

Evaluate = Callable[[Floats], Expansion]
Propose = Callable[[Expansion, float], Floats | None]

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
) -> Expansion:
    """Newton from `first` to within `close` posterior sds of a mode.

    `propose(here, decrement)` may name a point to try before Newton's own; it is taken if it rises enough.
    """
    here = first
    scale = _diagonal_scale(here.hessian)
    for iteration in range(max_iterations):
        spectrum = np.linalg.eigh(here.hessian / np.outer(scale, scale))
        step, decrement = _newton_step(here, scale, *spectrum, num_rows)
        log.debug("newton %d: log density %.12g, decrement %.3g", iteration, here.value, decrement)
        _require_proper(here, first, scale, *spectrum)
        if decrement < close or _within_rounding(step, here.theta):
            _require_full_rank(here)
            return here
        proposal = propose(here, decrement) if propose is not None else None
        here = search_line(evaluate, here, step, decrement, proposal)
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


def distance(apart: Floats, hessian: Floats) -> float:
    """Length of a displacement in the sds of a Gaussian of precision `hessian`, a matrix or a diagonal."""
    return float(np.sqrt(apart @ (hessian * apart if hessian.ndim == 1 else hessian @ apart)))


def _newton_step(
    here: Expansion, scale: Floats, values: Floats, vectors: Floats, num_rows: int
) -> tuple[Floats, float]:
    """The ascent step H^-1 g and its length in posterior sds; |eigenvalues| where H is not positive.

    A direction without curvature and with no slope beyond the rounding of the sums is left alone.
    """
    flat = np.abs(values) <= SINGULAR * max(np.abs(values).max(), 1.0)
    slopes = vectors.T @ (here.gradient / scale)
    slopes = np.where(flat & (np.abs(slopes) < 1e-9 * np.sqrt(num_rows)), 0.0, slopes)
    curvature = np.where(flat, SINGULAR, np.abs(values))
    return (vectors @ (slopes / curvature)) / scale, float(np.sqrt(np.sum(slopes**2 / curvature)))


def _within_rounding(step: Floats, theta: Floats) -> bool:
    """Whether a step is below the spacing of floats at theta, as where |theta_0| is 1e8 posterior sds or more."""
    return bool(np.all(np.abs(step) <= np.spacing(np.abs(theta))))


def _diagonal_scale(hessian: Floats) -> Floats:
    diagonal = np.abs(np.diag(hessian))
    return np.sqrt(np.where(diagonal > 0, diagonal, 1.0))


def _require_full_rank(here: Expansion) -> None:
    scale = _diagonal_scale(here.hessian)
    values, vectors = np.linalg.eigh(here.hessian / np.outer(scale, scale))
    if values[0] > SINGULAR:
        return
    # Which vectors span a space without curvature is chance; how much of each parameter is in it is not.
    share = np.sum(vectors[:, values <= SINGULAR] ** 2, axis=1)
    involved = tuple(int(j) for j in np.flatnonzero(share > 0.1 * share.max())[:MOST_NAMED])
    if values[0] < -SINGULAR:
        hint = "other start values, away from a point of symmetry"
        got = f"a saddle: one that is indefinite along parameters {list(involved)}"
        raise NoConvergenceError(explain("a positive definite Hessian at the mode", got, hint), involved)
    raise flat_along(involved)


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


def _require_proper(here: Expansion, start: Expansion, scale: Floats, values: Floats, vectors: Floats) -> None:
    """Refuse a direction whose curvature, there at the start, has vanished and that no prior holds."""
    direction = vectors[:, 0] / scale
    prior_now, prior_then = (direction @ (at.hessian + at.likelihood_hessian) @ direction for at in (here, start))
    held = prior_now > values[0] / 2 and prior_now > VANISHED * prior_then
    had_curvature = direction @ start.hessian @ direction > VANISHED
    if not 0 <= values[0] < VANISHED or held or not had_curvature:
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
