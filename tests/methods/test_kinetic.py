"""Kinetic dynamics through the whole door, on the posterior of `anchored_levels`, which quadrature knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anchored_levels
import numpy as np
import pytest
from anchored_levels import MODEL, ROWS, exact, prepared
from scenarios import by_ladder

import tallbayes as tb
from tallbayes.estimation.conclusion import _shares_last_noise
from tallbayes.results.draws import again
from tallbayes.sampler.kinetic import Kinetic

METHOD = tb.Anchored(gradient=tb.Full(), dynamics=tb.Kinetic())


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return by_ladder(MODEL, ROWS, tolerance=0.1, seed=3, method=METHOD)


def test_the_answer_is_that_of_quadrature(result: tb.Result) -> None:
    """Means and sds within five of their stated errors."""
    moments, _ = exact()
    mode = prepared()[2].mode
    sd = np.sqrt(moments[2:] - moments[:2] ** 2)
    assert result.converged
    assert "Kinetic(friction=2.0, bound=2.0)" in result.method
    for name, truth in (("mean", mode + moments[:2]), ("sd", sd)):
        found = result[name]
        reach = 5 * found.flat_standard_error + found.flat_bias_bound
        assert np.all(np.abs(found.flat_value - truth) < reach)
        assert np.all(found.flat_error < 0.15 * sd)


def test_its_posterior_is_kept(result: tb.Result, tmp_path: Path) -> None:
    """Its median is where quadrature has 0.4 to 0.6, from a file too."""
    result.save(tmp_path / "kinetic.tallbayes")
    for each in (result, tb.load(tmp_path / "kinetic.tallbayes")):
        median = each.posterior.quantile(0.5)
        for place, (low, high) in enumerate(quantiles((0.4, 0.6))):
            assert low < median.flat_value[place] < high
    words = "Anchored(Taylor(batch_size=1), Kinetic(friction=1.5, bound=2.0), Antithetic(), Ladder(1.0))"
    assert again.read_parts(words)[1] == tb.Kinetic(friction=1.5)


def quantiles(chances: tuple[float, ...]) -> np.ndarray:
    """Of both parameters, on the grid of `exact`, (parameters, chances)."""
    x, y = (np.float64(np.float32(ROWS[name])) for name in ("x", "y"))
    axis = np.linspace(-8 * anchored_levels.PRIOR_SCALE, 8 * anchored_levels.PRIOR_SCALE, 601)
    theta = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    eta = theta @ x.T
    log_density = eta @ y - np.logaddexp(0, eta).sum(axis=-1)
    log_density -= 0.5 * np.sum((theta / anchored_levels.PRIOR_SCALE) ** 2, axis=-1)
    weight = np.exp(log_density - log_density.max())
    marginals = [np.cumsum(weight.sum(axis=1 - place)) for place in (0, 1)]
    return np.array([np.interp(chances, each / each[-1], axis) for each in marginals])


def test_orders_are_claimed_for_exact_gradients_alone() -> None:
    this = anchored_levels.problem(tb.Taylor(1, tb.Blocks()), dynamics=tb.Kinetic())
    assert (this.motion.weak_order, this.motion.variance_rate) == (1.0, 2.0)
    whole = this.with_choice(this.ladder, this.largest_batch)
    assert (whole.motion.weak_order, whole.motion.variance_rate) == (2.0, 4.0)
    full = anchored_levels.problem(tb.Full(), tb.Synchronous(), dynamics=tb.Kinetic())
    assert full.variance_rate == 4.0
    assert anchored_levels.problem(tb.Full(), tb.Synchronous()).variance_rate == 1.0
    assert anchored_levels.problem(tb.Full()).motion.weak_order == 1.0


def test_another_friction_is_another_configuration() -> None:
    this, other = (anchored_levels.problem(tb.Full(), dynamics=tb.Kinetic(friction=g)) for g in (2.0, 1.0))
    assert this.identity != other.identity
    assert not this.ground.content


class Unshared(Kinetic):
    """Halves in the other order: the last noise of the fine steps is in the first half of the coarse one."""

    def merge_noise(self, coefficients, first, second):  # type: ignore[no-untyped-def]
        return Kinetic.merge_noise(self, coefficients, second, first)


def test_a_posterior_is_kept_where_the_last_noise_is_shared() -> None:
    coefficients = [tb.Kinetic().coefficients(step) for step in (0.5, 0.25)]
    assert _shares_last_noise(tb.Kinetic(), *coefficients)
    assert not _shares_last_noise(Unshared(), *coefficients)
    assert not _shares_last_noise(tb.Kinetic(), coefficients[0], replace(tb.Kinetic(), friction=1.0).coefficients(0.25))
