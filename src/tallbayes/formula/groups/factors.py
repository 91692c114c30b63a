"""Factors of a mixed model beside the one that is integrated out: what is known of them, and their effects.

Their effects are parameters of the posterior like any other, so that mean, sd and the ends of an interval are those of
a coefficient, with its errors. Responses are those of the table: a family that standardises them has (y - m) / s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tallbayes.formula.groups.design import GroupDesign
from tallbayes.moments import Floats
from tallbayes.posterior.posterior import Posterior
from tallbayes.results.groups.effect_ends import effect_ends
from tallbayes.results.groups.effects import Effects
from tallbayes.results.parts import Factor
from tallbayes.results.result import Result
from tallbayes.rows.table import CHUNK_ROWS

PROBABILITY = 0.95
# Ends of effects that are no lines take a program for every few of them.
MOST_CURVED = 256


Spread = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, eq=False)
class Crossed:
    """A factor whose effects are parameters, with its levels, the rows of each and the sum of their responses."""

    factor: Factor
    levels: tuple[str, ...]
    counts: Floats
    raw: Floats


@dataclass(frozen=True, eq=False)
class Factors:
    """Those whose effects are parameters; of the first, whose are none, the spread of its columns; m and s of the
    response."""

    crossed: tuple[Crossed, ...]
    spread: Spread = ()
    mean: float = 0.0
    scale: float = 1.0


def crossed_factor(by: str, group: GroupDesign, response: Any, first: int) -> Crossed:
    """`first` is the place of the first of its effects among the parameters."""
    counts, sums = np.zeros(len(group.levels), np.int64), np.zeros(len(group.levels))
    for start in range(0, len(group.codes), CHUNK_ROWS):
        codes = group.codes[start : start + CHUNK_ROWS]
        counts += np.bincount(codes, minlength=len(counts))
        np.add.at(sums, codes, np.asarray(response[start : start + CHUNK_ROWS], np.float64))
    sizes = int(counts.min()), float(np.median(counts)), int(counts.max())
    factor = Factor(by, group.names, len(counts), int(counts.sum()), *sizes, first=first, spread=spread_of(group))
    with np.errstate(invalid="ignore"):
        raw = sums / counts
    return Crossed(factor, tuple(group.levels.names), counts.astype(np.float64), raw)


def spread_of(group: GroupDesign) -> Spread:
    """The mean over rows of z z^T in the units of the table, where effects are A b: A^-T (mean of z z^T) A^-1."""
    count, back = len(group.z), np.linalg.inv(group.to_own)
    total = np.zeros(back.shape)
    for start in range(0, count, CHUNK_ROWS):
        z = np.asarray(group.z[start : start + CHUNK_ROWS], np.float64)
        total += z.T @ z
    return tuple(tuple(float(each) for each in row) for row in back.T @ (total / count) @ back)


def with_factors(factors: Factors, result: Result) -> Result:
    """The result with all of its factors, and so every extension of it."""
    every = tuple(each.factor for each in factors.crossed)
    source = None
    if result.effect_source is not None:
        source = replace(result.effect_source, find=partial(_find, factors, result), found=None)
    further = None if result.continuation is None else partial(_continue, factors, result.continuation)
    modes = tuple(
        each if each.result is None else replace(each, result=with_factors(factors, each.result))
        for each in result.modes
    )
    count = len(result.factors)
    notes = (*result.notes[:count], *(each.note for each in every), *result.notes[count:])
    own = tuple(replace(each, spread=factors.spread) for each in result.factors)
    known: dict[str, Any] = {
        "factors": (*own, *every),
        "effect_source": source,
        "modes": modes,
        "continuation": further,
    }
    return replace(result, notes=notes, **known)


def _continue(factors: Factors, continuation: Callable[..., Result], **changes: Any) -> Result:
    return with_factors(factors, continuation(**changes))


def _find(factors: Factors, result: Result) -> tuple[Effects, ...]:
    assert result.effect_source is not None
    found = [*result.effect_source(), *_crossed_effects(factors.crossed, result)]
    return tuple(replace(each, raw=factors.mean + factors.scale * each.raw) for each in found)


def _crossed_effects(crossed: Sequence[Crossed], result: Result) -> list[Effects]:
    """Where means and sds of parameters were asked for."""
    if not crossed or result.posterior is None or not {"mean", "sd"} <= set(result.estimates):
        return []
    return [_effects_of(each, result, result.posterior) for each in crossed]


def _effects_of(crossed: Crossed, result: Result, posterior: Posterior) -> Effects:
    factor = crossed.factor
    assert factor.first is not None
    places, shape = range(factor.first, factor.first + factor.count), (factor.groups, len(factor.names))
    mean, sd = (result.estimates[name].part(slice(places.start, places.stop), name) for name in ("mean", "sd"))
    lower, upper, error = _ends(posterior, places, mean.flat_value, sd.flat_value)
    numbers = {
        "mean": mean.flat_value,
        "mean_error": mean.flat_error,
        "sd": sd.flat_value,
        "sd_error": sd.flat_error,
        "lower": lower,
        "upper": upper,
        "end_error": error,
        "within": np.full(len(places), np.nan),
    }
    arrays: dict[str, Any] = {name: np.asarray(each, np.float64).reshape(shape) for name, each in numbers.items()}
    own: dict[str, Any] = {"counts": crossed.counts, "raw": crossed.raw, "probability": PROBABILITY}
    return Effects(factor.by, crossed.levels, factor.names, **arrays, **own)


def _ends(posterior: Posterior, places: range, mean: Floats, sd: Floats) -> tuple[Floats, Floats, Floats]:
    """Quantiles of the posterior, with the larger error of the two; where there are too many that are neither lines nor
    effects in stretched coordinates, those of a normal law, of whose errors nothing is known."""
    tails = np.array([(1 - PROBABILITY) / 2, (1 + PROBABILITY) / 2])
    reading = posterior.reading
    if reading is not None:
        lines = [reading.line(place) for place in places]
        if all(line is not None for line in lines):
            found = [posterior.line_quantiles(line, tails) for line in lines if line is not None]
            values, errors = (
                np.array([getattr(each, name) for each in found]).T for name in ("flat_value", "flat_error")
            )
            return values[0], values[1], errors.max(axis=0)
    ends = effect_ends(posterior, places, tails, mean, sd)
    if ends is not None:
        return ends.value[0], ends.value[1], ends.error.max(axis=0)
    if len(places) <= MOST_CURVED:
        both = posterior.quantile(tails.tolist(), first=places)
        values, errors = both.flat_value.reshape(2, -1), both.flat_error.reshape(2, -1)
        return values[0], values[1], errors.max(axis=0)
    from scipy.stats import norm

    reach = float(norm.ppf(tails[1])) * sd
    return mean - reach, mean + reach, np.full(len(places), np.nan)
