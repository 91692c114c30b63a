"""Windows: sums over the last points of all paths of a sample, and what the sample is in the end."""

from __future__ import annotations

from typing import Any, NamedTuple

from tallbayes.programs.later import jax, jnp


class PathEnd(NamedTuple):
    """One sample: Delta_l, what the fine and the coarse side read (beyond u, where there is one), how far out the
    fine path ended, the share of its steps that were strained, and where it would have been at every stop without the
    noise of the step before: theta - theta_0 of the fine path and of what is taken off it, the coarse paths or, at
    level 0, u, all of which that noise moves alike. `control` is what is to be taken off Delta_l, but for its mean;
    the two sides are as they are."""

    delta: jax.Array
    fine: jax.Array
    coarse: jax.Array
    distance: jax.Array
    strained: jax.Array
    points: jax.Array
    control: Any = ()


class Totals(NamedTuple):
    """Sums over the windows: of the fine path, of the fine path where the coarse window is, of differences; and of what
    the control says of either side, where there is one.

    Small differences are summed as such: with windows of equal length the first two cancel to the bit.
    """

    fine: jax.Array
    matched: jax.Array
    difference: jax.Array
    control: Any = ()
    coarse_control: Any = ()


def path_end(
    schedule: Any, totals: Totals, fine_end: Any, coarse_end: Any, distance: Any, strained: Any, points: Any
) -> PathEnd:
    """Window means where there is a window, end points where there is none."""
    fine_points = jnp.maximum(schedule.solo_window + schedule.fine_window, 1).astype(fine_end.dtype)
    coarse_points = jnp.maximum(schedule.coarse_window, 1).astype(fine_end.dtype)
    windowed = schedule.solo_window + schedule.fine_window > 0
    coupled = schedule.joint_steps > 0
    fine = jnp.where(windowed, totals.fine / fine_points, fine_end)
    longer = totals.fine / fine_points - totals.matched / coarse_points
    difference = jnp.where(windowed, longer + totals.difference / coarse_points, fine_end - coarse_end)
    delta = jnp.where(coupled, difference, fine)
    return PathEnd(delta, fine, jnp.where(coupled, fine - difference, 0), distance, strained, points)


def control_end(schedule: Any, totals: Totals, fine_end: Any, coarse_end: Any) -> jax.Array:
    """What the control says of the fine side less that of the coarse side, in windows or at the end."""
    fine_points = jnp.maximum(schedule.solo_window + schedule.fine_window, 1).astype(fine_end.dtype)
    coarse_points = jnp.maximum(schedule.coarse_window, 1).astype(fine_end.dtype)
    windowed = schedule.solo_window + schedule.fine_window > 0
    fine = jnp.where(windowed, totals.control / fine_points, fine_end)
    coarse = jnp.where(windowed, totals.coarse_control / coarse_points, coarse_end)
    return fine - jnp.where(schedule.joint_steps > 0, coarse, 0)


def plus(total: Any, value: Any) -> Any:
    return jax.tree.map(jnp.add, total, value)
