"""Draws: marginals are those of the posterior, draws are independent, and what is off is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scenarios import by_ladder, logistic_rows
from scipy.stats import kstest, norm

import tallbayes as tb
from tallbayes.results.draws import again, rejection
from tallbayes.results.draws.ends import draw_ends

DRAWS = 2_000
# sup |F_n - F| sqrt(n) beyond 2.7 has a chance of 2 exp(-2 2.7^2) = 9e-7.
FARTHEST = 2.7


@pytest.fixture(scope="module")
def skewed() -> tb.Result:
    """Six events in 40 rows, and a constant alone: one number, whose density is known."""
    rows = {"x": np.ones((40, 1)), "y": (np.arange(40) < 6).astype(float)}
    return tb.estimate(tb.families.logistic(), rows, tolerance=0.05)


@pytest.fixture(scope="module")
def laddered() -> tb.Result:
    return by_ladder(tb.families.logistic(), logistic_rows(200, (0.8, -0.2)), tolerance=0.1)


def exact_cdf(x: np.ndarray) -> np.ndarray:
    """Of that number, on a grid."""
    grid = np.linspace(-6, 3, 20_001)
    log_density = 6 * grid - 40 * np.logaddexp(0, grid) - grid**2 / 2
    total = np.cumsum(np.exp(log_density - log_density.max()))
    return np.interp(x, grid, total / total[-1])


def distance(values: np.ndarray, cdf: Any) -> float:
    return float(kstest(values, cdf).statistic * len(values) ** 0.5)


def test_draws_of_a_small_table_are_of_the_posterior_itself(skewed: tb.Result) -> None:
    drawn = skewed.draws(DRAWS, seed=1)
    assert distance(drawn.flat[:, 0], exact_cdf) < FARTHEST
    assert 0 < drawn.bias < 1e-3
    assert len(np.unique(drawn.flat)) == DRAWS


def test_control_those_of_the_gaussian_alone_are_not(skewed: tb.Result) -> None:
    anchor = skewed.anchor
    values = anchor.mode[0] + anchor.sd[0] * np.random.default_rng(1).standard_normal(50 * DRAWS)
    assert distance(values, exact_cdf) > FARTHEST


def test_ends_of_paths_have_the_moments_of_the_answer(laddered: tb.Result) -> None:
    """Means and sds within 5 standard errors, for a kurtosis of 5, and the bias that is told: false alarm 1e-6."""
    drawn = laddered.draws(DRAWS, seed=1)
    mean, sd = laddered["mean"], laddered["sd"]
    apart = np.abs(drawn.flat.mean(axis=0) - mean.flat_value)
    assert np.all(apart < 5 * sd.flat_value / DRAWS**0.5 + drawn.bias * sd.flat_value + mean.flat_error)
    wide = np.abs(drawn.flat.std(axis=0) - sd.flat_value)
    assert np.all(wide < 5 * sd.flat_value / DRAWS**0.5 + drawn.bias * sd.flat_value + sd.flat_error)
    finest = len(laddered.levels) - 1
    assert drawn.rows_per_draw == laddered.path_source().ladder.steps(finest) * laddered.path_source().rows_per_gradient
    assert f"level {finest}" in repr(drawn)
    assert drawn.bias >= np.max(mean.flat_bias_bound / sd.flat_value)


def test_ends_without_their_last_noise_are_too_narrow(laddered: tb.Result) -> None:
    """The control of the noise: the last step's is most of a sd."""
    posterior = replace(laddered.posterior, spreads=(0.0,) * len(laddered.levels))
    quiet, _ = draw_ends(posterior, laddered.path_source(), DRAWS, 1)
    whole, _ = draw_ends(laddered.posterior, laddered.path_source(), DRAWS, 1)
    assert np.all(quiet.std(axis=0) < 0.95 * whole.std(axis=0))


def test_draws_hang_on_their_seed_alone(laddered: tb.Result, skewed: tb.Result) -> None:
    for result in (laddered, skewed):
        np.testing.assert_array_equal(result.draws(100, seed=3).flat, result.draws(100, seed=3).flat)
        assert not np.any(result.draws(100, seed=3).flat == result.draws(100, seed=4).flat)
    np.testing.assert_array_equal(laddered.draws(40, seed=3).moves[:7], laddered.draws(7, seed=3).moves)


def test_they_have_the_structure_of_the_answer(laddered: tb.Result) -> None:
    drawn = laddered.draws(50)
    assert np.shape(drawn.value) == (50, *np.shape(laddered["mean"].value))
    np.testing.assert_array_equal(drawn[drawn.labels[1]], drawn.flat[:, 1])
    with pytest.raises(tb.InputError, match="the name of a parameter"):
        drawn["x"]


