"""Corners: places within the posterior where the slope of the log prior jumps, as that of -|theta| does at 0.

    slope_j(s) = d/ds log pi(c + s sd_j e_j),   |s| <= REACH

About a corner there is no Gaussian, Newton's method does not end, and paths of a fine and of a coarse step are pushed
apart whenever one of them has crossed it and the other has not: nothing is wrong, but everything takes long. A jump is
told from a bend by looking at ever smaller intervals: a bend gets smaller with them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.model.constraints import Real
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.later import jax, jitted, jnp

REACH = 3.0
POINTS = 129
ROUNDS = 4
# A jump of the slope by so much over an sd of the posterior is felt.
LEAST_JUMP = 0.05
MOST_PARAMETERS = 1_000
MOST_NAMED = 6


class Corner(NamedTuple):
    """Of a parameter in R^d: where it is, and by how much the slope jumps, per posterior sd."""

    place: int
    at: float
    jump: float


def find_corners(target: Target, centre: Floats, sd: Floats) -> tuple[Corner, ...]:
    """The largest corner along every parameter that has one; the others are held at the centre."""
    if target.dimension > MOST_PARAMETERS or not (np.isfinite(sd).all() and np.isfinite(centre).all()):
        return ()
    places = np.arange(target.dimension)
    low, high = np.full(len(places), -REACH), np.full(len(places), REACH)
    widest = np.zeros(len(places))
    for number in range(ROUNDS):
        points = np.linspace(low, high, POINTS, axis=1)
        with jax.enable_x64(True):
            slopes = np.asarray(_slopes(target, centre, sd, points))
        with np.errstate(invalid="ignore"):
            jumps = np.nan_to_num(np.abs(np.diff(slopes, axis=1)))
        at = jumps.argmax(axis=1)
        low, high, found = points[places, at], points[places, at + 1], jumps[places, at]
        widest = found if number == 0 else widest
    real = (found > LEAST_JUMP) & (found > widest / 2)
    return tuple(
        Corner(int(j), float(centre[j] + sd[j] * (low[j] + high[j]) / 2), float(found[j])) for j in np.flatnonzero(real)
    )


@jitted(static_argnums=0)
def _slopes(target: Target, centre: jax.Array, sd: jax.Array, points: jax.Array) -> jax.Array:
    def along(place: jax.Array, s: jax.Array) -> jax.Array:
        return jax.grad(lambda each: target.log_prior(centre.at[place].add(each * sd[place])))(s)

    lines = jax.vmap(jax.vmap(along, (None, 0)))
    return lines(jnp.arange(len(sd)), points)


def corner_note(target: Target, anchor: Anchor) -> tuple[str, ...]:
    """What to say of them, and what to try; nothing where there are none."""
    found = find_corners(target, anchor.mode, anchor.sd)
    if not found:
        return ()
    names, free = target.space.paths(), _is_free(target)
    shown = [
        f"{names[each.place]} = {_round(each, anchor.sd):g}" if free[each.place] else names[each.place]
        for each in found
    ]
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return (
        f"kink: the log prior has a corner at {', '.join(shown[:MOST_NAMED])}{more}, within the posterior; paths that "
        "cross it part slowly, and there may be no mode. Try a smooth prior, such as Student's t; a Laplace prior "
        "exp(-rate |b|) is, without its corner, b = z * sqrt(2 * tau) / rate of standard normal z and tau ~ exp(-tau)",
    )


def _round(corner: Corner, sd: Floats) -> float:
    """To a thousandth of an sd: a corner at 0 is found at 1e-11."""
    digits = int(np.ceil(3 - np.log10(sd[corner.place])))
    return round(corner.at, digits) + 0.0


def _is_free(target: Target) -> list[bool]:
    sizes = [int(np.prod(shape)) for shape in target.space.shapes]
    return [
        isinstance(each, Real) for each, size in zip(target.space.constraints, sizes, strict=True) for _ in range(size)
    ]
