"""Responses of models of one's own, and of NumPyro models unchanged: their law, their checks, and average effects."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from clubs import SCALE, closed_form, gaussian_rows

import tallbayes as tb
from tallbayes.errors import ModelError

DRAWS = 200
FAR = 5.0


def counts() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    return {"x": x, "y": rng.poisson(np.exp(0.5 + 0.4 * x)).astype(float)}


def mean(theta: Any, row: Any) -> Any:
    return jnp.exp(theta[0] + theta[1] * row["x"])


def poisson(**options: Any) -> tb.Model:
    return tb.Model(
        log_prior=lambda theta: -0.5 * jnp.sum(theta**2),
        log_likelihood=lambda theta, row: row["y"] * jnp.log(mean(theta, row)) - mean(theta, row),
        initial=np.zeros(2),
        **options,
    )


def drawn(key: Any, theta: Any, row: Any) -> Any:
    return jax.random.poisson(key, mean(theta, row))


@pytest.fixture(scope="module")
def own() -> tb.Result:
    return tb.estimate(poisson(simulate=drawn, predict=mean), counts(), tolerance=0.05)


def test_responses_have_the_law_of_their_function(own: tb.Result) -> None:
    """Mean and variance of each of 400 rows over 200 draws, as chi-squares whose sds are 5% and 7%: five of them."""
    parts = list(own.simulate(draws=DRAWS).batches())
    y, expected = (np.concatenate([getattr(each, name) for each in parts], axis=1) for name in ("y", "mean"))
    assert y.shape == (DRAWS, 400)
    z = (y.mean(axis=0) - expected.mean(axis=0)) / np.sqrt(expected.mean(axis=0) / DRAWS)
    assert abs(np.mean(z**2) - 1) < FAR * np.sqrt(2 / 400)
    assert abs(np.mean((y - expected) ** 2 / expected) - 1) < FAR * 0.02
    assert np.abs(np.corrcoef(y.T[:20])[np.triu_indices(20, 1)]).mean() < 0.1
    np.testing.assert_array_equal(np.concatenate([each.batch.observed for each in parts]), counts()["y"])
    again = np.concatenate(list(own.simulate(draws=DRAWS)), axis=1)
    np.testing.assert_array_equal(y, again)
    given = np.concatenate(list(own.simulate(counts(), draws=DRAWS)), axis=1)
    np.testing.assert_array_equal(given, y)
    assert np.any(np.concatenate(list(own.simulate(draws=DRAWS, seed=1)), axis=1) != y)


def test_what_fits_is_not_far_out_and_what_does_not_is(own: tb.Result) -> None:
    found = {each.name: each for each in own.checks(draws=DRAWS)}
    assert list(found) == ["mean", "zeros", "dispersion", "max"]
    for check in found.values():
        assert 0.005 < check.p_value[0] < 0.995
    rng = np.random.default_rng(5)
    scattered = counts() | {
        "y": rng.poisson(np.exp(0.5 + 0.4 * counts()["x"]) * rng.gamma(1.0, 1.0, 400)).astype(float)
    }
    assert own.check("dispersion", scattered, draws=DRAWS).p_value[0] == 0
    late = own.check(lambda y, rows: (y > 3) & (rows["x"] > 0), draws=DRAWS)
    assert 0.005 < late.p_value[0] < 0.995


def test_functions_that_are_none_are_told() -> None:
    asked = {"tolerance": 0.5, "max_evaluations": 1e5}
    two: Any = tb.estimate(poisson(simulate=lambda key, theta, row: theta), counts(), **asked)
    with pytest.raises(ModelError, match="one number a row"):
        next(iter(two.simulate(draws=5)))
    without: Any = tb.estimate(poisson(simulate=drawn, response="count"), counts(), **asked)
    with pytest.raises(tb.InputError, match="the response that was seen"):
        without.checks()


def test_groups_are_known_by_their_effects() -> None:
    """y ~ N(b, 0.5^2): a replicated mean of a club has that of its effect, and its variance beside the noise's."""
    model = tb.Model(
        log_prior=lambda theta: -0.5 * theta**2,
        log_likelihood=lambda theta, b, row: -0.5 * ((row["y"] - b) / 0.5) ** 2,
        initial=0.0,
        groups=tb.Groups("club", 0.0, lambda theta, b: -0.5 * ((b - theta) / SCALE) ** 2),
        simulate=lambda key, theta, b, row: b + 0.5 * jax.random.normal(key),
        predict=lambda theta, b, row: b,
    )
    result: Any = tb.estimate(model, gaussian_rows(), tolerance=0.05)
    parts = list(result.simulate(draws=1_000).batches())
    y = np.concatenate([each.y for each in parts], axis=1)
    club = np.concatenate([each.batch.groups for each in parts])
    exact, covariance = closed_form()
    for place, name in enumerate(np.unique(club), 1):
        own = y[:, club == name].mean(axis=1)
        variance = covariance[place, place] + 0.25 / np.sum(club == name)
        assert abs(own.mean() - exact[place]) < FAR * np.sqrt(variance / 1_000)
        assert abs(own.var() / variance - 1) < FAR * np.sqrt(2 / 1_000)
    check = result.check("groups", draws=100)
    assert len(check.labels) == len(np.unique(club))
    assert np.all((check.p_value > 0.005) & (check.p_value < 0.995))


