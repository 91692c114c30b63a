"""Answers of NumPyro models whose effects are integrated out, against references on a grid.

    y ~ N(z_g, 1), z_g ~ N(m, s^2):   mean of group g ~ N(m, s^2 + 1/n_g),   z_g | m, s, y normal too

so that the posterior is an integral over m and s. Answers are within 4.5 errors of it, less than one false alarm in
100,000 for each number; the seed is fixed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpyro_groups as models
import pytest
from numpyro_models import GROUP, G, N, Y, dist, observe
from scipy.stats import norm

import tallbayes as tb

ERRORS = 4.5
# One fit of ten seconds, nearly all of it compiling; densities are held in test_numpyro_groups.
pytestmark = pytest.mark.slow


class Reference(NamedTuple):
    """Mean and sd of m and of s, and of every effect."""

    mean: np.ndarray
    sd: np.ndarray
    effects: np.ndarray
    effect_sds: np.ndarray


def reference(counts: np.ndarray, means: np.ndarray, prior: float = 2.0, centre: float | None = None) -> Reference:
    """By sums over a grid; with a `centre`, m is known to be there. Half-normal s, standard normal m."""
    s = np.linspace(1e-3, 9.0, 900)
    m = np.linspace(-4.0, 4.0, 401) if centre is None else np.array([centre])
    m, s = (each[..., None] for each in np.meshgrid(m, s, indexing="ij"))
    log = norm.logpdf(means, m, np.sqrt(s**2 + 1 / counts)).sum(-1, keepdims=True)
    log = log + norm.logpdf(s, 0, prior) + (norm.logpdf(m) if centre is None else 0.0)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    effect = (counts * means + m / s**2) / (counts + 1 / s**2)
    theta = np.array([np.sum(weight * each) for each in (m, s)])
    spread = np.array([np.sum(weight * each**2) for each in (m, s)]) - theta**2
    expected = np.sum(weight * effect, axis=(0, 1))
    variance = np.sum(weight * (effect**2 + 1 / (counts + 1 / s**2)), axis=(0, 1)) - expected**2
    return Reference(theta, np.sqrt(np.maximum(spread, 0.0)), expected, np.sqrt(variance))


def centred(group, y):
    mean, spread = models.normal(), models.scale()
    observe(models.along(dist.Normal(mean, spread))[group], y)


@pytest.fixture(scope="module")
def answer() -> tb.Result:
    model, data = tb.from_numpyro(centred, GROUP, Y)
    return tb.estimate(model, data, tolerance=0.05, seed=1)


@pytest.fixture(scope="module")
def truth() -> Reference:
    counts = np.bincount(GROUP)
    return reference(counts, np.bincount(GROUP, Y) / counts)


def within(value: object, exact: object, error: object) -> bool:
    return bool(np.all(np.abs(np.asarray(value) - exact) <= ERRORS * np.asarray(error)))


def test_parameters_are_those_of_the_marginal_posterior(answer: tb.Result, truth: Reference) -> None:
    assert answer.converged
    assert set(answer["mean"].value) == {"mean", "scale"}
    for kind, exact in (("mean", truth.mean), ("sd", truth.sd)):
        found = answer[kind]
        assert within(found.flat_value, exact, found.flat_error)
    # The control: a prior of the scale half as wide is seen.
    counts = np.bincount(GROUP)
    other = reference(counts, np.bincount(GROUP, Y) / counts, prior=1.0)
    assert not within(answer["mean"].flat_value, other.mean, answer["mean"].flat_error)


def test_effects_are_those_of_the_groups(answer: tb.Result, truth: Reference) -> None:
    effects = answer.effects("groups")
    assert effects.names == ("effect",)
    assert effects.levels == tuple(range(G))
    np.testing.assert_array_equal(effects.counts, np.bincount(GROUP))
    assert within(effects.mean[:, 0], truth.effects, effects.mean_error[:, 0])
    assert within(effects.sd[:, 0], truth.effect_sds, effects.sd_error[:, 0])
    # The control: the groups' own means, which effects are drawn away from, are not theirs.
    assert not within(effects.mean[:, 0], effects.raw, effects.mean_error[:, 0])


def test_a_result_tells_what_became_of_the_plate(answer: tb.Result) -> None:
    told = "groups: 'effect' of plate 'groups' integrated out: result.effects('groups') is of effect"
    assert answer.notes[0] == told
    further = answer.extend(tolerance=0.045)
    assert further.notes.count(told) == 1


@pytest.mark.slow
def test_latent_variables_of_rows_are_integrated() -> None:
    model, data = tb.from_numpyro(models.of_rows, Y)
    found = tb.estimate(model, data, tolerance=0.05)
    truth = reference(np.ones(N), Y, centre=0.0)
    assert found.converged
    for kind, exact in (("mean", truth.mean), ("sd", truth.sd)):
        assert within(found[kind].flat_value, exact[1], found[kind].flat_error)
    effects = found.effects("data")
    assert within(effects.mean[:, 0], truth.effects, effects.mean_error[:, 0])
    assert within(effects.sd[:, 0], truth.effect_sds, effects.sd_error[:, 0])
