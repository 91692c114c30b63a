"""Shrinkage priors against quadrature, NumPyro's NUTS, and what they say where they cannot answer.

A z-score is the difference to a reference in stated standard errors, and t_63 at the most. Tests with exact references
look at up to 30 scores at a time: 6.5 is passed by chance once in a million runs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact_shrinkage import Moments, horseshoe, r2d2_of_two
from exact_shrinkage import logistic_horseshoe as of_logistic

import tallbayes as tb
from tallbayes.shrinkage import rounds
from tallbayes.shrinkage.assessment import WeighedSweeps

LIMIT = 6.5
NUMBERS = ("mean", "sd", "kept", "effective_nonzero")


def straight_rows(columns: int, slopes: list[float], size: int = 200) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Rows of orthogonal columns with normal noise of sd 1: least squares, and its errors."""
    rng = np.random.default_rng(columns)
    x = np.linalg.qr(rng.standard_normal((size, columns)))[0] * np.sqrt(size)
    y = x[:, : len(slopes)] @ slopes + rng.standard_normal(size)
    return {"x": x, "y": y}, x.T @ y / size, np.full(columns, size**-0.5)


def scores(result: tb.Result, exact: Moments, shared: str) -> np.ndarray:
    parts = [exact.mean, exact.sd, exact.kept, [exact.kept.sum()], [exact.shared, exact.shared_sd]]
    names = (*NUMBERS, shared)
    value, error = (
        np.concatenate([getattr(result[each], part) for each in names])
        for part in ("flat_value", "flat_standard_error")
    )
    return np.abs(value - np.concatenate(parts)) / error


STRAIGHT = tb.families.linear(noise_scale=1.0, priors={"coefficients": tb.priors.horseshoe()})
SLOPES = [0.6, 0.2, -0.1]
CASES: dict[str, tuple[int, Any, Any, str]] = {
    "horseshoe": (6, tb.priors.horseshoe(0.5), lambda b, s: horseshoe(b, s, 0.5), "log_global_scale"),
    "slab": (
        6,
        tb.priors.regularised_horseshoe(0.5, 4.0, scale=0.2),
        lambda b, s: horseshoe(b, s, 0.2, (0.5, 4.0)),
        "log_global_scale",
    ),
    "R2D2, few shares": (2, tb.priors.r2d2(0.3, 1.0), lambda b, s: r2d2_of_two(b, s, 0.3, 0.7, 0.5, 1.0), "R2"),
    "R2D2, many": (2, tb.priors.r2d2(0.5, 6.0), lambda b, s: r2d2_of_two(b, s, 3.0, 3.0, 0.5, 1.0), "R2"),
}