numpyro = pytest.importorskip("numpyro")
dist = pytest.importorskip("numpyro.distributions")


def test_a_numpyro_model_draws_from_its_own_sites() -> None:
    rows = counts()

    def model(x: Any, y: Any) -> None:
        level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", len(x)):
            numpyro.sample("count", dist.Poisson(jnp.exp(level + slope * x)), obs=y)

    result: Any = tb.estimate(*tb.from_numpyro(model, rows["x"], rows["y"]), tolerance=0.05)
    check = result.check("zeros", draws=DRAWS)
    assert check.observed[0] == np.mean(rows["y"] == 0)
    assert 0.005 < check.p_value[0] < 0.995
    (batch,) = result.simulate(draws=DRAWS).batches()
    theta = result.draws(DRAWS).value
    expected = np.exp(theta["level"][:, None] + theta["slope"][:, None] * rows["x"])
    np.testing.assert_allclose(batch.mean, expected, rtol=1e-6)
    assert abs(np.mean((batch.y - expected) ** 2 / expected) - 1) < FAR * 0.02
    effect = result.average_effect("x", 1.0, 0.0)
    own = (np.exp(theta["level"] + theta["slope"]) - np.exp(theta["level"])).mean()
    assert abs(effect.mean.value - own) < FAR * effect.sd.value / np.sqrt(DRAWS)


@pytest.mark.slow
def test_a_numpyro_model_with_groups_draws_given_their_effects() -> None:
    table = gaussian_rows()
    club = np.unique(table["club"], return_inverse=True)[1]

    def model(club: Any, y: Any) -> None:
        middle = numpyro.sample("middle", dist.Normal(0.0, 1.0))
        with numpyro.plate("clubs", 6):
            effect = numpyro.sample("effect", dist.Normal(middle, SCALE))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Normal(effect[club], 0.5), obs=y)

    result: Any = tb.estimate(*tb.from_numpyro(model, club, table["y"]), tolerance=0.05)
    parts = list(result.simulate(draws=1_000).batches())
    y = np.concatenate([each.y for each in parts], axis=1)
    groups = np.concatenate([each.batch.groups for each in parts])
    exact, covariance = closed_form()
    for place in range(6):
        own = y[:, groups == place].mean(axis=1)
        variance = covariance[place + 1, place + 1] + 0.25 / 4
        assert abs(own.mean() - exact[place + 1]) < FAR * np.sqrt(variance / 1_000)
        assert abs(own.var() / variance - 1) < FAR * np.sqrt(2 / 1_000)
