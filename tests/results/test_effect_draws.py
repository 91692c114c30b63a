"""Effects of groups by draws: their law is that of an exact grid; responses of groups, and residuals by group."""

from __future__ import annotations

import numpy as np
import pytest
from small_schools import NEW, SCHOOLS, Grid, fitted, grid, rows

import tallbayes as tb

# The fit alone compiles for twenty seconds.
pytestmark = pytest.mark.slow
DRAWS = 4_000


@pytest.fixture(scope="module")
def schools() -> tb.Result:
    return fitted()


@pytest.fixture(scope="module")
def exact() -> Grid:
    return grid()


def test_effects_have_the_moments_of_an_exact_grid(schools: tb.Result, exact: Grid) -> None:
    """Means within 5 standard errors and what the grid leaves: false alarm 6e-7 each; sds likewise."""
    found = schools.draws(DRAWS, seed=1).effects("school")
    assert found.values.shape == (DRAWS, SCHOOLS, 1)
    assert found.off < 1e-4
    names = [f"s{each}" for each in range(SCHOOLS)]
    for number, name in enumerate(names):
        values = found.values[:, found.levels.index(name), 0]
        mean, sd = exact.moments(exact.theta[:, 2:] * exact.z, number)
        assert abs(values.mean() - mean) < (5 / DRAWS**0.5 + 0.01) * sd
        spread = np.std((values - mean) ** 2) / DRAWS**0.5
        assert abs(values.std() - sd) < 5 * spread / (2 * sd) + 0.01 * sd


def test_control_effects_of_no_rows_have_other_moments(schools: tb.Result, exact: Grid) -> None:
    drawn = schools.draws(DRAWS, seed=1)
    blind = drawn.flat[:, -1] * np.random.default_rng(0).standard_normal(DRAWS)
    apart = [abs(blind.mean() - exact.moments(exact.theta[:, 2:] * exact.z, each)[0]) for each in range(SCHOOLS)]
    assert max(apart) > 0.5
    assert NEW < 0


def test_an_effect_hangs_on_its_group_and_draw_alone(schools: tb.Result) -> None:
    drawn = schools.draws(40, seed=2)
    every, one = drawn.effects(), drawn.effects(levels=["s7"])
    np.testing.assert_allclose(one.values[:, 0], every.values[:, every.levels.index("s7")])
    with pytest.raises(tb.InputError, match="a group of 'school'"):
        drawn.effects(levels=["s99"])


def test_responses_know_their_groups(schools: tb.Result) -> None:
    """Rows as the fit holds them and as they are given say the same of every group."""
    table = rows()
    by_fit, by_table = schools.check("groups", draws=100), schools.check("groups", table, draws=100)
    np.testing.assert_allclose(by_fit.observed, by_table.observed, atol=1e-9)
    assert by_fit.outside <= 0.3
    mean = np.concatenate([each.mean.mean(axis=0) for each in schools.simulate(table, draws=100).batches()])
    predicted = schools.predict(table)
    np.testing.assert_allclose(mean, predicted.mean, atol=6 * float(predicted.sd.max()) / 10)


def test_arviz_is_given_effects_too(schools: tb.Result) -> None:
    pytest.importorskip("xarray", minversion="2024.10")
    posterior = schools.to_datatree(draws=50)["posterior"]
    assert posterior["effects_school"].dims == ("chain", "draw", "school", "school_effect")
    np.testing.assert_array_equal(posterior["effects_school"].to_numpy()[0], schools.draws(50).effects().values)
