"""The posterior as a signed ensemble: what is read off it afterwards is what would have been estimated.

A logistic posterior of two coefficients, far from Gaussian, is known by quadrature on a grid. One run, one seed: every
number is held to five of its own errors (standard error and remaining bias), a false alarm in 10^5 or so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from scenarios import by_ladder, gaussian_posterior, gaussian_rows

import tallbayes as tb
from tallbayes.posterior.posterior import Posterior

SCALE = 3.0


class Grid(NamedTuple):
    """Points (cells, 2) and their posterior probabilities."""

    theta: np.ndarray
    weight: np.ndarray

    def mean(self, values: np.ndarray) -> float:
        return float(self.weight @ values)

    def quantile(self, values: np.ndarray, p: float) -> float:
        order = np.argsort(values, kind="stable")
        return float(np.interp(p, np.cumsum(self.weight[order]) - self.weight[order] / 2, values[order]))


def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    return {"x": x, "y": (rng.random(60) < 1 / (1 + np.exp(-(x @ [1.0, -2.0])))).astype(float)}


@pytest.fixture(scope="module")
def grid() -> Grid:
    data = rows()
    first, second = np.meshgrid(np.linspace(-2.5, 6, 500), np.linspace(-8, 2.5, 500), indexing="ij")
    theta = np.stack([first.ravel(), second.ravel()], axis=1)
    eta = theta @ data["x"].T
    log_density = eta @ data["y"] - np.logaddexp(0, eta).sum(axis=1) - 0.5 * np.sum((theta / SCALE) ** 2, axis=1)
    weight = np.exp(log_density - log_density.max())
    return Grid(theta, weight / weight.sum())


@pytest.fixture(scope="module", params=[0, 4], ids=["ends of paths", "stops within a window"])
def result(request: pytest.FixtureRequest) -> tb.Result:
    # About the mode, which is farther off: the controls below tell Laplace's Gaussian from the posterior.
    method = tb.Anchored(window=request.param, anchor="mode")
    return tb.estimate(tb.families.logistic(SCALE), rows(), tolerance=0.03, method=method)


@pytest.fixture(scope="module")
def posterior(result: tb.Result) -> Posterior:
    assert isinstance(result.posterior, Posterior)
    return result.posterior


def errors_off(estimate: tb.Estimate, truth: np.ndarray | float) -> np.ndarray:
    return np.abs(estimate.flat_value - np.ravel(truth)) / estimate.flat_error


def test_expectations_of_any_function(posterior: Posterior, grid: Grid) -> None:
    found = posterior.expectation(lambda theta: {"odds": jnp.exp(theta[0]), "product": theta[0] * theta[1]})
    exact = [grid.mean(np.exp(grid.theta[:, 0])), grid.mean(grid.theta[:, 0] * grid.theta[:, 1])]
    assert set(found.value) == {"odds", "product"}
    assert np.all(errors_off(found, exact) < 5)
    assert np.all(found.flat_standard_error < 0.05 * np.abs(exact))


def test_quantiles_of_parameters(posterior: Posterior, grid: Grid) -> None:
    found = posterior.quantile([0.025, 0.5, 0.975])
    exact = [grid.quantile(grid.theta[:, j], p) for p in (0.025, 0.5, 0.975) for j in range(2)]
    assert np.all(errors_off(found, exact) < 5)
    sd = posterior.anchor.sd
    assert np.all(found.flat_standard_error < 0.1 * np.tile(sd, 3))
    # Laplace's own ends are far outside: the test would notice if the paths added nothing.
    laplace = posterior.anchor.mode + 1.96 * sd
    assert np.any(errors_off(posterior.quantile(0.975), laplace) > 5)


def test_an_interval_is_its_two_quantiles(posterior: Posterior) -> None:
    lower, upper = posterior.interval(0.9)
    assert np.all(lower.value < upper.value)
    np.testing.assert_allclose(upper.value, posterior.quantile(0.95).value, rtol=1e-12)


@pytest.mark.parametrize("p", [0.025, 0.975])
def test_quantiles_of_what_is_no_line(posterior: Posterior, grid: Grid, p: float) -> None:
    found = posterior.quantile(p, lambda theta: theta[0] * theta[1])
    exact = grid.quantile(grid.theta[:, 0] * grid.theta[:, 1], p)
    assert errors_off(found, exact) < 5


def test_a_line_is_one_however_it_is_written(posterior: Posterior) -> None:
    by_name = posterior.quantile(0.9, {"[0]": 1.0, "[1]": -2.0})
    as_function = posterior.quantile(0.9, lambda theta: theta[0] - 2 * theta[1])
    np.testing.assert_allclose(by_name.value, as_function.value, rtol=1e-8)
    np.testing.assert_allclose(by_name.standard_error, as_function.standard_error, rtol=1e-6)


def test_probabilities_of_lines_and_of_events(posterior: Posterior, grid: Grid) -> None:
    exact = grid.mean(grid.theta[:, 0] + grid.theta[:, 1] > -0.7)
    line = posterior.probability({"[0]": 1.0, "[1]": 1.0}, above=-0.7)
    event = posterior.probability(lambda theta: theta[0] + theta[1] > -0.7)
    # The grid's own step is 2e-4 of the probability.
    assert abs(line.value - exact) < 5 * line.flat_error[0] + 2e-3
    assert abs(event.value - exact) < 5 * event.flat_error[0] + 2e-3
    assert line.standard_error <= event.standard_error
    other = posterior.probability({"[0]": 1.0, "[1]": 1.0}, below=-0.7)
    assert line.value + other.value == pytest.approx(1.0, abs=1e-12)
    between = posterior.probability("[0]", above=1.0, below=2.0)
    inside = grid.mean((grid.theta[:, 0] > 1) & (grid.theta[:, 0] < 2))
    assert abs(between.value - inside) < 5 * between.flat_error[0] + 5e-3


def test_a_density_integrates_to_one_and_is_the_grids(posterior: Posterior, grid: Grid) -> None:
    at = np.linspace(-1.5, 5, 200)
    found = posterior.density(at, "[0]")
    assert np.trapezoid(found.value, at) == pytest.approx(1.0, abs=0.01)
    by_cell = grid.weight.reshape(500, 500).sum(axis=1) / (8.5 / 499)
    exact = np.interp(at, np.linspace(-2.5, 6, 500), by_cell)
    assert np.all(np.abs(found.value - exact) < 5 * found.flat_error + 1e-3)


def test_indicators_say_that_they_decay_more_slowly(posterior: Posterior) -> None:
    smooth = posterior.expectation(lambda theta: theta)
    ends = posterior.quantile([0.025, 0.975])
    event = posterior.probability(lambda theta: theta[0] > 1.4)
    assert smooth.beta > ends.beta
    assert smooth.beta > event.beta
    assert ends.price(0.01)[0][0] > smooth.price(0.01)[0] > 0


@pytest.mark.slow
def test_quiet_ends_are_one_step_from_the_law() -> None:
    """Of a Gaussian posterior the path u is N(0, I) and one step before its last noise has variance e^(-2h).

    224 paths or more of two coefficients: five standard errors of a variance, 1e-6. With the ends themselves, whose
    variance is 1, the test is red.
    """
    data = gaussian_rows(200, 2, 0.7, seed=3)
    mean, precision = gaussian_posterior(data, 0.7, 1.0)
    posterior = by_ladder(tb.families.linear(0.7), data, tolerance=0.05).posterior
    z = np.linalg.solve(posterior.anchor.whitening, posterior.points[0][:, 0, 1].astype(float).T)
    variance, left = z.var(), 1 - posterior.spreads[0] ** 2
    room = 5 * np.sqrt(2 / z.size)
    assert abs(variance / left - 1) < room
    assert abs((variance + posterior.spreads[0] ** 2) - 1) < room
    assert abs(1 / left - 1) > room
    found = posterior.quantile([0.025, 0.975])
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    exact = np.concatenate([mean - 1.959964 * sd, mean + 1.959964 * sd])
    np.testing.assert_allclose(found.flat_value, exact, atol=1e-4 * sd.max())


def test_stops_of_one_path_are_no_further_paths(posterior: Posterior) -> None:
    """Every stop four times over says nothing new: were stops counted as paths, errors would be half as large."""
    # A probe takes stops for places far apart.
    posterior = replace(posterior, probe=None)
    again = replace(posterior, points=tuple(np.repeat(each, 4, axis=1) for each in posterior.points))
    for ask in (
        lambda p: p.quantile([0.025, 0.975]),
        lambda p: p.probability("[0]", above=1.0),
        lambda p: p.density(np.array([1.0]), "[0]"),
        lambda p: p.line_moments(p.reading.combination(np.array([1.0, -1.0])))[0],
    ):
        first, second = ask(posterior), ask(again)
        np.testing.assert_allclose(second.flat_value, first.flat_value, rtol=1e-6)
        np.testing.assert_allclose(second.flat_standard_error, first.flat_standard_error, rtol=1e-6)
    # These draw noise anew at every stop, which may make them a little more accurate, and never twice.
    for ask in (
        lambda p: p.expectation(lambda theta: theta[0] * theta[1]),
        lambda p: p.quantile(0.9, lambda theta: theta[0] * theta[1]),
    ):
        assert np.all(ask(again).flat_standard_error > 0.75 * ask(posterior).flat_standard_error)


@dataclass(frozen=True)
class OwnMerging(tb.Exponential):
    """Merged noise that is standard, but does not hand on the second noise as it is."""

    def merge_noise(self, coefficients, first, second):
        return (first + second) * first.dtype.type(np.sqrt(0.5))


@pytest.mark.slow
def test_noise_that_is_not_shared_is_not_integrated_out() -> None:
    data = gaussian_rows(200, 2, 0.7, seed=3)
    method = tb.Anchored(dynamics=OwnMerging())
    assert by_ladder(tb.families.linear(0.7), data, tolerance=0.5, method=method).posterior is None


@pytest.mark.slow
def test_paths_without_a_gaussian_stand_for_themselves() -> None:
    """The paper's ladder on a Gaussian posterior, whose quantiles are known."""
    data = gaussian_rows(200, 2, 0.7, seed=3)
    mean, precision = gaussian_posterior(data, 0.7, 1.0)
    result = by_ladder(tb.families.linear(0.7), data, tolerance=0.3, method=tb.Multilevel(), seed=5)
    assert not result.posterior.laplace
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    found = result.posterior.quantile([0.16, 0.84])
    assert np.all(errors_off(found, np.concatenate([mean - 0.99446 * sd, mean + 0.99446 * sd])) < 5)
    chance = result.posterior.probability("[0]", above=float(mean[0]))
    assert errors_off(chance, 0.5) < 5


