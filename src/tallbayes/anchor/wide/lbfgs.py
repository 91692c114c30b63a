"""L-BFGS: the climb where a dense Hessian would be too large; gradients and one diagonal, nothing d x d.

    theta' = theta + t B grad log pi(theta | X),   t = 1, 1/2, 1/4, ... until the log posterior rises enough

B is the inverse of the Hessian's diagonal, corrected by the last pairs of steps and gradient changes (Nocedal's
two loops). The line search is Newton's, so trial points outside the domain are met and counted the same way.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import numpy as np

from tallbayes.anchor.ascent import MOST_NAMED, VANISHED, Evaluate, flat_along, improper, search_line
from tallbayes.anchor.expansion import Expansion
from tallbayes.errors import NoConvergenceError, explain
from tallbayes.moments import Floats

log = logging.getLogger("tallbayes")

MEMORY = 10
# Pairs that hardly curve are left out: their correction would be mostly rounding.
CURVED = 1e-10
MAX_ITERATIONS = 2_000
MAX_ROUNDS = 8

Pairs = deque[tuple[Floats, Floats]]


def climb_diagonal(
    evaluate: Evaluate,
    expand_diagonal: Callable[[Floats], Expansion],
    first: Expansion,
    close: float,
    max_iterations: int = MAX_ITERATIONS,
) -> Expansion:
    """From `first`, expanded with its diagonal, to where the gradient is below `close` in sds of the diagonal.

    The diagonal is renewed wherever the climb ends, and the climb goes on if the gradient is not small in it.
    """
    here, pairs = first, deque(maxlen=MEMORY)  # type: tuple[Expansion, Pairs]
    for _ in range(MAX_ROUNDS):
        scale = np.where(here.hessian > 0, here.hessian, 1.0)
        if _norm(here.gradient, scale) < close:
            break
        # A log density without a bound overflows before it is refused as not finite.
        with np.errstate(over="ignore", invalid="ignore"):
            end = _climb(evaluate, here, scale, close, pairs, max_iterations)
        here = expand_diagonal(end.theta)
        _require_proper(here, first)
    else:
        raise _unfinished(_norm(here.gradient, scale), f"{MAX_ROUNDS} renewals of the diagonal")
    flat = np.flatnonzero(~(here.hessian > 0))
    if flat.size:
        raise flat_along(tuple(int(j) for j in flat[:MOST_NAMED]))
    return here


def _climb(
    evaluate: Evaluate, here: Expansion, scale: Floats, close: float, pairs: Pairs, max_iterations: int
) -> Expansion:
    for iteration in range(max_iterations):
        slope = _norm(here.gradient, scale)
        log.debug("l-bfgs %d: log density %.12g, gradient %.3g", iteration, here.value, slope)
        if slope < close:
            return here
        step = _direction(here.gradient, scale, pairs)
        rise = here.gradient @ step
        there = search_line(evaluate, here, step, float(np.sqrt(rise)))
        moved, change = there.theta - here.theta, here.gradient - there.gradient
        if moved @ change > CURVED * _norm(moved, 1 / scale) * _norm(change, scale):
            pairs.append((moved, change))
        if not np.any(moved):
            return here
        here = there
    raise _unfinished(slope, f"{max_iterations} iterations")


def _direction(gradient: Floats, scale: Floats, pairs: Pairs) -> Floats:
    """B g by two loops over the pairs, newest first and back; every pair has positive curvature, so B g rises."""
    vector, weights = gradient, []
    for moved, change in reversed(pairs):
        weight = (moved @ vector) / (moved @ change)
        vector = vector - weight * change
        weights.append(weight)
    vector = vector / scale
    for (moved, change), weight in zip(pairs, reversed(weights), strict=True):
        vector = vector + moved * (weight - (change @ vector) / (moved @ change))
    return vector


def _norm(gradient: Floats, scale: Floats) -> float:
    """Length in sds of the diagonal."""
    return float(np.linalg.norm(gradient / np.sqrt(scale)))


def _require_proper(here: Expansion, first: Expansion) -> None:
    """Refuse a parameter whose curvature, there at the start, has vanished and that no prior holds."""
    prior_now, prior_then = (at.hessian + at.likelihood_hessian for at in (here, first))
    held = (prior_now > here.hessian / 2) & (prior_now > VANISHED * prior_then)
    vanished = (first.hessian > 0) & (here.hessian < VANISHED * first.hessian) & ~held
    if np.any(vanished):
        parameter = int(np.argmax(vanished))
        raise improper((parameter,), float(here.theta[parameter]))


def _unfinished(slope: float, limit: str) -> NoConvergenceError:
    return NoConvergenceError(
        explain(
            f"L-BFGS to reach the mode within {limit}",
            f"a gradient of {slope:.2g} posterior sds",
            "start values nearer to the mode, columns of similar scale, or a tighter prior",
        )
    )
