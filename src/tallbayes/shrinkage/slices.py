"""Slice sampling of many numbers at once: every entry of an array by its own density, given all else.

    y ~ U(0, pi(x)),   an interval about x that steps out until pi < y at both ends,   x' uniform on it where pi(x') > y

Neal's scheme with at most `MOST_STEPS` steps, shared out between the sides by a uniform draw, leaves pi as it is
whatever the width, and the move is reversible. Entries are independent of one another, so that each may be a coordinate
of a chain of its own, or one of several that are independent given all others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tallbayes.moments import Floats

MOST_STEPS = 8
# An interval that has shrunk so often is the point itself but for rounding.
MOST_SHRINKS = 60


def slice_moved(log_density: Callable[[Floats], Floats], x: Floats, width: float, rng: np.random.Generator) -> Floats:
    """One move of every entry of x; `log_density` tells that of every entry, up to a constant of its own."""
    level = log_density(x) - rng.standard_exponential(x.shape)
    left: Floats = x - width * rng.random(x.shape)
    right: Floats = left + width
    to_left = rng.integers(0, MOST_STEPS, x.shape)
    left = _stepped_out(log_density, left, -width, to_left, level)
    right = _stepped_out(log_density, right, width, MOST_STEPS - 1 - to_left, level)
    moved, waiting = x.copy(), np.ones(x.shape, bool)
    for _ in range(MOST_SHRINKS):
        tried = left + (right - left) * rng.random(x.shape)
        inside = waiting & (log_density(tried) > level)
        moved = np.where(inside, tried, moved)
        waiting = waiting & ~inside
        if not waiting.any():
            break
        left = np.where(waiting & (tried < x), tried, left)
        right = np.where(waiting & (tried >= x), tried, right)
    return moved


def _stepped_out(
    log_density: Callable[[Floats], Floats], end: Floats, step: float, allowed: np.ndarray, level: Floats
) -> Floats:
    for count in range(MOST_STEPS):
        going = (count < allowed) & (log_density(end) > level)
        if not going.any():
            break
        # An end that has stopped stays where it is, and is no longer allowed to go on.
        allowed = np.where(going, allowed, 0)
        end = np.where(going, end + step, end)
    return end