def test_a_stored_posterior_gives_the_same_numbers(result: tb.Result, tmp_path) -> None:
    result.save(tmp_path / "result")
    loaded = tb.load(tmp_path / "result").posterior
    for ask in (
        lambda p: p.quantile([0.1, 0.9]),
        lambda p: p.probability("[0]", above=1.0),
        lambda p: p.expectation(lambda theta: jnp.exp(theta)),
    ):
        before, after = ask(result.posterior), ask(loaded)
        np.testing.assert_allclose(before.flat_value, after.flat_value, rtol=1e-12)
        np.testing.assert_allclose(before.flat_standard_error, after.flat_standard_error, rtol=1e-9)


@pytest.mark.slow
def test_constrained_parameters_are_stored_too(tmp_path) -> None:
    """A positive one is a curved line: its quantiles are those of its logarithm, exponentiated."""
    rng = np.random.default_rng(1)
    model = tb.Model(
        log_prior=lambda t: -0.5 * t["mean"] ** 2 - t["scale"] - t["shares"][0],
        log_likelihood=lambda t, row: -0.5 * ((row - t["mean"]) / t["scale"]) ** 2 - jnp.log(t["scale"]),
        initial={"mean": 0.0, "scale": 1.0, "shares": np.full(3, 1 / 3)},
        constraints={"scale": tb.constraints.positive, "shares": tb.constraints.simplex},
    )
    result = by_ladder(model, rng.normal(1.0, 2.0, 400), tolerance=0.2)
    result.save(tmp_path / "result")
    loaded = tb.load(tmp_path / "result")
    assert result.posterior.labels == ["mean", "scale", "shares[0]", "shares[1]", "shares[2]"]
    before, after = (each.posterior.quantile([0.025, 0.975], first=2) for each in (result, loaded))
    np.testing.assert_allclose(before.flat_value, after.flat_value, rtol=1e-9)
    line = loaded.posterior.reading.line(1)
    assert not line.is_straight
    assert loaded.posterior.reading.line(2) is None
    by_function = loaded.posterior.quantile(0.975, lambda t: t["scale"])
    assert before.flat_value[3] == pytest.approx(by_function.value, abs=5 * by_function.flat_error[0])
    total = loaded.posterior.expectation(lambda t: t["shares"].sum())
    assert total.value == pytest.approx(1.0, abs=1e-9)
    drawn, level = loaded.posterior.draws(50)
    assert drawn.shape == (50, 5)
    np.testing.assert_allclose(drawn[:, 2:].sum(axis=1), 1.0, atol=1e-9)
    assert level[0] == len(result.levels) - 1