@cache
def run(name: str, seed: int = 0, tolerance: float = 0.1) -> tuple[tb.Result, Moments, str]:
    columns, prior, exact, shared = CASES[name]
    rows, b, s = straight_rows(columns, SLOPES[: columns // 2])
    result = tb.estimate(
        tb.families.linear(noise_scale=1.0, priors={"coefficients": prior}), rows, tolerance=tolerance, seed=seed
    )
    return result, exact(b, s), shared


@pytest.mark.parametrize("name", CASES)
def test_chains_are_right_where_a_quadrature_is(name: str) -> None:
    result, exact, shared = run(name)
    assert result.converged
    assert scores(result, exact, shared).max() < LIMIT
    off = np.abs(result["mean"].value - exact.mean) / exact.sd
    assert off.max() < 0.1 * 4


def test_a_prior_that_is_another_is_seen() -> None:
    """The control of the test before: half the global scale, or no slab."""
    result, _, shared = run("horseshoe")
    _, b, s = straight_rows(6, SLOPES)
    assert scores(result, horseshoe(b, s, 0.25), shared).max() > LIMIT
    result, _, shared = run("slab")
    assert scores(result, horseshoe(b, s, 0.2), shared).max() > LIMIT


@cache
def few_rows() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((30, 2))
    return {"x": x, "y": (rng.random(30) < 1 / (1 + np.exp(-2.5 * x[:, 0]))).astype(float)}


def few_scores(result: tb.Result) -> np.ndarray:
    mean, sd = of_logistic(few_rows()["x"], few_rows()["y"], 1.0)
    return np.concatenate(
        [
            np.abs(result[name].value - exact) / result[name].flat_standard_error
            for name, exact in (("mean", mean), ("sd", sd))
        ]
    )


def test_weights_make_up_for_a_likelihood_that_is_not_gaussian(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 rows, whose likelihood is far from its Gaussian; the control leaves the weights out."""
    model = tb.families.logistic(priors={"coefficients": tb.priors.horseshoe()})
    result = tb.estimate(model, few_rows(), tolerance=0.05)
    assert result.converged
    assert few_scores(result).max() < LIMIT

    def equal(run: rounds.Shrinking, draws: np.ndarray) -> np.ndarray:
        return np.zeros(draws.shape[:-1])

    monkeypatch.setattr(rounds.Shrinking, "log_weights_of", equal)
    unweighted = tb.estimate(model, few_rows(), tolerance=0.05)
    assert unweighted.converged
    assert few_scores(unweighted).max() > LIMIT


def test_the_same_seed_has_the_same_bits_and_extends_to_those_of_one_call() -> None:
    rough, fine = run("horseshoe", 1, 0.1)[0], run("horseshoe", 1, 0.04)[0]
    again = run.__wrapped__("horseshoe", 1, 0.1)[0]
    assert np.array_equal(rough["mean"].flat_value, again["mean"].flat_value)
    extended = rough.extend(tolerance=0.04)
    assert extended.converged
    assert np.all(extended["mean"].flat_error <= extended["mean"].flat_tolerance)
    assert np.allclose(extended["mean"].value, fine["mean"].value, atol=5 * 0.04 * fine["sd"].value)
    assert not np.array_equal(run("horseshoe", 2, 0.1)[0]["mean"].flat_value, rough["mean"].flat_value)


@cache
def poisson() -> tb.Result:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((400, 5))
    y = rng.poisson(np.exp(0.3 + 0.5 * x[:, 0]))
    prior = tb.priors.regularised_horseshoe(expected_nonzero=1)
    model = tb.families.poisson(priors={"coefficients": prior}, intercept_scale=2.5)
    return tb.estimate(model, {"x": x, "y": y}, tolerance=0.1)


def test_a_result_answers_as_others_do(tmp_path: Path) -> None:
    result = poisson()
    assert result.converged
    text = result.summary()
    assert "regularised horseshoe, about 1 coefficients expected" in text
    assert "global scale" in text
    assert "mixing" in text
    assert result["kept"].value[0] > 0.9
    predicted = result.predict(np.zeros((1, 5)))
    exact = result.posterior.expectation(lambda theta: np.e ** theta["intercept"])
    assert np.allclose(predicted.mean, exact.value, rtol=0.01)
    lower, upper = result.posterior.interval()
    assert np.all(lower.value["coefficients"] < result["mean"].value["coefficients"])
    assert np.all(upper.value["coefficients"] > result["mean"].value["coefficients"])
    drawn = result.draws(500)
    # Of 500 draws by chains: five standard errors of a mean, twice for what they share.
    near = np.abs(drawn.flat.mean(axis=0) - result["mean"].flat_value) < 10 * result["sd"].flat_value / 500**0.5
    assert near.all()
    result.save(tmp_path / "result")
    stored = tb.load(tmp_path / "result")
    assert np.array_equal(stored["kept"].value, result["kept"].value)
    assert stored.summary().split("\n")[2:12] == text.split("\n")[2:12]
    assert len(stored.draws(100)) == 100


@pytest.mark.parametrize("ask", ["evidence", "loo", "sensitivity"])
def test_what_needs_the_density_of_the_prior_says_so(ask: str) -> None:
    with pytest.raises(tb.InputError, match="shrinkage prior"):
        getattr(poisson(), ask)()


def test_a_budget_holds_and_what_there_is_is_told() -> None:
    rows, _, _ = straight_rows(6, SLOPES)
    model = STRAIGHT
    short = tb.estimate(model, rows, tolerance=1e-4, max_seconds=2.0)
    assert short.status is tb.Status.max_seconds
    assert str(short)
    assert short.summary()
    assert not np.any(short["mean"].flat_error <= short["mean"].flat_tolerance)
    at_once = tb.estimate(model, rows, tolerance=1e-4, max_seconds=1e-3)
    assert at_once.status is tb.Status.max_seconds
    assert str(at_once)
    assert at_once.summary()
    binary = {"x": rows["x"], "y": (rows["y"] > 0).astype(float)}
    model = tb.families.logistic(priors={"coefficients": tb.priors.horseshoe()})
    few = tb.estimate(model, binary, tolerance=0.01, max_evaluations=2e5)
    assert few.status is tb.Status.max_evaluations
    assert few.cost.evaluations <= 4e5


def test_chains_that_do_not_agree_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains of one half are given another mean than those of the other."""
    rows, _, _ = straight_rows(6, SLOPES)
    monkeypatch.setattr(rounds, "MOST_UNMIXED", 24)
    settled = rounds.Shrinking.sweep

    def stuck(self: rounds.Shrinking, segments: int) -> None:
        settled(self, segments)
        apart = np.where(np.arange(64) % 2 == 0, 0.0, 1.0)[:, None]
        self.segments[:] = [replace(each, means=each.means + apart) for each in self.segments]

    monkeypatch.setattr(rounds.Shrinking, "sweep", stuck)
    model = STRAIGHT
    result = tb.estimate(model, rows, tolerance=0.1)
    assert result.status is tb.Status.chains_apart
    assert not np.isfinite(result["mean"].flat_error).any()
    assert "do not use these numbers" in result.summary()


def test_weights_of_a_few_draws_are_trouble() -> None:
    """A draw with most of the weight; and weights that hardly differ, whatever their tail."""
    values = np.zeros((8, 64, 1))
    heavy = np.zeros((8, 64))
    heavy[3, 5] = 6.0
    assert "worth 1%" in WeighedSweeps(heavy, values).trouble
    even = 0.01 * np.random.default_rng(0).standard_t(2, (8, 64))
    assert WeighedSweeps(even, values).trouble == ""


BAD: list[tuple[Any, str]] = [
    (lambda: tb.priors.horseshoe(0.0), "scale > 0"),
    (lambda: tb.priors.horseshoe(np.inf), "scale > 0"),
    (lambda: tb.priors.regularised_horseshoe(slab_df=-1), "slab_df > 0"),
    (lambda: tb.priors.r2d2(mean_R2=1.0), "mean_R2 between 0 and 1"),
    (lambda: tb.families.multinomial(3, priors={"coefficients": tb.priors.horseshoe()}), "one linear predictor"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_priors_are_refused(make: Any, message: str) -> None:
    with pytest.raises(tb.InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": tb.Anchored()}, "no method beside a shrinkage prior"),
        ({"ledger": "book"}, "no ledger"),
        ({"quantities": {"first": lambda theta: theta[0]}}, "expectation"),
        ({"quantities": ["median"]}, "median"),
        ({"tolerance": {"mean": 0.1}}, "a tolerance for each"),
    ],
)
def test_what_has_no_place_beside_them_is_refused(options: dict[str, Any], message: str) -> None:
    rows, _, _ = straight_rows(2, [0.3])
    with pytest.raises(tb.InputError, match=message):
        tb.estimate(
            tb.families.linear(noise_scale=1.0, priors={"coefficients": tb.priors.horseshoe()}),
            rows,
            **{"tolerance": 0.1} | options,
        )


def test_more_are_not_expected_than_there_are() -> None:
    rows, _, _ = straight_rows(2, [0.3])
    model = tb.families.linear(
        noise_scale=1.0, priors={"coefficients": tb.priors.regularised_horseshoe(expected_nonzero=2)}
    )
    with pytest.raises(tb.InputError, match="expected_nonzero below the 2 columns"):
        tb.estimate(model, rows, tolerance=0.1)


def test_other_doors_do_not_take_them_for_flat_priors() -> None:
    rows, _, _ = straight_rows(2, [0.3])
    model = STRAIGHT
    with pytest.raises(tb.InputError, match="a density of the prior"):
        tb.baselines.mala(model, rows)


def test_interval_ends_have_their_tolerance() -> None:
    rows, _, _ = straight_rows(2, [0.3])
    model = STRAIGHT
    result = tb.estimate(model, rows, tolerance=0.1, interval_tolerance=0.1)
    assert result.converged
    assert "every interval end to 0.1 sd" in result.summary()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_intervals_cover_over_seeds(name: str) -> None:
    """40 seeds. Numbers of a run hang together, so that a run counts as one: its share of covered numbers averages
    0.95, with an sd of at most 0.22; five standard errors below is 0.77. And errors are as large as is said: of 40
    seeds the mean square of z exceeds 2.3 less than once in a million (chi^2_40)."""
    found = []
    for seed in range(40):
        result, exact, shared = run.__wrapped__(name, seed, 0.1)
        assert result.converged
        found.append(scores(result, exact, shared))
    z = np.array(found)
    assert np.mean(z < 2.0) > 0.77
    assert np.mean(z**2, axis=0).max() < 2.3


def test_rows_on_disk_are_read(tmp_path: Path) -> None:
    rows, _, _ = straight_rows(6, SLOPES)
    stored = tb.write_table(tmp_path / "table", rows)
    model = tb.families.linear(noise_scale=1.0, priors={"coefficients": CASES["horseshoe"][1]})
    found = tb.estimate(model, stored, tolerance=0.1)
    _, exact, shared = run("horseshoe")
    assert scores(found, exact, shared).max() < LIMIT
