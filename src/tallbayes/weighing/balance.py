"""A regression's Gaussian in balance: the mode by Newton's steps, and then the same steps on averages.

    theta <- theta + P^-1 E grad log pi,   P <- -E grad^2 log pi,   over N(theta, P^-1)

It is where draws come from, so that near is enough.
"""

from __future__ import annotations

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.model.parts.extras import rounded_width
from tallbayes.moments import Floats
from tallbayes.weighing.regression import PlainRegression, PlainTerms

MOST_STEPS, MOST_HALVINGS, MOST_BALANCING = 100, 30, 12
AT_REST, IN_BALANCE = 1e-3, 0.02
STARTS = 4
# Of an excess: modes in a width, widths from none, and a relative sd with which it is nearly normal in any coordinate.
MODES_WIDE, FAR_WIDTHS, WELL_KNOWN = 2.0, 2.0, 0.1
# Of the curvature at the start: what is left of it where a climb runs off.
VANISHED = 1e-7
# Of a curvature in units of its own diagonal: below it rounding decides.
FLAT = 1e-10
SAME_MODE = 1.0
# Of posterior sds, and of x^4 pi about the mode in these units: as in `setup.tail_variances`.
FAR_RADII = 8.0 * 2.0 ** (np.arange(5) / 2)
ENDLESS, WORTH_A_LOOK = 0.75, 1e-3


def find_mode(regression: PlainRegression, start: Floats) -> tuple[Floats, PlainTerms, float] | None:
    """Where a climb from `start` ends, what is there, and its passes over the rows; None where it does not end."""
    theta, here, passes = start, regression.at(start), 1.0
    first = np.diag(here.curvature)
    for _ in range(MOST_STEPS):
        if not (np.isfinite(here.value) and np.isfinite(here.gradient).all() and np.isfinite(here.curvature).all()):
            return None
        step, length = _step(here)
        if length < AT_REST:
            return (theta, here, passes) if _is_proper(here.curvature, first) else None
        for _ in range(MOST_HALVINGS):
            there = regression.at(theta + step)
            passes += 1
            if there.value > here.value - 1e-9 * abs(here.value):
                break
            step = step / 2
        else:
            return None
        theta, here = theta + step, there
    return None


def _is_proper(curvature: Floats, first: Floats) -> bool:
    """Whether something holds every direction: no curvature has vanished, and no two columns say the same."""
    own = np.diag(curvature)
    if not np.all(own > VANISHED * np.abs(first)):
        return False
    scale = np.sqrt(own)
    return bool(np.linalg.eigvalsh(curvature / np.outer(scale, scale))[0] > FLAT)


def _step(here: PlainTerms) -> tuple[Floats, float]:
    """Newton's step, turned uphill where the log density is not curved downwards; its length in sds."""
    scale = np.sqrt(np.maximum(np.abs(np.diag(here.curvature)), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(here.curvature / np.outer(scale, scale))
    along = vectors.T @ (here.gradient / scale) / np.maximum(np.abs(values), 1e-8)
    length = float(np.sqrt(np.sum(along**2 * np.abs(values))))
    return vectors @ along / scale, length if np.all(values > 0) else max(length, 1.0)


def balanced(regression: PlainRegression, theta: Floats, curvature: Floats) -> tuple[Floats, Floats, float]:
    """Centre and precision in balance, from the mode's, and the passes it took."""
    precision = curvature
    for step in range(MOST_BALANCING):
        whitening = whitening_of(precision)
        there = regression.about(theta, whitening)
        if not (np.isfinite(there.gradient).all() and np.isfinite(there.curvature).all()):
            return theta, precision, step + 1.0
        if np.linalg.eigvalsh(there.curvature)[0] <= 0:
            return theta, precision, step + 1.0
        ratios = np.linalg.eigvalsh(whitening.T @ there.curvature @ whitening)
        move = np.linalg.solve(there.curvature, there.gradient)
        length = float(np.sqrt(move @ there.gradient))
        # No farther than what the averages speak for.
        theta, precision = theta + min(1.0, 2.0 / max(length, 1e-300)) * move, there.curvature
        if length < IN_BALANCE and ratios[0] > 1 - IN_BALANCE and ratios[-1] < 1 + IN_BALANCE:
            break
    return theta, precision, step + 1.0


def width_at_mode(regression: PlainRegression) -> float | None:
    """Of an excess that is many widths from none and not well known, another width, that of its mode: below that its
    coordinate goes like a logarithm. None where the one it has will do."""
    if not regression.extras or regression.extras[0].space != "excess":
        return None
    found, excess = find_mode(regression, np.zeros(regression.dimension)), regression.extras[0]
    if found is None:
        return None
    theta, here, _ = found
    place = regression.dimension - len(regression.extras)
    value, slope = excess.curve(theta[place])
    width = rounded_width(min(excess.prior.scale, MODES_WIDE * float(value)))
    sd = float(slope) / np.sqrt(here.curvature[place, place])
    return width if value > FAR_WIDTHS * excess.width and sd > WELL_KNOWN * value else None


def another_mode(regression: PlainRegression, mode: Floats, whitening: Floats, seed: int = 0) -> bool:
    """Whether climbs from elsewhere end somewhere else; one that does not end may be any."""
    rng = np.random.default_rng(seed)
    back = np.linalg.inv(whitening)
    scale = np.minimum(np.where(np.isfinite(regression.scales), regression.scales, 10.0), 10.0)
    for start in range(STARTS):
        point = scale * rng.standard_normal(len(mode)) if start else np.zeros(len(mode))
        # Of a scale the log, from where no row is far off.
        logs = np.abs(rng.standard_normal(regression.layout.extras))
        places = [extra.from_log(extra.loose * each) for extra, each in zip(regression.extras, logs, strict=True)]
        point[len(mode) - regression.layout.extras :] = places
        if regression.moving is not None:
            point[regression.moving_places] /= np.maximum(np.abs(regression.moving).max(axis=0), 1.0)
        found = find_mode(regression, point)
        if found is None or np.linalg.norm(back @ (found[0] - mode)) > SAME_MODE:
            return True
    return False


def endless_tails(regression: PlainRegression, anchor: Anchor, places: np.ndarray) -> bool:
    """Whether along one of these parameters, out to 32 sds, a shell that is twice as far out holds as much of x^4 pi as
    the one before, or nearly so: then the error of its sd has no end either (`setup.tail_variances` has the rule)."""
    if not len(places):
        return False
    lines = anchor.whitening[places] / np.linalg.norm(anchor.whitening[places], axis=1, keepdims=True)
    rays = np.concatenate([lines, -lines])[:, None] * FAR_RADII[:, None]
    moves = anchor.displacements(rays.reshape(-1, rays.shape[-1]))
    rise = regression.log_density(anchor.mode + moves) - regression.log_density(anchor.mode[None])
    log_held = np.nan_to_num(rise.reshape(rays.shape[:2]), nan=-np.inf) + 5 * np.log(FAR_RADII)
    held = np.exp(np.minimum(log_held, 700.0))
    near, beyond = held[:, :2].sum(axis=1) + held[:, 2] / 2, held[:, 2] / 2 + held[:, 3:].sum(axis=1)
    return bool(np.any((near + beyond > WORTH_A_LOOK) & ~(beyond < ENDLESS * near)))


def whitening_of(precision: Floats) -> Floats:
    return np.ascontiguousarray(np.linalg.inv(np.linalg.cholesky(precision)).T)