def test_a_posterior_that_only_its_process_can_read_says_so(posterior: Posterior) -> None:
    alone = replace(posterior, live=None)
    with pytest.raises(tb.InputError, match="a posterior that knows its parameters"):
        alone.quantile(0.5)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: p.quantile(0.0), "strictly between 0 and 1"),
        (lambda p: p.quantile([0.5, 1.0]), "strictly between 0 and 1"),
        (lambda p: p.quantile(0.5, "nobody"), "the name of a parameter"),
        (lambda p: p.interval(2), "strictly between 0 and 1"),
        (lambda p: p.probability("[0]"), "above= or below="),
        (lambda p: p.probability(lambda theta: theta[0]), "or an event"),
        (lambda p: p.probability("[0]", above=2, below=1), "above < below"),
        (lambda p: p.probability(lambda theta: theta, above=1), "one number"),
        (lambda p: p.density([0.0], lambda theta: theta[0] ** 2), "linear in the parameters"),
        (lambda p: p.expectation(lambda theta: "text"), "expectation"),
    ],
)
def test_what_cannot_be_asked(posterior: Posterior, ask, message: str) -> None:
    with pytest.raises(tb.TallbayesError, match=message):
        ask(posterior)


def test_it_is_left_out_by_request() -> None:
    result = by_ladder(tb.families.logistic(SCALE), rows(), tolerance=0.5, keep_posterior=False)
    assert result.posterior is None
    assert np.isnan(result.coefficients()[0].lower.value)
    with pytest.raises(tb.InputError, match="keep_posterior"):
        result.predict(rows()["x"])
