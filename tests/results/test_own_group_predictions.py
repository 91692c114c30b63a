"""Predictions by groups whose posterior is known in closed form, and of factors whose effects are parameters."""

from __future__ import annotations

import numpy as np
import pytest
from clubs import SCALE, closed_form, gaussian_rows

import tallbayes as tb
from tallbayes.errors import InputError

FAR = 5.0


@pytest.fixture(scope="module")
def own() -> tb.Result:
    """y ~ N(b, 0.5^2), b ~ N(m, 0.2^2), m ~ N(0, 1)."""
    model = tb.Model(
        log_prior=lambda theta: -0.5 * theta**2,
        log_likelihood=lambda theta, b, row: -0.5 * ((row["y"] - b) / 0.5) ** 2,
        initial=0.0,
        groups=tb.Groups("club", 0.0, lambda theta, b: -0.5 * ((b - theta) / SCALE) ** 2),
        predict=lambda theta, b, row: {"twice": 2 * b, "moved": b + row["x"]},
    )
    return tb.estimate(model, gaussian_rows(), tolerance=0.05)


def test_a_model_of_ones_own_is_predicted_as_its_closed_form_says(own: tb.Result) -> None:
    """A new club's effect is a fifth as wide as nodes for N(0, 1) would have it."""
    mean, covariance = closed_form()
    found = own.predict({"club": np.array([20, 999, 0]), "x": np.array([0.0, 1.0, 2.0])})
    assert found.mean.shape == (3, 2)
    # Of a dict, "moved" comes first.
    exact = np.array([mean[3], mean[0] + 1.0, mean[1] + 2.0])
    sd = np.sqrt([covariance[3, 3], covariance[0, 0] + SCALE**2, covariance[1, 1]])
    assert np.all(np.abs(found.mean[:, 0] - exact) < FAR * found.error[:, 0] + 1e-6)
    assert np.all(np.abs(found.sd[:, 0] - sd) < FAR * found.sd_error[:, 0] + 1e-6)
    np.testing.assert_allclose(found.sd[:, 1], 2 * found.sd[:, 0], rtol=1e-6)
    assert np.all(found.error[:, 0] < 0.05 * sd)


def test_clubs_are_compared_by_name(own: tb.Result) -> None:
    mean, covariance = closed_form()
    found = own.compare("club", 20, 0)
    sd = np.sqrt(covariance[3, 3] + covariance[1, 1] - 2 * covariance[1, 3])
    assert abs(found.mean.value - (mean[3] - mean[1])) < FAR * found.mean.error + 1e-6
    assert abs(found.sd.value - sd) < FAR * found.sd.error + 1e-6
    assert abs(found.upper.value - (mean[3] - mean[1] + 1.96 * sd)) < FAR * found.upper.error + 1e-3


def test_rows_of_ones_own_name_their_group(own: tb.Result) -> None:
    with pytest.raises(InputError, match="the column 'club'"):
        own.predict({"x": np.zeros(2)})
    with pytest.raises(InputError, match="numbers, as before"):
        own.predict({"club": np.array(["twenty"]), "x": np.zeros(1)})


@pytest.fixture(scope="module")
def crossed() -> tb.Result:
    """Noise is known; a minute or two."""
    rng = np.random.default_rng(8)
    school, year = rng.integers(0, 12, 400), rng.integers(0, 8, 400)
    x = rng.normal(3.0, 2.0, size=400)
    y = 5 + 2 * x + 3 * rng.normal(size=12)[school] + 2 * rng.normal(size=8)[year] + rng.normal(size=400)
    table = {"x": x, "y": y, "school": [f"s{each}" for each in school], "year": year + 2000}
    options = {"noise_scale": 1.0}
    return tb.fit("y ~ x + (1 | year) + (1 | school)", table, "linear", tolerance=0.2, family_options=options)


@pytest.mark.slow
def test_a_line_is_predicted_as_the_sum_of_its_parts(crossed: tb.Result) -> None:
    """Expectations add up: fixed effects, the school's, which was integrated out, and the year's, a parameter."""
    mean, schools = crossed["mean"].value, crossed.effects("school")
    found = crossed.predict({"x": [1.0, 1.0, 1.0], "school": ["s4", "s4", "none"], "year": [2002, 1999, 2002]})
    base = mean["Intercept"] + mean["x"]
    own, year = schools.mean[schools.place("s4"), 0], mean["Intercept|year[2002]"]
    parts = np.array([base + own + year, base + own, base + year])
    allowed = found.error + crossed["mean"].flat_error.sum() + schools.mean_error.max()
    assert np.all(np.abs(found.mean - parts) < FAR * allowed)
    assert abs(own) > FAR * allowed.max()
    assert abs(year) > FAR * allowed.max()
    assert found.sd[1] > 1.5 * found.sd[0]
    assert found.sd[2] > 1.5 * found.sd[0]


@pytest.mark.slow
def test_a_new_observation_has_an_sd_and_says_that_it_has_no_interval(crossed: tb.Result) -> None:
    found = crossed.predict({"x": [1.0], "school": ["s4"], "year": [2002]})
    assert found.observation_sd is not None
    np.testing.assert_allclose(found.observation_sd, np.sqrt(found.sd**2 + 1.0), rtol=1e-6)
    assert found.observation_interval is None
    assert any("no interval" in each for each in found.remarks)
    assert not crossed.predict({"x": [1.0], "school": ["s4"], "year": [2002]}, interval=None).remarks


@pytest.mark.slow
def test_an_average_effect_reads_the_effects_of_both_factors(crossed: tb.Result) -> None:
    """A ratio of mean responses over the rows of one year, which hangs on its effect and on the schools'; the control
    leaves out the former. Rows of a year that was not fitted are refused."""
    mean, schools = crossed["mean"].value, crossed.effects("school")
    rows = {"x": np.zeros(12), "school": [f"s{each}" for each in range(12)], "year": np.full(12, 2002)}
    without = mean["Intercept"] + 3 * mean["x"] + schools.mean[:, 0].mean()
    low = without + mean["Intercept|year[2002]"]
    found = crossed.average_effect("x", 4.0, 3.0, ratio=True, rows=rows)
    allowed = FAR * found.mean.error + 0.02 * found.sd.value + 0.02 * abs(mean["x"] / low)
    assert abs(found.mean.value - (1 + mean["x"] / low)) < allowed
    assert abs(found.mean.value - (1 + mean["x"] / without)) > allowed
    plain = crossed.average_effect("x", 3.0, 1.0, groups="new")
    assert abs(plain.mean.value - 2 * mean["x"]) < FAR * (plain.mean.error + 2 * crossed["mean"].flat_error[1])
    with pytest.raises(InputError, match="rows of groups of 'year' that were fitted"):
        crossed.average_effect("x", 1.0, 0.0, rows={**rows, "year": np.full(12, 1999)})


@pytest.mark.slow
def test_levels_of_a_factor_that_is_no_integral_are_compared_as_parameters(crossed: tb.Result) -> None:
    found, mean = crossed.compare("year", 2002, 2000), crossed["mean"].value
    gap = mean["Intercept|year[2002]"] - mean["Intercept|year[2000]"]
    assert abs(found.mean.value - gap) < FAR * (found.mean.error + crossed["mean"].flat_error.max())
    by_row = crossed.compare({"x": 1.0, "school": "s4", "year": 2002}, {"x": 1.0, "school": "s4", "year": 2000})
    assert abs(found.mean.value - by_row.mean.value) < FAR * (found.mean.error + by_row.mean.error)
    assert abs(by_row.sd.value - found.sd.value) < FAR * (found.sd.error + by_row.sd.error)
