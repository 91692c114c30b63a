"""The mode: damped Newton on float64 sums streamed over the rows.

    theta' = theta + t H^-1 grad log pi(theta | X),   t = 1, 1/2, 1/4, ... until the log posterior rises enough

Value, gradient and Hessian come in one pass over the rows per trial point. Where there is no mode, or no unique
one, the error says which way the posterior is open.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.anchor import Anchor
from tallbayes.errors import (
    ImproperPosteriorError,
    NoConvergenceError,
    NonFiniteError,
    RankDeficientError,
    explain,
)
from tallbayes.model import Target, likelihood_sums, prior_terms
from tallbayes.moments import Floats
from tallbayes.table import Table

log = logging.getLogger("tallbayes")

MAX_ITERATIONS = 100
DECREMENT = 1e-8
SINGULAR = 1e-12
VANISHED = 1e-9


@dataclass(frozen=True, eq=False)
class Expansion:
    """Value and derivatives of the log posterior at one point; `hessian` is negated."""

    theta: Floats
    value: float
    gradient: Floats
    hessian: Floats
    likelihood_gradient: Floats
    likelihood_hessian: Floats


def expand(target: Target, table: Table, theta: Floats) -> Expansion:
    """One pass over the rows."""
    with jax.enable_x64(True):
        point = jnp.asarray(theta, jnp.float64)
        parts = [
            jax.tree.map(
                np.asarray,
                likelihood_sums(target, table.rows, np.int32(start), np.int32(stop), point),
            )
            for start, stop in table.chunks()
        ]
        prior = [np.asarray(term) for term in prior_terms(target, point)]
    value, gradient, hessian = (sum(terms) for terms in zip(*parts, strict=True))
    return Expansion(
        theta=theta,
        value=float(value + prior[0]),
        gradient=gradient + prior[1],
        hessian=-(hessian + prior[2]),
        likelihood_gradient=gradient,
        likelihood_hessian=hessian,
    )


def find_anchor(target: Target, table: Table, start: Floats) -> Anchor:
    """Climb to the mode; raise a PosteriorError that says what is wrong where there is none."""
    here = first = expand(target, table, start)
    passes = 1
    _require_finite(here, "at the start values")
    scale = _diagonal_scale(here.hessian)
    for iteration in range(MAX_ITERATIONS):
        step, decrement = _newton_step(here, scale, table.num_rows)
        log.debug("newton %d: log density %.12g, decrement %.3g", iteration, here.value, decrement)
        _require_proper(here, first, scale)
        if decrement < DECREMENT or _within_rounding(step, here.theta):
            _require_full_rank(here)
            return anchor_at(here, passes, table.num_rows)
        here, tried = _search_line(target, table, here, step, decrement)
        passes += tried
    raise NoConvergenceError(
        explain(
            f"Newton to reach the mode in {MAX_ITERATIONS} iterations",
            f"a decrement of {decrement:.2g} posterior sds after {passes} passes",
            "start values nearer to the mode, columns of similar scale, or a tighter prior",
        )
    )


def _newton_step(here: Expansion, scale: Floats, num_rows: int) -> tuple[Floats, float]:
    """The ascent step H^-1 g and its length in posterior sds; |eigenvalues| where H is not positive.

    A direction without curvature and with no slope beyond the rounding of the sums is left alone.
    """
    values, vectors = np.linalg.eigh(here.hessian / np.outer(scale, scale))
    flat = np.abs(values) <= SINGULAR * max(np.abs(values).max(), 1.0)
    slopes = vectors.T @ (here.gradient / scale)
    slopes = np.where(flat & (np.abs(slopes) < 1e-9 * np.sqrt(num_rows)), 0.0, slopes)
    curvature = np.where(flat, SINGULAR, np.abs(values))
    return (vectors @ (slopes / curvature)) / scale, float(np.sqrt(np.sum(slopes**2 / curvature)))


def _within_rounding(step: Floats, theta: Floats) -> bool:
    """Whether a step is below the spacing of floats at theta, as where |theta_0| is 1e8 posterior sds or more."""
    return bool(np.all(np.abs(step) <= np.spacing(np.abs(theta))))


def _search_line(
    target: Target, table: Table, here: Expansion, step: Floats, decrement: float
) -> tuple[Expansion, int]:
    """Halve the step until the log posterior rises enough (Armijo)."""
    fraction = 1.0
    for tried in range(1, 40):
        there = expand(target, table, here.theta + fraction * step)
        rounding = 1e-12 * (1 + abs(here.value))
        if there.value >= here.value + 1e-4 * fraction * decrement**2 - rounding:
            _require_finite(there, "on the way to the mode")
            return there, tried
        fraction /= 2
    raise NoConvergenceError(
        explain(
            "the log posterior to rise along Newton's direction",
            "no rise in 39 halvings of the step",
            "a smooth log density (no jumps, no float32 constants), or other start values",
        )
    )


def anchor_at(here: Expansion, passes: int, num_rows: int) -> Anchor:
    """The anchor of an expansion at the mode."""
    return Anchor(
        mode=here.theta,
        likelihood_gradient=here.likelihood_gradient,
        likelihood_hessian=here.likelihood_hessian,
        precision=(here.hessian + here.hessian.T) / 2,
        log_density=here.value,
        passes=passes,
        num_rows=num_rows,
    )


def _diagonal_scale(hessian: Floats) -> Floats:
    diagonal = np.abs(np.diag(hessian))
    return np.sqrt(np.where(diagonal > 0, diagonal, 1.0))


def _require_finite(here: Expansion, where: str) -> None:
    parts: dict[str, Any] = {"value": here.value, "gradient": here.gradient, "Hessian": here.hessian}
    for name, part in parts.items():
        if not np.all(np.isfinite(part)):
            raise NonFiniteError(
                explain(
                    f"a finite log posterior {where}",
                    f"a {name} that is not finite",
                    "evaluate log_prior and log_likelihood there by hand; move `initial` inside their domain",
                )
            )


def _require_full_rank(here: Expansion) -> None:
    scale = _diagonal_scale(here.hessian)
    values, vectors = np.linalg.eigh(here.hessian / np.outer(scale, scale))
    if values[0] > SINGULAR:
        return
    direction = np.abs(vectors[:, 0])
    involved = [int(j) for j in np.flatnonzero(direction > 0.3 * direction.max())[:6]]
    what = "indefinite (a saddle)" if values[0] < -SINGULAR else "singular"
    raise RankDeficientError(
        explain(
            "a positive definite Hessian at the mode",
            f"one that is {what} along parameters {involved}",
            "drop collinear or constant columns among these, or give them a proper prior",
        )
    )


def _require_proper(here: Expansion, start: Expansion, scale: Floats) -> None:
    """Refuse a direction whose curvature, there at the start, has vanished and that no prior holds."""
    values, vectors = np.linalg.eigh(here.hessian / np.outer(scale, scale))
    direction = vectors[:, 0] / scale
    prior_now, prior_then = (direction @ (at.hessian + at.likelihood_hessian) @ direction for at in (here, start))
    held = prior_now > values[0] / 2 and prior_now > VANISHED * prior_then
    had_curvature = direction @ start.hessian @ direction > VANISHED
    if not 0 <= values[0] < VANISHED or held or not had_curvature:
        return
    largest = int(np.argmax(np.abs(direction)))
    raise ImproperPosteriorError(
        explain(
            "a posterior with a mode",
            f"a log density that keeps rising as parameter {largest} grows "
            f"(now {here.theta[largest]:.3g}): the data are separated and the prior is flat",
            "a proper prior, for a family prior_scale=2.5",
        )
    )
