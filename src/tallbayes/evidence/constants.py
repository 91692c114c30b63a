"""Constants: what log densities leave out, since no posterior sees it and every evidence does.

    log p(y) = log integral exp[ log pi(u) + sum_i w_i l_i ] du  +  sum_i w_i [ c(y_i) - log s ]  +  C

c(y_i) is what a family's density of one row leaves out, s the scale that the response was divided by, and C what the
priors leave out:

    normal             -log(2 pi) / 2 - log scale               extras             as their laws have it (`extras`)
    others             - log scale - log normaliser             (`model.priors.laws`)
    partial r of LKJ   -log B(1/2, a + 1), r ~ (1 - r^2)^a      effects by group   -log(2 pi) / 2, every number

Whoever writes a log prior and a log likelihood owns their constants: then all of this is nothing. A prior that has no
constant is refused by the name of what it is flat in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import betaln

from tallbayes.anchor.ascent import named
from tallbayes.errors import InputError, explain
from tallbayes.evidence.densities import log_priors
from tallbayes.groups.units import rows_that_count
from tallbayes.model.catalogue import BESIDE
from tallbayes.model.groups.integral import GroupIntegral
from tallbayes.model.groups.mixed import powers_of
from tallbayes.model.model import FamilyParts, Target
from tallbayes.model.normalisers import log_normaliser
from tallbayes.model.weights import WEIGHT
from tallbayes.moments import Floats
from tallbayes.programs.later import jax
from tallbayes.rows.table import CHUNK_ROWS, Table

LOG_TWO_PI = float(np.log(2 * np.pi))
# A prior that is the same so far out as at the mode, on both sides, is flat.
FAR = (-1e8, -1e4, 1e4, 1e8)


def require_proper(target: Target, mode: Floats, columns: Sequence[str]) -> None:
    """Refuse a prior that is flat in a parameter; `columns` are the names of coefficients where they have any."""
    flat = _flat_of_family(target, columns) if target.parts is not None else _flat_of_own(target, mode)
    if flat:
        names = ", ".join(flat[:8]) + (f" and {len(flat) - 8} more" if len(flat) > 8 else "")
        hint = "a finite scale, as prior_scale=2.5, a prior of tb.priors, or a log prior that falls off"
        raise InputError(explain("priors that can be normalised, for an evidence", f"a flat one of {names}", hint))


def _own_scales(parts: FamilyParts) -> dict[str, Any]:
    """Those of Gaussian priors; of coefficients of smooths 1, since the log prior has their scales itself."""
    if not parts.smooths:
        return parts.scales
    scale = np.array(parts.scales["coefficients"], np.float64)
    for smooth in parts.smooths:
        scale[smooth.places] = 1.0
    return {**parts.scales, "coefficients": scale}


def _of_coefficients(parts: FamilyParts) -> dict[str, Any]:
    """Those of coefficients and an intercept alone."""
    return {name: scale for name, scale in _own_scales(parts).items() if name in parts.own}


def _flat_of_family(target: Target, columns: Sequence[str]) -> list[str]:
    assert target.parts is not None
    found: list[str] = []
    for name, scale in _own_scales(target.parts).items():
        endless = ~np.isfinite(np.atleast_1d(np.asarray(scale, np.float64)))
        if not endless.any():
            continue
        if name != "coefficients":
            found.append(f"the {name.replace('_', ' ')}")
        elif endless.size == 1:
            found.append("all coefficients" if columns or np.ndim(scale) == 0 else "the coefficient")
        else:
            named_ones = (
                columns if len(columns) == endless.size else [f"coefficients[{k}]" for k in range(endless.size)]
            )
            found += [repr(named_ones[int(place)]) for place in np.flatnonzero(endless)]
    endless_terms = [term for term in target.parts.terms if not all(prior.proper for prior in term.laws)]
    return found + [f"the scales of effects by {term.by}" for term in endless_terms]


def _flat_of_own(target: Target, mode: Floats) -> list[str]:
    """Parameters along which a log prior does not change at all, as far as it is looked at."""
    d = len(mode)
    points = [mode + distance * np.eye(d) for distance in FAR]
    here, there = np.split(log_priors(target, np.concatenate([np.asarray(mode)[None], *points])), [1])
    flat = np.all(there.reshape(len(FAR), d) == here[0], axis=0)
    return [named([int(place)], target) for place in np.flatnonzero(flat)]


def log_constant(target: Target, table: Table) -> float:
    """All that a family's log posterior leaves out of log p(y); nothing for a model of one's own."""
    parts = target.parts
    if parts is None:
        return 0.0
    assert target.noise is not None
    scale = float(np.asarray(table.units["response_scale"])) if _has_scale(table) else 1.0
    total, weight = 0.0, 0.0
    closed = target.integrated is not None and not isinstance(target.integrated.integral, GroupIntegral)
    for own, w in _responses(table):
        weight += float(w.sum())
        if own is not None:
            total += float(w @ log_normaliser(target.noise, own))
    if closed:
        # The closed form counts the noise's scale itself, and may have no rows left.
        total = -weight * LOG_TWO_PI / 2
    total += of_priors(parts, _shapes(target))
    if target.integrated is not None and not closed:
        groups = np.count_nonzero(np.asarray(table.rows["group"])[: table.num_rows] >= 0)
        total -= groups * target.integrated.size * LOG_TWO_PI / 2
    return total - weight * float(np.log(scale))


def of_priors(parts: FamilyParts, shapes: dict[str, tuple[int, ...]]) -> float:
    """C, for parameters of these shapes."""
    stated, smooth = parts.priors, sum(len(each.information) for each in parts.smooths)
    if stated is None:
        total = _of_gaussians(_of_coefficients(parts), shapes)
    else:
        total = stated.log_constant(shapes) - smooth * LOG_TWO_PI / 2
    total += sum(extra.log_constant for extra in parts.extras)
    for each in parts.smooths:
        total -= LOG_TWO_PI / 2 + float(np.log(each.scale)) - float(np.log(2))
    for place, term in enumerate(parts.terms):
        if term.laws:
            total -= sum(each.facts.log_normaliser(*each.shape) + float(np.log(each.scale)) for each in term.laws)
        else:
            total -= term.size * (LOG_TWO_PI / 2 + float(np.log(term.scale)) - float(np.log(2)))
        if term.correlations:
            total -= float(np.sum(betaln(0.5, powers_of(term) + 1)))
        if place:
            total -= term.levels * term.size * LOG_TWO_PI / 2
    return total


def _of_gaussians(scales: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> float:
    total = 0.0
    for name, scale in scales.items():
        each = np.broadcast_to(np.asarray(scale, np.float64), shapes[name])
        total -= each.size * LOG_TWO_PI / 2 + float(np.sum(np.log(each)))
    return total


def _shapes(target: Target) -> dict[str, tuple[int, ...]]:
    theta: Any = jax.eval_shape(target.space.theta, np.zeros(target.dimension))
    parts = theta if isinstance(theta, dict) else {"coefficients": theta}
    return {name: tuple(part.shape) for name, part in parts.items()}


def _has_scale(table: Table) -> bool:
    return isinstance(table.units, dict) and "response_scale" in table.units


def _responses(table: Table) -> Iterator[tuple[dict[str, Floats] | None, Floats]]:
    """Responses, what is told beside them, and weights, a chunk at a time; of units of sums there are weights alone."""
    rows = table.rows
    if "sums" in rows:
        yield None, np.asarray(rows["count"], np.float64)[: table.num_rows]
        return
    inner = rows.get("rows", rows)
    for start in range(0, table.num_rows, CHUNK_ROWS):
        part = slice(start, min(start + CHUNK_ROWS, table.num_rows))
        own = {name: np.asarray(np.asarray(inner[name])[part], np.float64) for name in ("y", *BESIDE) if name in inner}
        w = np.ones(own["y"].shape) if WEIGHT not in inner else np.asarray(np.asarray(inner[WEIGHT])[part], np.float64)
        if "rows" in rows:
            w = w * rows_that_count(rows, part)
        yield {name: each.ravel() for name, each in own.items()}, w.ravel()
