"""Ends of intervals of effects that are parameters, against draws of laws that are known exactly."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tallbayes.anchor.anchor import Anchor
from tallbayes.model.constraints import half_normal
from tallbayes.posterior.coordinates import STRETCHED, Part, Reading
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.telescoping import Rungs
from tallbayes.results.groups.effect_ends import effect_ends
from tallbayes.structure import Structure
from tallbayes.weighing.weights import Weights

LEVELS, TAILS, DRAWS = 6, np.array([0.025, 0.975]), 300_000
# Of the true ends, in sds: sqrt(p (1 - p) / draws) / density.
OWN_ERROR = np.sqrt(0.025 * 0.975 / DRAWS) / 0.05845


def reading(size: int) -> Reading:
    """theta of (correlations, effects, noise, scales), as a mixed model has it; it is reported as it is."""
    pairs = size * (size - 1) // 2
    effects = LEVELS * size
    known = np.stack([k * (np.eye(size) + 0.3) for k in np.linspace(0.5, 9.0, LEVELS)]).ravel()
    places = float(pairs + effects + 1), 0.0 if pairs else -1.0, float(pairs + effects)
    parts = [Part("correlation", (), (pairs,))] if pairs else []
    parts += [Part(STRETCHED, (*places, *known), (LEVELS, size)), Part("positive", (), ())]
    parts += [Part("half_normal", (1.0,), (size,))]
    return Reading(Structure.leaf((pairs + effects + 1 + size,)), tuple(parts))


def anchor_of(dimension: int) -> Anchor:
    rng = np.random.default_rng(2)
    root = np.eye(dimension) + 0.25 * rng.standard_normal((dimension, dimension)) / np.sqrt(dimension)
    precision = 9.0 * root @ root.T
    nothing = np.zeros(dimension)
    mode = np.linspace(0.3, 0.9, dimension)
    return Anchor(mode, nothing, None, precision, 0.0, 1.0, 100, nothing)


def effects_at(size: int, u: np.ndarray) -> np.ndarray:
    """b of all levels (draws, numbers), written down once more."""
    pairs, known = size * (size - 1) // 2, reading(size).parts[-3].numbers[3:]
    v = u[:, pairs : pairs + LEVELS * size].reshape(-1, LEVELS, size)
    noise, scales = np.exp(u[:, -1 - size]), half_normal(1.0).curve(u[:, -size:])[0]
    root = np.zeros((len(u), size, size))
    root[:, 0, 0] = 1.0
    if pairs:
        line = reading(size).line(0)
        assert line is not None
        r = line.at(u[:, 0])
        root[:, 1, 0], root[:, 1, 1] = r, np.sqrt(1 - r**2)
    root = scales[:, :, None] * root
    information = np.reshape(known, (LEVELS, size, size)) / noise[:, None, None, None] ** 2
    inner = np.eye(size) + np.swapaxes(root, 1, 2)[:, None] @ information @ root[:, None]
    standard = np.linalg.solve(np.swapaxes(np.linalg.cholesky(inner), -1, -2), v[..., None])
    return (root[:, None] @ standard)[..., 0].reshape(len(u), -1)


def shift(dimension: int) -> np.ndarray:
    return np.r_[0.3, np.zeros(dimension - 2), -0.4]


@cache
def truth(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ends, means and sds of effects over N(mode + W delta, H^-1)."""
    dimension = reading(size).dimension
    anchor, rng = anchor_of(dimension), np.random.default_rng(1)
    z = shift(dimension) + rng.standard_normal((DRAWS, dimension))
    found = effects_at(size, anchor.mode + anchor.displacements(z))
    return np.quantile(found, TAILS, axis=0), found.mean(axis=0), found.std(axis=0)


def posterior_of(size: int, kind: str, seed: int, count: int = 600) -> Posterior:
    """A posterior N(mode + W delta, H^-1), by weighted draws or by paths."""
    own = reading(size)
    anchor, rng = anchor_of(own.dimension), np.random.default_rng([seed, 5])
    d, delta = own.dimension, shift(own.dimension)
    common: dict[str, Any] = {"anchor": anchor, "whitened": True, "laplace": True, "seed": seed, "stored": own}
    z = rng.standard_normal((count, d))
    if kind == "weights":
        ratio = np.exp(z @ delta - delta @ delta / 2)
        weights = Weights(ratio / ratio.mean(), np.ones(count))
        points, rungs = anchor.displacements(z)[:, None, None, :], Rungs(0.0, 2.0, np.array([100.0]))
        return Posterior(points=(points,), spreads=(0.0,), rungs=rungs, weighted=weights, **common)
    spread = 0.6
    quiet = np.sqrt(1 - spread**2) * z
    points = anchor.displacements(np.stack([quiet + delta, quiet], axis=1))[:, None]
    rungs = Rungs(0.0, 2.0, np.array([100.0]))
    return Posterior(points=(points,), spreads=(spread,), rungs=rungs, **common)


@pytest.mark.parametrize("kind", ["weights", "paths"])
@pytest.mark.parametrize("size", [1, 2])
def test_ends_are_those_of_draws_within_their_errors(size: int, kind: str) -> None:
    """Over 12 seeds: the true ends within twice the errors in at least 90% (errors are rms errors, of which two hold
    95%; ends of one seed go together), and the rms distance within the rms error."""
    places = range(size * (size - 1) // 2, size * (size - 1) // 2 + LEVELS * size)
    wanted, mean, sd = truth(size)
    apart, errors = [], []
    for seed in range(12):
        found = effect_ends(posterior_of(size, kind, seed), places, TAILS, mean, sd)
        assert found is not None
        apart.append((found.value - wanted) / sd)
        errors.append(found.error / sd)
    distance, error = np.abs(apart), np.hypot(errors, OWN_ERROR)
    assert np.sqrt(np.mean(distance**2)) < np.sqrt(np.mean(error**2))
    assert np.mean(distance < 2 * error) > 0.9
    assert np.median(error) < 0.1
    # The control: without what the draws say ends are off by more than that.
    posterior = posterior_of(size, kind, 0)
    blind = replace(posterior, points=(0 * posterior.points[0],))
    off = effect_ends(blind, places, TAILS, mean, sd)
    assert off is not None
    assert np.max(np.abs(off.value - wanted) / sd) > 3 * np.median(error)


def test_other_numbers_have_none() -> None:
    posterior = posterior_of(1, "weights", 0)
    assert effect_ends(posterior, range(LEVELS, LEVELS + 2), TAILS, np.zeros(2), np.ones(2)) is None