def test_without_rows_there_are_those_that_the_run_kept(laddered: tb.Result, skewed: tb.Result, tmp_path: Path) -> None:
    for result in (laddered, skewed):
        result.save(tmp_path / "result.tallbayes")
        loaded = tb.load(tmp_path / "result.tallbayes")
        assert loaded.draws(32).flat.shape == (32, result.anchor.mode.size)
        with pytest.raises(tb.InputError, match="independent ones"):
            loaded.draws(100_000)


@pytest.mark.parametrize("count", [0, 2.5, True])
def test_only_whole_numbers_can_be_drawn(skewed: tb.Result, count: Any) -> None:
    with pytest.raises(tb.InputError, match="count a whole number"):
        skewed.draws(count)


def test_levels_are_read_again_from_the_words_of_a_method(laddered: tb.Result) -> None:
    """And then have the same paths, bit by bit."""
    made = again.levels_again(laddered)
    there = laddered.path_source()
    assert made.ladder == there.ladder
    assert made.batch_size == there.batch_size
    one, other = (draw_ends(laddered.posterior, each, 64, 5)[0] for each in (made, there))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match="malformed"):
        again.read_parts("Anchored(__import__('os'), Exponential(), Antithetic(), Ladder(1.0))")


def test_a_gradient_of_all_rows_is_read_again(laddered: tb.Result) -> None:
    """Its batch size is told, and is none that could be given."""
    _, dynamics, coupling, ladder = again.read_parts(laddered.method)
    words = f"Anchored({tb.Full()!r}, {dynamics!r}, {coupling!r}, {ladder!r})"
    assert again.read_parts(words)[0] == tb.Full()
    made = again.levels_again(replace(laddered, method=words))
    assert made is not None
    assert made.batch_size == 0
    assert np.all(np.isfinite(made.sample(0, 0).fine.mean))
    with pytest.raises(ValueError, match="batch_size=8"):
        again.read_parts(words.replace("batch_size=None", "batch_size=8"))


# Weights whose largest is far beyond the others.


def pools(scale: float) -> Iterator[rejection.Pool]:
    """N(0, scale) by proposals N(0, 1): where it is wider, weights have no bound."""
    rng = np.random.default_rng(2)
    for _ in range(2):
        z = rng.standard_normal((40_000, 1))
        log_weight = norm.logpdf(z[:, 0], scale=scale) - norm.logpdf(z[:, 0])
        yield rejection.Pool(z, log_weight, rng.random(len(z)))


def test_weights_that_exceed_the_bound_are_made_up_for() -> None:
    one, other = pools(1.3)
    pool = one.joined(other)
    chosen = pool.taken()
    assert chosen.bound < 0.9 * np.exp(pool.log_weight).max() / np.exp(pool.log_weight).mean()
    values = pool.z[chosen.first(len(chosen.places), np.random.default_rng(1)), 0]
    assert distance(values[:DRAWS], norm(scale=1.3).cdf) < FARTHEST
    assert chosen.off < 1e-3


def test_chains_of_arviz_are_those_of_independent_draws(laddered: tb.Result) -> None:
    """ESS of n independent draws is n but for its own error, which is a few percent of 2,000."""
    arviz = pytest.importorskip("arviz")
    if not hasattr(arviz, "rhat"):
        pytest.skip("an ArviZ without rhat at its top")
    cut = {"theta": laddered.draws(DRAWS, seed=1).flat.reshape(4, -1, 2)}
    assert float(arviz.rhat(cut)["theta"].max()) < 1.01
    assert float(arviz.ess(cut)["theta"].min()) > 0.8 * DRAWS


def test_of_a_posterior_that_was_not_kept_there_are_none(laddered: tb.Result) -> None:
    with pytest.raises(tb.InputError, match="keeps where its paths ended"):
        replace(laddered, posterior=None).draws()


def test_groups_that_are_not_there_have_no_effects(laddered: tb.Result) -> None:
    with pytest.raises(tb.InputError, match="a result without groups"):
        laddered.draws(4).effects()


def test_a_file_has_a_row_a_draw(laddered: tb.Result, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    drawn = laddered.draws(20)
    assert drawn.write(tmp_path / "draws.parquet") == 20
    table = parquet.read_table(tmp_path / "draws.parquet")
    assert table.column_names == drawn.labels
    np.testing.assert_array_equal(table.column(0).to_numpy(), drawn.flat[:, 0])
    with pytest.raises(tb.InputError, match="a path ending in"):
        drawn.write(tmp_path / "draws.txt")


def test_where_nothing_is_known_of_the_method_kept_ends_do(laddered: tb.Result) -> None:
    odd = replace(laddered, path_source=None, method="Owners(parts)")
    assert again.levels_again(odd) is None
    assert len(odd.draws(16)) == 16
    assert SimpleNamespace(draws=odd.draws(16)).draws.rows_per_draw == 0
